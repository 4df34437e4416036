//! The pages of the kit that the engine serves.

use ktsu::assemble::LedgerPlace;
use serde_json::json;

use super::describe::Described;
use super::pages::{HOSTILE, is_harmless};
use crate::support::{KitDir, Lab};

const ENVIRONMENT: &str = "
variables: {T_OLGA: token-of-olga, T_VERA: token-of-vera}
principals:
  - {name: olga, token: {env: T_OLGA}, roles: [operator]}
  - {name: vera, token: {env: T_VERA}, roles: [viewer]}
";

/// A text as YAML has it, without characters that YAML does not have.
fn quoted(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A workflow with an agent that has a secret to keep, and one that only workflows call.
fn kit() -> KitDir {
    let description = quoted(&HOSTILE.join(" "));
    let desk = format!(
        "description: {description}
params: {{schema: {{type: object, properties: {{text: {{type: string, default: here}}}}}}}}
pipeline:
  - {{id: begin, summary: \"Says {{{{ params.text }}}} to {{{{ step.sort.kind }}}}.\", transform: {{inputs: [params.text], ops: []}}}}
  - id: sort
    condition: \"step.begin.result == 'never'\"
    agent: agents/sorter.agent.yaml
    params: {{text: \"input {{{{ params.text }}}}\"}}
  - {{id: call, depends_on: [sort], workflow: ./part.workflow.yaml}}
output: {{map: {{first: \"{{{{ step.begin.result }}}}\"}}}}
"
    );
    let system = quoted(&format!(
        "the prompt {}",
        HOSTILE.join(" ").replace("{{", "{")
    ));
    let sorter = format!(
        "name: sorter
version: 1.0.0
model: std
prompt: {{system: {system}, user: '{{{{ params.text }}}}'}}
params: {{schema: {{type: object, properties: {{text: {{type: string}}}}}}}}
output: {{schema: {{type: object, properties: {{kind: {{type: string}}}}}}}}
"
    );
    let part =
        "visibility: sub-workflow\npipeline:\n  - {id: inside, transform: {inputs: [], ops: []}}\n";
    KitDir::new(&[("desk", &desk), ("part", part)])
        .with("agents/sorter.agent.yaml", &sorter)
        .with("kit.yaml", "name: tests\nversion: 1.0.0\ndefault: desk\n")
        .with("examples/default.json", r#"{"text": "an example"}"#)
}

#[tokio::test]
async fn a_kit_is_shown_with_its_workflows_and_prompts_to_those_alone_who_may_read_frames() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, ENVIRONMENT, &[]).await;
    let api = Described::new(&lab.client).await;
    let page = async |who: &str, path: &str, status: u16| {
        let token = format!("Bearer token-of-{who}");
        let headers = [("authorization", token.as_str())];
        let page = api.call("GET", path, &headers, "").await;
        assert_eq!(page.status, status, "{who} {path}: {}", page.text());
        if status == 200 {
            is_harmless(&page);
        }
        page.text()
    };
    let stranger = lab.client.send("GET", "/inspector/kit", &[], "").await;
    assert_eq!(stranger.status, 401);

    let listed = page("olga", "/inspector/kit", 200).await;
    for part in [
        "kit/desk\"",
        "kit/part\"",
        "POST /invoke/desk",
        "called by workflows",
        "(default)",
        ">std<",
        ">sorter<",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let desk = page("olga", "/inspector/kit/desk?step=sort", 200).await;
    for part in [
        "sort, agent sorter · std, if step.begin.result == &#39;never&#39;, after begin",
        "workflows/desk.workflow.yaml:8",
        "the prompt &lt;script&gt;",
        "input {{ params.text }}",
        "an example",
        "&quot;default&quot;: &quot;here&quot;",
        "The steps as a list",
    ] {
        assert!(desk.contains(part), "{part}: {desk}");
    }
    let call = page("olga", "/inspector/kit/desk?step=call", 200).await;
    assert!(call.contains("href=\"../kit/part\""), "{call}");
    let begin = page("olga", "/inspector/kit/desk?step=begin", 200).await;
    assert!(begin.contains("Says {{ params.text }} to "), "{begin}");
    assert!(
        page("olga", "/inspector/kit/part", 200)
            .await
            .contains("inside, transform")
    );

    // A viewer sees what runs show, and neither prompts nor inputs nor parts that only workflows call.
    let listed = page("vera", "/inspector/kit", 200).await;
    assert!(
        listed.contains("kit/desk\"") && !listed.contains("part\""),
        "{listed}"
    );
    let desk = page("vera", "/inspector/kit/desk?step=sort&all=system", 200).await;
    for hidden in ["the prompt", "Says", "input {{", "an example", "kit/part"] {
        assert!(!desk.contains(hidden), "{hidden}: {desk}");
    }
    assert!(desk.contains(" bytes, not shown to you"), "{desk}");
    assert!(desk.contains("examples/default.json"), "{desk}");
    let call = page("vera", "/inspector/kit/desk?step=call", 200).await;
    assert!(!call.contains("kit/part"), "{call}");
    let (part, absent) = (
        page("vera", "/inspector/kit/part", 404).await,
        page("vera", "/inspector/kit/absent", 404).await,
    );
    assert_eq!(part.replace("kit/part", "kit/absent"), absent);

    let token = [("authorization", "Bearer token-of-olga")];
    let begun = api
        .call(
            "POST",
            "/invoke/desk?wait=60",
            &token,
            r#"{"text": "a <b>"}"#,
        )
        .await
        .json();
    let run = begun["run_id"].as_str().unwrap();
    let shown = page("vera", &format!("/inspector/runs/{run}"), 200).await;
    assert!(shown.contains("href=\"../kit/desk\""), "{shown}");
    assert!(shown.contains("as it is now"), "{shown}");
    // What its author says of a step is made of values.
    assert!(!shown.contains("Says "), "{shown}");
    let whole = page("olga", &format!("/inspector/runs/{run}"), 200).await;
    assert!(whole.contains("Says a &lt;b&gt; to ."), "{whole}");
    let child = page("vera", &format!("/inspector/runs/{run}%2Fcall"), 200).await;
    assert!(!child.contains("kit/part"), "{child}");
    lab.close().await;
}
