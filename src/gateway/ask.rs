//! One call to a group: which models are asked, how often, and how long it may take.
//!
//! ```text
//! round: model -> door of its provider -> ask -> answered: done
//!          next model of the group, if another might do better <- failed
//!        pause, then the next round, if `retry` says so and the deadline leaves room
//! ```
//!
//! Whoever drops the call ends it: nothing is left waiting, and no turn is taken.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::config::Model;
use super::error::{Cause, Code, Failure};
use super::limit::{Door, Shut};
use super::provider::{Answer, Call, Provider};
use super::route::Route;
use super::{Inner, Served};
use crate::contract::gateway::Invoke;

/// How long a call may take whose group names no deadline. One whose providers may take longer has
/// as long as they.
const DEADLINE: Duration = Duration::from_secs(300);

/// What came of asking one model.
struct Told<'r> {
    model: &'r Model,
    failure: Failure,
}

impl Inner {
    /// Asks the models of a group until one answers.
    pub(super) async fn ask<'r>(
        &self,
        route: &'r Route,
        invoke: Invoke,
    ) -> Result<(&'r Model, Answer), Failure> {
        let start = Instant::now();
        let limit = route.group.deadline.unwrap_or_else(|| self.usual(route));
        let asking = Asking {
            inner: self,
            route,
            run: invoke.run_id.clone().unwrap_or_default(),
            step: invoke.step_id.clone().unwrap_or_default(),
            deadline: start + limit,
            limit,
        };
        asking.rounds(asking.call(invoke)).await
    }

    fn usual(&self, route: &Route) -> Duration {
        let models = route.group.models.iter();
        let served = models.filter_map(|model| self.providers.get(&model.provider));
        let longest = served.filter_map(|served| served.timeout).max();
        longest.unwrap_or_default().max(DEADLINE)
    }
}

/// A call under way.
struct Asking<'i, 'r> {
    inner: &'i Inner,
    route: &'r Route,
    run: String,
    step: String,
    deadline: Instant,
    limit: Duration,
}

impl<'r> Asking<'_, 'r> {
    fn call(&self, invoke: Invoke) -> Call {
        Call {
            group: invoke.group,
            model: String::new(),
            messages: invoke.messages,
            max_tokens: invoke.max_tokens,
            temperature: invoke.temperature.or(self.route.group.temperature),
            tools: invoke.tools,
        }
    }

    async fn rounds(&self, mut call: Call) -> Result<(&'r Model, Answer), Failure> {
        let turn = self.route.turn();
        let mut rounds = 0;
        loop {
            let mut told = Vec::new();
            for model in self.route.round(turn, rounds) {
                call.model.clone_from(&model.id);
                match self.one(model, &call).await {
                    Ok(answer) => return Ok((model, answer)),
                    Err(failure) => told.push(Told { model, failure }),
                }
                let leads_on = told.last().is_some_and(|told| leads_on(&told.failure));
                if !leads_on || Instant::now() >= self.deadline {
                    break;
                }
            }
            rounds += 1;
            let Some(pause) = self.pause(rounds, &told) else {
                return Err(self.summed_up(told));
            };
            sleep(pause).await;
        }
    }

    /// How long to wait for another round; none if there is no other in time.
    fn pause(&self, rounds: u32, told: &[Told<'_>]) -> Option<Duration> {
        let failed: Vec<&Failure> = told.iter().map(|told| &told.failure).collect();
        let pause = self.route.group.retry.as_ref()?.pause(rounds, &failed)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        (pause < left).then_some(pause)
    }

    async fn one(&self, model: &Model, call: &Call) -> Result<Answer, Failure> {
        let asked = match self.inner.providers.get(&model.provider) {
            Some(served) => self.served(served, model, call).await,
            None => Err(Failure::new(
                Code::ProviderNotRegistered,
                format!("there is no provider {:?}", model.provider),
            )),
        };
        asked.map_err(|mut failure| {
            failure.message = self.inner.redactor.redact_text(&failure.message);
            let (run, step) = (self.run.as_str(), self.step.as_str());
            // Without the provider's words: they can repeat what the gateway does not know to be
            // secret.
            tracing::warn!(run, step, %model, error = failure.code.text(), "a model call failed");
            failure
        })
    }

    async fn served(&self, served: &Served, model: &Model, call: &Call) -> Result<Answer, Failure> {
        let _place = self.enter(&served.door, model).await?;
        self.answer(&served.provider, call).await
    }

    async fn enter<'d>(
        &self,
        door: &'d Door,
        model: &Model,
    ) -> Result<super::limit::Entered<'d>, Failure> {
        let provider = &model.provider;
        let words = match door.enter(self.deadline).await {
            Ok(entered) => return Ok(entered),
            Err(Shut::TooLate) => format!(
                "the rate_limit of {provider} leaves no turn within {} ms",
                self.limit.as_millis()
            ),
            Err(Shut::TooMany) => format!("too many calls wait for {provider} already"),
        };
        let code = Code::NoModelsAvailable;
        Err(Failure::passing(code, Cause::RateLimited, words))
    }

    async fn answer(&self, provider: &Provider, call: &Call) -> Result<Answer, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let asked = timeout_at(self.deadline, provider.answer(call, left)).await;
        asked.unwrap_or_else(|_| {
            let limit = self.limit.as_millis();
            let words = format!("no reply within the deadline of {limit} ms");
            Err(Failure::passing(Code::ProviderError, Cause::Timeout, words))
        })
    }

    /// What all failures of the last round come to.
    fn summed_up(&self, mut told: Vec<Told<'_>>) -> Failure {
        if !self.route.falls_back() || told.len() < 2 {
            let last = told.pop().map(|told| told.failure);
            return last.unwrap_or_else(|| {
                Failure::new(Code::InvalidModelConfig, "the group has no model")
            });
        }
        let spent = |told: &Told<'_>| told.failure.code == Code::BudgetExceeded;
        let code = match told.iter().all(spent) {
            true => Code::BudgetExceeded,
            false => Code::NoModelsAvailable,
        };
        let each = told
            .iter()
            .map(|told| format!("{}: {}", told.model, told.failure.message));
        let each: Vec<String> = each.collect();
        let retryable = told.iter().any(|told| told.failure.retryable);
        let words = format!("no model of the group answered: {}", each.join("; "));
        Failure {
            retryable,
            ..Failure::new(code, words)
        }
    }
}

/// Whether another model might answer where this failed: not where the request itself is at fault.
fn leads_on(failure: &Failure) -> bool {
    match failure.cause {
        Cause::Request => false,
        Cause::Provider
        | Cause::RateLimited
        | Cause::ServerError
        | Cause::Timeout
        | Cause::Unreachable => true,
    }
}
