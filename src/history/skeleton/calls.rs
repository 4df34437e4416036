//! The calls of a run and its questions to people, as times.

use std::collections::HashMap;
use std::ops::Range;

use ktsu_ledger::event::LlmResponse;
use ktsu_ledger::{Frame, Timestamp};
use ktsu_projections::Lineage;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::calls::{CallHistory, ToolCallRecord};
use ktsu_projections::life::QuestionKind;
use ktsu_projections::life::call::CallState;
use ktsu_projections::lineage::item_name;
use ktsu_projections::person_requests::{self, PersonRequest};
use serde::Serialize;
use utoipa::ToSchema;

use crate::webhooks;

/// The most calls of the latest attempt of a step or an item that are shown.
pub(super) const MAX_CALLS: usize = 500;

/// A call, or a question to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallSpan {
    /// What is called or asked.
    pub kind: CallSpanKind,
    /// The model as `provider/model`, the tool as `server.tool`, the host of a webhook; of a question to
    /// people, what it is about.
    pub name: String,
    /// The frame that announces it.
    pub frame: u64,
    /// The frame with its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<u64>,
    /// Its beginning.
    pub from_ms: u64,
    /// Its end, once it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The status.
    pub status: CallSpanStatus,
    /// The number of times it was sent, if more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sendings: Option<usize>,
    /// Of a model call: its cost in millionths of a US dollar.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost_micro_usd: u64,
    /// Of a model call: the tokens that were sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens_in: u64,
    /// Of a model call: the tokens that were received.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens_out: u64,
    /// Of a question to people: until when a decision is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expires_at: Option<Timestamp>,
}

/// The kind of a [`CallSpan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallSpanKind {
    /// A call of a model.
    Model,
    /// A call of a tool.
    Tool,
    /// A webhook.
    Webhook,
    /// A question to people whether a call may be made.
    Approval,
    /// A question to people what became of a call.
    InDoubt,
    /// A question to people about an outcome.
    Review,
    /// A wait for data.
    Suspension,
}

/// The status of a [`CallSpan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallSpanStatus {
    /// It has no result yet.
    Open,
    /// It has one.
    Complete,
    /// An earlier reply of the run answered it.
    Cached,
    /// Its result is an error, or a person said no.
    Failed,
    /// Its step ended first, or the time to decide passed.
    Unanswered,
}

impl From<QuestionKind> for CallSpanKind {
    fn from(kind: QuestionKind) -> Self {
        match kind {
            QuestionKind::Approval => Self::Approval,
            QuestionKind::InDoubt => Self::InDoubt,
            QuestionKind::Review => Self::Review,
            QuestionKind::Suspension => Self::Suspension,
        }
    }
}

impl CallSpanKind {
    /// Returns `true` for questions to people.
    pub fn is_for_people(self) -> bool {
        match self {
            Self::Approval | Self::InDoubt | Self::Review | Self::Suspension => true,
            Self::Model | Self::Tool | Self::Webhook => false,
        }
    }

    /// In one word, or two.
    pub fn as_words(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Webhook => "webhook",
            Self::Approval => "approval",
            Self::InDoubt => "in doubt",
            Self::Review => "review",
            Self::Suspension => "data",
        }
    }
}

/// The calls of a run, by scope and by step or item, in the order of their frames.
pub(super) struct SpanMap(HashMap<(String, String), Vec<CallSpan>>);

impl SpanMap {
    pub(super) fn of(frames: &[Frame], lineage: &Lineage) -> Self {
        let start = frames.first().map(|first| first.at).unwrap_or_default();
        let clock = SpanClock { frames, start };
        let mut map = Self(HashMap::new());
        let answers = frames
            .iter()
            .filter_map(|frame| Some((frame, frame.event.response()?)));
        let answers: AnswerMap<'_> = answers
            .map(|(frame, answer)| (answer.request, (frame, answer)))
            .collect();
        for frame in frames {
            map.extend(frame, clock.model(&answers, frame));
            map.extend(frame, clock.webhook(lineage, frame));
        }
        for record in CallHistory::fold(frames).calls() {
            map.add(&record.scope, &record.step, clock.tool(record));
        }
        for request in person_requests::requests(frames) {
            let span = clock.question(&request);
            map.add(request.scope(), request.step_id(), Some(span));
        }
        for spans in map.0.values_mut() {
            spans.sort_by_key(|span| (span.from_ms, span.frame));
        }
        map
    }

    /// The last calls of an attempt of a step or an item, by its scope and name: those that its frames
    /// announce. Also the number of those before them. What is open ends with the attempt, if that has
    /// ended.
    pub(super) fn of_attempt(
        &self,
        (scope, name): (&str, &str),
        frames: Range<u64>,
        most: usize,
        until_ms: Option<u64>,
    ) -> (Vec<CallSpan>, usize) {
        let key = (scope.to_owned(), name.to_owned());
        let all = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        let is_of = |span: &&CallSpan| frames.contains(&span.frame);
        let earlier = all.iter().filter(is_of).count().saturating_sub(most);
        let shown = all.iter().filter(is_of).skip(earlier);
        let mut shown: Vec<CallSpan> = shown.cloned().collect();
        let open = |span: &&mut CallSpan| span.status == CallSpanStatus::Open;
        if until_ms.is_some() {
            for span in shown.iter_mut().filter(open) {
                span.status = CallSpanStatus::Unanswered;
                span.until_ms = until_ms;
            }
        }
        (shown, earlier)
    }

    /// The number of questions that wait for people, in the scopes that are wanted.
    pub(super) fn waiting(&self, wanted: impl Fn(&str) -> bool) -> usize {
        let spans = self.0.iter().filter(|((scope, _), _)| wanted(scope));
        let spans = spans.flat_map(|(_, spans)| spans);
        let waits =
            |span: &&CallSpan| span.kind.is_for_people() && span.status == CallSpanStatus::Open;
        spans.filter(waits).count()
    }

    fn extend(&mut self, frame: &Frame, span: Option<CallSpan>) {
        if let Some((step, item)) = frame.event.task() {
            self.add(&frame.scope, &item_name(step, item), span);
        }
    }

    fn add(&mut self, scope: &str, name: &str, span: Option<CallSpan>) {
        if let Some(span) = span {
            let key = (scope.to_owned(), name.to_owned());
            self.0.entry(key).or_default().push(span);
        }
    }
}

/// The answers of models, with their frames, by the frame of the request.
type AnswerMap<'f> = HashMap<u64, (&'f Frame, &'f LlmResponse)>;

struct SpanClock<'f> {
    frames: &'f [Frame],
    start: Timestamp,
}

impl SpanClock<'_> {
    fn since(&self, at: Timestamp) -> u64 {
        at.millis_since(self.start)
    }

    fn frame(&self, seq: u64) -> Option<&Frame> {
        self.frames.get(usize::try_from(seq).ok()?)
    }

    fn span(&self, kind: CallSpanKind, name: String, announced: &Frame) -> CallSpan {
        CallSpan {
            kind,
            name,
            frame: announced.seq,
            result: None,
            from_ms: self.since(announced.at),
            until_ms: None,
            status: CallSpanStatus::Open,
            sendings: None,
            cost_micro_usd: 0,
            tokens_in: 0,
            tokens_out: 0,
            expires_at: None,
        }
    }

    fn close(&self, span: &mut CallSpan, result: &Frame, status: CallSpanStatus) {
        span.result = Some(result.seq);
        span.until_ms = Some(self.since(result.at));
        span.status = status;
    }

    /// The call of a model that a frame requests.
    fn model(&self, answers: &AnswerMap<'_>, frame: &Frame) -> Option<CallSpan> {
        let request = frame.event.request()?;
        let mut span = self.span(CallSpanKind::Model, request.group.clone(), frame);
        // The cause of an answer that another worker got is the dispatch to that one.
        let answered = answers.get(&frame.seq);
        if let Some((at, answer)) = answered.copied() {
            let status = match &answer.error {
                Some(_) => CallSpanStatus::Failed,
                None if answer.cached => CallSpanStatus::Cached,
                None => CallSpanStatus::Complete,
            };
            self.close(&mut span, at, status);
            if !answer.model.is_empty() {
                span.name = format!("{}/{}", answer.provider, answer.model);
            }
            span.cost_micro_usd = answer.cost_micro_usd;
            (span.tokens_in, span.tokens_out) = (answer.tokens_in, answer.tokens_out);
        }
        Some(span)
    }

    /// The webhook that a frame announces.
    fn webhook(&self, lineage: &Lineage, frame: &Frame) -> Option<CallSpan> {
        let sent = webhooks::sent(frame)?;
        let mut span = self.span(CallSpanKind::Webhook, sent.target.clone(), frame);
        let effects = lineage.effects(frame.seq).iter();
        let answered = effects
            .filter_map(|seq| self.frame(*seq))
            .find_map(|frame| Some((frame, frame.event.webhook_answer()?)))
            .filter(|(_, answer)| answer.sending == sent.sending);
        if let Some((at, answer)) = answered {
            let status = match answer.code {
                Some(_) => CallSpanStatus::Failed,
                None => CallSpanStatus::Complete,
            };
            self.close(&mut span, at, status);
        }
        Some(span)
    }

    /// A call of a tool, from its first sending to its result; one that was not sent is none.
    fn tool(&self, record: &ToolCallRecord) -> Option<CallSpan> {
        let first = self.frame(*record.sent.first()?)?;
        let name = match &record.target {
            Some((server, tool)) => format!("{server}.{tool}"),
            None => record.call.name.clone(),
        };
        let mut span = self.span(CallSpanKind::Tool, name, first);
        span.sendings = Some(record.sent.len()).filter(|sendings| *sendings > 1);
        if let CallState::Returned { seq } = record.call.state
            && let Some(returned) = self.frame(seq)
        {
            let status = match record.is_error {
                true => CallSpanStatus::Failed,
                false => CallSpanStatus::Complete,
            };
            self.close(&mut span, returned, status);
        }
        Some(span)
    }

    /// A question to people, from the request to the end of the wait.
    fn question(&self, request: &PersonRequest) -> CallSpan {
        CallSpan {
            kind: request.kind().into(),
            name: request.about().to_owned(),
            frame: request.request(),
            result: request.votes().last().map(|vote| vote.frame),
            from_ms: self.since(request.created_at()),
            until_ms: request.ended_at().map(|at| self.since(at)),
            status: match request.status() {
                ApprovalStatus::Pending => CallSpanStatus::Open,
                ApprovalStatus::Approved | ApprovalStatus::Happened | ApprovalStatus::Resumed => {
                    CallSpanStatus::Complete
                }
                ApprovalStatus::Rejected => CallSpanStatus::Failed,
                ApprovalStatus::Timeout | ApprovalStatus::Void => CallSpanStatus::Unanswered,
            },
            sendings: None,
            cost_micro_usd: 0,
            tokens_in: 0,
            tokens_out: 0,
            expires_at: request.expires_at(),
        }
    }
}

pub(super) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_calls_the_last_are_shown_and_all_count_that_wait_for_people() {
        let span = |frame: u64| CallSpan {
            kind: CallSpanKind::Approval,
            name: "put".to_owned(),
            frame,
            result: None,
            from_ms: frame,
            until_ms: None,
            status: CallSpanStatus::Open,
            sendings: None,
            cost_micro_usd: 0,
            tokens_in: 0,
            tokens_out: 0,
            expires_at: None,
        };
        let most = MAX_CALLS as u64;
        let spans: Vec<CallSpan> = (0..most + 3).map(span).collect();
        let key = (String::new(), "s".to_owned());
        let map = SpanMap(HashMap::from([(key, spans)]));
        let of = |name, frames, until| map.of_attempt(("", name), frames, MAX_CALLS, until);
        let (shown, earlier) = of("s", 0..u64::MAX, Some(9_999));
        assert_eq!((shown.len(), earlier), (MAX_CALLS, 3));
        assert_eq!(shown.first().map(|span| span.frame), Some(3));
        let ended = |span: &CallSpan| span.status == CallSpanStatus::Unanswered;
        assert!(shown.iter().all(ended));
        assert_eq!(map.waiting(|_| true), MAX_CALLS + 3);
        assert_eq!(of("other", 0..u64::MAX, None), (Vec::new(), 0));
        let (between, earlier) = of("s", 4..6, None);
        let between: Vec<u64> = between.iter().map(|span| span.frame).collect();
        assert_eq!((between, earlier), (vec![4, 5], 0));
    }
}
