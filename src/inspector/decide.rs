//! Forms by which people answer what waits for them, and steer runs. A form is a request of the API, so its fields
//! have the names that the bodies of those requests have.

use ktsu_history::skeleton::RunSkeleton;
use ktsu_projections::life::QuestionKind;
use ktsu_projections::person_requests::PersonRequest;
use maud::{Markup, html};

use crate::frame::{PagePlace, segment};
use crate::text::TypedText;

/// The most characters of a reason.
const MAX_REASON: &str = "4096";

/// What the one who looks at a page may do, by the policies of the routes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Its roles, of which a question may ask for one.
    pub roles: Vec<String>,
    /// True if it needs none of them.
    pub is_admin: bool,
    /// Decide on calls of tools.
    pub approve: bool,
    /// Decide on outcomes, and give the data that steps wait for.
    pub review: bool,
    /// Steer runs.
    pub operate: bool,
    /// Have the archive of a run.
    pub export: bool,
}

impl Permissions {
    /// Returns `true` if it may answer a question, as far as its roles say.
    pub(crate) fn answers(&self, request: &PersonRequest) -> bool {
        match request {
            PersonRequest::Approval(_) => self.approve,
            PersonRequest::Review(asked) => self.review && self.has_one_of(&asked.roles),
            PersonRequest::Suspension(asked) => self.review && self.has_one_of(&asked.roles),
        }
    }

    fn has_one_of(&self, roles: &[String]) -> bool {
        self.is_admin || roles.iter().any(|role| self.roles.contains(role))
    }
}

/// The address that a form is sent to, for a path of the API.
pub(crate) fn action(place: PagePlace, path: &str) -> String {
    place.link(&format!("do{path}"))
}

/// Whether the policy of a question lets a person approve it; everyone with its role may reject.
fn may_approve(request: &PersonRequest, name: &str) -> bool {
    let (proposer, not_by_proposer) = match request {
        PersonRequest::Approval(asked) => (&asked.proposer, asked.not_by_proposer),
        PersonRequest::Review(asked) => (&asked.proposer, asked.not_by_proposer),
        PersonRequest::Suspension(_) => return true,
    };
    let has_approved = request.votes().iter().any(|vote| vote.by == name);
    let is_bound = request.kind() != QuestionKind::InDoubt;
    !(is_bound && (has_approved || not_by_proposer && proposer == name))
}

/// The form that answers a question, for the person with this name.
pub(crate) fn question_form(
    place: PagePlace,
    request: &PersonRequest,
    name: &str,
    back: &str,
) -> Markup {
    let id = request.id();
    let may_approve = may_approve(request, name);
    let reason = format!("reason-{id}");
    html! {
        form class="decide" method="post" action=(action(place, &request.decide_path())) {
            input type="hidden" name="_back" value=(back);
            @match request {
                PersonRequest::Approval(asked) => {
                    input type="hidden" name="approval_id" value=(id);
                    // What is decided on is what was looked at.
                    input type="hidden" name="digest" value=(asked.digest);
                    @if request.kind() == QuestionKind::InDoubt {
                        label for={ "result-" (id) } { "What it returned, if it happened" }
                        textarea id={ "result-" (id) } name="result" rows="2" {}
                    }
                }
                PersonRequest::Review(_) => input type="hidden" name="review_id" value=(id);,
                PersonRequest::Suspension(_) => {
                    input type="hidden" name="suspend_id" value=(id);
                    label for={ "data-" (id) } { "The data, as JSON" }
                    textarea id={ "data-" (id) } name="data:json" rows="4" required spellcheck="false" {}
                }
            }
            (reason_field(&reason, ""))
            @if !may_approve {
                p class="dim" {
                    "Another person has to approve: you have already, or you started the run."
                }
            }
            span class="buttons" { (buttons(request, may_approve)) }
        }
    }
}

/// A text of several lines: in one of a single line, Enter would press the first button of the form.
pub(crate) fn reason_field(id: &str, typed: &str) -> Markup {
    html! {
        label for=(id) { "Reason" }
        textarea id=(id) name="reason" rows="2" maxlength=(MAX_REASON) { (TypedText(typed)) }
    }
}

fn buttons(request: &PersonRequest, may_approve: bool) -> Markup {
    let decision = |word: &str, class: &str, shown: &str| {
        html! { button class=(class) name="decision" value=(word) { (shown) } }
    };
    html! {
        @match (request, request.kind()) {
            (PersonRequest::Suspension(_), _) => button class="primary" { "Give the data" },
            (_, QuestionKind::InDoubt) => {
                (decision("happened", "primary", "It happened"))
                (decision("approved", "", "Call it again"))
                (decision("rejected", "danger", "Reject"))
            }
            _ => {
                @if may_approve { (decision("approved", "primary", "Approve")) }
                (decision("rejected", "danger", "Reject"))
            }
        }
    }
}

/// The forms that steer a run, while there is something to steer; `is_parked`: it waits for a person to resume it.
pub(crate) fn run_forms(place: PagePlace, run: &RunSkeleton, is_parked: bool) -> Markup {
    let id = segment(&run.run_id);
    let is_whole = !run.run_id.contains('/');
    let form = |verb: &str, class: &str, shown: &str, sure: &str| {
        let reason = format!("reason-{verb}");
        html! {
            details class="action" {
                summary class={ "button " (class) } { (shown) "…" }
                form class="decide" method="post" action=(action(place, &format!("/runs/{id}/{verb}"))) {
                    input type="hidden" name="_back" value={ "runs/" (id) };
                    (reason_field(&reason, ""))
                    span class="buttons" { button class=(if class.is_empty() { "primary" } else { class }) { (sure) } }
                }
            }
        }
    };
    html! {
        @if is_whole && run.ended_at.is_none() {
            div class="actions" {
                @match is_parked || run.paused.is_some() {
                    true => (form("resume", "", "Resume", "Resume the run")),
                    false => (form("pause", "", "Pause", "Pause the run")),
                }
                (form("cancel", "danger", "Cancel", "Cancel the run"))
            }
        }
    }
}
