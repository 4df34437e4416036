//! How a run is taken up: after a restart, or because somebody says something about it.

use super::{Message, RunTask};
use crate::effects;
use crate::people::Word;
use ktsu_workflow::admit;
use ktsu_workflow::admit::report;
use ktsu_workflow::turn::Broken;

impl RunTask {
    /// One that was left unfinished is taken up first, or what was under way would stay so; unless it
    /// is to stand still or to end, and nothing of it is to begin before.
    pub(super) fn woken(&mut self, message: Message) -> Result<(), Broken> {
        let unfinished = !self.is_at_rest();
        let last = self.state.next_seq().saturating_sub(1);
        let message = match message {
            Message::Said {
                word: Word::Resume { from: None, .. },
                expected,
                reply,
            } if unfinished
                && self.state.paused().is_none()
                && expected.is_none_or(|expected| expected == last) =>
            {
                // It was left by an owner that ended: to go on with it takes nobody's word.
                self.take_up()?;
                self.tell_where_it_stands(reply);
                return Ok(());
            }
            message => message,
        };
        let said = match &message {
            Message::Said { word, .. } => Some(word),
            _ => None,
        };
        let steers = matches!(said, Some(Word::Steer { .. }));
        let decides = matches!(said, Some(Word::Decide(_)));
        if unfinished && !steers {
            self.take_up()?;
        }
        if unfinished && decides {
            self.settle()?;
        }
        self.told(message)?;
        match unfinished && steers && !self.is_at_rest() {
            true => self.take_up(),
            false => Ok(()),
        }
    }

    /// What was done within the process is lost with it; a runtime elsewhere gets its time to
    /// name what it has (decision W3).
    pub(super) fn take_up(&mut self) -> Result<(), Broken> {
        let clock = self.observed.time(&self.shared.clock);
        let unanswered = self.state.unanswered().into_iter();
        let unanswered = unanswered.map(|(scope, step)| effects::Place::step(scope, step));
        let untold = self.state.untold().into_iter();
        let untold = untold.map(|(request, scope, step)| effects::Place {
            approval: Some(request),
            ..effects::Place::step(scope, step)
        });
        self.held_back = unanswered.chain(untold).collect();
        let (run, paused) = (self.state.stream().name(), self.state.paused().is_some());
        self.shared.supervisor.stands_still(run, paused);
        self.send_held_back();
        let losses = match self.shared.runtime_is_local() {
            true => report::losses(&self.state),
            false => Vec::new(),
        };
        if !self.shared.runtime_is_local() {
            for (scope, step, item) in self.state.dispatched() {
                let place = effects::Place {
                    item,
                    ..effects::Place::step(scope, step)
                };
                effects::watch(&self.shared, &self.state, place, &self.sender);
            }
        }
        let more = !losses.is_empty();
        for input in admit::restart(&self.definition, &self.state, clock, more) {
            self.take(input)?;
        }
        for (scope, lost) in losses {
            self.lost(&scope, lost)?;
        }
        Ok(())
    }

    /// Sends again what nobody answered before a restart, unless the run is paused: then it waits.
    pub(super) fn send_held_back(&mut self) {
        if self.state.paused().is_none() {
            let last = self.state.next_seq().saturating_sub(1);
            let places = std::mem::take(&mut self.held_back).into_iter();
            self.waiting.extend(places.map(|place| (last, place)));
        }
    }

    /// Time that was over before anybody spoke is over before they are heard: whoever decides on a
    /// call too late finds that nobody did, and the run goes on with what follows from that.
    pub(super) fn settle(&mut self) -> Result<(), Broken> {
        let now = self.now();
        while let Some(input) = admit::timer(&self.state, now) {
            self.take_at(input, now)?;
        }
        Ok(())
    }
}
