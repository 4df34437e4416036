//! What is shown of a run or an inline child but never used in decisions: its times, and its error.

use ktsu_ledger::event::{RunCommand, RunEvent};
use ktsu_ledger::{Frame, Timestamp};

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
    pub(super) fn take(&mut self, frame: &Frame, event: &RunEvent) {
        match event {
            RunEvent::Created(_) => self.began = Some(frame.at),
            RunEvent::Branched(_) | RunEvent::Started(_) => {
                self.began.get_or_insert(frame.at);
            }
            RunEvent::Resumed(resumed) => {
                if resumed.from.is_some() {
                    self.begin_again();
                }
            }
            RunEvent::Completed(completed) => {
                self.ended = Some(frame.at);
                self.world_hash.clone_from(&completed.world);
            }
            RunEvent::Failed(failed) => {
                self.ended = Some(frame.at);
                self.world_hash.clone_from(&failed.world);
                self.error = Some(ErrorView {
                    code: failed.code.clone(),
                    message: failed.message.clone(),
                    step: failed.step.clone(),
                });
            }
            RunEvent::Cancelled(word) => self.stop(frame, StopKind::Cancel, word),
            RunEvent::Terminated(word) => self.stop(frame, StopKind::Terminate, word),
            RunEvent::Continued(_)
            | RunEvent::Paused(_)
            | RunEvent::TimerFired(_)
            | RunEvent::ClockJumped(_) => {}
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
