//! Clients that invoke runs at one engine, whatever becomes of it, and what they were answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use serde_json::json;
use tokio::sync::watch;

use crate::support::load::PACE;
use crate::support::{Client, guarded};

/// The clients of an engine.
pub(super) const CLIENTS: usize = 4;

/// Clients of an engine, each of which repeats a request until it is acknowledged. They have a thread of
/// their own, which may be one of another machine.
pub(super) struct Clients {
    answers: Arc<Answers>,
    thread: JoinHandle<()>,
}

/// What they were answered.
#[derive(Default)]
struct Answers {
    acknowledged: watch::Sender<Vec<String>>,
    refused: AtomicUsize,
    is_over: AtomicBool,
}

impl Clients {
    /// Begins them, on a thread that does something first.
    pub(super) fn begin(url: &str, first: impl FnOnce() + Send + 'static) -> Self {
        let answers = Arc::new(Answers::default());
        let (url, given) = (url.to_owned(), Arc::clone(&answers));
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let begun = BEGUN.fetch_add(CLIENTS, Ordering::SeqCst);
        let thread = std::thread::spawn(move || {
            first();
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let all = (begun..begun + CLIENTS).map(|number| given.invoke(&url, number));
            runtime.block_on(futures_util::future::join_all(all));
        });
        Self { answers, thread }
    }

    /// Waits until so many runs more are acknowledged.
    pub(super) async fn acknowledged(&self, more: usize) {
        let mut all = self.answers.acknowledged.subscribe();
        let wanted = all.borrow().len() + more;
        let waiting = all.wait_for(|all| all.len() >= wanted);
        drop(guarded("acknowledged runs", waiting).await.unwrap());
    }

    /// How many runs were acknowledged.
    pub(super) fn count(&self) -> usize {
        self.answers.acknowledged.borrow().len()
    }

    /// How many requests were refused, or not answered.
    pub(super) fn refused(&self) -> usize {
        self.answers.refused.load(Ordering::SeqCst)
    }

    /// Ends them; the runs that were acknowledged.
    pub(super) fn end(self) -> Vec<String> {
        self.answers.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.answers.acknowledged.borrow().clone()
    }
}

impl Answers {
    async fn invoke(&self, url: &str, number: usize) {
        let client = Client::of(url);
        let is_over = || self.is_over.load(Ordering::SeqCst);
        for round in 0.. {
            let key = format!("{number}-{round}");
            let is_waiting = round % 2 == 1;
            while !self.is_acknowledged(&client, &key, is_waiting).await && !is_over() {
                self.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(PACE).await;
            }
            if is_over() {
                return;
            }
        }
    }

    async fn is_acknowledged(&self, client: &Client, key: &str, is_waiting: bool) -> bool {
        let path = match is_waiting {
            true => "/invoke/hello?wait=10",
            false => "/invoke/hello",
        };
        let body = json!({ "n": key }).to_string();
        let headers = [("Idempotency-Key", key)];
        let answer = client.try_send("POST", path, &headers, body);
        let Some(answer) = answer.await else {
            return false;
        };
        if !matches!(answer.status, 200 | 202) {
            assert!(answer.status >= 500, "{}", answer.text());
            return false;
        }
        let run = answer.json()["run_id"].as_str().unwrap().to_owned();
        self.acknowledged.send_modify(|all| all.push(run));
        true
    }
}
