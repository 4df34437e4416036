//! The client of a server, for threads that wait.
//!
//! The client is asynchronous. A runtime on a thread of its own drives it, so a call may be made from
//! anywhere, an asynchronous task included (see `docs/adr/0012-a-store-may-be-far-away.md`). After a call
//! that failed the next one gets a new client: one whose server has died would not leave it.

use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use kurrentdb::{
    AppendToStreamOptions, BatchAppendClient, BatchAppendOptions, Client, ClientSettings,
    DeleteStreamOptions, EventData, ReadStreamOptions, StreamMetadataBuilder, StreamPosition,
    StreamState, TombstoneStreamOptions,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use uuid::Uuid;

use crate::address::Address;
use crate::call_error::EventCallError;

/// Options of a call, of the user of an address.
macro_rules! of_user {
    ($client:expr, $options:expr) => {
        match $client.address.credentials() {
            Some(user) => $options.requires_leader(true).authenticated(user),
            None => $options.requires_leader(true),
        }
    };
}

/// Drives all clients of the process.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("eventstore");
    builder.enable_all().build()
});

/// The most streams that are read at once.
const MAX_READS: usize = 16;

/// An event that a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredEvent {
    pub(crate) id: Uuid,
    pub(crate) revision: u64,
    pub(crate) data: Bytes,
    pub(crate) metadata: Bytes,
}

/// An event that is to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEvent {
    pub(crate) id: Uuid,
    pub(crate) kind: &'static str,
    pub(crate) data: Bytes,
    pub(crate) metadata: Bytes,
}

impl NewEvent {
    /// Returns `true` if a server has exactly this event.
    pub(crate) fn is(&self, stored: &StoredEvent) -> bool {
        self.id == stored.id && self.data == stored.data
    }

    fn as_proposed(&self) -> EventData {
        EventData::binary(self.kind, self.data.clone())
            .id(self.id)
            .metadata(self.metadata.clone())
    }
}

/// Events for the end of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) stream: String,
    /// The revision of the stream's last event; `None`: it has none.
    pub(crate) after: Option<u64>,
    pub(crate) events: Vec<NewEvent>,
}

impl Proposal {
    fn state(&self) -> StreamState {
        self.after
            .map_or(StreamState::NoStream, StreamState::StreamRevision)
    }

    fn proposed(&self) -> Vec<EventData> {
        self.events.iter().map(NewEvent::as_proposed).collect()
    }
}

/// A client, and its session for appends.
struct Session {
    client: Client,
    options: BatchAppendOptions,
    /// Whatever fails in it ends it, and with it the answers to what else was sent.
    appends: tokio::sync::Mutex<Option<Arc<BatchAppendClient>>>,
}

/// The client of a server.
pub(crate) struct EventClient {
    address: Address,
    session: Mutex<Option<Arc<Session>>>,
    /// The server that leads, where another one has named it.
    leader: Mutex<Option<(String, u32)>>,
}

impl EventClient {
    pub(crate) fn new(address: &Address) -> Self {
        Self {
            address: address.clone(),
            session: Mutex::new(None),
            leader: Mutex::new(None),
        }
    }

    /// Appends one event after the other to a stream; gives the revision of the last.
    pub(crate) fn append(
        &self,
        proposal: &Proposal,
        limit: Duration,
    ) -> Result<u64, EventCallError> {
        let options = of_user!(self, AppendToStreamOptions::default())
            .stream_state(proposal.state())
            .deadline(limit);
        let (stream, events) = (proposal.stream.clone(), proposal.proposed());
        let written = self.call(limit, move |session| async move {
            let client = &session.client;
            client.append_to_stream(stream, &options, events).await
        })?;
        Ok(written.next_expected_version)
    }

    /// Appends to several streams at once; gives the revision of the last event of each. Where one fails,
    /// nothing is known of those that have no answer.
    pub(crate) fn append_all(
        &self,
        proposals: &[Proposal],
        limit: Duration,
    ) -> Vec<Result<u64, EventCallError>> {
        let sent: Vec<_> = proposals
            .iter()
            .map(|it| (it.stream.clone(), it.state(), it.proposed()))
            .collect();
        let answers = self.call(limit, move |session| async move {
            let appends = session.appends().await?;
            let mut waiting = Vec::with_capacity(sent.len());
            for (stream, state, events) in sent {
                let appends = Arc::clone(&appends);
                waiting.push(tokio::spawn(async move {
                    appends.append_to_stream(stream, state, events).await
                }));
            }
            let mut answers = Vec::with_capacity(waiting.len());
            for one in waiting {
                answers.push(one.await);
            }
            Ok(answers)
        });
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return vec![Err(error); proposals.len()],
        };
        let revision = |answer| match answer {
            Ok(Ok(written)) => revision_of(&written),
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(_) => Err(EventCallError::Late),
        };
        let answers: Vec<_> = answers.into_iter().map(revision).collect();
        if answers.iter().any(Result::is_err) {
            self.disconnect();
        }
        answers
    }

    /// Events of a stream from a revision on, at most so many; none if there is no such stream.
    pub(crate) fn read(
        &self,
        stream: &str,
        from: u64,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<StoredEvent>, EventCallError> {
        let options = ReadStreamOptions::default()
            .position(StreamPosition::Position(from))
            .forwards()
            .max_count(count);
        self.read_by(stream, options, limit)
    }

    /// The last event of a stream.
    pub(crate) fn last(
        &self,
        stream: &str,
        limit: Duration,
    ) -> Result<Option<StoredEvent>, EventCallError> {
        let options = ReadStreamOptions::default()
            .position(StreamPosition::End)
            .backwards()
            .max_count(1);
        Ok(self.read_by(stream, options, limit)?.pop())
    }

    fn read_by(
        &self,
        stream: &str,
        options: ReadStreamOptions,
        limit: Duration,
    ) -> Result<Vec<StoredEvent>, EventCallError> {
        // What was appended has to be seen at once, which a server that follows does not promise.
        let (stream, options) = (stream.to_owned(), of_user!(self, options));
        self.call(limit, move |session| async move {
            read_stream(&session.client, stream, &options).await
        })
    }

    /// Ranges of streams: stream, first revision, number of events. What is not there is left out.
    pub(crate) fn read_ranges(
        &self,
        ranges: &[(String, u64, usize)],
        limit: Duration,
    ) -> Result<Vec<Vec<StoredEvent>>, EventCallError> {
        let options = |from, count| {
            let options = ReadStreamOptions::default()
                .position(StreamPosition::Position(from))
                .forwards()
                .max_count(count);
            of_user!(self, options)
        };
        let asked = ranges.iter();
        let asked = asked.map(|(stream, from, count)| (stream.clone(), options(*from, *count)));
        let asked: Vec<_> = asked.collect();
        self.call(limit, move |session| async move {
            let places = Arc::new(Semaphore::new(MAX_READS));
            let reading = asked.into_iter().map(|(stream, options)| {
                let (places, client) = (Arc::clone(&places), session.client.clone());
                tokio::spawn(async move {
                    let _place = places.acquire().await;
                    read_stream(&client, stream, &options).await
                })
            });
            let reading: Vec<_> = reading.collect();
            let mut read = Vec::with_capacity(reading.len());
            for one in reading {
                let events = one.await;
                read.push(events.map_err(|_| kurrentdb::Error::InternalClientError)??);
            }
            Ok(read)
        })
    }

    /// Has a stream keep its last event only.
    pub(crate) fn keep_last(&self, stream: &str, limit: Duration) -> Result<(), EventCallError> {
        let metadata = StreamMetadataBuilder::new().max_count(1).build();
        let options = of_user!(self, AppendToStreamOptions::default()).deadline(limit);
        let stream = stream.to_owned();
        let set = self.call(limit, move |session| async move {
            let client = &session.client;
            client
                .set_stream_metadata(stream, &options, &metadata)
                .await
        });
        set.map(drop)
    }

    /// Deletes a stream for good: its name is not used again.
    pub(crate) fn tombstone(&self, stream: &str, limit: Duration) -> Result<(), EventCallError> {
        let options = of_user!(self, TombstoneStreamOptions::default()).deadline(limit);
        let stream = stream.to_owned();
        self.gone(self.call(limit, move |session| async move {
            let client = &session.client;
            client.tombstone_stream(stream, &options).await.map(drop)
        }))
    }

    /// Deletes what a stream has; it may be appended to again.
    pub(crate) fn delete(&self, stream: &str, limit: Duration) -> Result<(), EventCallError> {
        let options = of_user!(self, DeleteStreamOptions::default()).deadline(limit);
        let stream = stream.to_owned();
        self.gone(self.call(limit, move |session| async move {
            let client = &session.client;
            client.delete_stream(stream, &options).await.map(drop)
        }))
    }

    fn gone(&self, deleted: Result<(), EventCallError>) -> Result<(), EventCallError> {
        match deleted {
            Err(EventCallError::Absent) => Ok(()),
            other => other,
        }
    }

    /// Runs something on the runtime of the clients, and waits for it, for this time at most.
    fn call<T, F>(
        &self,
        limit: Duration,
        work: impl FnOnce(Arc<Session>) -> F + Send + 'static,
    ) -> Result<T, EventCallError>
    where
        T: Send + 'static,
        F: Future<Output = kurrentdb::Result<T>> + Send + 'static,
    {
        let runtime = RUNTIME.as_ref().map_err(|_| EventCallError::Late)?;
        let session = self.connected(runtime)?;
        let (give, taken) = sync_channel(1);
        runtime.spawn(async move {
            // The thread that asked waits for this.
            let _ = give.send(timeout(limit, work(session)).await);
        });
        match taken.recv() {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(error))) => {
                let failed = self.failed(&error);
                if failed.may_be_of_the_way() {
                    self.disconnect();
                }
                Err(failed)
            }
            Ok(Err(_)) | Err(_) => {
                self.disconnect();
                Err(EventCallError::Late)
            }
        }
    }

    fn connected(&self, runtime: &Runtime) -> Result<Arc<Session>, EventCallError> {
        let mut session = self.session.lock();
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        // The client would have the whole process use another one, which its build brings along.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let leader = self.leader.lock().take();
        let settings = self.address.settings(leader.as_ref());
        let settings: ClientSettings = settings.parse().map_err(|_| EventCallError::Address)?;
        // Its certificates may not be readable.
        let client = Client::with_runtime_handle(runtime.handle().clone(), settings)
            .map_err(|error| EventCallError::Refused(error.to_string()))?;
        let made = Arc::new(Session {
            client,
            options: of_user!(self, BatchAppendOptions::default()),
            appends: tokio::sync::Mutex::new(None),
        });
        *session = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Has the next call get a new client.
    pub(crate) fn disconnect(&self) {
        *self.session.lock() = None;
    }

    fn failed(&self, error: &kurrentdb::Error) -> EventCallError {
        if let kurrentdb::Error::NotLeaderException(leader) = error {
            *self.leader.lock() = Some((leader.host.clone(), leader.port));
        }
        EventCallError::of(error)
    }
}

impl Session {
    /// The session for appends.
    async fn appends(&self) -> kurrentdb::Result<Arc<BatchAppendClient>> {
        let mut appends = self.appends.lock().await;
        if let Some(appends) = &*appends {
            return Ok(Arc::clone(appends));
        }
        let made = Arc::new(self.client.batch_append(&self.options).await?);
        *appends = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// The events of a stream; none if there is no such stream.
async fn read_stream(
    client: &Client,
    stream: String,
    options: &ReadStreamOptions,
) -> kurrentdb::Result<Vec<StoredEvent>> {
    use kurrentdb::Error::{ResourceDeleted, ResourceNotFound};
    let mut events = Vec::new();
    let mut reading = match client.read_stream(stream, options).await {
        Err(ResourceDeleted | ResourceNotFound) => return Ok(events),
        reading => reading?,
    };
    loop {
        let event = match reading.next().await {
            Err(ResourceDeleted | ResourceNotFound) => return Ok(events),
            event => event?,
        };
        let Some(event) = event else {
            return Ok(events);
        };
        let event = event.get_original_event();
        events.push(StoredEvent {
            id: event.id,
            revision: event.revision,
            data: event.data.clone(),
            metadata: event.custom_metadata.clone(),
        });
    }
}

fn revision_of(written: &kurrentdb::BatchWriteResult) -> Result<u64, EventCallError> {
    written.current_revision().ok_or(EventCallError::Late)
}
