//! The page of what waits for people.

use ktsu_history::approvals::{ApprovedCall, PendingRequest};
use ktsu_history::argument_lines;
use ktsu_history::skeleton::CallSpanKind;
use ktsu_projections::life::QuestionKind;
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::step_name::path_in;
use ktsu_projections::value_diff;
use maud::{Markup, html};
use serde_json::Value;

use crate::change_sides::{ChangeSide, change_sides};
use crate::decide::{Permissions, question_form};
use crate::frame::{PagePlace, Section, SignedIn, frame_link, page, query, segment};
use crate::text::Verbatim;
use crate::units::{counted, moment};
use crate::value::value;
use crate::word_diff::WordBudget;

/// What waits for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// What it may do.
    pub may: Permissions,
    /// The questions, the oldest first.
    pub requests: Vec<PendingRequest>,
    /// Where the next page begins.
    pub next: Option<String>,
}

const PLACE: PagePlace = PagePlace::TOP;
/// The most differences of a call from one that was approved before.
const MAX_CHANGES: usize = 20;
const SIDES: [ChangeSide<'static>; 2] = [
    ChangeSide {
        is_before: true,
        label: "Approved before",
        without: "not in the call approved before",
        more: "open its frame",
    },
    ChangeSide {
        is_before: false,
        label: "Asked now",
        without: "not in this call",
        more: "they are above",
    },
];

/// The page of what waits for people.
pub fn inbox_page(inbox: &InboxPage) -> String {
    let mut budget = WordBudget::of_page();
    let body = html! {
        div data-live="inbox" data-part="head" class="head" {
            h1 { "Inbox" }
            p class="dim" {
                @if inbox.next.is_some() { "The oldest " }
                (counted(inbox.requests.len() as u64, "question")) " to people, the oldest first."
            }
        }
        div data-part="requests" {
            @if inbox.requests.is_empty() {
                div class="empty" { p { "Nothing waits for people." } }
            }
            @for pending in &inbox.requests { (entry(inbox, pending, &mut budget)) }
        }
        @if let Some(next) = &inbox.next {
            nav class="pages" aria-label="More questions" {
                a class="button" href={ "inbox" (query(&[("cursor", next)])) } { "Newer" }
            }
        }
    };
    page(PLACE, Section::Inbox, "Inbox", &inbox.by, &body)
}

fn entry(inbox: &InboxPage, pending: &PendingRequest, budget: &mut WordBudget) -> Markup {
    let request = &pending.request;
    let (run, scope) = request
        .run_id()
        .split_once('/')
        .unwrap_or((request.run_id(), ""));
    let path = path_in(scope, request.step_id());
    let link = format!("runs/{}{}", segment(run), query(&[("step", &path)]));
    html! {
        article class="question" {
            h2 { (Verbatim(title(request))) " " span class="status wait" { (CallSpanKind::from(request.kind()).as_words()) } }
            p class="dim" {
                "asked by " a href=(link) { (Verbatim(&path)) } " of "
                a href={ "runs/" (segment(run)) } { (Verbatim(run)) }
                ", " (moment(request.created_at()))
                @if let Some(until) = request.expires_at() { ", until " (moment(until)) }
                @if request.paused_at().is_some() { ", while the run is paused" }
                @if request.quorum() > 1 {
                    ", " (request.votes().len()) " of " (request.quorum()) " have approved"
                }
            }
            (content(request))
            @if let (PersonRequest::Approval(asked), Some(before)) = (request, &pending.approved_before) {
                (approved_before(run, before, &asked.arguments, budget))
            }
            @match inbox.may.answers(request) {
                true => (question_form(PLACE, request, &inbox.by.name, "inbox")),
                false => (how(request)),
            }
        }
    }
}

fn title(request: &PersonRequest) -> String {
    match request {
        PersonRequest::Approval(asked) => format!("{} of {}", asked.tool_name, asked.server),
        PersonRequest::Review(asked) => asked.reason.clone(),
        PersonRequest::Suspension(asked) => asked.reason.clone(),
    }
}

/// What people have to see before they decide.
fn content(request: &PersonRequest) -> Markup {
    html! {
        @match request {
            PersonRequest::Approval(asked) => {
                h3 {
                    @if request.kind() == QuestionKind::InDoubt {
                        "It may have been called with these arguments; whether it was is unknown"
                    } @else { "Arguments; approving allows exactly this call, once" }
                }
                (value(&argument_lines(&asked.arguments).join("\n")))
                p class="dim id" { "digest " (Verbatim(&asked.digest)) }
            }
            PersonRequest::Review(asked) => {
                h3 { "Output, which no step sees before it is approved" }
                (value(&format!("{:#}", asked.output)))
                @if !asked.payload.is_null() { h3 { "Shown by the agent" } (value(&format!("{:#}", asked.payload))) }
            }
            PersonRequest::Suspension(asked) => {
                @if !asked.checkpoint.is_null() {
                    h3 { "Where the step is" } (value(&format!("{:#}", asked.checkpoint)))
                }
                @if !asked.schema.is_null() {
                    h3 { "Schema of the data" } (value(&format!("{:#}", asked.schema)))
                }
            }
        }
    }
}

/// What differs from a call of the same tool that was approved before.
fn approved_before(
    run: &str,
    before: &ApprovedCall,
    arguments: &Value,
    budget: &mut WordBudget,
) -> Markup {
    let changes = before.arguments.as_ref();
    let changes = changes.map(|before| value_diff::diff(before, arguments));
    let frame = html! {
        "the call of " span class="id" { (Verbatim(&before.step_id)) } " approved before, at frame "
        a href=(frame_link(PLACE, run, before.frame)) { (before.frame) }
    };
    html! {
        @match &changes {
            None => p { "The same arguments as " (frame) "." },
            Some(changes) => {
                h3 { "Differs from " (frame) }
                @for change in changes.iter().take(MAX_CHANGES) {
                    @if !change.path.is_empty() { p class="id" { (Verbatim(&change.path)) } }
                    (change_sides(change, SIDES, budget))
                }
                @if changes.len() > MAX_CHANGES {
                    p class="dim" { "and " ((changes.len() - MAX_CHANGES)) " more differences" }
                }
            }
        }
    }
}

/// How it is decided by those who may.
fn how(request: &PersonRequest) -> Markup {
    let id = request.id();
    html! {
        h3 { "To decide" }
        @match request {
            PersonRequest::Approval(_) | PersonRequest::Review(_) => {
                pre { "ktsu approve " (Verbatim(id)) "\nktsu reject " (Verbatim(id)) " --reason TEXT" }
            }
            PersonRequest::Suspension(_) => pre { "POST " (Verbatim(request.decide_path())) }
        }
    }
}
