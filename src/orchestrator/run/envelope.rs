//! The envelope of a run for the caller who started it and waits for its end: made from the state
//! that the run's task holds, not read back from the ledger.
//!
//! ```text
//! the turn that ends the run ─▶ appender ─durable▶ the caller ─▶ reply
//!            └▶ envelope, while the disk writes ──────┘
//! ```
//!
//! It exists once: whoever asks later reads the ledger.

use ktsu_projections::envelope::{DetailedRun, EnvelopeDetails};
use ktsu_projections::run::RunState;
use tokio::sync::{oneshot, watch};

use super::Progress;
use crate::wait_for;

/// About what a step takes in an envelope: memory for the text is reserved once.
const STEP_BYTES: usize = 512;

/// The end of a run, as its task will show it to the caller who started it.
#[derive(Debug)]
pub struct AwaitedEnvelope {
    progress: watch::Receiver<Progress>,
    envelope: oneshot::Receiver<Vec<u8>>,
}

impl AwaitedEnvelope {
    /// Waits until the run has ended, durably. Returns its envelope as of the end, in JSON; none if
    /// its task did not make one.
    ///
    /// # Errors
    /// Why the run's task stopped before its end.
    pub async fn ended(mut self) -> Result<Option<Vec<u8>>, String> {
        // First what comes once: the progress changes with every append.
        let envelope = self.envelope.await.ok();
        wait_for(&mut self.progress, |progress| progress.ended).await?;
        Ok(envelope)
    }
}

/// The details that a task needs beside the state to make the envelope, and its receiver.
#[derive(Debug)]
pub(crate) struct EnvelopeForCaller {
    details: EnvelopeDetails,
    caller: oneshot::Sender<Vec<u8>>,
}

impl EnvelopeForCaller {
    /// Both ends.
    pub(crate) fn new(
        details: EnvelopeDetails,
        progress: watch::Receiver<Progress>,
    ) -> (Self, AwaitedEnvelope) {
        let (caller, envelope) = oneshot::channel();
        let awaited = AwaitedEnvelope { progress, envelope };
        (Self { details, caller }, awaited)
    }

    /// Returns `true` if the caller no longer waits.
    pub(super) fn is_abandoned(&self) -> bool {
        self.caller.is_closed()
    }

    /// The run with what is noted beside its state.
    pub(super) fn noting<'a>(&'a mut self, state: &'a mut RunState) -> DetailedRun<'a> {
        DetailedRun {
            state,
            details: &mut self.details,
        }
    }

    /// Hands the envelope over. The caller takes it once the end is durable.
    pub(super) fn send(self, state: &RunState) {
        let Some(envelope) = self.details.envelope(state) else {
            return;
        };
        let mut text = Vec::with_capacity(STEP_BYTES * (envelope.steps.len() + 1));
        if serde_json::to_writer(&mut text, &envelope).is_ok() {
            // The caller may be gone.
            let _ = self.caller.send(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The output of a future, if it is ready at once.
    fn at_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(given) => Some(given),
            Poll::Pending => None,
        }
    }

    /// The ends of a hand-over, the envelope in it, and how far the run is.
    fn handed_over() -> (watch::Sender<Progress>, AwaitedEnvelope) {
        let (told, progress) = watch::channel(Progress::default());
        let (caller, envelope) = oneshot::channel();
        caller.send(b"{}".to_vec()).unwrap();
        (told, AwaitedEnvelope { progress, envelope })
    }

    #[test]
    fn an_envelope_is_shown_once_the_end_is_durable_and_not_before() {
        let (told, awaited) = handed_over();
        let mut ended = Box::pin(awaited.ended());
        assert_eq!(at_once(ended.as_mut()), None);
        told.send_modify(|progress| progress.durable = Some(7));
        assert_eq!(at_once(ended.as_mut()), None);
        told.send_modify(|progress| progress.ended = true);
        assert_eq!(at_once(ended.as_mut()), Some(Ok(Some(b"{}".to_vec()))));
    }

    #[test]
    fn an_envelope_whose_last_frame_was_not_appended_is_never_shown() {
        let (told, awaited) = handed_over();
        told.send_modify(|progress| progress.failed = Some("the disk".to_owned()));
        drop(told);
        let ended = at_once(Box::pin(awaited.ended()).as_mut());
        assert_eq!(ended, Some(Err("the disk".to_owned())));
        let (told, awaited) = handed_over();
        drop(told);
        let ended = at_once(Box::pin(awaited.ended()).as_mut());
        assert!(matches!(ended, Some(Err(_))), "{ended:?}");
    }

    #[test]
    fn a_task_that_made_no_envelope_leaves_it_to_the_ledger() {
        let (told, progress) = watch::channel(Progress::default());
        let (caller, envelope) = oneshot::channel();
        drop(caller);
        told.send_modify(|progress| progress.ended = true);
        let awaited = AwaitedEnvelope { progress, envelope };
        let ended = at_once(Box::pin(awaited.ended()).as_mut());
        assert_eq!(ended, Some(Ok(None)));
    }
}
