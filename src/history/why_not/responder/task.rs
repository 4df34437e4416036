//! The state of a question of a responder, or of a workflow that it runs; and what keeps a run from
//! continuing.

use ktsu_ledger::event::{TaskKind, WorldEvent};
use ktsu_projections::world::ResponderTaskPhase;

use super::Explainer;

impl Explainer<'_, '_> {
    /// The state of a task, with its frame.
    pub(super) fn task(&mut self, address: &str, kind: TaskKind) -> (Option<u64>, String) {
        let what = match kind {
            TaskKind::Ask => "question",
            TaskKind::Run => "workflow",
        };
        if let Some((seq, failed)) = self.failures.of_task(address) {
            let again = self.begins_again(address);
            let words = format!(
                "its {what} failed with {}: {}{again}",
                failed.code, failed.message
            );
            return (Some(seq), words);
        }
        let done =
            self.story
                .frames()
                .iter()
                .rev()
                .find_map(|frame| match frame.event.world()? {
                    WorldEvent::Completed(done) if done.address == address => {
                        Some((frame.seq, done))
                    }
                    _ => None,
                });
        if let Some((seq, done)) = done {
            self.reacted = true;
            let skipped: Vec<String> = done
                .skipped
                .iter()
                .map(|one| format!("entry {} made nothing: {}", one.entry, one.reason))
                .collect();
            let more = match skipped.as_slice() {
                [] => String::new(),
                all => format!("; {}", all.join("; ")),
            };
            return (
                Some(seq),
                format!("its {what} was answered, and it reacted{more}"),
            );
        }
        let name = &self.responder.plan.name;
        match self.responding.task(address).map(|task| task.phase) {
            Some(ResponderTaskPhase::Waiting) => {
                let busy = self.responding.announced_tasks(name);
                let words = match self.responder.plan.concurrency {
                    Some(limit) if busy >= limit => {
                        format!(
                            "its {what} waits: {busy} are under way, and concurrency is {limit}"
                        )
                    }
                    Some(_) | None => format!("its {what} has not begun: {}", self.held_up()),
                };
                (None, words)
            }
            Some(ResponderTaskPhase::Announced { seq }) => {
                self.reacted = true;
                (Some(seq), format!("its {what} is under way"))
            }
            Some(ResponderTaskPhase::Ended { seq }) => (
                Some(seq),
                format!("its {what} has ended: {}", self.held_up()),
            ),
            Some(ResponderTaskPhase::SetAside) => {
                let words = match self.begins_again(address) {
                    again if again.is_empty() => {
                        format!("its {what} has no result: {}", self.held_up())
                    }
                    again => format!("its {what} has no result{again}"),
                };
                (None, words)
            }
            None => (None, format!("its {what} is not there any more")),
        }
    }

    /// The command that lets a task of a run that has ended begin again, if there is one.
    fn begins_again(&self, address: &str) -> String {
        let state = self.story.state();
        match state.may_ask_again(address) && !self.responding.head().is_exhausted() {
            true => format!("; to repeat it: ktsu resume {}", state.stream().name()),
            false => String::new(),
        }
    }

    /// The reason why a run does not continue.
    pub(super) fn held_up(&self) -> String {
        let state = self.story.state();
        let name = state.stream().name();
        let exhausted =
            self.story
                .frames()
                .iter()
                .rev()
                .find_map(|frame| match frame.event.world()? {
                    WorldEvent::BudgetExhausted(used) => Some((frame.seq, used)),
                    _ => None,
                });
        if let Some((seq, used)) = exhausted.filter(|_| self.responding.head().is_exhausted()) {
            let reasons = used.reasons.join(", ");
            return format!("the budget was used up first, in frame {seq}: {reasons}");
        }
        if let Some(failing) = state.failing() {
            let (code, message) = (&failing.code, &failing.message);
            return format!("the run failed first, with {code}: {message}");
        }
        if state.paused().is_some() || state.is_parked() {
            return format!("the run is paused: ktsu resume {name}");
        }
        match state.status().is_terminal() {
            true => "it made nothing".to_owned(),
            false => "it is about to be decided".to_owned(),
        }
    }
}
