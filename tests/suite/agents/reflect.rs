//! Agents that look at their draft once more: how often the model is asked, with what, and what of
//! it counts (decision R2).

use serde_json::{Value, json};

use super::{MSG, lab, step};
use crate::support::model::{Model, Said};

/// The user's text is a list of what the model says: the draft first, then the reflection.
async fn model() -> Model {
    Model::scripted(|call| {
        let replies: Vec<Value> = serde_json::from_str(&call.user()).unwrap();
        let reflecting = call.messages()[0].1 == "Look at it once more.";
        let said = replies.get(usize::from(reflecting)).unwrap();
        match said {
            Value::String(text) => Said::Text(text.clone()),
            said => Said::json(said),
        }
    })
    .await
}

fn workflow(keys: &str) -> String {
    format!(
        "{MSG}\npipeline: [{{id: s1, agent: ./agents/reflects.agent.yaml, {keys} params: {{msg: \"{{{{ params.msg }}}}\"}}}}]\n"
    )
}

async fn run(lab: &crate::support::Lab, workflow: &str, replies: &Value) -> Value {
    let body = json!({"msg": replies.to_string()});
    lab.client.run(workflow, body).await
}

#[tokio::test]
async fn a_draft_is_looked_at_once_more_and_only_the_second_reply_counts() {
    let model = model().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let draft = json!({"answer": "first", "only": "draft", "ktsu_flags": ["draft"]});
    let replies = json!([draft, {"answer": "second"}]);
    let envelope = run(&lab, "one", &replies).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let s1 = step(&envelope, "s1");
    assert_eq!(s1["output"], json!({"answer": "second"}));
    assert_eq!(s1["reflected"], true);
    assert_eq!(s1.get("flags"), None);
    assert_eq!(s1["metrics"]["llm_calls"], 2);
    assert_eq!(s1["metrics"]["reflect_calls"], 1);
    let calls = model.calls();
    assert_eq!(calls.len(), 2);
    let text = |role: &str, text: &str| (role.to_owned(), text.to_owned());
    assert_eq!(
        calls[1].messages(),
        [
            text("system", "Look at it once more."),
            text("user", &replies.to_string()),
            text("user", &draft.to_string()),
        ]
    );
    for call in &calls {
        assert_eq!(call.body.get("tools"), None);
    }
    assert_eq!(calls[0].body["max_tokens"], calls[1].body["max_tokens"]);
}

#[tokio::test]
async fn a_fatal_draft_is_final_and_no_one_asks_again() {
    let model = model().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    for (field, code) in [
        ("ktsu_injection_attempt", "injection_attempt"),
        ("ktsu_untrusted_content", "untrusted_content"),
        ("ktsu_low_quality", "low_quality_output"),
        ("ktsu_needs_human", "needs_human_review"),
    ] {
        model.forget();
        let envelope = run(&lab, "one", &json!([{"answer": "x", field: true}])).await;
        assert_eq!(envelope["status"], "failed");
        assert_eq!(envelope["error"]["code"], code, "{envelope:#}");
        assert_eq!(model.calls().len(), 1, "{field}");
        assert_eq!(step(&envelope, "s1")["reflected"], false);
    }
}

#[tokio::test]
async fn with_a_threshold_a_draft_that_is_sure_enough_is_left_alone() {
    let model = model().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow("confidence_threshold: 0.8,"))]).await;
    let sure = |confidence: Value| json!({"answer": "x", "ktsu_confidence": confidence});
    for (replies, calls, status) in [
        (json!([sure(json!(0.85))]), 1, "complete"),
        (json!([sure(json!(0.8))]), 1, "complete"),
        (json!([sure(json!(0.5)), sure(json!(0.9))]), 2, "complete"),
        (json!([sure(json!(0.5)), sure(json!(0.5))]), 2, "failed"),
        (json!([sure(Value::Null), sure(json!(0.8))]), 2, "complete"),
        (json!([{"answer": "x"}, sure(json!(0.9))]), 2, "complete"),
        (json!([sure(json!(0.5)), {"answer": "x"}]), 2, "failed"),
    ] {
        model.forget();
        let envelope = run(&lab, "one", &replies).await;
        assert_eq!(envelope["status"], status, "{replies}: {envelope:#}");
        assert_eq!(model.calls().len(), calls, "{replies}");
        assert_eq!(step(&envelope, "s1")["reflected"], calls == 2, "{replies}");
        if status == "failed" {
            assert_eq!(envelope["error"]["code"], "confidence_below_threshold");
        }
    }
}

#[tokio::test]
async fn a_reflection_that_is_no_json_is_not_repaired_and_a_draft_is() {
    let model = Model::scripted(|call| {
        let messages = call.messages();
        let reflecting = messages[0].1 == "Look at it once more.";
        match (call.user().as_str(), reflecting, messages.len()) {
            ("bad draft", false, 2) | ("bad reflection", true, _) => Said::Text("no".to_owned()),
            (_, false, _) => Said::answer("draft"),
            (_, true, _) => Said::answer("reflected"),
        }
    })
    .await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let envelope = lab
        .client
        .run("one", json!({"msg": "bad reflection"}))
        .await;
    let s1 = step(&envelope, "s1");
    assert_eq!(
        s1["error"]["code"], "reflect_output_invalid",
        "{envelope:#}"
    );
    assert_eq!(s1["raw_output"], "no");
    assert_eq!(model.calls().len(), 2);
    model.forget();
    let envelope = lab.client.run("one", json!({"msg": "bad draft"})).await;
    let s1 = step(&envelope, "s1");
    assert_eq!(s1["output"], json!({"answer": "reflected"}), "{envelope:#}");
    assert_eq!(model.calls().len(), 3);
    assert_eq!(s1["metrics"]["llm_calls"], 3);
    assert_eq!(s1["metrics"]["repair_calls"], 1);
    assert_eq!(s1["metrics"]["reflect_calls"], 1);
}

/// Reserved fields of a reflection are judged like those of any output.
#[tokio::test]
async fn a_reflection_that_reports_an_injection_fails_the_run() {
    let model = model().await;
    let (_kit, lab) = lab(&model, &[("one", &workflow(""))]).await;
    let replies = json!([{"answer": "x"}, {"ktsu_injection_attempt": true}]);
    let envelope = run(&lab, "one", &replies).await;
    assert_eq!(
        envelope["error"]["code"], "injection_attempt",
        "{envelope:#}"
    );
    assert_eq!(model.calls().len(), 2);
}
