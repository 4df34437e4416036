//! One connection, for threads that wait.
//!
//! The client is asynchronous. A runtime on a thread of its own drives it, so a call may be made from
//! anywhere, an asynchronous task included (see `docs/adr/0012-a-store-may-be-far-away.md`). A statement
//! is unnamed, so that poolers may hand a connection on after each transaction, unless the address says
//! that there is none.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Socket, Statement};

use crate::hosts::connect_to_any;
use crate::query_error::QueryError;
use crate::server::PostgresServer;
use crate::tls::Tls;

/// A value in place of `$N`, with its type.
pub(crate) type SqlParameter = (Box<dyn ToSql + Sync + Send>, Type);

/// Drives all connections of the process.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("postgres");
    builder.enable_all().build()
});

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Arc<Client>,
    /// The longest wait for an answer.
    limit: Duration,
    /// True once the server has warned that what it answers may not be on its standby.
    is_warned: Arc<AtomicBool>,
    /// What the server has parsed, by text; `None` where a pooler may be between.
    prepared: Option<Arc<Mutex<HashMap<String, Statement>>>>,
}

/// The most statements that are prepared on a connection: more than there are.
const MAX_PREPARED: usize = 128;

/// The prepared statement of a text.
async fn prepared(
    client: &Client,
    known: &Mutex<HashMap<String, Statement>>,
    text: &str,
    types: &[Type],
) -> Result<Statement, tokio_postgres::Error> {
    let mut known = known.lock().await;
    if let Some(statement) = known.get(text) {
        return Ok(statement.clone());
    }
    let statement = client.prepare_typed(text, types).await?;
    if known.len() < MAX_PREPARED {
        known.insert(text.to_owned(), statement.clone());
    }
    Ok(statement)
}

/// Runs something on the runtime of the connections, and waits for it, for this time at most.
fn wait<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send + 'static,
) -> Result<T, QueryError> {
    let runtime = RUNTIME.as_ref().map_err(|_| QueryError::Late)?;
    let (give, taken) = sync_channel(1);
    runtime.spawn(async move {
        // The thread that asked waits for this.
        let _ = give.send(timeout(limit, work).await);
    });
    match taken.recv() {
        Ok(Ok(answered)) => answered.map_err(|error| QueryError::of(&error)),
        Ok(Err(_)) | Err(_) => Err(QueryError::Late),
    }
}

/// Connects, and notes warnings of the server from then on.
async fn connect<T>(
    config: Config,
    tls: T,
    warned: Arc<AtomicBool>,
) -> Result<Client, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|task| connection.poll_message(task)).await {
            if let AsyncMessage::Notice(notice) = message
                && *notice.code() == SqlState::WARNING
            {
                warned.store(true, Ordering::SeqCst);
            }
        }
    });
    Ok(client)
}

impl Connection {
    /// Connects. Neither this nor an answer may take longer than the limit.
    pub(crate) fn open(server: &PostgresServer, limit: Duration) -> Result<Self, QueryError> {
        let is_warned = Arc::new(AtomicBool::new(false));
        let (config, warned) = (server.config.clone(), Arc::clone(&is_warned));
        let client = match config.get_ssl_mode() {
            SslMode::Disable => {
                let one = move |config| connect(config, NoTls, Arc::clone(&warned));
                wait(limit, async move { connect_to_any(&config, one).await })?
            }
            _ => {
                let tls = Tls::new(server.authorities.as_deref())?;
                let one = move |config| connect(config, tls.clone(), Arc::clone(&warned));
                wait(limit, async move { connect_to_any(&config, one).await })?
            }
        };
        Ok(Self {
            client: Arc::new(client),
            limit,
            is_warned,
            prepared: server.is_direct.then(Arc::default),
        })
    }

    /// True if nothing can be asked any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns `true` if the server has warned since this was asked last.
    pub(crate) fn take_warning(&self) -> bool {
        self.is_warned.swap(false, Ordering::SeqCst)
    }

    /// Runs one statement, by itself a transaction; gives its rows.
    pub(crate) fn query(
        &self,
        text: impl Into<String>,
        parameters: Vec<SqlParameter>,
    ) -> Result<Vec<Row>, QueryError> {
        let (client, text) = (Arc::clone(&self.client), text.into());
        let known = self.prepared.clone();
        wait(self.limit, async move {
            if let Some(known) = known {
                let types = parameters.iter().map(|(_, kind)| kind.clone());
                let types: Vec<Type> = types.collect();
                let statement = prepared(&client, &known, &text, &types).await?;
                let values = parameters.iter();
                let values = values.map(|(value, _)| value.as_ref() as &(dyn ToSql + Sync));
                return client.query(&statement, &values.collect::<Vec<_>>()).await;
            }
            let given = parameters.iter();
            let given: Vec<(&(dyn ToSql + Sync), Type)> = given
                .map(|(value, kind)| (value.as_ref() as &(dyn ToSql + Sync), kind.clone()))
                .collect();
            client.query_typed(&text, &given).await
        })
    }

    /// Runs several statements without parameters, in one message: one transaction, unless they say
    /// otherwise.
    pub(crate) fn run(&self, text: impl Into<String>) -> Result<(), QueryError> {
        let (client, text) = (Arc::clone(&self.client), text.into());
        wait(self.limit, async move { client.batch_execute(&text).await })
    }
}
