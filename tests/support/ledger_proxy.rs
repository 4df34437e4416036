//! A proxy between an owner and the server of its ledger, which holds an append at a named point.
//!
//! What it knows of the protocol: a client sends messages with a tag and a length, and some tags end
//! what belongs together. An append is known by its statement, and its frames by their types.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream, tcp, unix};
use tokio::sync::watch;

use super::guarded;

/// What an append has, and nothing else that an owner sends.
const APPEND: &[u8] = b"INSERT INTO frames (pos";
/// The tags that end what a client sends at once: a query, a sync, an end.
const ENDS: [u8; 3] = *b"QSX";

/// Where an append is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendPoint {
    /// Before anything of it has reached the server.
    Unsent,
    /// After half of it has.
    Halved,
    /// After the server has stored it and answered, and before the owner gets the answer.
    Stored,
}

/// See the module documentation. It stops with its runtime.
pub(crate) struct LedgerProxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    /// The socket of the server.
    server: PathBuf,
    /// The next append to hold: the type of a frame in it, and where.
    next: Mutex<Option<(&'static str, AppendPoint)>>,
    /// The size of the append that is held. Nothing else passes meanwhile.
    held: watch::Sender<Option<usize>>,
}

/// A connection of the owner.
struct Link {
    shared: Arc<Shared>,
    /// The size of an append whose answer is to be held.
    awaited: Mutex<Option<usize>>,
    is_greeted: AtomicBool,
}

impl LedgerProxy {
    pub(crate) async fn new(server: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            next: Mutex::default(),
            held: watch::Sender::default(),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, Arc::clone(&accepting)));
            }
        });
        Self { port, shared }
    }

    /// Holds the next append with a frame of this type.
    pub(crate) fn hold(&self, kind: &'static str, point: AppendPoint) {
        *self.shared.next.lock().unwrap() = Some((kind, point));
    }

    /// Waits until it is held; its size in bytes.
    pub(crate) async fn until_held(&self) -> usize {
        let mut held = self.shared.held.subscribe();
        let waiting = held.wait_for(Option::is_some);
        guarded("an append", waiting).await.unwrap().unwrap()
    }

    /// Lets everything pass from now on.
    pub(crate) fn release(&self) {
        self.shared.held.send_replace(None);
    }
}

impl Shared {
    /// Waits until something may pass.
    async fn pass(&self) {
        let mut held = self.held.subscribe();
        drop(held.wait_for(Option::is_none).await);
    }

    /// Holds an append until it is released.
    async fn keep(&self, size: usize) {
        self.held.send_replace(Some(size));
        self.pass().await;
    }

    /// Where to hold what was sent, if it is waited for.
    fn point(&self, sent: &[u8]) -> Option<AppendPoint> {
        let mut next = self.next.lock().unwrap();
        let (kind, point) = (*next)?;
        let kind = format!("\"type\":\"{kind}\"");
        let has = |part: &[u8]| sent.windows(part.len()).any(|found| found == part);
        (has(APPEND) && has(kind.as_bytes())).then(|| {
            *next = None;
            point
        })
    }
}

/// Passes on what an owner and the server send, until either closes the connection.
async fn relay(client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = UnixStream::connect(&shared.server).await else {
        return;
    };
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let link = Link {
        shared,
        awaited: Mutex::default(),
        is_greeted: AtomicBool::new(false),
    };
    tokio::select! {
        _ = link.ask(from_client, to_server) => {}
        _ = link.answer(from_server, to_client) => {}
    }
}

impl Link {
    async fn ask(
        &self,
        mut client: tcp::OwnedReadHalf,
        mut server: unix::OwnedWriteHalf,
    ) -> std::io::Result<()> {
        loop {
            let sent = self.read(&mut client).await?;
            self.shared.pass().await;
            match self.shared.point(&sent) {
                None => server.write_all(&sent).await?,
                Some(AppendPoint::Unsent) => {
                    self.shared.keep(sent.len()).await;
                    server.write_all(&sent).await?;
                }
                Some(AppendPoint::Halved) => {
                    let (first, second) = sent.split_at(sent.len() / 2);
                    server.write_all(first).await?;
                    self.shared.keep(sent.len()).await;
                    server.write_all(second).await?;
                }
                Some(AppendPoint::Stored) => {
                    *self.awaited.lock().unwrap() = Some(sent.len());
                    server.write_all(&sent).await?;
                }
            }
        }
    }

    /// What the client sends at once. Its first message has no tag.
    async fn read(&self, client: &mut tcp::OwnedReadHalf) -> std::io::Result<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            let is_first = !self.is_greeted.swap(true, Ordering::SeqCst);
            let tag = match is_first {
                true => None,
                false => Some(client.read_u8().await?),
            };
            let size = client.read_u32().await?;
            let mut rest = vec![0; size as usize - 4];
            client.read_exact(&mut rest).await?;
            sent.extend(tag);
            sent.extend(size.to_be_bytes());
            sent.extend(rest);
            if tag.is_none_or(|tag| ENDS.contains(&tag)) {
                return Ok(sent);
            }
        }
    }

    async fn answer(
        &self,
        mut server: unix::OwnedReadHalf,
        mut client: tcp::OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let (mut piece, mut answered) = (vec![0; 65_536], Vec::new());
        loop {
            let read = server.read(&mut piece).await?;
            if read == 0 {
                return Ok(());
            }
            answered.extend_from_slice(&piece[..read]);
            let awaited = *self.awaited.lock().unwrap();
            if let Some(size) = awaited {
                // The last message says that the server is ready for more: everything is stored.
                if !matches!(answered[..], [.., b'Z', 0, 0, 0, 5, _]) {
                    continue;
                }
                *self.awaited.lock().unwrap() = None;
                self.shared.keep(size).await;
            }
            self.shared.pass().await;
            client.write_all(&answered).await?;
            answered.clear();
        }
    }
}
