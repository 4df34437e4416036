//! `/subscriptions`: who is sent which frames, and what could not be delivered.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ktsu_ledger::id::is_name;
use regex::Regex;

use super::command::{CommandBody, invalid};
use super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::paths::PathNames;
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::wire;
use crate::access::Caller;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_delivery::retry::{DEFAULT_ATTEMPTS, DEFAULT_BACKOFF_MS, MAX_ATTEMPTS, MAX_BACKOFF_MS};
use ktsu_delivery::{DeadLetter, DeliveryFilter, DeliveryRetry, MAX_DEAD, PATTERN_SYNTAX};
use ktsu_ledger::topic::TopicPatternError;
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;
use ktsu_subscriptions::{NewSubscription, SubscriptionView, named_variable};

/// All subscriptions: those of the environment file, which are `declared`, and those added here.
#[utoipa::path(get, path = "/subscriptions", operation_id = "list_subscriptions",
    responses((status = 200, body = wire::SubscriptionList)))]
pub(super) async fn list(
    State(orchestrator): State<Orchestrator>,
    _: Query<NoParameters>,
) -> Result<Json<wire::SubscriptionList>, ProblemDetails> {
    let all = orchestrator.subscriptions().list().await?;
    let subscriptions = all.into_iter().filter_map(shown).collect();
    Ok(Json(wire::SubscriptionList { subscriptions }))
}

/// Sends the frames that are appended from now on to an address, signed as Standard Webhooks
/// defines.
#[utoipa::path(post, path = "/subscriptions", request_body = wire::SubscriptionRequest,
    responses(
        (status = 201, body = wire::SubscriptionShown),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn add(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    _: Query<NoParameters>,
    CommandBody(body): CommandBody<wire::SubscriptionRequest>,
) -> Result<(StatusCode, Json<wire::SubscriptionShown>), ProblemDetails> {
    let new = new(body, caller)?;
    let url = url::Url::parse(&new.url).ok();
    let is_plain = url.is_some_and(|url| url.username().is_empty() && url.password().is_none());
    if !is_plain || orchestrator.redacted(&new.url) != new.url {
        let words = "the URL cannot be parsed, or contains a password or a secret, which would be \
                     recorded";
        return Err(ProblemDetails::new(ErrorCode::SubscriptionRefused, words)
            .with_hint("deliveries are signed: the receiver needs no password"));
    }
    let added = orchestrator.subscribe(new).await;
    let added = shown(added.map_err(problems::subscription_error)?);
    let added = added.ok_or(ErrorCode::Internal)?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// Removes a subscription: nothing more is sent.
#[utoipa::path(delete, path = "/subscriptions/{id}", params(("id" = String, Path,
    description = "The subscription")),
    responses(
        (status = 204, description = "Removed"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "The environment file declares it"),
    ))]
pub(super) async fn remove(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    PathNames(id): PathNames<String>,
    _: Query<NoParameters>,
) -> Result<StatusCode, ProblemDetails> {
    let id = known(id)?;
    let removed = orchestrator.subscriptions().remove(&id, caller.principal);
    removed.await.map_err(problems::subscription_error)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The query of a part of a list of dead frames.
#[derive(Debug)]
pub(super) struct DeadQuery {
    from: u64,
    limit: usize,
}

impl QueryParameters for DeadQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The first position; `next` of the page before.",
        ),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_DEAD as u64),
            "How many at the most.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            from: given.number("from").unwrap_or_default(),
            limit: given.limit(MAX_DEAD),
        })
    }
}

/// The frames that could not be delivered to a subscription.
#[utoipa::path(get, path = "/subscriptions/{id}/dead", params(("id" = String, Path,
    description = "The subscription"), Query::<DeadQuery>),
    responses(
        (status = 200, body = wire::DeadLetters),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn dead(
    State(orchestrator): State<Orchestrator>,
    PathNames(id): PathNames<String>,
    Query(wanted): Query<DeadQuery>,
) -> Result<Json<wire::DeadLetters>, ProblemDetails> {
    let id = known(id)?;
    let found = orchestrator
        .subscriptions()
        .dead(&id, wanted.from, wanted.limit);
    let (dead, next) = found.await.map_err(problems::subscription_error)?;
    let dead = dead.into_iter().map(letter).collect();
    Ok(Json(wire::DeadLetters { dead, next }))
}

/// Sends all dead frames of a subscription again, under the same ids.
#[utoipa::path(post, path = "/subscriptions/{id}/redrive", params(("id" = String, Path,
    description = "The subscription")),
    responses(
        (status = 202, body = wire::RedriveAccepted),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn redrive(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    PathNames(id): PathNames<String>,
    _: Query<NoParameters>,
) -> Result<(StatusCode, Json<wire::RedriveAccepted>), ProblemDetails> {
    let id = known(id)?;
    let redriven = orchestrator.subscriptions().redrive(&id, caller.principal);
    let redriven = redriven.await.map_err(problems::subscription_error)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(wire::RedriveAccepted { redriven }),
    ))
}

/// Refuses a text that cannot be an id, as one that names nothing.
fn known(id: String) -> Result<String, ProblemDetails> {
    match is_name(&id) {
        true => Ok(id),
        false => Err(ErrorCode::SubscriptionNotFound.into()),
    }
}

/// The subscription that a body asks for. What is wrong with it is said without its values: somebody
/// may have written a secret in the wrong place.
fn new(body: wire::SubscriptionRequest, caller: Caller) -> Result<NewSubscription, ProblemDetails> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN_SYNTAX).ok());
    static URL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(wire::URL_SYNTAX).ok());
    static SECRET: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(wire::SECRET_SYNTAX).ok());
    let fits = |syntax: &Option<Regex>, text: &str| {
        syntax.as_ref().is_some_and(|syntax| syntax.is_match(text))
    };
    let is_pattern = |pattern: &String| fits(&PATTERN, pattern);
    if body.pattern.is_some() == body.topics.is_some() {
        let words = "a subscription has either pattern or topics";
        return Err(invalid(words).with_hint(r#""pattern": "run.completed""#));
    }
    if !body.pattern.as_ref().is_none_or(is_pattern) {
        return Err(invalid(
            "pattern must be a type of frames, object.*, * or a list with commas",
        ));
    }
    if !fits(&URL, &body.url) {
        return Err(invalid(
            "url must be an http or https URL of at most 2,000 characters",
        ));
    }
    if !fits(&SECRET, &body.secret) {
        return Err(invalid("secret must name a variable, and nothing else")
            .with_hint(r#""secret": "{{ env.NAME }}""#));
    }
    let attempts = body.attempts.unwrap_or(u64::from(DEFAULT_ATTEMPTS));
    let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
    let backoff_ms = body.backoff_ms.unwrap_or(DEFAULT_BACKOFF_MS);
    if !(1..=MAX_ATTEMPTS).contains(&attempts) {
        let words = format!("attempts must be an integer from 1 to {MAX_ATTEMPTS}");
        return Err(invalid(&words));
    }
    if !(1..=MAX_BACKOFF_MS).contains(&backoff_ms) {
        let words = format!("backoff_ms must be an integer from 1 to {MAX_BACKOFF_MS}");
        return Err(invalid(&words));
    }
    let filter = match (&body.pattern, &body.topics) {
        (Some(pattern), _) => {
            let pattern = pattern.parse().map_err(problems::pattern_error)?;
            DeliveryFilter::Frames(pattern)
        }
        (None, topics) => {
            let topics = topics.as_deref().unwrap_or_default().parse();
            let wrong = |error: TopicPatternError| invalid(&format!("topics: {error}"));
            DeliveryFilter::Topics(topics.map_err(wrong)?)
        }
    };
    let variable = named_variable(&body.secret).unwrap_or_default().to_owned();
    Ok(NewSubscription {
        filter,
        url: body.url,
        secret: format!("{{{{ env.{variable} }}}}"),
        variable,
        retry: DeliveryRetry {
            attempts,
            backoff_ms,
        },
        by: caller.principal,
    })
}

fn shown(view: SubscriptionView) -> Option<wire::SubscriptionShown> {
    let by = view.state.added_by().map(|by| by.id.clone());
    let resting = view.state.resting().count() as u64;
    let added = view.state.added?;
    let status = match &view.status {
        None => "idle",
        Some(status) if status.is_stalled => "stalled",
        Some(status) if status.failures > 0 => "failing",
        Some(_) => "active",
    };
    let error = view
        .status
        .as_ref()
        .and_then(|status| status.error.as_ref());
    Some(wire::SubscriptionShown {
        id: view.id,
        pattern: added.pattern,
        topics: added.topics,
        url: added.url,
        secret: added.secret,
        attempts: u64::from(added.attempts),
        backoff_ms: added.backoff_ms,
        declared: view.is_declared,
        by,
        status: status.to_owned(),
        position: view.cursor,
        dead: view.status.as_ref().map_or(resting, |status| status.dead),
        error: error.map(|error| wire::DeliveryErrorShown {
            code: error.code.to_owned(),
            status: error.status,
            at: error.at,
        }),
    })
}

fn letter(dead: DeadLetter) -> wire::DeadLetterShown {
    let letter = dead.letter;
    wire::DeadLetterShown {
        position: letter.position,
        run_id: letter.stream.name().to_owned(),
        seq: letter.seq,
        delivery_id: letter.delivery_id,
        attempts: u64::from(letter.attempts),
        code: letter.code,
        status: letter.status,
        at: dead.at,
    }
}
