//! Calls of a recompute that are not sent: given the frames of a run, when its agent requests the
//! same call, then the recorded result (seed 004).

use ktsu_ledger::Cause;
use ktsu_ledger::event::{AgentEvent, Decision, LostReason, Sameness, ToolReturned, UnsentReason};
use ktsu_ledger::{CanonicalJson, Event};
use serde_json::json;

use crate::admit::report::{ReportAdmission, report};
use crate::driven_tests::{Driven, Say, output};
use crate::plans_tests::{agent, run_of};
use crate::recompute::{RecordedRun, compare};

const TOOLS: [(&str, &str); 5] = [
    ("w", "write"),
    ("s", "read-a"),
    ("s", "delete-a"),
    ("s", "ask-a"),
    ("s", "soft-a"),
];

fn run() -> Driven {
    run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}))
}

fn call(server: &str, tool: &str) -> Say {
    Say::Call(0, server.to_owned(), tool.to_owned())
}

/// A turn in which the model asks for one tool.
fn turn(run: &mut Driven, task: &str, tool: &'static str) {
    run.says(task, &[Say::Offer(TOOLS.to_vec())]);
    run.says(task, &[Say::Wants(vec![tool])]);
}

fn ends(run: &mut Driven, task: &str) {
    run.asks(task);
    run.says(task, &[Say::Reply { cost: 3 }, output(json!({"v": 1}))]);
}

/// A run whose agent wrote twice, with the same arguments: it worked, and then it did not.
fn wrote_twice() -> Driven {
    let mut run = run();
    for result in [Say::Result(0), Say::Fails(0)] {
        turn(&mut run, "a", "write");
        run.says("a", &[call("w", "write")]);
        run.says("a", &[result]);
    }
    ends(&mut run, "a");
    run
}

/// What the task's model is told of a call that its runtime does not send.
fn withheld(run: &mut Driven, tool: &'static str) -> ToolReturned {
    turn(run, "a.0", tool);
    run.says("a.0", &[Say::NotSent(0, UnsentReason::SuppressedInBranch)]);
    results(run).pop().unwrap()
}

fn results(run: &Driven) -> Vec<ToolReturned> {
    let results = run.frames.iter().filter_map(|frame| match &frame.event {
        Event::Agent(AgentEvent::ToolReturned(returned)) => Some((**returned).clone()),
        _ => None,
    });
    results.collect()
}

/// Where the results of a run stand.
fn places(run: &Driven) -> Vec<u64> {
    let frames = run.frames.iter();
    let results = frames.filter(|frame| frame.event.kind() == "tool.returned");
    results.map(|frame| frame.seq).collect()
}

fn place(returned: &ToolReturned) -> Option<u64> {
    returned.recorded.as_ref().map(|at| at.seq)
}

/// That a result says what one of the run said, and nothing else.
#[track_caller]
fn repeats(returned: &ToolReturned, run: &Driven, which: usize) {
    assert_eq!(place(returned), Some(places(run)[which]));
    let before = &results(run)[which];
    assert_eq!(returned.content, before.content);
    assert_eq!(returned.is_error, before.is_error);
    assert_eq!(returned.not_sent, before.not_sent);
    assert_eq!(returned.called, None);
}

#[test]
fn equal_calls_get_the_recorded_results_in_order_and_each_once() {
    let run = wrote_twice();
    let mut again = run.recompute();
    repeats(&withheld(&mut again, "write"), &run, 0);
    let failed = withheld(&mut again, "write");
    assert!(failed.is_error, "an error of the tool is an answer, too");
    repeats(&failed, &run, 1);
    let third = withheld(&mut again, "write");
    assert_eq!((place(&third), third.is_error), (None, true));
    assert_eq!(third.not_sent, Some(UnsentReason::SuppressedInBranch));
    let words = "no recorded result of write of w with these arguments is left in run:run_test";
    assert!(
        third.content.as_str().contains(words),
        "{:?}",
        third.content
    );
    let last = again.frames.last().unwrap();
    assert_eq!(last.cause.len(), 1, "it repeats nothing");
}

#[test]
fn a_repeated_result_follows_from_the_reply_that_asks_and_from_the_recorded_one() {
    let run = wrote_twice();
    let mut again = run.recompute();
    let first = withheld(&mut again, "write");
    let frame = again.frames.last().unwrap();
    let there = Cause::There(run.state.stream().clone(), places(&run)[0]);
    assert_eq!(frame.cause, [Cause::Here(first.response), there]);
    let at = first.recorded.unwrap();
    assert_eq!((at.server.as_str(), at.tool.as_str()), ("w", "write"));
    assert_eq!(at.stream, "run:run_test");
}

#[test]
fn other_arguments_another_tool_and_another_server_have_no_recorded_result() {
    let run = wrote_twice();
    let mut again = run.recompute();
    // The arguments are the places in the reply: the second `write` has others.
    again.says("a.0", &[Say::Offer(TOOLS.to_vec())]);
    again.says("a.0", &[Say::Wants(vec!["delete-a", "write"])]);
    let held = UnsentReason::SuppressedInBranch;
    again.says("a.0", &[Say::NotSent(0, held), Say::NotSent(1, held)]);
    assert_eq!(results(&again).iter().filter_map(place).count(), 0);
    // A tool of this name that another server offers now is another tool.
    again.says("a.0", &[Say::Offer(vec![("s", "write")])]);
    again.says("a.0", &[Say::Wants(vec!["write"])]);
    again.says("a.0", &[Say::NotSent(0, held)]);
    let last = results(&again).pop().unwrap();
    assert_eq!(place(&last), None);
    assert!(
        last.content.as_str().contains("write of s"),
        "{:?}",
        last.content
    );
}

#[test]
fn an_attempt_continues_with_the_results_that_are_left() {
    let run = wrote_twice();
    let mut again = run.recompute();
    turn(&mut again, "a.0", "write");
    again.says("a.0", &[Say::NotSent(0, UnsentReason::SuppressedInBranch)]);
    assert!(again.loses("a.0", LostReason::Heartbeat, true));
    repeats(&withheld(&mut again, "write"), &run, 1);
}

#[test]
fn what_people_said_of_a_call_then_is_what_its_model_is_given_now() {
    for (tool, decision) in [
        ("delete-a", Some(Decision::Approved)),
        ("ask-a", Some(Decision::Rejected)),
        ("soft-a", None),
    ] {
        let mut run = run();
        turn(&mut run, "a", tool);
        run.says("a", &[Say::Gate(0, "s".to_owned(), tool.to_owned())]);
        match decision {
            Some(decision) => run.decides("a", "ann", decision, None).unwrap(),
            None => run.waits_too_long(),
        }
        match decision {
            Some(Decision::Approved) => {
                run.says("a", &[call("s", tool)]);
                run.says("a", &[Say::Result(0)]);
            }
            _ => run.says("a", &[Say::NotSent(0, UnsentReason::Rejected)]),
        }
        ends(&mut run, "a");
        let mut again = run.recompute();
        repeats(&withheld(&mut again, tool), &run, 0);
        ends(&mut again, "a.0");
        let recorded = RecordedRun::from_frames(&run.frames).unwrap();
        let verdict = compare(&recorded, &again.frames).unwrap();
        assert_eq!(verdict.status, Sameness::Clean, "{tool}");
    }
}

#[test]
fn a_call_in_doubt_gives_what_came_of_it() {
    for decision in [Decision::Happened, Decision::Approved] {
        let mut run = run();
        turn(&mut run, "a", "write");
        run.says("a", &[call("w", "write")]);
        run.says("a", &[Say::Doubt(0)]);
        run.decides("a", "ann", decision, None).unwrap();
        if decision == Decision::Approved {
            run.says("a", &[call("w", "write")]);
        }
        run.says("a", &[Say::Result(0)]);
        ends(&mut run, "a");
        let mut again = run.recompute();
        repeats(&withheld(&mut again, "write"), &run, 0);
    }
}

#[test]
fn what_may_be_called_live_is_not_taken_from_the_record() {
    let mut run = run();
    turn(&mut run, "a", "read-a");
    run.says("a", &[call("s", "read-a")]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run, "a");
    let mut again = run.recompute();
    assert_eq!(place(&withheld(&mut again, "read-a")), None);
    turn(&mut again, "a.0", "read-a");
    again.says("a.0", &[call("s", "read-a")]);
    again.says("a.0", &[Say::Result(0)]);
    assert_eq!(results(&again).pop().unwrap().not_sent, None);
}

#[test]
fn a_runtime_cannot_make_a_result_up() {
    let run = wrote_twice();
    let mut again = run.recompute();
    turn(&mut again, "a.0", "write");
    // Neither as the answer to a call, nor by sending it, nor by asking people.
    for says in [
        Say::Result(0),
        call("w", "write"),
        Say::Gate(0, "w".to_owned(), "write".to_owned()),
    ] {
        let judged = again.reports("a.0", 1, 9, std::slice::from_ref(&says));
        assert!(
            matches!(judged, ReportAdmission::Malformed(_)),
            "{says:?}: {judged:?}"
        );
    }
    // A frame that says something else of the same result does not follow.
    let held = [Say::NotSent(0, UnsentReason::SuppressedInBranch)];
    let events = again.events("a.0", 1, 9, &held);
    let ReportAdmission::Accepted(drafts) = report(&again.state, "", events, &Default::default())
    else {
        panic!("it is taken");
    };
    let Event::Agent(AgentEvent::ToolReturned(right)) = &drafts[0].event else {
        panic!("it is a result");
    };
    type Edit = fn(&mut ToolReturned);
    let edits: [Edit; 6] = [
        |one| one.content = CanonicalJson::parse(b"[]").unwrap(),
        |one| one.is_error = true,
        |one| one.structured = Some(CanonicalJson::null()),
        |one| one.not_sent = Some(UnsentReason::Rejected),
        |one| one.recorded.as_mut().unwrap().seq += 1,
        |one| {
            one.recorded = None;
            one.not_sent = Some(UnsentReason::SuppressedInBranch);
        },
    ];
    let may = |one: &ToolReturned| {
        let event = AgentEvent::ToolReturned(Box::new(one.clone()));
        again.task("a.0").accepts(&event)
    };
    assert!(may(right));
    for (at, edit) in edits.iter().enumerate() {
        let mut wrong = (**right).clone();
        edit(&mut wrong);
        assert!(!may(&wrong), "edit {at}");
    }
    // Whatever else a runtime says that kept it from sending the call: the record answers.
    again.says("a.0", &[Say::NotSent(0, UnsentReason::InvalidArguments)]);
    repeats(&results(&again).pop().unwrap(), &run, 0);
}

#[test]
fn the_same_value_after_an_unanswered_call_is_not_called_clean() {
    let mut run = run();
    turn(&mut run, "a", "read-a");
    run.says("a", &[call("s", "read-a")]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run, "a");
    let mut again = run.recompute();
    withheld(&mut again, "write");
    withheld(&mut again, "delete-a");
    ends(&mut again, "a.0");
    let recorded = RecordedRun::from_frames(&run.frames).unwrap();
    let verdict = compare(&recorded, &again.frames).unwrap();
    assert_eq!(verdict.status, Sameness::NotComparable);
    assert!(verdict.tasks[0].diff.is_empty());
    let reason = verdict.tasks[0].reason.as_deref();
    let words = "2 calls were not sent, and no recorded results answer them: write, delete-a";
    assert_eq!(reason, Some(words));
}

#[test]
fn results_are_taken_in_the_order_of_the_replies_not_of_the_answers() {
    let mut run = run();
    run.says("a", &[Say::Offer(TOOLS.to_vec())]);
    run.says("a", &[Say::Wants(vec!["write", "write"])]);
    let second = Say::Call(1, "w".to_owned(), "write".to_owned());
    run.says("a", &[call("w", "write"), second]);
    run.says("a", &[Say::Fails(1)]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run, "a");
    let recorded = RecordedRun::from_frames(&run.frames).unwrap();
    let results = recorded.tasks[0].calls.results();
    let order: Vec<bool> = results.map(|result| result.is_error).collect();
    assert_eq!(order, [false, true]);
}
