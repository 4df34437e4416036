//! What becomes of a model's reply: reserved fields, the air-lock, one repair (seed 000, invariants
//! 9 and 21; decisions R1, R3 and R5).

use serde_json::{Value, json};

use super::{MSG, lab, of_type, saying, step};
use crate::support::model::{COST, Model, Said};

fn workflow(keys: &str) -> String {
    format!(
        r#"{MSG}
pipeline:
  - {{id: s1, agent: ./agents/echo.agent.yaml, {keys} params: {{msg: "{{{{ params.msg }}}}"}}}}
  - {{id: after, depends_on: [s1], agent: ./agents/echo.agent.yaml, params: {{msg: "{{\"answer\":\"after\"}}"}}}}
  - {{id: apart, transform: {{inputs: [], ops: []}}}}
"#
    )
}

#[tokio::test]
async fn every_reserved_outcome_ends_the_step_as_it_should_before_the_air_lock() {
    let model = Model::echo().await;
    let workflow = workflow("confidence_threshold: 0.7,");
    let (_kit, lab) = lab(&model, &[("one", &workflow)]).await;
    for (said, code) in [
        (json!({"answer": "x", "ktsu_confidence": 0.9}), None),
        (json!({"answer": "x", "ktsu_confidence": 0.7}), None),
        (
            json!({"answer": "x", "ktsu_confidence": 0.69}),
            Some("confidence_below_threshold"),
        ),
        (json!({"answer": "x"}), Some("confidence_below_threshold")),
        (
            json!({"answer": "x", "ktsu_confidence": "0.9"}),
            Some("confidence_below_threshold"),
        ),
        (
            json!({"ktsu_injection_attempt": true}),
            Some("injection_attempt"),
        ),
        (
            json!({"answer": "x", "ktsu_confidence": 1, "ktsu_injection_attempt": "no"}),
            Some("injection_attempt"),
        ),
        (
            json!({"ktsu_untrusted_content": true, "ktsu_low_quality": true}),
            Some("untrusted_content"),
        ),
        (json!({"ktsu_low_quality": 1}), Some("low_quality_output")),
        (
            json!({"ktsu_needs_human": true}),
            Some("needs_human_review"),
        ),
        (
            json!({"ktsu_confidence": 0.9, "noanswer": 1}),
            Some("schema_violation"),
        ),
        (
            json!({"answer": "x", "ktsu_confidence": 1, "ktsu_needs_human": false, "ktsu_low_quality": null}),
            None,
        ),
    ] {
        model.forget();
        let envelope = lab.client.run("one", saying(&said)).await;
        let s1 = step(&envelope, "s1");
        let told = format!("{said}: {envelope:#}");
        match code {
            None => {
                assert_eq!(envelope["status"], "complete", "{told}");
                assert_eq!(s1["output"], json!({"answer": "x"}), "{told}");
                assert_eq!(step(&envelope, "after")["status"], "complete", "{told}");
                assert_eq!(model.calls().len(), 2, "{told}");
            }
            Some(code) => {
                assert_eq!(envelope["status"], "failed", "{told}");
                assert_eq!(envelope["error"]["code"], code, "{told}");
                assert_eq!(envelope["error"]["step"], "s1", "{told}");
                assert_eq!(s1["status"], "failed", "{told}");
                assert_eq!(s1["error"]["code"], code, "{told}");
                assert_eq!(step(&envelope, "after")["status"], "skipped", "{told}");
                assert_eq!(model.calls().len(), 1, "{told}");
            }
        }
        assert_eq!(s1["metrics"]["llm_calls"], 1, "{told}");
        assert_eq!(s1["metrics"]["cost_micro_usd"], COST, "{told}");
    }
}

#[tokio::test]
async fn without_a_threshold_a_confidence_is_only_shown() {
    let model = Model::echo().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let said = json!({"answer": "x", "ktsu_confidence": 0.01});
    let envelope = lab.client.run("one", saying(&said)).await;
    assert_eq!(envelope["status"], "complete");
    assert_eq!(step(&envelope, "s1")["confidence"], 0.01);
}

#[tokio::test]
async fn a_skip_reason_skips_the_step_and_everything_that_needs_it_and_nothing_else() {
    let model = Model::echo().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow("confidence_threshold: 0.5,"))]).await;
    // Not even what the air-lock wants is missed.
    let said = json!({"ktsu_skip_reason": "nothing new", "ktsu_confidence": 0.5});
    let envelope = lab.client.run("one", saying(&said)).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let s1 = step(&envelope, "s1");
    assert_eq!(s1["status"], "skipped");
    assert_eq!(s1["skip_reason"], "nothing new");
    assert_eq!(
        s1["output"],
        json!({"skipped": true, "reason": "nothing new"})
    );
    assert_eq!(step(&envelope, "after")["status"], "skipped");
    assert_eq!(step(&envelope, "apart")["status"], "complete");
    assert_eq!(model.calls().len(), 1);
    assert_eq!(envelope["totals"]["cost_micro_usd"], COST);
}

#[tokio::test]
async fn flags_and_rationale_are_shown_and_every_reserved_field_is_stripped() {
    let model = Model::echo().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let said = json!({
        "answer": "x", "more": {"ktsu_deep": 1}, "ktsu_flags": ["vip", 7, "late"],
        "ktsu_rationale": "because", "ktsu_zzz": {"any": "thing"}, "ktsu_skip_reason": "",
    });
    let envelope = lab.client.run("one", saying(&said)).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let s1 = step(&envelope, "s1");
    assert_eq!(
        s1["output"],
        json!({"answer": "x", "more": {"ktsu_deep": 1}})
    );
    assert_eq!(s1["flags"], json!(["vip", "late"]));
    assert_eq!(s1["rationale"], "because");
    assert_eq!(s1["model"], "fake/gpt-4o-mini");
    let frames = lab
        .client
        .frames(envelope["run_id"].as_str().unwrap())
        .await;
    let judged = of_type(&frames, "reserved.evaluated");
    let fields: Vec<&str> = judged
        .iter()
        .map(|frame| frame["data"]["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["ktsu_skip_reason", "ktsu_flags", "ktsu_rationale"]);
}

#[tokio::test]
async fn what_does_not_fit_a_schema_fails_the_step_and_is_kept_as_it_was() {
    let model = Model::echo().await;
    let stricter = workflow(
        "output: {schema: {type: object, required: [more], properties: {more: {const: 1}}}},",
    );
    let (_kit, lab) = lab(&model, &[("one", &workflow("")), ("strict", &stricter)]).await;
    for (name, said, words) in [
        ("one", json!({"noanswer": 1}), Some("answer")),
        ("one", json!({"answer": 5}), Some("/answer")),
        ("one", json!({"answer": "x", "extra": 1}), None),
        ("strict", json!({"answer": "x"}), Some("more")),
        ("strict", json!({"answer": "x", "more": 2}), Some("/more")),
        ("strict", json!({"more": 1}), Some("answer")),
        ("strict", json!({"answer": "x", "more": 1}), None),
    ] {
        let envelope = lab.client.run(name, saying(&said)).await;
        let s1 = step(&envelope, "s1");
        let Some(words) = words else {
            assert_eq!(
                envelope["status"], "complete",
                "{name} {said}: {envelope:#}"
            );
            assert_eq!(s1["output"], said);
            continue;
        };
        assert_eq!(
            s1["error"]["code"], "schema_violation",
            "{name} {said}: {s1:#}"
        );
        let message = s1["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{name} {said}: {message}");
        assert_eq!(s1["raw_output"], said, "{name}");
        assert_eq!(s1.get("output"), None);
        assert_eq!(step(&envelope, "after")["status"], "skipped");
    }
}

#[tokio::test]
async fn a_reply_that_is_no_json_object_is_repaired_once_and_no_more() {
    let model = Model::scripted(|call| {
        let repaired = call.messages().len() == 4;
        match (call.user().as_str(), repaired) {
            ("bad", false) => Said::Text("Sure! {\"answer\":".to_owned()),
            ("bad", true) => Said::answer("repaired"),
            ("worse", false) => Said::Text("[1]".to_owned()),
            _ => Said::Text("I am sorry.".to_owned()),
        }
    })
    .await;
    let only = format!(
        "{MSG}\npipeline: [{{id: s1, agent: ./agents/echo.agent.yaml, params: {{msg: \"{{{{ params.msg }}}}\"}}}}]\n"
    );
    let (_kit, lab) = lab(&model, &[("one", &only)]).await;
    let envelope = lab.client.run("one", json!({"msg": "bad"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let s1 = step(&envelope, "s1");
    assert_eq!(s1["output"], json!({"answer": "repaired"}));
    assert_eq!(s1["metrics"]["llm_calls"], 2);
    assert_eq!(s1["metrics"]["repair_calls"], 1);
    assert_eq!(s1["metrics"]["cost_micro_usd"], 2 * COST);
    let calls = model.calls();
    let (first, repair) = (calls[0].messages(), calls[1].messages());
    assert_eq!(calls.len(), 2);
    assert_eq!(repair[..2], first[..]);
    assert_eq!(
        repair[2],
        ("assistant".to_owned(), "Sure! {\"answer\":".to_owned())
    );
    assert_eq!(repair[3].0, "user");
    model.forget();
    let envelope = lab.client.run("one", json!({"msg": "worse"})).await;
    let s1 = step(&envelope, "s1");
    assert_eq!(s1["error"]["code"], "output_invalid", "{envelope:#}");
    assert_eq!(s1["raw_output"], "I am sorry.");
    assert_eq!(model.calls().len(), 2);
}

#[tokio::test]
async fn an_error_of_the_provider_fails_the_step_with_its_code_and_is_not_tried_again() {
    let model = Model::scripted(|call| match call.user().as_str() {
        "down" => Said::Error(503),
        _ => Said::Error(401),
    })
    .await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    for msg in ["down", "refused"] {
        model.forget();
        let envelope = lab.client.run("one", json!({ "msg": msg })).await;
        assert_eq!(
            step(&envelope, "s1")["error"]["code"],
            "provider_error",
            "{envelope:#}"
        );
        assert_eq!(model.calls().len(), 1, "{msg}");
        assert!(!envelope.to_string().contains(crate::support::model::KEY.1));
    }
}

/// The provider sees its key, the model of the group and the messages, and nothing that it is not
/// to see; what it echoes of the key does not come back.
#[tokio::test]
async fn the_provider_is_asked_with_its_key_and_what_it_says_of_it_is_redacted() {
    let key = crate::support::model::KEY.1;
    let model = Model::scripted(move |_| Said::answer(&format!("the key is {key}"))).await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let envelope = lab.client.run("one", json!({"msg": "hi"})).await;
    assert_eq!(envelope["status"], "complete");
    let call = &model.calls()[0];
    assert_eq!(call.authorization, format!("Bearer {key}"));
    assert_eq!(call.path, "/v1/chat/completions");
    assert_eq!(call.body["model"], "gpt-4o-mini");
    let system = &call.messages()[0];
    assert_eq!(system.0, "system");
    assert!(
        system.1.starts_with("s\n\nYour output MUST conform"),
        "{}",
        system.1
    );
    let run = envelope["run_id"].as_str().unwrap();
    let frames = lab
        .client
        .get(&format!("/runs/{run}/frames?expand=true"))
        .await;
    assert!(!frames.text().contains(key));
    assert_eq!(
        step(&envelope, "s1")["output"],
        json!({"answer": "the key is [REDACTED]"})
    );
}

/// Every frame of a step is caused, and the trace is one tree.
#[tokio::test]
async fn every_frame_of_an_agent_step_follows_from_an_earlier_one() {
    let model = Model::echo().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let envelope = lab.client.run("one", saying(&json!({"answer": "x"}))).await;
    let frames = lab
        .client
        .frames(envelope["run_id"].as_str().unwrap())
        .await;
    for frame in frames.iter().skip(1) {
        let causes = frame["cause"].as_array().unwrap();
        assert!(!causes.is_empty(), "{frame}");
        let earlier = |cause: &Value| cause.as_u64() < frame["seq"].as_u64();
        assert!(causes.iter().all(earlier), "{frame}");
    }
    let answered = of_type(&frames, "llm.response");
    assert_eq!(answered.len(), 2);
    for frame in answered {
        assert!(frame["data"]["duration_ms"].is_u64());
        for hash in ["input_hash", "output_hash"] {
            assert!(frame["data"][hash].as_str().unwrap().starts_with("sha256:"));
        }
    }
}
