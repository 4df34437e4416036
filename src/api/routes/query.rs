//! Query strings, parsed strictly: unknown or invalid parameters are refused, not ignored.
//!
//! A route declares its parameters once ([`Parameter`]); validation and `/openapi.json` are both
//! derived from that.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ktsu_ledger::Timestamp;
use ktsu_ledger::event::Effects;
use ktsu_ledger::store::Cursor;
use utoipa::IntoParams;
use utoipa::openapi::path::{self, ParameterIn};

pub(super) use super::parameter::invalid;
use super::parameter::{Parameter, ParameterKind, whole};
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;

/// The query of a request, as what a route takes.
pub(super) struct Query<T>(pub(super) T);

/// The parameters that a route takes.
pub(super) trait QueryParameters: Sized {
    /// Its parameters.
    const PARAMETERS: &'static [Parameter];

    /// Reads the parameters, which are unique and valid by their declarations.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidQuery`].
    fn read(given: &RawQuery) -> Result<Self, ProblemDetails>;
}

/// A route without parameters.
pub(super) struct NoParameters;

impl QueryParameters for NoParameters {
    const PARAMETERS: &'static [Parameter] = &[];

    fn read(_: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self)
    }
}

/// The longest a request may wait, in seconds.
const MAX_WAIT: u64 = 3600;

/// The time to wait before answering.
const WAIT: Parameter = Parameter::new(
    "wait",
    ParameterKind::Number(0..=MAX_WAIT),
    "Seconds to wait for the end: 200 with what it came to if it comes, else 202.",
);

/// The query that decides how to answer.
#[derive(Debug)]
pub(super) struct WaitQuery {
    /// Seconds to wait for the end: 200 with the result if it comes, otherwise 202.
    wait: Option<u64>,
}

impl QueryParameters for WaitQuery {
    const PARAMETERS: &'static [Parameter] = &[WAIT];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            wait: given.number("wait"),
        })
    }
}

/// The query that decides how to run a workflow, and how to answer.
#[derive(Debug)]
pub(super) struct InvokeQuery {
    /// The part that decides how to answer.
    pub(super) wait: WaitQuery,
    /// The setting whether webhooks and messages are sent.
    pub(super) effects: Effects,
    /// True if every model call is made.
    pub(super) no_cache: bool,
}

impl QueryParameters for InvokeQuery {
    const PARAMETERS: &'static [Parameter] = &[
        WAIT,
        Parameter::new(
            "effects",
            ParameterKind::Words(&["execute", "suppress"]),
            "Whether webhooks and messages of the run are sent: execute (if absent) or suppress.",
        ),
        Parameter::new(
            "no_cache",
            ParameterKind::Flag,
            "Makes every model call, although an earlier reply of the run may answer it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            wait: WaitQuery::read(given)?,
            effects: match given.text("effects") {
                Some("suppress") => Effects::Suppress,
                Some(_) | None => Effects::Execute,
            },
            no_cache: given.flag("no_cache"),
        })
    }
}

impl WaitQuery {
    /// Returns `true` if the caller waits at all.
    pub(super) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Waits for the end of a run, and returns whether it came in time.
    ///
    /// # Errors
    /// [`ErrorCode::LedgerStopped`].
    pub(super) async fn has_ended(
        &self,
        orchestrator: &Orchestrator,
        run_id: &str,
    ) -> Result<bool, ProblemDetails> {
        let ended = self.in_time(orchestrator.wait_until_ended(run_id)).await?;
        Ok(ended.is_some())
    }

    /// The result of an end, if it comes in time.
    ///
    /// # Errors
    /// [`ErrorCode::LedgerStopped`].
    pub(super) async fn in_time<T>(
        &self,
        end: impl Future<Output = Result<T, String>>,
    ) -> Result<Option<T>, ProblemDetails> {
        let Some(seconds) = self.wait else {
            return Ok(None);
        };
        match tokio::time::timeout(Duration::from_secs(seconds), end).await {
            Ok(Ok(end)) => Ok(Some(end)),
            Ok(Err(reason)) => Err(ProblemDetails::new(ErrorCode::LedgerStopped, reason)),
            Err(_) => Ok(None),
        }
    }
}

/// Parameters as they were sent, each of which fits its declaration.
pub(super) struct RawQuery(Vec<(String, String)>);

impl RawQuery {
    /// A text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut members = self.0.iter();
        let found = members.find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A text of one's own.
    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(whole)
    }

    /// Number of rows that a page has.
    pub(super) fn limit(&self, usual: usize) -> usize {
        let limit = self.number("limit");
        limit.map_or(usual, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// The position at which a page begins.
    pub(super) fn cursor<T: std::str::FromStr>(&self) -> Result<Option<T>, ProblemDetails> {
        let cursor = self.text("cursor").map(str::parse).transpose();
        cursor.map_err(|_| invalid("cursor must be the `next` of another page"))
    }

    /// The position at which a page of runs begins; the frame of a place within a run does not
    /// count.
    pub(super) fn run_cursor(&self) -> Result<Option<Cursor>, ProblemDetails> {
        let run = self.text("cursor").map(|text| text.split('#').next());
        let cursor = run.flatten().map(str::parse).transpose();
        cursor.map_err(|_| invalid("cursor must be the `next` of another page"))
    }

    /// A time.
    pub(super) fn time(&self, name: &str) -> Option<Timestamp> {
        self.text(name).and_then(Timestamp::beginning)
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }
}

impl<T: QueryParameters, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let members = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let axum::extract::Query(members) =
            members.map_err(|_| invalid("cannot parse the query"))?;
        for (place, (name, value)) in members.iter().enumerate() {
            let mut declared = T::PARAMETERS.iter();
            let declared = declared.find(|one| one.name == name);
            let declared = declared.ok_or_else(|| unknown(name, T::PARAMETERS))?;
            if members[..place].iter().any(|(before, _)| before == name) {
                return Err(invalid(format!("{name} appears twice in the query")));
            }
            if !declared.fits(value) {
                return Err(invalid(declared.words()));
            }
        }
        T::read(&RawQuery(members)).map(Self)
    }
}

impl<T: QueryParameters> IntoParams for Query<T> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<path::Parameter> {
        let declared = T::PARAMETERS.iter();
        declared
            .map(|one| one.described(ParameterIn::Query))
            .collect()
    }
}

fn unknown(name: &str, known: &[Parameter]) -> ProblemDetails {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let words = match name {
        _ if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) => {
            format!("unknown query parameter {name}")
        }
        _ => "unknown query parameter".to_owned(),
    };
    invalid(words).with_hint(match known {
        [] => "this path has none".to_owned(),
        _ => {
            let names: Vec<_> = known.iter().map(|one| one.name).collect();
            format!("this path has {}", names.join(", "))
        }
    })
}
