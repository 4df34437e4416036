//! The page of the graph of a run.

use serde_json::json;

use super::describe::Described;
use super::pages::{HOSTILE, is_harmless, lab};
use crate::support::Lab;
use crate::support::model::{self, KEY, Model, Said};

async fn graph_page(api: &Described, run: &str, query: &str) -> String {
    let path = format!("/inspector/runs/{}/graph{query}", run.replace('/', "%2F"));
    let page = api.get(&path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.text());
    is_harmless(&page);
    page.text()
}

/// The class, the words and the link of each box that is a link, in reading order.
fn boxes(page: &str) -> Vec<[String; 3]> {
    let boxes = page.split("class=\"node ").skip(1);
    let of = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("{name}=\"")).unwrap();
        rest.split('"').next().unwrap().replace("&amp;", "&")
    };
    let boxes = boxes.filter(|text| text.split('>').next().unwrap().contains("href"));
    let boxes = boxes.map(|text| {
        let class = text.split('"').next().unwrap().to_owned();
        [class, of(text, "aria-label"), of(text, "href")]
    });
    boxes.collect()
}

fn words(page: &str) -> Vec<String> {
    boxes(page).into_iter().map(|[_, words, _]| words).collect()
}

#[tokio::test]
async fn the_plan_of_a_run_is_drawn_with_statuses_and_why_steps_were_skipped() {
    let model = Model::scripted(|call| match call.user().as_str() {
        "bad" => Said::json(&json!({"noanswer": 1})),
        user => Said::answer(user),
    })
    .await;
    let inner = "visibility: sub-workflow
pipeline:
  - {id: one, transform: {inputs: [], ops: []}}
  - {id: two, depends_on: [one], transform: {inputs: [], ops: []}}
";
    let plan = r#"
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, max_failures: 1}, params: {msg: "{{ item }}"}}
  - {id: alarm, condition: "length(step.each.results) > `9`", transform: {inputs: [], ops: []}}
  - {id: call, depends_on: [alarm], workflow: ./inner.workflow.yaml}
  - {id: breaks, depends_on: [call], agent: ./agents/echo.agent.yaml, params: {msg: "bad"}}
  - {id: never, transform: {inputs: [step.breaks.answer, step.each.results], ops: []}}
"#;
    let kit = model::kit(&model, &[("inner", inner), ("plan", plan)]);
    let lab = Lab::new(&kit, &[KEY]).await;
    let api = Described::new(&lab.client).await;
    let ended = lab
        .client
        .run("plan", json!({"list": ["a", "bad", "c"]}))
        .await;
    let run = ended["run_id"].as_str().unwrap();
    let page = graph_page(&api, run, "").await;
    let shown = boxes(&page);
    let classes: Vec<&str> = shown.iter().map(|[class, ..]| class.as_str()).collect();
    assert_eq!(classes, ["ok", "skip", "ok", "bad", "skip"], "{page}");
    for (at, expected) in [
        (
            0,
            vec!["each, agent, 3 items, complete", "2 complete, 1 failed"],
        ),
        (
            1,
            vec!["alarm, transform, skipped", "condition_false", "after each"],
        ),
        (2, vec!["call, workflow inner, complete", "after alarm"]),
        (
            3,
            vec!["breaks, agent, failed", "schema_violation", "after call"],
        ),
        (4, vec!["never, transform, skipped", "after each, breaks"]),
    ] {
        let [_, words, link] = &shown[at];
        for part in expected {
            assert!(words.contains(part), "{part}: {words}");
        }
        let step = words.split(',').next().unwrap();
        assert!(link.contains(&format!("/graph?step={step}")), "{link}");
        // The list for those who do not see the drawing says the same.
        assert_eq!(
            page.matches(&words.replace('>', "&gt;")).count(),
            2,
            "{words}"
        );
    }
    // A child is opened in place; its own page has it, too.
    assert!(page.contains("graph?open=call\""), "{page}");
    let opened = graph_page(&api, run, "?open=call").await;
    let inside = "call, workflow inner|one, transform|two, transform";
    let starts = inside.split('|').zip(words(&opened).into_iter().skip(2));
    for (start, words) in starts {
        assert!(words.starts_with(start), "{start}: {words}");
    }
    assert!(opened.contains("aria-label=\"Close call\""), "{opened}");
    assert!(
        opened.contains("?step=call%2Ftwo&amp;open=call"),
        "{opened}"
    );
    let child = graph_page(&api, &format!("{run}/call"), "?step=call/two").await;
    assert_eq!(boxes(&child).len(), 2, "{child}");
    // The panel of the step that is selected is that of the page of the run.
    let selected = graph_page(&api, run, "?step=each.1").await;
    assert!(selected.contains("fake/gpt-4o-mini"), "{selected}");
    let current = selected.matches("aria-current=\"true\"").count();
    assert_eq!(current, 1, "the item is seen in its step: {selected}");
    let none = graph_page(&api, run, "?step=absent&open=absent,,%3Cb%3E").await;
    assert!(none.contains("The run has no step absent"), "{none}");
    // Steps that did not begin have edges of the plan, as in the skeleton.
    let skeleton = api.get(&format!("/runs/{run}/skeleton")).await.json();
    assert_eq!(skeleton["steps"][4]["needs"], json!(["each", "breaks"]));
    assert_eq!(skeleton["steps"][4]["id"], json!(null));
}

#[tokio::test]
async fn what_is_recorded_is_text_in_a_graph() {
    let (_kit, lab, api) = lab().await;
    for text in HOSTILE {
        let list = json!({"list": [text, "bad", "bad"]});
        let ended = lab.client.run("parent", list).await;
        let run = ended["run_id"].as_str().unwrap();
        let sent: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for query in [
            "?open=call,call/each".to_owned(),
            "?step=call/each.0".to_owned(),
            format!("?step={sent}&open={sent}"),
        ] {
            graph_page(&api, run, &query).await;
        }
    }
}
