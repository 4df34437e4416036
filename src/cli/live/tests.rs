//! Given frames, then lines.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::test_frames;

use super::*;

/// A view whose lines are kept.
struct View {
    live: Live,
    said: Rc<RefCell<Vec<String>>>,
    ms: u64,
}

fn wide() -> Terminal {
    Terminal {
        width: Some(200),
        symbols: Symbols::Unicode,
    }
}

impl View {
    fn new(terminal: bool) -> Self {
        let said = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&said);
        let live = Live {
            terminal,
            running: Vec::new(),
            cost_micro_usd: 0,
            calls: CallHistory::default(),
            waits: Waits::default(),
            last: None,
            responders: WaitingResponders::default(),
            out: Box::new(move |line| {
                let plain = anstream::adapter::strip_str(line).to_string();
                kept.borrow_mut().push(plain);
            }),
            sheet: wide,
        };
        Self { live, said, ms: 0 }
    }

    /// Takes a frame, 100 ms after the one before.
    fn then(mut self, kind: &str, step: &str, item: Option<u64>, mut data: Value) -> Self {
        self.ms += 100;
        let at = Timestamp::from_micros(self.ms * 1000).to_string();
        data["step"] = json!(step);
        data["item"] = json!(item);
        let frame = test_frames::frame(kind, "", self.ms / 100, &at, &data);
        self.live.apply(&frame);
        self
    }

    fn called(self, step: &str, item: Option<u64>, purpose: &str) -> Self {
        let asked = json!({"group": "careful", "purpose": purpose});
        let answer = json!({"provider": "p", "model": "m", "tokens_in": 100, "tokens_out": 10,
            "cost_micro_usd": 1500, "duration_ms": 70});
        self.then("llm.request", step, item, asked)
            .then("llm.response", step, item, answer)
    }

    fn lines(&self) -> Vec<String> {
        self.said.borrow().clone()
    }

    fn going_on(&self) -> Vec<String> {
        self.live.running.iter().map(Running::activity).collect()
    }
}

#[test]
fn a_pipe_gets_a_line_for_every_event_of_an_agent_that_matters() {
    let view = View::new(false)
        .then("step.started", "think", None, json!({}))
        .then("worker.dispatched", "think", None, json!({"attempt": 1}))
        .called("think", None, "turn")
        .then("worker.lost", "think", None, json!({"reason": "heartbeat"}))
        .then("worker.dispatched", "think", None, json!({"attempt": 2}))
        .called("think", None, "repair")
        .then("agent.decided", "think", None, json!({"draft": {}}))
        .then("reflect.started", "think", None, json!({}))
        .called("think", None, "reflect")
        .then(
            "agent.finished",
            "think",
            None,
            json!({"reason": "completed"}),
        )
        .then(
            "reserved.evaluated",
            "think",
            None,
            json!({"field": "ktsu_flags", "value": ["odd", 1]}),
        )
        .then("step.completed", "think", None, json!({}));
    assert_eq!(
        view.lines(),
        [
            "step think replied p/m 100+10 tokens $0.0015 70 ms",
            "step think lost its worker: heartbeat",
            "step think attempt 2",
            "step think repairs its draft",
            "step think replied p/m 100+10 tokens $0.0015 70 ms",
            "step think reflects",
            "step think replied p/m 100+10 tokens $0.0015 70 ms",
            "step think complete 1.4 s p/m, 3 calls, 1 reflection, 1 repair, 300+30 tokens, \
             $0.0045, flags: odd",
        ]
    );
    assert_eq!(view.live.cost_micro_usd, 4500);
}

#[test]
fn a_fan_out_shows_how_far_it_is_and_how_its_items_ended() {
    let view = |terminal| {
        View::new(terminal)
            .then("step.started", "each", None, json!({"items": 4}))
            .then("item.started", "each", Some(0), json!({}))
            .then("item.started", "each", Some(1), json!({}))
            .called("each", Some(0), "turn")
            .then("item.completed", "each", Some(0), json!({}))
            .then("item.started", "each", Some(2), json!({}))
    };
    assert_eq!(view(true).going_on(), ["1/4, 2 running"]);
    let end = |view: View| {
        let failed = json!({"code": "schema_violation", "message": "at /n"});
        view.then(
            "item.completed",
            "each",
            Some(1),
            json!({"skipped": "dull"}),
        )
        .then("item.failed", "each", Some(2), failed)
        .then(
            "step.failed",
            "each",
            None,
            json!({"code": "max_failures_exceeded", "message": "m"}),
        )
        .lines()
    };
    assert_eq!(
        end(view(false)),
        [
            "step each.0 replied p/m 100+10 tokens $0.0015 70 ms",
            "step each.0 complete 400 ms p/m, 1 call, 100+10 tokens, $0.0015",
            "step each.1 skipped 500 ms dull",
            "step each.2 failed 200 ms schema_violation: at /n",
            "step each failed 900 ms max_failures_exceeded: m, 4 items, 1 failed, 2 skipped, \
             p/m, 1 call, 100+10 tokens, $0.0015",
        ],
        "one never started"
    );
    let shown = end(view(true));
    let words: Vec<&str> = shown
        .iter()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(
        words,
        ["each.1", "each.2", "each"],
        "what went well is counted: {shown:#?}"
    );
}

#[test]
fn a_terminal_sees_what_an_agent_does_in_its_last_line() {
    let asks = json!({"group": "careful", "purpose": "turn"});
    let view = View::new(true)
        .then("step.started", "think", None, json!({}))
        .then("llm.request", "think", None, asks);
    assert_eq!(view.going_on(), ["asks careful"]);
    let view = view.then("reflect.started", "think", None, json!({}));
    assert_eq!(view.going_on(), ["reflects"]);
    assert!(view.lines().is_empty());
}

#[test]
fn nothing_an_agent_says_steers_the_terminal() {
    let evil = "\u{1b}[2Jgone\nstep other complete";
    for terminal in [false, true] {
        let view = View::new(terminal)
            .then("step.started", "think", None, json!({}))
            .then(
                "llm.request",
                "think",
                None,
                json!({"group": evil, "purpose": "turn"}),
            )
            .then(
                "llm.response",
                "think",
                None,
                json!({"provider": evil, "model": evil}),
            )
            .then(
                "llm.response",
                "think",
                None,
                json!({"error": {"code": evil, "message": evil, "retryable": false}}),
            )
            .then(
                "reserved.evaluated",
                "think",
                None,
                json!({"field": "ktsu_flags", "value": [evil]}),
            )
            .then(
                "step.skipped",
                "think",
                None,
                json!({"reason": "agent_skipped", "detail": evil}),
            );
        for line in view.said.borrow().iter() {
            assert!(!line.contains(text::is_control), "{line:?}");
        }
        assert!(!view.lines().is_empty());
    }
}

#[test]
fn calls_of_tools_are_reported_with_what_people_said_to_them() {
    let put = |call: u64| json!({"response": 3, "call": call, "server": "desk", "tool": "put"});
    let by = json!({"id": "ann", "auth": "token"});
    let view = |terminal| {
        View::new(terminal)
            .then("step.started", "act", None, json!({}))
            .called("act", None, "turn")
            .then("tool.called", "act", None, put(0))
            .then(
                "tool.returned",
                "act",
                None,
                json!({"response": 3, "call": 0, "duration_ms": 12}),
            )
            .then(
                "tool.returned",
                "act",
                None,
                json!({"response": 3, "call": 1, "is_error": true, "not_sent": "unknown_tool"}),
            )
            .then("approval.requested", "act", None, put(2))
    };
    let told = view(false);
    assert_eq!(told.going_on(), ["waits for people"]);
    let told = told
        .then(
            "approval.decided",
            "act",
            None,
            json!({"request": 7, "decision": "approved", "by": by}),
        )
        .then("tool.called", "act", None, put(2));
    assert_eq!(told.going_on(), ["calls desk.put"]);
    let told = told
        .then("tool.in_doubt", "act", None, json!({"called": 9}))
        .then("approval.expired", "act", None, json!({"request": 10}))
        .then("step.completed", "act", None, json!({}));
    assert_eq!(told.live.calls.calls().len(), 0, "ended calls are held");
    assert_eq!(
        told.lines(),
        [
            "step act replied p/m 100+10 tokens $0.0015 70 ms",
            "step act calls desk.put",
            "step act desk.put gave a result 12 ms",
            "step act did not call a tool: unknown_tool",
            "step act asks people about desk.put",
            "step act desk.put approved by ann",
            "step act calls desk.put",
            "step act does not know what became of desk.put",
            "step act no decision on desk.put in time",
            "step act complete 900 ms p/m, 1 call, 100+10 tokens, 2 tool calls, $0.0015, \
             waited 200 ms",
        ]
    );
    // A terminal has calls in its last line; what people are asked stays.
    let lines = view(true).lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("asks people about desk.put"), "{lines:?}");
}

#[test]
fn what_waited_for_people_is_distinguished_from_what_took_time() {
    let asked = |call: u64| json!({"call": call, "tool": "put", "server": "desk"});
    let view = View::new(false)
        .then("step.started", "each", None, json!({"items": 2}))
        .then("item.started", "each", Some(0), json!({}))
        .then("item.started", "each", Some(1), json!({}))
        .then("approval.requested", "each", Some(0), asked(0))
        .then("approval.requested", "each", Some(1), asked(0))
        // 100 ms in which nothing moved; then the first goes on while the other waits.
        .then(
            "approval.decided",
            "each",
            Some(0),
            json!({"request": 4, "decision": "approved"}),
        )
        .then("worker.dispatched", "each", Some(0), json!({"attempt": 2}))
        .then(
            "approval.decided",
            "each",
            Some(1),
            json!({"request": 5, "decision": "rejected"}),
        )
        .then("tool.called", "each", Some(0), asked(0))
        .then(
            "item.failed",
            "each",
            Some(1),
            json!({"code": "approval_rejected", "message": "m"}),
        )
        .then("item.completed", "each", Some(0), json!({}))
        .then("step.completed", "each", None, json!({}));
    let lines = view.lines();
    let line = |begin: &str| {
        let found = lines.iter().find(|line| line.starts_with(begin));
        found
            .cloned()
            .unwrap_or_else(|| panic!("no {begin} in {lines:#?}"))
    };
    assert!(
        line("step each.1 failed 400 ms").ends_with("waited 300 ms"),
        "{lines:#?}"
    );
    assert!(
        line("step each.0 complete 700 ms").ends_with("waited 200 ms"),
        "{lines:#?}"
    );
    assert!(
        line("step each complete 1.0 s").ends_with("waited 100 ms"),
        "{lines:#?}"
    );
}

#[test]
fn what_people_say_about_the_whole_run_is_reported_with_who_said_it() {
    let word = |reason: &str| json!({"by": {"id": "olga", "auth": "token"}, "reason": reason});
    for (terminal, begin) in [(false, ""), (true, "  ! ")] {
        let view = View::new(terminal)
            .then("run.paused", "", None, word("the desk\nis shut"))
            .then(
                "run.resumed",
                "",
                None,
                json!({"by": {"id": "ann", "auth": "token"}}),
            )
            .then("run.cancelled", "", None, word("for good"));
        let told = [
            r"run paused by olga: the desk\u{a}is shut (to continue: ktsu resume run_r)",
            "run resumed by ann",
            "run cancelled by olga: for good",
        ];
        assert_eq!(view.lines(), told.map(|line| format!("{begin}{line}")));
    }
}

#[test]
fn why_something_failed_is_whole_however_narrow_the_terminal() {
    let mut view = View::new(true);
    view.live.sheet = || Terminal {
        width: Some(40),
        ..wide()
    };
    let why = "the answer is not what was asked for, as far as anybody can tell";
    let lines = view
        .then("step.started", "act", None, json!({}))
        .then(
            "step.failed",
            "act",
            None,
            json!({"code": "c", "message": why}),
        )
        .lines();
    assert!(lines.len() > 2, "{lines:?}");
    assert!(lines.iter().all(|line| columns(line) <= 40), "{lines:?}");
    let words = lines.join(" ");
    let words: Vec<&str> = words.split_whitespace().collect();
    assert!(words.join(" ").contains(why), "{lines:?}");
}
