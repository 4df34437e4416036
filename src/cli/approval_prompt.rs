//! Asks at the terminal for decisions on pending calls of a run: `ktsu run`, and commands that
//! continue a run. What a file of answers answers is not asked. Without a terminal, the commands to decide elsewhere are printed once.
//!
//! ```text
//! frame ─▶ event: a call becomes pending, or may no longer be
//!            │ the record is read again: it counts, not the frame
//!            ▼
//!         waiting ──(answered here, or not permitted)──▶ elsewhere ──(no longer pending)──▶ gone
//! ```

mod approval_events;
mod prompt_text;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use ktsu_ledger::Frame;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::reviews::is_review_id;
use ktsu_projections::suspensions::is_suspend_id;
use tokio::sync::mpsc;

use self::approval_events::{ApprovalEvent, TaskRef};
use super::answering::{give, refusal};
use super::output::{BAD, DIM, GOOD, is_live, note, painted};
use super::request_text::votes_text;
use super::text;
use ktsu_eval::Answers;
use ktsu_peer::Peer;

/// The prompt and its state.
pub(super) struct ApprovalPrompt {
    peer: Peer,
    /// The run that is looked at. A branch has calls of its own only.
    run: String,
    /// `--ledger PATH`, for the commands shown.
    flag: String,
    /// Answers in place of people.
    answers: Option<Arc<Answers>>,
    /// Lines of standard input, if it is a terminal.
    input: Option<mpsc::Receiver<String>>,
    /// Calls to ask about here, the current one first.
    waiting: VecDeque<PersonRequest>,
    /// Calls that can only be decided elsewhere.
    elsewhere: Vec<PersonRequest>,
    /// True if something waits that could not be read.
    unread: bool,
    /// The function that lines are passed to.
    out: Box<dyn Fn(&str)>,
}

impl ApprovalPrompt {
    /// A prompt for a run, on the terminal if there is one.
    pub(super) fn new(peer: &Peer, run: &str, flag: &str) -> Self {
        Self {
            peer: peer.clone(),
            run: run.to_owned(),
            flag: flag.to_owned(),
            answers: None,
            input: is_attended().then(lines),
            waiting: VecDeque::new(),
            elsewhere: Vec::new(),
            unread: false,
            out: Box::new(note),
        }
    }

    /// The same, with answers in place of people.
    pub(super) fn with_answers(self, answers: Option<Arc<Answers>>) -> Self {
        Self { answers, ..self }
    }

    /// For tests: with these lines as input, and this output.
    #[cfg(test)]
    pub(super) fn typed(
        peer: &Peer,
        run: &str,
        input: mpsc::Receiver<String>,
        out: impl Fn(&str) + 'static,
    ) -> Self {
        Self {
            input: Some(input),
            out: Box::new(out),
            ..Self::unattended(peer, run)
        }
    }

    /// For tests: without a terminal.
    #[cfg(test)]
    pub(super) fn unattended(peer: &Peer, run: &str) -> Self {
        Self {
            input: None,
            out: Box::new(|_| {}),
            ..Self::new(peer, run, " --ledger L")
        }
    }

    /// Applies a frame: a call becomes pending, or may no longer be.
    pub(super) async fn apply(&mut self, frame: &Frame) {
        match ApprovalEvent::from_frame(frame) {
            Some(ApprovalEvent::Requested { id, place }) => self.asked(&id, &place).await,
            Some(ApprovalEvent::Moved(moved)) => {
                self.look_again(|record| moved.holds(record)).await
            }
            None => {}
        }
    }

    /// Returns `true` if a question is shown.
    pub(super) fn is_asking(&self) -> bool {
        self.input.is_some() && !self.waiting.is_empty()
    }

    /// Returns `true` if a call is pending that is not asked about here.
    pub(super) fn waits_elsewhere(&self) -> bool {
        !self.is_asking() && (self.unread || !self.elsewhere.is_empty())
    }

    /// Waits for a line of input; `None` once there is no more input. Cancel-safe: a line is never
    /// lost.
    pub(super) async fn line(&mut self) -> Option<String> {
        match &mut self.input {
            Some(input) if !self.waiting.is_empty() => input.recv().await,
            Some(_) | None => std::future::pending().await,
        }
    }

    /// Takes a line as an answer. Not to be given up before its end: the answer may be under way.
    pub(super) async fn heard(&mut self, line: Option<String>) {
        match line {
            Some(line) => self.answer(line.trim()).await,
            None => {
                self.input = None;
                for record in std::mem::take(&mut self.waiting) {
                    self.leave_to_others(record);
                }
            }
        }
    }

    /// Adds a pending call, unless it was decided since.
    async fn asked(&mut self, id: &str, place: &TaskRef) {
        let Some(record) = self.record(id, place).await else {
            self.unread = true;
            let task = place.task();
            let task = text::line(&task);
            let words = match id {
                id if is_suspend_id(id) => format!("  {task} is waiting for data"),
                id if is_review_id(id) => {
                    format!("  the output of {task} is waiting for a decision")
                }
                _ => format!("  a call of {task} is waiting for a decision"),
            };
            (self.out)(&words);
            let command = format!("    ktsu approvals{}", self.flag);
            return (self.out)(&painted(DIM, &command));
        };
        let Some(record) = self.answer_by_file(record).await else {
            return;
        };
        if self.input.is_none() {
            return self.leave_to_others(record);
        }
        self.waiting.push_back(record);
        if self.waiting.len() == 1 {
            self.ask();
        }
    }

    /// Gives the answers of the file to what waits; the record, if it waits still.
    async fn answer_by_file(&mut self, record: PersonRequest) -> Option<PersonRequest> {
        let record = match self.answers.clone() {
            None => record,
            Some(answers) => self.given(&answers, record).await,
        };
        (record.status() == ApprovalStatus::Pending).then_some(record)
    }

    /// Gives these answers to what waits; the record as it is then.
    async fn given(&self, answers: &Answers, record: PersonRequest) -> PersonRequest {
        let record = give(&self.peer, answers, record, |answered| {
            let (by, record) = (answered.by, answered.record);
            match answered.refused {
                None => {
                    let words = prompt_text::answered(record, by);
                    (self.out)(&painted(GOOD, &words));
                }
                Some(why) => {
                    self.complain(&format!("{by} cannot answer {}: {why}", record.step_id()))
                }
            }
        });
        record.await
    }

    /// Reads records again, and drops those that are no longer pending.
    async fn look_again(&mut self, which: impl Fn(&PersonRequest) -> bool) {
        let first = self.first();
        let mut still = VecDeque::new();
        for record in std::mem::take(&mut self.waiting) {
            let held = !which(&record) || self.waits(&record).await;
            still.extend(held.then_some(record));
        }
        self.waiting = still;
        let mut still = Vec::new();
        for record in std::mem::take(&mut self.elsewhere) {
            let held = !which(&record) || self.waits(&record).await;
            still.extend(held.then_some(record));
        }
        self.elsewhere = still;
        if self.first() != first {
            self.ask();
        }
    }

    fn first(&self) -> Option<u64> {
        self.waiting.front().map(PersonRequest::request)
    }

    /// Decides the current call with a line of input.
    async fn answer(&mut self, words: &str) {
        let Some(record) = self.waiting.front().cloned() else {
            return;
        };
        let Some(body) = prompt_text::decision(words, &record) else {
            return self.ask();
        };
        let request = Request::post(record.decide_path()).body(Body::from(body.to_string()));
        let Ok(request) = request else { return };
        let (status, answer) = match self.peer.call_and_read(request).await {
            Ok(answered) => answered,
            Err(error) => {
                self.complain(&error.to_string());
                return self.ask();
            }
        };
        if status == 200 {
            return self.decided(&record, &answer);
        }
        self.complain(&refusal(&answer));
        match status {
            // This person may not decide; another one may.
            401 | 403 => self.pass_on(),
            // No longer pending, or this person has already voted.
            404 | 409 => match self.waits(&record).await {
                true => self.pass_on(),
                false => drop(self.waiting.pop_front()),
            },
            // A different or repeated answer may be accepted.
            _ => {}
        }
        self.ask();
    }

    /// The answer is recorded. Where more people have to approve, the others are elsewhere.
    fn decided(&mut self, before: &PersonRequest, answer: &[u8]) {
        let pending = serde_json::from_slice::<PersonRequest>(answer).ok();
        match pending.filter(|record| record.status() == ApprovalStatus::Pending) {
            Some(record) => {
                let words = format!("  {}", votes_text(&record, record.votes().len()));
                (self.out)(&painted(GOOD, &words));
                self.pass_on();
            }
            None => self.waiting.retain(|one| one.request() != before.request()),
        }
        self.ask();
    }

    /// Leaves the current call to others.
    fn pass_on(&mut self) {
        if let Some(record) = self.waiting.pop_front() {
            self.leave_to_others(record);
        }
    }

    fn leave_to_others(&mut self, record: PersonRequest) {
        self.tell(&record);
        self.elsewhere.push(record);
    }

    /// Returns `true` if a call waits still. One that cannot be read now does, as far as is known.
    async fn waits(&self, record: &PersonRequest) -> bool {
        let now = self.record(record.id(), &TaskRef::of(record)).await;
        now.is_none_or(|record| record.status() == ApprovalStatus::Pending)
    }

    /// A record, as this run has it.
    async fn record(&self, id: &str, place: &TaskRef) -> Option<PersonRequest> {
        let run = match place.scope.as_str() {
            "" => self.run.clone(),
            scope => format!("{}%2F{}", self.run, scope.replace('/', "%2F")),
        };
        let step = place.task();
        let what = match id {
            id if is_suspend_id(id) => "suspend?suspend_id",
            id if is_review_id(id) => "review?review_id",
            _ => "approval?approval_id",
        };
        let path = format!("/runs/{run}/steps/{step}/{what}={id}");
        let request = Request::get(path).body(Body::empty()).ok()?;
        let (status, body) = self.peer.call_and_read(request).await.ok()?;
        let found = (status == 200).then(|| serde_json::from_slice(&body).ok());
        found.flatten()
    }

    /// Shows the question, if there is one. Earlier input does not answer it.
    fn ask(&mut self) {
        while let Some(Ok(_)) = self.input.as_mut().map(mpsc::Receiver::try_recv) {}
        let Some(record) = self.waiting.front() else {
            return;
        };
        (self.out)("");
        (self.out)(&prompt_text::question(record));
        (self.out)(&painted(GOOD, prompt_text::answers(record)));
    }

    /// Prints a question, and the commands that answer it elsewhere.
    fn tell(&self, record: &PersonRequest) {
        let (id, flag) = (record.id(), &self.flag);
        (self.out)(&prompt_text::question(record));
        let commands = match record {
            PersonRequest::Suspension(_) => {
                vec![format!("    ktsu resume {id} --data @FILE{flag}")]
            }
            PersonRequest::Review(_) | PersonRequest::Approval(_) => vec![
                format!("    ktsu approve {id}{flag}"),
                format!("    ktsu reject {id} --reason TEXT{flag}"),
            ],
        };
        for command in commands {
            (self.out)(&painted(DIM, &command));
        }
    }

    fn complain(&self, message: &str) {
        (self.out)(&painted(BAD, &format!("  {}", text::line(message))));
    }
}

/// Returns `true` if a person can answer at this terminal.
pub(super) fn is_attended() -> bool {
    use std::io::IsTerminal as _;
    std::io::stdin().is_terminal() && is_live()
}

/// Lines that are typed. A thread of its own waits for them, which nothing waits for at the end.
pub(super) fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}
