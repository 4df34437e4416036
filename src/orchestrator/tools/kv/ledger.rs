//! Access to the streams `kv:…`: reads pages and appends entries, with errors fit for a model.

use ktsu_ledger::appender::{AppendError, Appender};
use ktsu_ledger::branch::Blobs;
use ktsu_ledger::event::{KvDeleted, KvEvent, KvSet};
use ktsu_ledger::frame::Link;
use ktsu_ledger::store::{AppendRefusal, Entry, MAX_PAGE, Reader, StoreError};
use ktsu_ledger::{Actor, Cause, Draft, Event, Frame, Hash, StreamId};

use super::super::BuiltinCall;
use super::dedup;
use super::namespace::Namespace;
use crate::MicrosClock;
use ktsu_readers::ReaderPool;

/// The access to the streams of namespaces.
pub(super) struct NamespaceStreams<'a> {
    pub(super) readers: &'a ReaderPool,
    pub(super) appender: &'a Appender,
    pub(super) clock: &'a MicrosClock,
}

/// The reason why a call gives nothing.
#[derive(Debug)]
pub(super) enum KvError {
    /// It cannot be made, and nothing has changed.
    Words(String),
    /// The stream has gone on since it was read.
    Behind,
    /// The ledger failed. Details are logged and not shown to the model.
    Failed,
}

impl KvError {
    /// The error as the model sees it.
    pub(super) fn message(self) -> String {
        match self {
            Self::Words(words) => words,
            Self::Behind => "other calls change the namespace all the time: try again".to_owned(),
            Self::Failed => "the values cannot be reached just now".to_owned(),
        }
    }
}

impl NamespaceStreams<'_> {
    /// A namespace, made of all its frames.
    pub(super) async fn load(&self, stream: &StreamId) -> Result<Namespace, KvError> {
        self.folded(stream, Namespace::default(), |space, frame| {
            space.apply(frame)
        })
        .await
    }

    /// The calls of a run that its frames follow from.
    pub(super) async fn keys_of(
        &self,
        stream: &StreamId,
        run: &StreamId,
    ) -> Result<Vec<Hash>, KvError> {
        let run = run.clone();
        let take = move |keys: &mut Vec<Hash>, frame: &Frame| {
            let by_it = |cause: &Cause| matches!(cause, Cause::There(by, _) if *by == run);
            if let (true, Event::Kv(event)) = (frame.cause.iter().any(by_it), &frame.event) {
                let (KvEvent::Set(KvSet {
                    idempotency_key, ..
                })
                | KvEvent::Deleted(KvDeleted {
                    idempotency_key, ..
                })) = event;
                keys.push(dedup::digest(idempotency_key));
            }
        };
        self.folded(stream, Vec::new(), take).await
    }

    /// Takes the frames of a stream in order, a page of them in memory at a time.
    async fn folded<T: Send + 'static>(
        &self,
        stream: &StreamId,
        mut state: T,
        take: impl Fn(&mut T, &Frame) + Send + 'static,
    ) -> Result<T, KvError> {
        let whole = stream.clone();
        let read = self.readers.with(move |reader| {
            each(reader, &whole, &mut |frame| take(&mut state, frame))?;
            Ok::<T, StoreError>(state)
        });
        read.await.map_err(|error| {
            tracing::error!(%stream, "cannot read the namespace: {error}");
            KvError::Failed
        })
    }

    /// Appends the frame of a call, and waits until it is durable.
    pub(super) async fn append(
        &self,
        stream: &StreamId,
        space: &Namespace,
        call: &BuiltinCall,
        event: KvEvent,
    ) -> Result<Frame, KvError> {
        let (run, called) = &call.called;
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Orchestrator,
            cause: vec![Cause::There(run.clone(), *called)],
            event: Event::Kv(event),
        };
        let link = Link {
            stream: stream.clone(),
            seq: space.next,
            prev: space.head.unwrap_or(Hash::ZERO),
        };
        let sealed = draft.seal(link, (self.clock)());
        let sealed = sealed.map_err(|error| failed(stream, &error))?;
        let frame = sealed.frame.clone();
        let entry = Entry::from_sealed(vec![sealed]);
        let (entry, _) = entry.map_err(|error| failed(stream, &error))?;
        let (tell, told) = tokio::sync::oneshot::channel();
        self.appender.submit(
            entry,
            Box::new(move |outcome| {
                // The caller may be gone; the frame is recorded all the same.
                let _ = tell.send(outcome.map(drop));
            }),
        );
        match told.await {
            Ok(Ok(())) => Ok(frame),
            Ok(Err(AppendError::Refused(
                AppendRefusal::Conflict { .. } | AppendRefusal::Unchained { .. },
            ))) => Err(KvError::Behind),
            Ok(Err(error)) => Err(failed(stream, &error)),
            Err(error) => Err(failed(stream, &error)),
        }
    }
}

fn failed(stream: &StreamId, error: &dyn std::fmt::Display) -> KvError {
    tracing::error!(%stream, "cannot write to the namespace: {error}");
    KvError::Failed
}

fn each(
    reader: &dyn Reader,
    stream: &StreamId,
    take: &mut dyn FnMut(&Frame),
) -> Result<(), StoreError> {
    let mut next = 0;
    loop {
        let page = reader.read(stream, next, MAX_PAGE)?;
        if page.is_empty() {
            return Ok(());
        }
        // Blobs that were put back are given up with their page.
        let mut blobs = Blobs::new(reader);
        for record in &page {
            if record.seq != next {
                let words = format!("{stream}: frame {next} is missing");
                reader.found_damage(&words);
                return Err(StoreError::Damaged(words));
            }
            take(&blobs.decode(stream, record)?);
            next += 1;
        }
    }
}
