//! What a story keeps of a long run.

use ktsu_ledger::event::{Effects, Principal, WebhookAnswer};
use ktsu_ledger::{CanonicalJson, Frame, StreamId, Timestamp};
use ktsu_projections::run::StepKey;
use serde_json::{Value, json};

use super::TracedRun;
use ktsu_workflow::admit::{self, Invocation, WebhookOutcome};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::expression::EvaluatedValue;
use ktsu_workflow::expression::provenance::{Provenance, retained_size};
use ktsu_workflow::next::Memo;
use ktsu_workflow::turn::{self, Turn};

/// The frames of a run of webhooks, one after another, of which one fails, or none does.
fn webhooks(count: usize, failing: Option<usize>) -> Vec<Frame> {
    let step = |at: usize| {
        let needs: Vec<usize> = at.checked_sub(1).into_iter().collect();
        json!({"id": format!("w{at}"), "needs": needs, "work": {"webhook":
            {"method": "POST", "timeout_ms": 1000, "url": "http://x/", "body": {"n": "{{ params.n }}"}}}})
    };
    let steps: Value = (0..count).map(step).collect();
    let main = json!({"name": "main", "steps": steps, "version": "1.0.0", "visibility": "root",
        "webhooks": "execute"});
    let plan = json!({"agents": {}, "format": 1, "root": "main", "workflows": {"main": main}});
    let definition = Definition::compile(serde_json::from_value(plan).unwrap()).unwrap();
    let asked = Invocation {
        body: json!({"n": 7}),
        env: Default::default(),
        idempotency: None,
        lock: None,
        effects: Effects::Execute,
        no_cache: false,
        references: Vec::new(),
        principal: Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        },
    };
    let at = Timestamp::from_micros(1);
    let (memo, stream) = (Memo::default(), StreamId::run("run_x").unwrap());
    let created = admit::invocation(&definition, asked).unwrap();
    let (mut state, first) = turn::begin(&definition, stream, created, at, &memo).unwrap();
    let frames = |turn: Turn| turn.sealed.into_iter().map(|sealed| sealed.frame);
    let mut told: Vec<Frame> = frames(first).collect();
    for number in 0..count.min(failing.map_or(count, |at| at + 1)) {
        let status = if failing == Some(number) { 400 } else { 204 };
        let answer = WebhookAnswer {
            approval: None,
            attempt: 1,
            code: (status >= 300).then(|| "webhook_status".to_owned()),
            duration_ms: 3,
            response: CanonicalJson::null(),
            sending: 1,
            status: Some(status),
            step: format!("w{number}"),
            truncated: false,
        };
        let scope = String::new();
        let input = admit::answer(&state, WebhookOutcome { scope, answer }).unwrap();
        told.extend(frames(
            turn::apply_input(&definition, &mut state, input, at, &memo).unwrap(),
        ));
    }
    assert!(state.status().is_terminal());
    told
}

/// The places that a story keeps, with the sets they are in.
fn size(run: &[Frame], count: usize) -> usize {
    let story = TracedRun::of(run).unwrap();
    let mut sets: Vec<Provenance> = Vec::new();
    for at in 0..count {
        let track = story
            .step(StepKey::of(0, u32::try_from(at).unwrap()))
            .unwrap();
        sets.extend([track.gate.clone(), track.risk.clone()]);
        let value = track.value.iter();
        sets.extend(value.flat_map(|value| [value.source(), value.chosen().clone()]));
    }
    retained_size(&sets)
}

#[test]
fn what_a_story_keeps_grows_with_its_run_and_not_with_the_square_of_it() {
    for fails in [false, true] {
        // Where one fails, half of the steps are there before it, and half are skipped because of it.
        let sizes = [100, 400].map(|count| {
            let run = webhooks(count, fails.then_some(count / 2));
            size(&run, count)
        });
        let [few, many] = sizes;
        assert!(many <= 5 * few, "{fails}: {few}, {many}");
    }
}
