//! Clients that work with engines which are killed, and what they were answered, held against the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::Request;
use ktsu_ledger::event::RunEvent;
use ktsu_ledger::store::{Filter, MAX_PAGE, Reader};
use ktsu_ledger::verify;
use ktsu_ledger::{Event, Ledger, LedgerPlace, StreamId};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ledgers::frames;
use super::sink::Heard;
use super::{Client, KitDir, guarded};

/// The signing key: 32 bytes in hexadecimal digits.
pub(crate) const KEY: &str = "5ad1a7c3f2b84e0991d6c3b27a64f08e13c5d7e9f0a1b2c3d4e5f60718293a4b";
/// How many webhooks a run sends.
const WEBHOOKS: usize = 4;
/// The time between two requests of a client that finds no owner, so that many of them leave the
/// machine something to do it with.
pub(crate) const PACE: Duration = Duration::from_millis(50);

/// A kit whose workflow sends webhooks to `SINK`, one of them by a child.
pub(crate) fn kit() -> KitDir {
    KitDir::new(&[
        (
            "part",
            r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink, token], properties: {sink: {type: string}, token: {type: string}}}}
pipeline:
  - {id: call, webhook: {url: "{{ params.sink }}/part", body: {token: "{{ params.token }}", step: inner/call}}}
"#,
        ),
        (
            "work",
            r#"
env: [{name: SINK}]
params: {schema: {type: object, required: [token], properties: {token: {type: string}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.token}], ops: []}}
  - {id: a, webhook: {url: "{{ env.SINK }}/a", body: {token: "{{ step.t.result }}", step: a}}}
  - {id: b, webhook: {url: "{{ env.SINK }}/b", body: {token: "{{ params.token }}", step: b}}}
  - {id: inner, depends_on: [a], workflow: ./part.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}", token: "{{ params.token }}"}}
  - {id: last, depends_on: [inner, b], webhook: {url: "{{ env.SINK }}/last", body: {token: "{{ params.token }}", step: last}}}
output: {map: {token: "{{ params.token }}"}}
"#,
        ),
    ])
}

/// What clients were answered, kept outside of the process that answered.
#[derive(Default)]
struct Journal {
    /// Runs acknowledged by 200 or 202, by the key of the request.
    accepted: BTreeMap<String, BTreeSet<String>>,
    /// Frames that were followed: run, number, hash.
    frames: BTreeMap<(String, u64), String>,
}

/// See the module documentation.
pub(crate) struct Load {
    /// The engines that there are.
    urls: watch::Sender<Vec<String>>,
    /// How many runs were acknowledged.
    acknowledged: watch::Sender<usize>,
    journal: Mutex<Journal>,
    finish: AtomicBool,
    moves: AtomicU64,
    clients: Mutex<Vec<JoinHandle<()>>>,
}

/// What became of the work.
pub(crate) struct Work {
    /// The runs of the ledger.
    pub(crate) runs: usize,
    /// The frames that were followed.
    pub(crate) frames: usize,
    /// How many webhooks were sent, and how often.
    pub(crate) webhooks: (usize, usize),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (runs, frames, (webhooks, sent)) = (self.runs, self.frames, self.webhooks);
        write!(
            f,
            "{runs} runs, {frames} frames followed, {webhooks} webhooks sent {sent} times"
        )
    }
}

impl Load {
    /// Clients that wait for an engine.
    pub(crate) fn begin(clients: usize) -> Arc<Self> {
        let load = Arc::new(Self {
            urls: watch::Sender::default(),
            acknowledged: watch::Sender::default(),
            journal: Mutex::default(),
            finish: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            clients: Mutex::default(),
        });
        let clients = (0..clients).map(|number| tokio::spawn(Arc::clone(&load).live(number)));
        *load.clients.lock().unwrap() = clients.collect();
        load
    }

    /// Where the engines are from now on.
    pub(crate) fn engines(&self, urls: &[&str]) {
        let urls = urls.iter().map(|url| (*url).to_owned());
        self.urls.send_replace(urls.collect());
    }

    /// Waits until so many runs more are acknowledged.
    pub(crate) async fn acknowledged(&self, more: usize) {
        let mut all = self.acknowledged.subscribe();
        let wanted = *all.borrow() + more;
        let waiting = all.wait_for(|all| *all >= wanted);
        drop(guarded("acknowledged runs", waiting).await.unwrap());
    }

    /// Asks the engines in turn for a run that none of them knows, until one starts it: the owner, since
    /// another one answers for a run that is there. When that was, and the engine's URL.
    pub(crate) async fn accepted(&self) -> (Instant, String) {
        let number = self.moves.fetch_add(1, Ordering::Relaxed);
        let token = format!("new-{number}");
        let asked = async {
            loop {
                let urls = self.urls.borrow().clone();
                for url in urls {
                    if self.ask(&url, &token, false).await.is_some() {
                        return (Instant::now(), url);
                    }
                }
                tokio::time::sleep(PACE / 5).await;
            }
        };
        guarded("an accepted run", asked).await
    }

    /// How often a client went to another engine.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Fails if a client has.
    pub(crate) fn is_at_work(&self) {
        let clients = self.clients.lock().unwrap();
        let gave_up = clients.iter().any(JoinHandle::is_finished);
        assert!(!gave_up, "a client gave up");
    }

    /// Waits until every client has seen its last run end, and no run is left.
    pub(crate) async fn finish(&self, client: &Client) {
        self.finish.store(true, Ordering::Relaxed);
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        for client in clients {
            guarded("the end of every run", client).await.unwrap();
        }
        for status in ["pending", "running"] {
            let none = async {
                let path = format!("/runs?status={status}");
                while client.get(&path).await.json() != json!({"runs": []}) {
                    tokio::time::sleep(PACE).await;
                }
            };
            guarded("the end of runs that were not followed", none).await;
        }
        let failed = client.get("/runs?status=failed").await.json();
        assert_eq!(failed, json!({"runs": []}));
    }

    /// The next engine after one; waits until there is another.
    async fn another(&self, than: &str) -> String {
        self.moves.fetch_add(1, Ordering::Relaxed);
        let mut urls = self.urls.subscribe();
        let waiting = urls.wait_for(|urls| urls.iter().any(|url| url != than));
        let urls = guarded("another engine", waiting).await.unwrap().clone();
        if urls.len() > 1 {
            tokio::time::sleep(PACE).await;
        }
        let at = urls.iter().position(|url| url == than);
        let mut next = urls.iter().cycle().skip(at.map_or(0, |at| at + 1));
        next.find(|url| *url != than).unwrap().clone()
    }

    async fn live(self: Arc<Self>, number: usize) {
        let mut url = self.another("").await;
        let mut round = 0;
        while !self.finish.load(Ordering::Relaxed) {
            round += 1;
            // The key of the request, which is repeated until it is acknowledged.
            let token = format!("{number}-{round}");
            let run = loop {
                match self.ask(&url, &token, round % 3 == 0).await {
                    Some(run) => break run,
                    None => url = self.another(&url).await,
                }
            };
            // Some runs are left to the engines.
            let mut last = None;
            while round % 4 != 0 && !self.follow(&url, &run, &mut last).await {
                url = self.another(&url).await;
            }
        }
    }

    /// Invokes a run; nothing if the engine went away, or does not own the ledger.
    async fn ask(&self, url: &str, token: &str, wait: bool) -> Option<String> {
        let path = match wait {
            true => "/invoke/work?wait=60",
            false => "/invoke/work",
        };
        let headers = [("Idempotency-Key", token)];
        let body = json!({ "token": token }).to_string();
        let client = Client::of(url);
        let answer = client.try_send("POST", path, &headers, body);
        let answer = answer.await.filter(|answer| answer.status != 503)?;
        let shown = answer.json();
        assert!(matches!(answer.status, 200 | 202), "{shown}");
        let run = shown["run_id"].as_str().unwrap().to_owned();
        if answer.status == 200 {
            assert_eq!(shown["status"], "complete", "{shown:#}");
            assert_eq!(shown["output"], json!({ "token": token }));
        }
        let mut journal = self.journal.lock().unwrap();
        let runs = journal.accepted.entry(token.to_owned()).or_default();
        runs.insert(run.clone());
        self.acknowledged.send_modify(|all| *all += 1);
        Some(run)
    }

    /// Follows a run to its end; `false` if the engine went away before.
    async fn follow(&self, url: &str, run: &str, last: &mut Option<u64>) -> bool {
        let mut request = Request::get(format!("/runs/{run}/frames"));
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let mut events = match Client::of(url).listen(request).await {
            None | Some(Err(503)) => return false,
            Some(Err(status)) => panic!("{run} at {url}: {status}"),
            Some(Ok(events)) => events,
        };
        let mut kind = String::new();
        while let Some(event) = events.next_unless_broken().await {
            let expected = last.map_or(0, |last| last + 1);
            assert_eq!(event.id, expected, "{run}: a gap or a repeat");
            *last = Some(event.id);
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            let part = |name: &str| frame[name].as_str().unwrap().to_owned();
            kind = part("scope") + &part("type");
            let mut journal = self.journal.lock().unwrap();
            let frames = &mut journal.frames;
            frames.insert((run.to_owned(), event.id), part("hash"));
        }
        // A stream that was followed to its end before is empty now.
        let is_whole = kind.is_empty() || kind == "run.completed";
        assert!(events.broken || is_whole, "{run} ended with {kind}");
        !events.broken
    }

    /// Holds what clients and the receiver of webhooks have seen against the ledger.
    pub(crate) fn compare(&self, place: &LedgerPlace, heard: &[Heard]) -> Work {
        let options = verify::VerifyOptions::default();
        let report = ktsu_history::verify::ledger(place, &options, &mut |_| {}).unwrap();
        assert_eq!(report.problems, []);
        let reader = Ledger::open(place).reader().unwrap();
        let journal = self.journal.lock().unwrap();
        for ((run, seq), hash) in &journal.frames {
            let stream = StreamId::run(run).unwrap();
            let kept = reader.read(&stream, *seq, 1).unwrap();
            let kept = kept.first().map(|kept| kept.hash.to_string());
            assert_eq!(kept.as_ref(), Some(hash), "{run}#{seq} was acknowledged");
        }
        let tokens = runs_by_token(reader.as_ref());
        for (token, runs) in &journal.accepted {
            assert_eq!(runs.len(), 1, "{token} has several runs: {runs:?}");
            let kept = tokens.get(token).map_or(&[][..], Vec::as_slice);
            assert_eq!(kept, runs.iter().cloned().collect::<Vec<_>>(), "{token}");
        }
        let is_once = tokens.values().all(|runs| runs.len() == 1);
        assert!(is_once, "a key started two runs");
        no_answered_webhook_is_repeated(reader.as_ref(), heard);
        Work {
            runs: tokens.len(),
            frames: journal.frames.len(),
            webhooks: (webhooks(heard, tokens.len()), heard.len()),
        }
    }
}

/// The runs of a ledger by the token of their params. All are complete.
fn runs_by_token(reader: &dyn Reader) -> BTreeMap<String, Vec<String>> {
    let mut tokens: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let page = reader.list(&Filter::default(), None, 10_000).unwrap();
    for row in &page.rows {
        assert_eq!(row.status, "complete", "{}", row.stream);
        let frames = frames(reader, row.stream.name());
        let Event::Run(RunEvent::Created(created)) = &frames[0].event else {
            panic!("{} begins with {}", row.stream, frames[0].event.kind());
        };
        let params = created.params.to_value();
        let token = params["token"].as_str().unwrap().to_owned();
        let runs = tokens.entry(token).or_default();
        runs.push(row.stream.name().to_owned());
    }
    tokens
}

/// Every webhook of so many runs was sent, under one id and with one body; how many there are.
fn webhooks(heard: &[Heard], runs: usize) -> usize {
    let mut bodies: BTreeMap<&str, &[u8]> = BTreeMap::new();
    let mut ids: BTreeMap<String, &str> = BTreeMap::new();
    for one in heard {
        let body = bodies.entry(&one.id).or_insert(&one.body);
        assert_eq!(*body, one.body, "{} was sent with two bodies", one.id);
        let step = one.json().to_string();
        let id = ids.entry(step.clone()).or_insert(&one.id);
        assert_eq!(*id, one.id, "{step} was sent under two ids");
    }
    let sent = ids.len();
    assert_eq!(sent, runs * WEBHOOKS, "every webhook was sent");
    sent
}

/// A webhook whose answer is recorded is not sent again: each owner that found it without one may have
/// sent it once. Positions are dense.
fn no_answered_webhook_is_repeated(reader: &dyn Reader, heard: &[Heard]) {
    let mut owners: Vec<u64> = Vec::new();
    let mut sent: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for (position, frame) in in_order(reader) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let data = &frame["data"];
        let parts = [&frame["stream"], &frame["scope"], &data["step"]];
        let step = parts.map(text).join(" ");
        match frame["type"].as_str().unwrap() {
            "store.opened" => owners.push(position),
            "webhook.sent" => {
                let first = (position, text(&data["delivery_id"]));
                sent.entry(step).or_insert(first);
            }
            "webhook.delivered" => {
                let (position, id) = &sent[&step];
                let later = owners.iter().filter(|owner| *owner > position);
                allowed.insert(id.clone(), 1 + later.count());
            }
            _ => {}
        }
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in heard {
        *counts.entry(&one.id).or_default() += 1;
    }
    for (id, count) in counts {
        let allowed = allowed.get(id).copied().unwrap_or_default();
        assert!(count <= allowed, "{id}: {count} times, {allowed} owners");
    }
}

/// Every frame, in the order in which they were appended, with its position. None is missing.
pub(crate) fn in_order(reader: &dyn Reader) -> Vec<(u64, Value)> {
    let audit = reader.audit().expect("a ledger that can be audited");
    let mut all: Vec<(u64, Value)> = Vec::new();
    loop {
        let from = all.len() as u64 + 1;
        let page = audit.scan_frames(from, MAX_PAGE).unwrap();
        if page.is_empty() {
            return all;
        }
        for raw in page {
            assert_eq!(raw.position, all.len() as u64 + 1, "positions are dense");
            let frame = serde_json::from_slice(&raw.body).unwrap();
            all.push((raw.position, frame));
        }
    }
}
