//! `GET /inspector/runs`.

use axum::extract::State;
use axum::response::Response;
use ktsu_inspector::{RunsPage, RunsView};
use ktsu_ledger::Timestamp;
use ktsu_ledger::store::{Cursor, Filter, StoreError};

use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::super::run_list::{STATUSES, read_kind};
use super::shown::answer;
use super::signed_in;
use crate::access::Caller;
use ktsu_history::run_list::{self, RunFlag, RunQuery};
use ktsu_orchestrator::Orchestrator;
use ktsu_run_index::listed_kinds;
use ktsu_server::ProblemDetails;

/// The number of runs on a page.
const PAGE: usize = 50;
/// The most runs that the plot is of.
const MAX_COUNTED: usize = 5_000;
/// The bars of the plot.
const INTERVALS: usize = 60;
/// What the form calls the conditions.
const FLAGS: [(&str, &str); 3] = [
    ("asks", "waiting for people"),
    ("paused", "paused"),
    ("branch", "branches"),
];

/// The view of the list of runs.
#[derive(Debug)]
pub(in crate::routes) struct RunsPageQuery {
    view: RunsView,
    wanted: RunQuery,
    cursor: Option<Cursor>,
}

impl QueryParameters for RunsPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "text",
            ParameterKind::Any,
            "With this text in an id, a workflow, an error or a principal. Empty, as in the form of the page, each \
             of these admits all.",
        ),
        Parameter::new("workflow", ParameterKind::Any, "Of this workflow only."),
        Parameter::new("status", ParameterKind::Any, "With this status only."),
        Parameter::new(
            "principal",
            ParameterKind::Any,
            "Started by this principal only.",
        ),
        Parameter::new(
            "since",
            ParameterKind::Any,
            "Accepted at this time or later.",
        ),
        Parameter::new("until", ParameterKind::Any, "Accepted before this time."),
        Parameter::new(
            "min_cost",
            ParameterKind::Any,
            "That cost this much at least, in US dollars.",
        ),
        Parameter::new("flag", ParameterKind::Any, "In this condition only."),
        Parameter::new(
            "cursor",
            ParameterKind::Cursor,
            "Where the page begins, as the link to it has it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let shown = |name| given.owned(name).unwrap_or_default();
        let view = RunsView {
            text: shown("text"),
            workflow: shown("workflow"),
            status: shown("status"),
            principal: shown("principal"),
            since: shown("since"),
            until: shown("until"),
            min_cost: shown("min_cost"),
            flag: shown("flag"),
        };
        let given_text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let wanted = RunQuery {
            filter: Filter {
                kinds: listed_kinds(),
                workflow: given_text(&view.workflow),
                status: given_text(&view.status),
                open: None,
            },
            principal: given_text(&view.principal),
            text: given_text(&view.text),
            since: Timestamp::beginning(&view.since),
            until: Timestamp::beginning(&view.until),
            min_cost_micro_usd: dollars(&view.min_cost),
            flag: RunFlag::named(&view.flag),
        };
        Ok(Self {
            view,
            wanted,
            cursor: given.run_cursor()?,
        })
    }
}

/// What the form says that is not understood.
fn problem(view: &RunsView, wanted: &RunQuery) -> Option<String> {
    let times = [
        ("Since", &view.since, wanted.since),
        ("Before", &view.until, wanted.until),
    ];
    for (name, text, time) in times {
        if !text.is_empty() && time.is_none() {
            return Some(format!(
                "{name} is not a time; write one such as 2026-11, 2026-11-20 or 2026-11-20T10:00."
            ));
        }
    }
    let is_cost = view.min_cost.is_empty() || wanted.min_cost_micro_usd.is_some();
    (!is_cost).then(|| "The cost is not an amount in US dollars, such as 0.01.".to_owned())
}

/// An amount as people write it, in millionths.
fn dollars(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches('$');
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_amount = !text.is_empty() && is_number(whole) && is_number(part) && part.len() <= 6;
    is_amount
        .then(|| format!("{whole}{part:0<6}").parse().ok())
        .flatten()
}

/// The page of all runs, for people.
#[utoipa::path(get, path = "/inspector/runs", params(Query::<RunsPageQuery>), responses(
    (status = 200, body = String, content_type = "text/html"),
))]
pub(in crate::routes) async fn runs(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    Query(asked): Query<RunsPageQuery>,
) -> Result<Response, ProblemDetails> {
    let RunsPageQuery {
        view,
        wanted,
        cursor,
    } = asked;
    let is_later = cursor.is_some();
    let problem = problem(&view, &wanted);
    let kind = read_kind(&wanted);
    let read = orchestrator.readers().with_kind(kind, move |reader| {
        let list = run_list::list(reader, &wanted, cursor.as_ref(), PAGE)?;
        let figures = run_list::statistics(reader, &wanted, INTERVALS, MAX_COUNTED)?;
        Ok::<_, StoreError>((list, figures))
    });
    let (list, statistics) = read.await?;
    let shown = RunsPage {
        by: signed_in(&orchestrator, &caller),
        view,
        problem,
        statuses: STATUSES.map(str::to_owned).to_vec(),
        flags: FLAGS.to_vec(),
        rows: list.rows,
        statistics,
        next: list.next.map(|next| next.to_string()),
        is_later,
    };
    Ok(answer(ktsu_inspector::runs_page(&shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_as_people_write_it() {
        for (text, micro) in [
            ("", None),
            (".", Some(0)),
            ("0.01", Some(10_000)),
            ("$12", Some(12_000_000)),
            (".5", Some(500_000)),
            ("1.0000001", None),
            ("1,5", None),
            ("-1", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(dollars(text), micro, "{text}");
        }
    }
}
