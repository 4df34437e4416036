//! One connection, for threads that wait.
//!
//! The client is asynchronous. A runtime on a thread of its own drives it, so a call may be made from
//! anywhere, an asynchronous task included (see `docs/adr/0012-a-store-may-be-far-away.md`). Every
//! statement is unnamed: poolers that hand a connection on after each transaction do not mind.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ktsu_ledger::store::StoreError;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row};

/// The longest wait for an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What is said where there is no answer in that time.
const LATE: &str = "there was no answer in time";

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
    /// True once the server has warned that what it answers may not be on its standby.
    is_warned: Arc<AtomicBool>,
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum QueryError {
    /// The server refused it: nothing of it is stored.
    Refused(SqlState),
    /// The connection ended.
    Lost(&'static str),
    /// There was no answer in time.
    Late,
}

impl QueryError {
    fn of(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            // The server ends the connection: what was sent may have been stored.
            Some(&SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN) => {
                Self::Lost("the server ended the connection")
            }
            Some(code) => Self::Refused(code.clone()),
            None => Self::Lost("the connection ended"),
        }
    }

    /// As an error of a store that was only asked.
    pub(crate) fn reading(self, doing: &'static str) -> StoreError {
        match self {
            Self::Refused(code) => refused(doing, &code),
            Self::Lost(why) => StoreError::failed(doing, why),
            Self::Late => StoreError::failed(doing, LATE),
        }
    }

    /// As an error of a store that was to change something.
    pub(crate) fn writing(self, doing: &'static str) -> StoreError {
        match self {
            Self::Refused(code) => refused(doing, &code),
            Self::Lost(why) => StoreError::Unknown(why.to_owned()),
            Self::Late => StoreError::Unknown(LATE.to_owned()),
        }
    }
}

/// What the server refused, in our words.
fn refused(doing: &'static str, code: &SqlState) -> StoreError {
    let why = match *code {
        SqlState::UNDEFINED_TABLE => "it has no tables of a ledger",
        SqlState::INSUFFICIENT_PRIVILEGE => "the role may not do that",
        SqlState::DISK_FULL => "the disk of the server is full",
        SqlState::READ_ONLY_SQL_TRANSACTION => "the server only reads: it is a standby",
        SqlState::TOO_MANY_CONNECTIONS => "the server has too many connections",
        SqlState::CANNOT_CONNECT_NOW => "the server is starting or stopping",
        _ => return StoreError::failed(doing, format!("the server refuses ({})", code.code())),
    };
    StoreError::failed(doing, why)
}

/// Runs something on the runtime of the connections, and waits for it; `None` if it takes too long,
/// and is given up then.
fn wait<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let runtime = RUNTIME.as_ref().ok()?;
    let (give, taken) = sync_channel(1);
    runtime.spawn(async move {
        // The thread that asked waits for this.
        let _ = give.send(timeout(limit, work).await);
    });
    taken.recv().ok()?.ok()
}

impl Connection {
    /// Connects.
    pub(crate) fn open(config: &Config) -> Result<Self, QueryError> {
        let is_warned = Arc::new(AtomicBool::new(false));
        let (config, warned) = (config.clone(), Arc::clone(&is_warned));
        let connected = wait(ANSWER_TIMEOUT, async move {
            let (client, mut connection) = config.connect(NoTls).await?;
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|task| connection.poll_message(task)).await {
                    if let AsyncMessage::Notice(notice) = message
                        && *notice.code() == SqlState::WARNING
                    {
                        warned.store(true, Ordering::SeqCst);
                    }
                }
            });
            Ok::<Client, tokio_postgres::Error>(client)
        });
        let client = connected.ok_or(QueryError::Late)?;
        let client = client.map_err(|error| QueryError::of(&error))?;
        Ok(Self {
            client: Arc::new(client),
            is_warned,
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
        let answered = wait(ANSWER_TIMEOUT, async move {
            let given = parameters.iter();
            let given: Vec<(&(dyn ToSql + Sync), Type)> = given
                .map(|(value, kind)| (value.as_ref() as &(dyn ToSql + Sync), kind.clone()))
                .collect();
            client.query_typed(&text, &given).await
        });
        match answered {
            Some(answered) => answered.map_err(|error| QueryError::of(&error)),
            None => Err(QueryError::Late),
        }
    }

    /// Runs several statements without parameters, in one message: one transaction, unless they say otherwise.
    pub(crate) fn run(&self, text: impl Into<String>) -> Result<(), QueryError> {
        let (client, text) = (Arc::clone(&self.client), text.into());
        let answered = wait(
            ANSWER_TIMEOUT,
            async move { client.batch_execute(&text).await },
        );
        match answered {
            Some(answered) => answered.map_err(|error| QueryError::of(&error)),
            None => Err(QueryError::Late),
        }
    }
}
