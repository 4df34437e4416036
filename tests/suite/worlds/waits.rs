//! Responders that wait before they look, in the whole engine: the process killed while they wait,
//! branches, and people who end a run meanwhile.

use std::collections::BTreeMap;

use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{Event, Frame, event::RunEvent};
use serde_json::{Value, json};

use super::{goal, replays};
use crate::evidence;
use crate::support::ledgers::frames;
use crate::support::process::Process;
use crate::support::{Client, KitDir};

/// Two alerts. Each is remarked on at once, reminded of soon and paged about a little later, if it is
/// still open then.
fn kit(page: &str) -> KitDir {
    let world = format!(
        r#"
kind: world
name: alerts
version: 1.0.0
goal:
  - object: {{type: Alert, data: {{text: "{{{{ goal }}}}", state: open}}}}
  - object: {{type: Alert, data: {{text: "{{{{ goal }}}} again", state: open}}}}
objects: {{Alert: {{}}, Remark: {{}}, Page: {{}}}}
responders:
  - name: remark
    "on": object.created
    type: Alert
    emit: [{{object: {{type: Remark, data: {{of: "{{{{ object.id }}}}"}}}}}}]
  - name: remind
    "on": object.created
    type: Alert
    after: 50ms
    when: object.data.state == 'open'
    emit: [{{object: {{type: Page, data: {{of: "{{{{ object.id }}}}", who: duty}}}}}}]
  - name: page
    "on": object.created
    type: Alert
    after: {page}
    when: object.data.state == 'open'
    emit: [{{object: {{type: Page, data: {{of: "{{{{ object.id }}}}", who: everybody}}}}}}]
"#
    );
    KitDir::new(&[("nothing", "visibility: sub-workflow\npipeline: []\n")])
        .with("worlds/alerts.world.yaml", &world)
}

struct Engine {
    kit: KitDir,
    folder: tempfile::TempDir,
}

impl Engine {
    fn new(page: &str) -> Self {
        Self {
            kit: kit(page),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn start(&self) -> Process {
        let ledger = self.folder.path().join("ledger.db");
        Process::start(self.kit.dir.path(), &ledger, &[])
    }

    fn frames(&self, run: &str) -> Vec<Frame> {
        let reader = SqliteReader::open(&self.folder.path().join("ledger.db")).unwrap();
        evidence::holds(&reader, "responders wait");
        let frames = frames(&reader, run);
        replays(&frames, run);
        frames
    }
}

/// Waits for so many frames of a type.
async fn until(client: &Client, run: &str, kind: &str, mut count: usize) {
    let mut events = client.events(run, None).await;
    while count > 0 {
        let event = events.next().await.expect("the run goes on");
        let data: Value = serde_json::from_str(&event.data).unwrap();
        count -= usize::from(data["type"] == kind);
    }
}

/// How often each timer fired: by responder and event.
fn fired(frames: &[Frame]) -> BTreeMap<(String, String), usize> {
    let mut fired = BTreeMap::new();
    for frame in frames {
        if let Event::Run(RunEvent::TimerFired(timer)) = &frame.event {
            let name = timer.responder.clone().unwrap();
            *fired
                .entry((name, format!("{:?}", frame.cause)))
                .or_default() += 1;
        }
    }
    fired
}

#[tokio::test]
async fn timers_outlive_the_process_and_fire_once() {
    // It is killed while both timers of each alert are set, after the first fired, and after both.
    for killed in [0, 1, 2] {
        let engine = Engine::new("700ms");
        let process = engine.start();
        let client = process.client();
        let run = client.invoke("alerts", goal()).await;
        until(&client, &run, "responder.fired", 2).await;
        until(&client, &run, "timer.fired", killed).await;
        process.kill();
        let process = engine.start();
        let envelope = process.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        assert_eq!(
            envelope["world"]["objects"],
            json!({"Alert": 2, "Page": 4, "Remark": 2})
        );
        process.stop();
        let fired = fired(&engine.frames(&run));
        assert_eq!(fired.len(), 4, "{fired:?}");
        assert!(fired.values().all(|count| *count == 1), "{fired:?}");
    }
}

#[tokio::test]
async fn a_branch_waits_with_what_its_run_waits_with_and_a_run_that_is_ended_does_not() {
    let engine = Engine::new("1h");
    let process = engine.start();
    let client = process.client();
    let run = client.invoke("alerts", goal()).await;
    until(&client, &run, "timer.fired", 2).await;
    let envelope = client.get(&format!("/runs/{run}/envelope")).await.json();
    assert_eq!(envelope["status"], "running", "{envelope:#}");
    let waits = envelope["world"]["waits"].as_array().unwrap();
    let waits: Vec<&Value> = waits.iter().map(|one| &one["responder"]).collect();
    assert_eq!(waits, ["page", "page"], "{envelope:#}");
    // A branch from before its reminders.
    let body = json!({"at": 3, "go": true});
    let answer = client
        .post(&format!("/runs/{run}/fork"), body.to_string())
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    until(&client, &branch, "timer.fired", 2).await;
    let path = format!("/runs/{branch}/envelope");
    let envelope = client.get(&path).await.json();
    assert_eq!(envelope["world"]["objects"]["Page"], 2, "{envelope:#}");
    for run in [&run, &branch] {
        let answer = client
            .post(&format!("/runs/{run}/cancel"), "{}".to_owned())
            .await;
        assert!(answer.status < 300, "{}", answer.text());
        let envelope = client.ended(run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope:#}");
        assert!(envelope["world"].get("waits").is_none(), "{envelope:#}");
    }
    process.stop();
    assert_eq!(fired(&engine.frames(&run)).len(), 2);
}
