//! Frames of a run by their types: as pages, and as a stream of events.

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use crate::support::{KitDir, Lab};

const HELLO: &str = "pipeline:
  - {id: one, transform: {inputs: ['`1`']}}
  - {id: two, depends_on: [one], transform: {inputs: ['`2`']}}
";

#[tokio::test]
async fn frames_are_selected_by_exact_types_and_unknown_ones_are_refused_with_near_names() {
    let lab = Lab::on(
        LedgerPlace::Memory,
        KitDir::new(&[("hello", HELLO)]).load(),
        &[],
        None,
    )
    .await;
    let client = &lab.client;
    let run = client.run("hello", json!({})).await["run_id"].clone();
    let run = run.as_str().unwrap();
    let kinds = |frames: &Value| -> Vec<String> {
        let frames = frames["frames"].as_array().unwrap().iter();
        frames
            .map(|one| one["type"].as_str().unwrap().to_owned())
            .collect()
    };
    let path = format!("/runs/{run}/frames?type=step.completed,run.completed");
    let page = client.get(&path).await.json();
    assert_eq!(
        kinds(&page),
        ["step.completed", "step.completed", "run.completed"]
    );
    assert_eq!(page.get("next"), None, "{page:#}");
    let first = client.get(&format!("{path}&limit=1")).await.json();
    assert_eq!(kinds(&first), ["step.completed"]);
    let rest = client
        .get(&format!("{path}&from={}", first["next"]))
        .await
        .json();
    assert_eq!(kinds(&rest), ["step.completed", "run.completed"]);
    let others = client
        .get(&format!("/runs/{run}/frames?type=x.kit.none"))
        .await;
    assert_eq!(others.json(), json!({"frames": []}));
    for (unknown, near) in [
        ("step.complete", "did you mean step.completed?"),
        ("review.*", "review.decided"),
    ] {
        let refused = client
            .get(&format!("/runs/{run}/frames?type={unknown}"))
            .await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let problem = refused.json();
        assert_eq!(problem["code"], "unknown_frame_type", "{problem:#}");
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains(near), "{problem:#}");
    }
    lab.close().await;
}
