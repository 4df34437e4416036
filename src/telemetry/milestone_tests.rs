use ktsu_ledger::event::{
    CallError, DoubtReason, LlmResponse, ReportReference, RunCommand, RunResumed, ToolInDoubt,
    WorkerLost,
};
use ktsu_ledger::frame::Link;
use ktsu_ledger::{Actor, CanonicalJson, Draft, Hash, StreamId};

use super::*;

fn frame(scope: &str, event: Event) -> Frame {
    let draft = Draft {
        scope: scope.to_owned(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event,
    };
    let link = Link {
        stream: StreamId::run("run_x").unwrap(),
        seq: 7,
        prev: Hash::ZERO,
    };
    draft.seal(link, Timestamp::from_micros(5)).unwrap().frame
}

fn person() -> Principal {
    Principal {
        auth: "token".to_owned(),
        id: "ann".to_owned(),
    }
}

fn report() -> ReportReference {
    ReportReference {
        digest: "d".to_owned(),
        n: 1,
    }
}

fn response(error: Option<CallError>) -> Event {
    Event::Agent(AgentEvent::Response(Box::new(LlmResponse {
        attempt: 2,
        attempts: Vec::new(),
        cached: false,
        content: Some(CanonicalJson::from_value(&"what was said".into()).unwrap()),
        cost_micro_usd: 30,
        duration_ms: 12,
        error,
        input_hash: String::new(),
        item: Some(3),
        model: "m".to_owned(),
        output_hash: String::new(),
        prices: String::new(),
        provider: "p".to_owned(),
        repeats: None,
        report: Some(report()),
        request: 5,
        saved: None,
        step: "work".to_owned(),
        tokens_cached: 1,
        tokens_in: 10,
        tokens_out: 20,
        tokens_reasoning: 2,
        tool_calls: None,
        unpriced: false,
    })))
}

#[test]
fn a_reply_is_reported_by_its_numbers_and_not_by_its_words() {
    let told = milestone(&frame("child", response(None))).unwrap();
    assert_eq!((told.level, told.words), (Level::DEBUG, "model answered"));
    assert_eq!(told.fields.step.as_deref(), Some("child/work"));
    assert_eq!((told.fields.item, told.fields.attempt), (Some(3), Some(2)));
    assert_eq!(told.fields.tokens_out, Some(20));
    assert!(!format!("{told:?}").contains("what was said"));
    let counted = MilestoneCount::Model {
        tokens_cached: 1,
        tokens_reasoning: 2,
    };
    assert_eq!(told.count, Some(counted));
    assert_eq!(
        (told.fields.code, told.fields.cost_micro_usd),
        (None, Some(30))
    );
}

/// Nobody was called, so that metrics of calls say nothing of it.
#[test]
fn a_repeated_reply_is_reported_and_not_counted() {
    let mut event = response(None);
    if let Event::Agent(AgentEvent::Response(answer)) = &mut event {
        answer.repeats = Some(2);
    }
    let told = milestone(&frame("child", event)).unwrap();
    assert_eq!((told.words, told.count), ("model reply repeated", None));
}

#[test]
fn a_code_that_is_none_is_not_shown() {
    let error = |code: &str| {
        Some(CallError {
            code: code.to_owned(),
            message: "words".to_owned(),
            retryable: false,
        })
    };
    let shown = |code: &str| {
        let told = milestone(&frame("", response(error(code)))).unwrap();
        told.fields.code.unwrap()
    };
    assert_eq!(shown("provider_error"), "provider_error");
    assert_eq!(shown("the secret is X"), "other");
    assert_eq!(shown(&"x".repeat(65)), "other");
    assert_eq!(shown(""), "other");
}

#[test]
fn a_persons_word_names_who_and_not_why() {
    let word = || RunCommand {
        by: person(),
        reason: Some("because".to_owned()),
    };
    let resumed = RunEvent::Resumed(RunResumed {
        by: person(),
        from: Some("work".to_owned()),
        paused_ms: None,
        reason: Some("because".to_owned()),
    });
    for event in [
        RunEvent::Paused(word()),
        RunEvent::Cancelled(word()),
        RunEvent::Terminated(word()),
        resumed,
    ] {
        let told = milestone(&frame("", Event::Run(event))).unwrap();
        assert_eq!(told.level, Level::INFO);
        assert_eq!(told.fields.principal.as_deref(), Some("ann"));
        assert!(!format!("{told:?}").contains("because"));
    }
}

#[test]
fn what_needs_a_person_is_reported_to_whoever_reads_only_the_life_of_runs() {
    let doubt = Event::Agent(AgentEvent::ToolInDoubt(ToolInDoubt {
        attempt: 1,
        called: 4,
        item: None,
        reason: DoubtReason::NoAnswer,
        report: Some(report()),
        step: "work".to_owned(),
    }));
    let told = milestone(&frame("", doubt)).unwrap();
    assert_eq!(told.level, Level::INFO);
    assert_eq!(told.fields.code.as_deref(), Some("no_answer"));
    let lost = Event::Worker(WorkerEvent::Lost(WorkerLost {
        attempt: 1,
        item: None,
        reason: LostReason::Heartbeat,
        runtime_alive: false,
        step: "work".to_owned(),
    }));
    assert_eq!(milestone(&frame("", lost)).unwrap().level, Level::DEBUG);
}
