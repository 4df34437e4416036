//! A person at the terminal, and an orchestrator that has records and accepts decisions.

use ktsu_projections::person_requests::PersonRequest;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use ktsu_ledger::StreamId;
use ktsu_projections::approvals::approval_id;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::ApprovalPrompt;
use crate::test_frames;
use ktsu_peer::Peer;

type Answer = (StatusCode, String);

/// What the orchestrator knows, and what came to it.
#[derive(Default)]
struct World {
    records: BTreeMap<String, Value>,
    reads: Vec<String>,
    decisions: Vec<Value>,
    /// How the next decisions are answered; then they are taken.
    refusals: VecDeque<(u16, &'static str)>,
}

type Shared = Arc<Mutex<World>>;

async fn read(
    State(world): State<Shared>,
    Path((run, step)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Answer {
    let mut world = world.lock().unwrap();
    let id = &query["approval_id"];
    world.reads.push(id.clone());
    let found = world.records.get(id);
    match found.filter(|one| one["run_id"] == *run && one["step_id"] == *step) {
        Some(record) => (StatusCode::OK, record.to_string()),
        None => (StatusCode::NOT_FOUND, "{}".to_owned()),
    }
}

async fn decide(State(world): State<Shared>, body: String) -> Answer {
    let mut world = world.lock().unwrap();
    let said: Value = serde_json::from_str(&body).unwrap();
    world.decisions.push(said.clone());
    if let Some((status, message)) = world.refusals.pop_front() {
        let status = StatusCode::from_u16(status).unwrap();
        return (status, json!({ "message": message }).to_string());
    }
    let id = said["approval_id"].as_str().unwrap();
    let record = world.records.get_mut(id).unwrap();
    let votes = record["votes"].as_array_mut().unwrap();
    votes.push(
        json!({"by": "me", "auth": "none", "decision": said["decision"],
        "at": "2026-01-01T00:00:00.000000Z", "independent": false, "frame": 1}),
    );
    if votes.len() as u64 >= record["quorum"].as_u64().unwrap() {
        record["status"] = said["decision"].clone();
    }
    (StatusCode::OK, record.to_string())
}

struct Desk {
    world: Shared,
    asking: ApprovalPrompt,
    shown: Rc<RefCell<Vec<String>>>,
    typed: Option<mpsc::Sender<String>>,
}

impl Desk {
    fn new() -> Self {
        let world = Shared::default();
        let one = "/runs/{run}/steps/{step}/approval";
        let router = Router::new()
            .route(one, get(read))
            .route(&format!("{one}/decide"), post(decide))
            .with_state(Arc::clone(&world));
        let (typed, input) = mpsc::channel(4);
        let shown: Rc<RefCell<Vec<String>>> = Rc::default();
        let out = Rc::clone(&shown);
        let asking = ApprovalPrompt::typed(&Peer::Local(router), "run_r", input, move |line| {
            let plain = anstream::adapter::strip_str(line).to_string();
            out.borrow_mut().push(plain.trim().to_owned());
        });
        Self {
            world,
            asking,
            shown,
            typed: Some(typed),
        }
    }

    /// Nobody sits there.
    fn unattended() -> Self {
        let mut desk = Self::new();
        desk.asking.input = None;
        desk
    }

    /// A call of a task begins to wait: `call/each.1`.
    async fn waits(&mut self, task: &str, request: u64, quorum: u32) {
        let (scope, step, item) = place(task);
        let id = id(request);
        let run = match scope {
            "" => "run_r".to_owned(),
            scope => format!("run_r/{scope}"),
        };
        let name = task.rsplit('/').next().unwrap();
        let record = json!({"approval_id": id, "kind": "approval", "run_id": run, "step_id": name,
            "server": "desk", "tool_name": "put", "tool_use_id": "", "arguments": {"n": request},
            "digest": "d", "on_reject": "fail", "timeout_ms": 0, "quorum": quorum,
            "not_by_proposer": false, "status": "pending", "votes": [], "proposer": "me",
            "created_at": "2026-01-01T00:00:00.000000Z", "request": request});
        self.world.lock().unwrap().records.insert(id, record);
        let data = json!({"step": step, "item": item});
        self.frame("approval.requested", scope, request, data).await;
    }

    async fn frame(&mut self, kind: &str, scope: &str, seq: u64, data: Value) {
        let at = "2026-01-01T00:00:00.000000Z";
        let frame = test_frames::frame(kind, scope, seq, at, &data);
        self.asking.apply(&frame).await;
    }

    fn becomes(&self, request: u64, status: &str) {
        let mut world = self.world.lock().unwrap();
        world.records.get_mut(&id(request)).unwrap()["status"] = json!(status);
    }

    async fn types(&mut self, line: &str) {
        let typed = self.typed.as_ref().unwrap();
        typed.send(line.to_owned()).await.unwrap();
        let line = self.asking.line().await;
        self.asking.heard(line).await;
    }

    fn waiting(&self) -> Vec<u64> {
        let waiting = self.asking.waiting.iter();
        waiting.map(PersonRequest::request).collect()
    }

    fn elsewhere(&self) -> Vec<u64> {
        let elsewhere = self.asking.elsewhere.iter();
        elsewhere.map(PersonRequest::request).collect()
    }

    /// What was shown since this was last asked.
    fn shown(&self) -> Vec<String> {
        let mut shown = self.shown.take();
        shown.retain(|line| !line.is_empty());
        shown
    }
}

fn id(request: u64) -> String {
    approval_id(&StreamId::run("run_r").unwrap(), request)
}

fn place(task: &str) -> (&str, &str, Option<u32>) {
    let (scope, name) = task.rsplit_once('/').unwrap_or(("", task));
    match name.split_once('.') {
        Some((step, item)) => (scope, step, item.parse().ok()),
        None => (scope, name, None),
    }
}

fn asks(task: &str, request: u64) -> [String; 2] {
    let question = format!("{task} asks for put of desk {{\"n\":{request}}}");
    [question, "approve? y, n, or n WHY:".to_owned()]
}

fn tells(task: &str, request: u64) -> [String; 3] {
    let id = id(request);
    [
        asks(task, request)[0].clone(),
        format!("ktsu approve {id} --ledger L"),
        format!("ktsu reject {id} --reason TEXT --ledger L"),
    ]
}

#[tokio::test]
async fn the_end_of_an_item_leaves_the_questions_of_others_and_of_a_childs_step_of_its_name() {
    let mut desk = Desk::new();
    for (task, request) in [("each.0", 1), ("each.1", 2), ("call/each.0", 3)] {
        desk.waits(task, request, 1).await;
    }
    assert_eq!(desk.shown(), asks("each.0", 1));
    desk.becomes(1, "void");
    desk.world.lock().unwrap().reads.clear();
    desk.frame("agent.finished", "", 9, json!({"step": "each", "item": 0}))
        .await;
    assert_eq!(desk.waiting(), [2, 3]);
    assert_eq!(desk.shown(), asks("each.1", 2));
    let reads = desk.world.lock().unwrap().reads.clone();
    assert_eq!(reads, [id(1)], "the others are not even looked at");
    desk.becomes(3, "void");
    desk.frame(
        "agent.finished",
        "call",
        10,
        json!({"step": "each", "item": 0}),
    )
    .await;
    assert_eq!(desk.waiting(), [2]);
    assert_eq!(
        desk.shown(),
        [""; 0],
        "what is asked now is not asked again"
    );
}

#[tokio::test]
async fn what_someone_else_decided_is_asked_no_more_whatever_the_quorum() {
    let mut desk = Desk::new();
    desk.waits("a", 1, 2).await;
    desk.waits("b", 2, 1).await;
    desk.shown();
    // One vote of two.
    desk.frame("approval.decided", "", 3, json!({"request": 1}))
        .await;
    assert_eq!(desk.waiting(), [1, 2]);
    desk.becomes(1, "rejected");
    desk.frame("approval.decided", "", 4, json!({"request": 1}))
        .await;
    assert_eq!(desk.waiting(), [2]);
    assert_eq!(desk.shown(), asks("b", 2));
    desk.becomes(2, "timeout");
    desk.frame("approval.expired", "", 5, json!({"request": 2}))
        .await;
    assert!(desk.waiting().is_empty() && !desk.asking.is_asking());
}

#[tokio::test]
async fn one_vote_of_several_leaves_the_rest_to_others_and_the_next_question_is_asked() {
    let mut desk = Desk::new();
    desk.waits("a", 1, 2).await;
    desk.waits("b", 2, 1).await;
    desk.shown();
    desk.types("y").await;
    let mut expected = vec!["put: 1 of 2 have approved".to_owned()];
    expected.extend(tells("a", 1));
    expected.extend(asks("b", 2));
    assert_eq!(desk.shown(), expected);
    assert_eq!((desk.waiting(), desk.elsewhere()), (vec![2], vec![1]));
    assert!(!desk.asking.waits_elsewhere(), "b is asked about here");
    desk.types("n too late").await;
    assert!(desk.asking.waits_elsewhere());
    let said = desk.world.lock().unwrap().decisions.clone();
    let reject = json!({"decision": "rejected", "reason": "too late", "approval_id": id(2),
        "digest": "d"});
    assert_eq!(said[1], reject);
    // The frames of these decisions bring nothing new.
    desk.frame("approval.decided", "", 5, json!({"request": 2}))
        .await;
    desk.becomes(1, "approved");
    desk.frame("approval.decided", "", 6, json!({"request": 1}))
        .await;
    assert!(!desk.asking.waits_elsewhere());
    assert_eq!(desk.shown(), [""; 0]);
}

#[tokio::test]
async fn a_refusal_is_shown_and_what_follows_is_what_makes_sense() {
    let mut desk = Desk::new();
    for (task, request) in [("a", 1), ("b", 2), ("c", 3)] {
        desk.waits(task, request, 1).await;
    }
    desk.shown();
    let refuse = |desk: &Desk, status, words| {
        let refusal = (status, words);
        desk.world.lock().unwrap().refusals.push_back(refusal);
    };
    // Once more it may be taken.
    refuse(&desk, 503, "in a moment");
    desk.types("y").await;
    let again = [&["in a moment".to_owned()][..], &asks("a", 1)].concat();
    assert_eq!(desk.shown(), again);
    // This person may not.
    refuse(&desk, 403, "somebody else has to");
    desk.types("y").await;
    let words = ["somebody else has to".to_owned()];
    let handed_on = [&words[..], &tells("a", 1), &asks("b", 2)].concat();
    assert_eq!(desk.shown(), handed_on);
    // Somebody was faster.
    refuse(&desk, 409, "decided already");
    desk.becomes(2, "approved");
    desk.types("y").await;
    let next = [&["decided already".to_owned()][..], &asks("c", 3)].concat();
    assert_eq!(desk.shown(), next);
    // It waits still, but not for this person.
    refuse(&desk, 409, "you have said so");
    desk.types("y").await;
    assert_eq!((desk.waiting(), desk.elsewhere()), (vec![], vec![1, 3]));
}

#[tokio::test]
async fn what_is_no_answer_is_asked_again_and_nothing_is_sent() {
    let mut desk = Desk::new();
    desk.waits("a", 1, 1).await;
    desk.shown();
    for line in ["", "what?", "h it happened"] {
        desk.types(line).await;
        assert_eq!(desk.shown(), asks("a", 1), "{line:?}");
    }
    assert_eq!(desk.world.lock().unwrap().decisions, [Value::Null; 0]);
}

#[tokio::test]
async fn when_no_one_sits_there_any_more_every_question_is_listed() {
    let mut desk = Desk::new();
    for (task, request) in [("a", 1), ("b", 2), ("c", 3)] {
        desk.waits(task, request, 1).await;
    }
    desk.shown();
    desk.typed = None;
    let line = desk.asking.line().await;
    desk.asking.heard(line).await;
    let told = [tells("a", 1), tells("b", 2), tells("c", 3)].concat();
    assert_eq!(desk.shown(), told);
    assert!(desk.asking.waits_elsewhere());
}

#[tokio::test]
async fn what_cannot_be_read_is_said_all_the_same() {
    let mut desk = Desk::unattended();
    let data = json!({"step": "each", "item": 4});
    desk.frame("approval.requested", "", 1, data).await;
    let told = [
        "a call of each.4 is waiting for a decision",
        "ktsu approvals --ledger L",
    ];
    assert_eq!(desk.shown(), told);
    assert!(desk.asking.waits_elsewhere());
}

#[tokio::test]
async fn a_branch_does_not_ask_about_the_calls_of_its_parent() {
    let mut desk = Desk::unattended();
    desk.waits("a", 1, 1).await;
    assert!(desk.asking.waits_elsewhere());
    // The branch has the record of what its parent asked, and it is over there.
    let mut branch = Desk::unattended();
    branch.asking.run = "branch_b".to_owned();
    let record = json!({"run_id": "branch_b", "step_id": "a"});
    let mut seen = desk.world.lock().unwrap().records[&id(1)].clone();
    seen["status"] = json!("void");
    seen["run_id"] = record["run_id"].clone();
    branch.world.lock().unwrap().records.insert(id(1), seen);
    branch
        .frame("approval.requested", "", 1, json!({"step": "a"}))
        .await;
    assert!(!branch.asking.waits_elsewhere());
    assert_eq!(branch.shown(), [""; 0]);
}
