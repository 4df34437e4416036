//! The details of a run or an inline child that are shown but never used in decisions: its times,
//! and its error.

use ktsu_ledger::event::{RunCommand, RunEvent};
use ktsu_ledger::{Event, Frame, Timestamp};

use super::ErrorView;
use crate::run::steer::StopKind;
use crate::usage::Usage;

#[derive(Debug, Clone, Default)]
pub(super) struct ScopeDetail {
    pub(super) began: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
    pub(super) error: Option<ErrorView>,
    pub(super) usage: Usage,
    /// The hash that its end recorded.
    pub(super) world_hash: Option<String>,
}

impl ScopeDetail {
    /// Takes a frame about the scope as a whole.
    pub(super) fn take(&mut self, frame: &Frame) {
        let Event::Run(event) = &frame.event else {
            self.began = frame.event.created().map(|_| frame.at).or(self.began);
            return;
        };
        if let RunEvent::Created(_) = event {
            self.began = Some(frame.at);
        } else if let RunEvent::Branched(_) | RunEvent::Started(_) = event {
            self.began.get_or_insert(frame.at);
        } else if let RunEvent::Resumed(resumed) = event {
            if resumed.from.is_some() {
                self.begin_again();
            }
        } else if let RunEvent::Completed(completed) = event {
            self.ended = Some(frame.at);
            self.world_hash.clone_from(&completed.world);
        } else if let RunEvent::Failed(failed) = event {
            self.ended = Some(frame.at);
            self.world_hash.clone_from(&failed.world);
            self.error = Some(ErrorView {
                code: failed.code.clone(),
                message: failed.message.clone(),
                step: failed.step.clone(),
            });
        } else if let RunEvent::Cancelled(word) = event {
            self.stop(frame, StopKind::Cancel, word);
        } else if let RunEvent::Terminated(word) = event {
            self.stop(frame, StopKind::Terminate, word);
        }
    }

    /// It has not ended after all.
    pub(super) fn begin_again(&mut self) {
        (self.ended, self.error, self.world_hash) = (None, None, None);
    }

    /// The rest of the run ends in the same moment.
    fn stop(&mut self, frame: &Frame, how: StopKind, word: &RunCommand) {
        self.ended = Some(frame.at);
        self.error = Some(ErrorView {
            code: how.code().to_owned(),
            message: how.words(word),
            step: None,
        });
    }
}
