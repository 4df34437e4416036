//! A run that has a world and no steps.

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Timestamp;
use serde_json::json;

use super::{WIDTHS, compare, masked, shown};
use crate::support::{KitDir, Lab};

/// The first of January 2100, nine o'clock, all the time.
const MOMENT: u64 = 4_102_477_200_000_000;

/// Two questions about a topic, and somebody who would write an answer, whom nobody knows.
const TIDES: &str = r#"
kind: world
name: tides
version: 1.0.0
goal:
  - object: {type: Topic, data: {text: "{{ goal }}"}}
objects: {Topic: {}, Question: {}, Counterargument: {}, Observation: {}}
relations: {about: {from: Question, to: Topic}}
responders:
  - name: questions
    "on": object.created
    type: Topic
    for_each: {items: [What, Why]}
    emit:
      - object: {type: Question, data: {text: "{{ item }}"}}
        as: question
      - relation: {type: about, from: "{{ question.id }}", to: "{{ object.id }}"}
      - object: {type: Counterargument}
      - object: {type: Observation}
  - name: answer
    "on": object.created
    type: Question
    ask: {model: nobody, messages: [{role: user, content: "{{ object.data.text }}"}]}
    then: []
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_world_shows_what_it_holds_instead_of_an_empty_table() {
    let kit = KitDir::new(&[]).with("worlds/tides.world.yaml", TIDES);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".ktsu")).unwrap();
    let place = LedgerPlace::File(dir.path().join(".ktsu/ledger.db"));
    let clock = || Timestamp::from_micros(MOMENT);
    let lab = Lab::on(place, kit.load(), &[], Some(Arc::new(clock))).await;
    let run = lab.client.invoke("tides", json!({"goal": "tides"})).await;
    lab.client.ended(&run).await;
    lab.close().await;
    for columns in WIDTHS {
        let (code, screen) = shown(dir.path(), &["runs", "get", &run], columns, "C.UTF-8");
        assert_eq!(code, 0, "{}", screen.text());
        let text = screen.text();
        assert!(
            text.contains("ktsu world ") && !text.contains("STEP"),
            "{text}"
        );
        compare("runs-get-world", columns, &masked(&screen));
    }
}
