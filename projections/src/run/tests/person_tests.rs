//! Forks, resumptions, resets, overlays: which frames may follow, and their consequences.

use ktsu_ledger::event::{BranchCreated, Effects, OverlaySet, PersonEvent, RunResumed, StepReset};

use super::*;

fn person() -> Principal {
    Principal {
        auth: "none".to_owned(),
        id: "ann".to_owned(),
    }
}

fn resumed(from: Option<&str>) -> Event {
    Event::Run(RunEvent::Resumed(RunResumed {
        paused_ms: None,
        by: person(),
        from: from.map(str::to_owned),
        reason: None,
    }))
}

fn reset(step: &str, attempt: u32) -> Event {
    Event::Step(StepEvent::Reset(StepReset {
        attempt,
        step: step.to_owned(),
    }))
}

fn overlay(step: &str, field: &str) -> Event {
    Event::Person(PersonEvent::OverlaySet(OverlaySet {
        by: person(),
        field: field.to_owned(),
        reason: "counted".to_owned(),
        step: step.to_owned(),
        value: CanonicalJson::from_value(&json!(7)).unwrap(),
    }))
}

fn branched(position: u64) -> BranchCreated {
    BranchCreated {
        branch_id: "branch_b".to_owned(),
        by: person(),
        definition: None,
        digest: None,
        effects: Effects::Suppress,
        engine: "test".to_owned(),
        env: None,
        fork_position: position,
        limits: None,
        params: None,
        parent_run_id: "r".to_owned(),
        reason: None,
        references: Vec::new(),
        restarts: false,
        rules: 1,
        version: None,
        workflow: None,
    }
}

impl Given {
    /// Goes on as a branch, which has a stream of its own.
    #[track_caller]
    pub(super) fn forked(mut self, change: impl FnOnce(&mut BranchCreated)) -> Self {
        let mut branch = branched(self.state.next_seq());
        change(&mut branch);
        let stream = format!("branch:{}", branch.branch_id);
        let place = link(&stream, self.state.next_seq(), self.state.link().prev);
        let event = Event::Run(RunEvent::Branched(Box::new(branch)));
        let sealed = draft("", event).seal(place, self.state.at()).unwrap();
        self.state.apply(&sealed.frame).unwrap();
        self
    }
}

/// The same of another attempt.
fn attempt(mut event: Event, number: u32) -> Event {
    if let Event::Step(StepEvent::Started(started)) = &mut event {
        started.attempt = number;
    }
    if let Event::Step(StepEvent::Completed(done)) = &mut event {
        done.attempt = number;
    }
    event
}

fn ended() -> Given {
    Given::a_run(two_transforms())
        .then(started("a"))
        .then(completed("a"))
        .then(started("b"))
        .then(completed("b"))
        .then(Event::Run(RunEvent::Completed(RunCompleted::default())))
}

#[test]
fn a_branch_waits_and_nothing_but_a_persons_word_moves_it() {
    let branch = Given::a_run(two_transforms()).forked(|_| {});
    assert_eq!(branch.state.status(), RunStatus::Waiting);
    assert_eq!(branch.state.stream().as_str(), "branch:branch_b");
    assert!(branch.state.suppresses_effects());
    let fired = TimerFired {
        responder: None,
        step: None,
        timer: ktsu_ledger::event::TimerKind::RunTimeout,
    };
    branch.refuses(Event::Run(RunEvent::TimerFired(fired)));
    let goes_on = branch.then(resumed(None));
    assert_eq!(goes_on.state.status(), RunStatus::Running);
    goes_on.refuses(resumed(None));
}

#[test]
fn what_is_held_back_follows_from_how_the_run_was_created_and_from_its_last_fork() {
    let held = |given: &Given| {
        let state = &given.state;
        (
            state.suppresses_effects(),
            state.suppresses_tools(),
            state.is_created_suppressed(),
        )
    };
    let execute = |branch: &mut BranchCreated| branch.effects = Effects::Execute;
    let again = |branch: &mut BranchCreated| branch.branch_id = "branch_c".to_owned();
    assert_eq!(held(&Given::a_run(two_transforms())), (false, false, false));
    assert_eq!(
        held(&Given::a_run(two_transforms()).forked(|_| {})),
        (true, true, false)
    );
    let created = || Given::a_run_without_effects(two_transforms());
    assert_eq!(held(&created()), (true, false, true));
    assert_eq!(held(&created().then(started("a"))), (true, false, true));
    assert_eq!(held(&created().forked(|_| {})), (true, true, true));
    assert_eq!(held(&created().forked(execute)), (false, false, false));
    let twice = created().forked(execute).forked(again);
    assert_eq!(held(&twice), (true, true, false));
}

#[test]
fn a_fork_names_its_place_and_itself() {
    let run = Given::a_run(two_transforms());
    let mut wrong = branched(run.state.next_seq() + 1);
    let refuses = |branch: BranchCreated, stream: &str| {
        let place = link(stream, run.state.next_seq(), run.state.link().prev);
        let event = Event::Run(RunEvent::Branched(Box::new(branch)));
        let sealed = draft("", event).seal(place, run.state.at()).unwrap();
        assert!(run.state.check(&sealed.frame).is_err());
    };
    refuses(wrong.clone(), "branch:branch_b");
    wrong.fork_position = run.state.next_seq();
    refuses(wrong.clone(), "branch:branch_c");
    refuses(wrong, "run:r");
}

#[test]
fn a_webhook_that_was_not_answered_begins_afresh_in_a_branch() {
    let sent = Given::a_run(one_webhook()).then(started("w")).then(sent(1));
    let branch = sent.forked(|_| {}).then(resumed(None));
    let step = &branch.state.scope(0).unwrap().steps[0];
    assert_eq!((step.status, step.attempt), (StepStatus::Pending, 1));
    assert_eq!(branch.state.todo(), Some(Todo::Effect(StepKey::of(0, 0))));
    branch.refuses(started("w"));
}

#[test]
fn a_run_that_ended_begins_again_with_a_step_and_what_depends_on_it() {
    let again = ended().then(resumed(Some("b")));
    assert_eq!(again.state.status(), RunStatus::Running);
    let (steps, _) = again.state.resetting();
    assert_eq!(steps.iter().copied().collect::<Vec<_>>(), [1]);
    again.refuses(reset("a", 1));
    let again = again.then(reset("b", 1));
    assert_eq!(again.state.todo(), Some(Todo::Step(StepKey::of(0, 1))));
    let both = ended().then(resumed(Some("a")));
    assert_eq!(both.state.resetting().0.len(), 2);
    ended().refuses(resumed(None));
    ended().refuses(reset("b", 1));
    Given::a_run(two_transforms()).refuses(resumed(Some("a")));
}

#[test]
fn an_overlay_is_laid_over_what_is_complete_and_survives_a_reset() {
    Given::a_run(two_transforms()).refuses(overlay("a", "n"));
    ended().refuses(overlay("a", "ktsu_flags"));
    let over = ended().then(overlay("a", "n"));
    let seq = over.state.next_seq() - 1;
    let Effective::Output(held) = over.state.effective(StepKey::of(0, 0)) else {
        panic!("a is complete");
    };
    assert_eq!(held.json.pointer("/n"), Some(json!(7)));
    let place = |frame, path: &str| Reference {
        frame,
        path: path.to_owned(),
    };
    assert_eq!(held.locate("/n"), Some(place(seq, "/value")));
    assert_eq!(
        held.locate(""),
        None,
        "the whole of it stands in no one place"
    );
    assert_eq!(over.state.value_at(&place(seq, "/value")), Some(json!(7)));
    let again = over
        .then(resumed(Some("a")))
        .then(reset("a", 1))
        .then(reset("b", 1))
        .then(attempt(started("a"), 2))
        .then(attempt(completed("a"), 2));
    let Effective::Output(held) = again.state.effective(StepKey::of(0, 0)) else {
        panic!("a is complete");
    };
    assert_eq!(held.json.pointer("/n"), Some(json!(7)));
}

/// The definition of a run with these steps.
fn definition_of(steps: Value) -> CanonicalJson {
    created(steps).created().unwrap().definition.clone()
}

#[test]
fn a_branch_finds_the_child_of_a_step_that_moved_and_knows_when_the_step_is_gone() {
    let call =
        || json!({"id": "call", "work": {"workflow": {"workflow": "c", "webhooks": "execute"}}});
    let other = || json!({"id": "other", "work": {"transform": {}}});
    let called = || {
        Given::a_run(json!([call(), other()]))
            .then(started("call"))
            .then_in("call", child_started())
            .then_in("call", started("in"))
            .then_in("call", completed("in"))
            .then_in("call", completed_run())
            .then(completed("call"))
    };
    let parent = |given: &Given| given.state.scope(1).unwrap().parent;
    assert_eq!(parent(&called()), Some(StepKey::of(0, 0)));

    let moved = called().forked(|branch| {
        branch.definition = Some(definition_of(json!([other(), call()])));
    });
    assert_eq!(parent(&moved), Some(StepKey::of(0, 1)));
    assert_eq!(moved.state.step_at("", "call"), Some(StepKey::of(0, 1)));

    let gone = called().forked(|branch| {
        branch.definition = Some(definition_of(json!([other()])));
    });
    assert_eq!(parent(&gone), Some(StepKey::Gone));
    assert!(gone.state.step(StepKey::Gone).is_none());
    assert!(!gone.state.failed_by_responder_task());
}
