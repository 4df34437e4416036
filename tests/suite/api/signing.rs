//! Webhooks are signed with a key or not sent: an empty one would be everybody's.

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_kit::Kit;
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{OutputPlan, Plan, StepWork, Variable};
use ktsu_workflow::definition::Definition;
use serde_json::json;

use crate::support::{KitDir, Lab, Sink};

fn kit() -> Arc<Kit> {
    let outer = r#"
env: [{name: SINK}]
pipeline:
  - {id: call, workflow: inner.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}"}}
"#;
    let inner = r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, properties: {sink: {type: string, default: ""}}}}
pipeline:
  - {id: tell, webhook: {url: "{{ params.sink }}/tell", retry: {attempts: 3, backoff: 1ms}}}
"#;
    KitDir::new(&[("outer", outer), ("inner", inner)]).load()
}

/// The same definition as an earlier version took it: changed after it was judged.
fn changed(change: impl FnOnce(&mut Plan)) -> Arc<Definition> {
    let kit = kit();
    let mut plan = kit.workflows["outer"].definition.plan.clone();
    change(&mut plan);
    Arc::new(Definition::compile(plan).unwrap())
}

fn with_a_variable_of_the_child(plan: &mut Plan) {
    let child = plan.workflows.get_mut("workflows/inner.workflow.yaml");
    let child = Arc::make_mut(child.unwrap());
    child.env.push(Variable {
        default: None,
        name: "KEY".to_owned(),
        secret: true,
    });
    let StepWork::Webhook(webhook) = &mut child.steps[0].work else {
        panic!("{:?}", child.steps[0])
    };
    webhook.secret = Some("{{ env.KEY }}".to_owned());
}

#[tokio::test]
async fn a_webhook_whose_key_is_empty_is_not_sent_and_fails_its_step() {
    let sink = Sink::new().await;
    let mut kit = kit();
    let own = Arc::get_mut(&mut kit).unwrap();
    let outer = own.workflows.get_mut("outer").unwrap();
    outer.definition = changed(with_a_variable_of_the_child);
    let pairs = [("SINK", sink.url.as_str()), ("KEY", "a-key-of-the-root")];
    let lab = Lab::on(LedgerPlace::Memory, kit, &pairs, None).await;
    let envelope = lab.client.run("outer", json!({})).await;
    assert_eq!(envelope["status"], "failed", "{envelope}");
    let error = &envelope["error"];
    assert_eq!(error["code"], "webhook_unsigned", "{envelope}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.ends_with("was not sent: the key it is signed with is empty"),
        "{message}"
    );
    assert_eq!(sink.heard(), [], "nothing went out, and nothing again");
    lab.close().await;
}

#[test]
fn a_definition_that_no_kit_could_have_is_refused() {
    assert_eq!(changed(|_| ()).refusal(), None);
    let refusal = changed(with_a_variable_of_the_child).refusal().unwrap();
    assert!(refusal.contains("KEY"), "{refusal}");
    // Even if the root declares it as well.
    let both = changed(|plan| {
        with_a_variable_of_the_child(plan);
        let child = plan.workflows["workflows/inner.workflow.yaml"].env.clone();
        let root = plan.workflows.get_mut("workflows/outer.workflow.yaml");
        Arc::make_mut(root.unwrap()).env.extend(child);
    });
    let refusal = both.refusal().unwrap();
    assert!(refusal.contains("inner.workflow.yaml"), "{refusal}");
    let reserved = changed(|plan| {
        let root = plan.workflows.get_mut("workflows/outer.workflow.yaml");
        Arc::make_mut(root.unwrap()).output = Some(OutputPlan {
            map: Some(CanonicalJson::from_value(&json!({"ktsu_flags": []})).unwrap()),
            schema: None,
        });
    });
    let refusal = reserved.refusal().unwrap();
    assert!(refusal.contains("ktsu_flags"), "{refusal}");
}

/// The environment may allow the address: what is wrong is the text.
#[tokio::test]
async fn a_webhook_address_without_a_scheme_fails_with_words_that_say_so() {
    let kit = KitDir::new(&[(
        "w",
        "env: [{name: HOOK}]\npipeline: [{id: call, webhook: {url: \"{{ env.HOOK }}/a?k=v\"}}]\n",
    )]);
    let lab = Lab::new(&kit, &[("HOOK", "127.0.0.1:99")]).await;
    let envelope = lab.client.run("w", json!({})).await;
    let error = &envelope["error"];
    assert_eq!(error["code"], "webhook_refused", "{envelope}");
    let words =
        "the webhook URL \"127.0.0.1:99/…\" is not a valid URL (http:// or https:// is missing)";
    assert_eq!(error["message"], words);
    lab.close().await;
}
