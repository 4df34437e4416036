//! Pausing and ending whole runs: which frames may follow, and their consequences (decision P1).

use ktsu_ledger::event::{RunCommand, RunResumed};

use super::*;

const PAUSED_AT: u64 = 7_000_000;

fn word() -> RunCommand {
    RunCommand {
        by: Principal {
            auth: "none".to_owned(),
            id: "ann".to_owned(),
        },
        reason: None,
    }
}

fn paused() -> Event {
    Event::Run(RunEvent::Paused(word()))
}

fn cancelled() -> Event {
    Event::Run(RunEvent::Cancelled(word()))
}

fn terminated() -> Event {
    Event::Run(RunEvent::Terminated(word()))
}

fn resumed(paused_ms: Option<u64>) -> Event {
    Event::Run(RunEvent::Resumed(RunResumed {
        by: word().by,
        from: None,
        paused_ms,
        reason: None,
    }))
}

/// The end of a step that was stopped.
fn stopped(step: &str, attempt: u32) -> Event {
    let Event::Step(StepEvent::Failed(mut end)) = failed(step) else {
        unreachable!("it failed");
    };
    end.code = "stopped".to_owned();
    end.attempt = attempt;
    Event::Step(StepEvent::Failed(end))
}

impl Given {
    /// The same at a moment.
    #[track_caller]
    fn then_at(mut self, micros: u64, event: Event) -> Self {
        let sealed = draft("", event)
            .seal(self.state.link(), at(micros))
            .unwrap();
        self.state.apply(&sealed.frame).unwrap();
        self
    }
}

#[test]
fn a_paused_run_starts_nothing_takes_answers_and_is_not_paused_twice() {
    let run = Given::a_run(one_webhook()).then(started("w")).then(sent(1));
    let run = run.then(paused());
    assert_eq!(run.state.status(), RunStatus::Waiting);
    run.refuses(paused());
    let run = run.then(answered(1, 500));
    let again = TimerFired {
        responder: None,
        step: Some("w".to_owned()),
        timer: ktsu_ledger::event::TimerKind::Retry,
    };
    run.refuses(Event::Run(RunEvent::TimerFired(again)));
    let other = Given::a_run(two_transforms()).then(paused());
    other.refuses(started("a"));
}

#[test]
fn time_is_suspended_where_a_run_was_paused_and_continues_when_it_is_resumed() {
    let run = Given::a_run(one_webhook()).then(started("w")).then(sent(1));
    let from = run.state.deadline_from();
    let run = run.then_at(PAUSED_AT, paused());
    // The wait before the next sending counts from the pause, and whole once it is over.
    let run = run.then_at(PAUSED_AT + 2_000_000, answered(1, 500));
    run.refuses(resumed(None));
    let run = run.then_at(PAUSED_AT + 9_000_000, resumed(Some(9_000)));
    assert_eq!(run.state.status(), RunStatus::Running);
    assert_eq!(run.state.deadline_from(), from.plus_millis(9_000));
    let Phase::Backoff { since, .. } = run.state.scopes()[0].steps[0].phase else {
        panic!("it is to be sent again");
    };
    assert_eq!(since, at(PAUSED_AT + 9_000_000));
}

#[test]
fn a_resumption_that_says_another_time_than_the_frames_do_is_refused() {
    let run = Given::a_run(two_transforms()).then(paused());
    run.refuses(resumed(Some(1)));
    run.then(resumed(Some(0)));
}

#[test]
fn a_run_that_a_person_ends_has_ended_once_each_of_its_steps_has_and_not_before() {
    for (end, code) in [(cancelled(), "cancelled"), (terminated(), "terminated")] {
        let run = Given::a_run(two_transforms()).then(started("a")).then(end);
        assert_eq!(run.state.failing().map(|one| one.code.as_str()), Some(code));
        assert_eq!(run.state.status(), RunStatus::Running);
        for strange in [completed("a"), started("b")] {
            run.refuses(strange);
        }
        let run = run.then(stopped("a", 1));
        assert_eq!(run.state.status(), RunStatus::Running);
        run.refuses(failed_run());
        run.refuses(stopped("b", 1));
        let run = run.then(stopped("b", 0));
        assert_eq!(run.state.status(), RunStatus::Cancelled);
        for late in [
            cancelled(),
            terminated(),
            paused(),
            resumed(None),
            failed_run(),
        ] {
            run.refuses(late);
        }
    }
}

#[test]
fn a_paused_run_and_a_branch_that_waits_can_be_ended() {
    let run = Given::a_run(two_transforms())
        .then(paused())
        .then(cancelled());
    let run = run.then(stopped("a", 0)).then(stopped("b", 0));
    assert_eq!(run.state.status(), RunStatus::Cancelled);
    let run = Given::a_run(two_transforms()).then(started("a"));
    run.refuses(stopped("b", 0));
}

/// A branch that shares the word and not what followed from it.
#[test]
fn a_branch_from_within_the_end_of_a_cancelled_run_ends_as_it_did() {
    let run = Given::a_run(two_transforms()).then(started("a"));
    let branch = run.then(cancelled()).forked(|_| {});
    assert_eq!(branch.state.status(), RunStatus::Waiting);
    let branch = branch.then(resumed(None)).then(stopped("a", 1));
    branch.refuses(failed_run());
    let branch = branch.then(stopped("b", 0));
    assert_eq!(branch.state.status(), RunStatus::Cancelled);
}
