//! What a run was started under is what it goes on under, whatever the files say later.

use std::path::Path;

use ktsu_kit::{load_unlocked, lock};
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use crate::support::ledgers::Recorded;
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink};

/// Writes the lock of a kit as it is now.
pub(crate) fn freeze(dir: &Path) {
    let kit = load_unlocked(dir).unwrap_or_else(|faults| panic!("{faults}"));
    let made = lock::generate(&kit).unwrap_or_else(|faults| panic!("{faults}"));
    std::fs::write(dir.join(lock::FILE), lock::to_yaml(&made)).unwrap();
}

/// A workflow that waits for somebody and then says which file it is.
fn saying(word: &str) -> String {
    format!(
        "env: [{{name: SINK}}]
pipeline:
  - {{id: hook, webhook: {{url: '{{{{ env.SINK }}}}'}}}}
  - {{id: word, depends_on: [hook], workflow: workflows/sub.workflow.yaml}}
output: {{map: {{word: '{word} {{{{ step.word.word }}}}'}}}}
"
    )
}

fn sub(word: &str) -> String {
    format!(
        "visibility: sub-workflow
pipeline: [{{id: t, transform: {{inputs: [params], ops: [{{map: {{expr: \"'{word}'\"}}}}]}}}}]
output: {{map: {{word: '{{{{ step.t.result[0] }}}}'}}}}
"
    )
}

fn first(recorded: &Recorded) -> Value {
    recorded.frames()[0].event.data()
}

#[tokio::test]
async fn a_run_continues_under_what_it_was_started_with_after_files_and_lock_have_changed() {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let pairs = [("SINK", sink.url.as_str())];
    let desk = tempfile::tempdir().unwrap();
    let ledger = desk.path().join("ledger.db");
    let kit = KitDir::new(&[("one", &saying("old")), ("sub", &sub("old"))]);
    freeze(kit.dir.path());
    let lab = Lab::on_file(&ledger, &kit, &pairs).await;
    let run = lab.client.invoke("one", json!({})).await;
    sink.until(|heard| heard.len() == 1).await;
    lab.close().await;
    let read = |run: &str| Recorded::read(&SqliteReader::open(&ledger).unwrap(), run);
    let before = first(&read(&run));
    assert_eq!(before["lock"]["format"], 1);

    // Everything it rests on is another now, the lock included.
    let newer = KitDir::new(&[("one", &saying("new")), ("sub", &sub("new"))]);
    freeze(newer.dir.path());
    sink.follow(|_| Reply::Now(200, String::new()));
    let lab = Lab::on_file(&ledger, &newer, &pairs).await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["output"], json!({"word": "old old"}), "{envelope}");
    // A person lets a part of it begin again: still what it was started with.
    let path = format!("/runs/{run}/resume");
    let body = json!({"from": "word"}).to_string();
    let answer = lab.client.post(&path, body).await;
    assert!(answer.status < 300, "{}", answer.text());
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["output"], json!({"word": "old old"}));
    let fresh = lab.client.run("one", json!({})).await;
    assert_eq!(fresh["output"], json!({"word": "new new"}));
    lab.close().await;

    assert_eq!(first(&read(&run)), before);
    let fresh = first(&read(fresh["run_id"].as_str().unwrap()));
    assert_ne!(fresh["digest"], before["digest"]);
    assert_ne!(fresh["lock"], before["lock"]);
    for created in [&before, &fresh] {
        let entries = created["lock"]["entries"].as_array().unwrap();
        let path = "workflows/one.workflow.yaml";
        let entry = entries.iter().find(|entry| entry["path"] == path).unwrap();
        assert_eq!(entry["definition"], created["digest"]);
    }
}
