//! One call to a group: which models are called, how often, and how long it may take.
//!
//! ```text
//! round: model -> rate limiter of its provider -> call -> answered: done
//!          next model of the group, if another might do better <- failed, or at the limit
//!        if all that are left are at their limits: the first that becomes available
//!        pause, then the next round, if `retry` says so and the deadline permits
//! ```
//!
//! Dropping the call ends it: nothing is left waiting, and no slot is used.

use std::time::Duration;

use futures_util::future::select_all;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::Inner;
use super::bill::{Bill, BilledAttempt};
use super::builder::ProviderEntry;
use super::config::ProviderModel;
use super::error::{Code, ErrorCause, GatewayError};
use super::limit::{Permit, Rejected};
use super::provider::{Provider, ProviderCall, ProviderReply};
use super::route::Route;
use ktsu_contract::gateway::InvokeModel;

/// The time that a call may take whose group names no deadline. One whose providers may take longer
/// has as long as they.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(300);

/// Such a name cannot be redacted: it would be another tool's, and an id another call's.
const NAMES_A_KEY: &str = "upstream sent a tool call whose name or id holds a key of the gateway's, \
                           so its reply is not given";

/// The failure of one model that was asked.
struct CallRecord<'r> {
    model: &'r ProviderModel,
    failure: GatewayError,
}

/// Models of a round that were not asked yet.
struct RemainingModels<'i, 'r> {
    /// Nobody looked at their doors yet.
    unseen: std::slice::Iter<'r, ProviderModel>,
    /// Those whose provider was at its limit.
    busy: Vec<(&'r ProviderModel, &'i ProviderEntry)>,
}

/// A provider that may be asked now, with the place of the call there.
type AdmittedProvider<'i> = (&'i Provider, Permit<'i>);

impl Inner {
    /// Asks the models of a group until one answers.
    pub(super) async fn ask<'r>(
        &self,
        route: &'r Route,
        invoke: InvokeModel,
    ) -> Result<(&'r ProviderModel, ProviderReply, Bill), GatewayError> {
        let start = Instant::now();
        let deadline = route.group.deadline;
        let limit = deadline.unwrap_or_else(|| self.default_deadline(route));
        let asking = GroupCall {
            inner: self,
            route,
            run: invoke.run_id.clone().unwrap_or_default(),
            step: invoke.step_id.clone().unwrap_or_default(),
            deadline: start + limit,
            limit,
            priced_only: invoke.priced_only,
        };
        let mut bill = Bill::default();
        match asking.rounds(asking.call(invoke), &mut bill).await {
            Ok((model, answer)) => Ok((model, answer, bill)),
            Err(failure) => Err(GatewayError {
                bill: Box::new(bill),
                ..failure
            }),
        }
    }

    fn default_deadline(&self, route: &Route) -> Duration {
        let models = route.group.models.iter();
        let served = models.filter_map(|model| self.providers.get(&model.provider));
        let longest = served.filter_map(|served| served.timeout).max();
        longest.unwrap_or_default().max(DEFAULT_DEADLINE)
    }

    /// Returns `true` if the name or the id of a tool call holds a key of ours, in any form.
    fn names_a_key(&self, answer: &ProviderReply) -> bool {
        let mut words = answer
            .tool_calls
            .iter()
            .flat_map(|one| [&one.name, &one.id]);
        words.any(|word| {
            let mut shown = Value::from(word.as_str());
            self.redactor.redact_value(&mut shown);
            shown != word.as_str()
        })
    }
}

/// A call under way.
struct GroupCall<'i, 'r> {
    inner: &'i Inner,
    route: &'r Route,
    run: String,
    step: String,
    deadline: Instant,
    limit: Duration,
    priced_only: bool,
}

impl<'i, 'r> GroupCall<'i, 'r> {
    fn call(&self, invoke: InvokeModel) -> ProviderCall {
        ProviderCall {
            group: invoke.group,
            model: String::new(),
            messages: invoke.messages,
            max_tokens: invoke.max_tokens,
            temperature: invoke.temperature.or(self.route.group.temperature),
            tools: invoke.tools,
        }
    }

    async fn rounds(
        &self,
        mut call: ProviderCall,
        bill: &mut Bill,
    ) -> Result<(&'r ProviderModel, ProviderReply), GatewayError> {
        let turn = self.route.turn();
        let mut rounds = 0;
        loop {
            let models = self.route.round(turn, rounds);
            let failed = match self.round(models, &mut call, bill).await {
                Ok(answered) => return Ok(answered),
                Err(failed) => failed,
            };
            rounds += 1;
            let Some(pause) = self.pause(rounds, &failed) else {
                return Err(self.combined_failure(failed));
            };
            sleep(pause).await;
        }
    }

    /// Calls each model once until one answers. Never waits for a provider while another is available.
    async fn round(
        &self,
        models: &'r [ProviderModel],
        call: &mut ProviderCall,
        bill: &mut Bill,
    ) -> Result<(&'r ProviderModel, ProviderReply), Vec<CallRecord<'r>>> {
        let mut told = Vec::new();
        let mut left = RemainingModels {
            unseen: models.iter(),
            busy: Vec::new(),
        };
        while let Some((model, admitted)) = self.next(&mut left).await {
            call.model.clone_from(&model.id);
            let started = Instant::now();
            let asked = match admitted {
                Ok((provider, place)) => {
                    let asked = self.answer(provider, place, call).await;
                    bill.add(BilledAttempt {
                        prices: &self.route.group.prices,
                        id: &model.id,
                        model: model.to_string(),
                        failure: asked.as_ref().err().map(GatewayError::status),
                        tokens: asked
                            .as_ref()
                            .map_or_else(|failed| failed.used, |answer| answer.used),
                        duration: started.elapsed(),
                    });
                    asked
                }
                // No model was called: the provider is at its limit, or the model has no price.
                Err(failure) => Err(failure),
            };
            let failure = match asked {
                Ok(answer) => return Ok((model, answer)),
                Err(failure) => self.record_failure(model, failure),
            };
            let goes_on = should_try_next(&failure.failure);
            told.push(failure);
            if !goes_on {
                break;
            }
            if Instant::now() >= self.deadline {
                let late = |model: &'r ProviderModel| {
                    self.record_failure(model, self.rejection_failure(model, Rejected::TooLate))
                };
                told.extend(left.busy.into_iter().map(|(model, _)| late(model)));
                break;
            }
        }
        Err(told)
    }

    /// The next model to be asked: the first whose provider has room, in the order of the group, and
    /// where none of those left has any, the first that gets some.
    async fn next(
        &self,
        left: &mut RemainingModels<'i, 'r>,
    ) -> Option<(
        &'r ProviderModel,
        Result<AdmittedProvider<'i>, GatewayError>,
    )> {
        for model in left.unseen.by_ref() {
            if self.priced_only && self.route.group.prices.of(&model.id).is_none() {
                return Some((model, Err(self.unpriced(model))));
            }
            let Some(served) = self.inner.providers.get(&model.provider) else {
                let words = format!("there is no provider {:?}", model.provider);
                let failure = GatewayError::new(Code::ProviderNotRegistered, words);
                return Some((model, Err(failure)));
            };
            match served.limiter.try_acquire() {
                Some(place) => return Some((model, Ok((&served.provider, place)))),
                None => left.busy.push((model, served)),
            }
        }
        if left.busy.is_empty() {
            return None;
        }
        let (entered, at) = self.first_available(&left.busy).await;
        let (model, served) = left.busy.remove(at);
        let admitted = match entered {
            Ok(place) => Ok((&served.provider, place)),
            Err(why) => Err(self.rejection_failure(model, why)),
        };
        Some((model, admitted))
    }

    /// Waits for all of these providers, of which there is at least one: the first that becomes
    /// available or can no longer be used, by the index of its model.
    async fn first_available(
        &self,
        busy: &[(&ProviderModel, &'i ProviderEntry)],
    ) -> (Result<Permit<'i>, Rejected>, usize) {
        // Wait for each provider once, however many of its models are in the list.
        let is_another = |at: usize, served: &ProviderEntry| {
            let mut before = busy.iter().take(at);
            before.all(|(_, one)| !std::ptr::eq(*one, served))
        };
        let doors = busy.iter().enumerate();
        let doors = doors.filter(|(at, (_, served))| is_another(*at, served));
        let waits = doors.map(|(at, (_, served))| {
            Box::pin(async move { (served.limiter.acquire(self.deadline).await, at) })
        });
        select_all(waits).await.0
    }

    /// The time to wait for another round; none if there is no other in time.
    fn pause(&self, rounds: u32, told: &[CallRecord<'_>]) -> Option<Duration> {
        let failed: Vec<&GatewayError> = told.iter().map(|told| &told.failure).collect();
        let pause = self.route.group.retry.as_ref()?.pause(rounds, &failed)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        (pause < left).then_some(pause)
    }

    fn record_failure(
        &self,
        model: &'r ProviderModel,
        mut failure: GatewayError,
    ) -> CallRecord<'r> {
        let served = self.inner.providers.get(&model.provider);
        let place = served.and_then(|one| one.place_of_failure(&model.provider, failure.cause));
        if let Some(place) = place {
            failure.message = format!("{} ({place})", failure.message);
        }
        failure.message = self.inner.redactor.redact_text(&failure.message);
        let (run, step) = (self.run.as_str(), self.step.as_str());
        // Without the provider's words: they can repeat what the gateway does not know to be secret.
        tracing::warn!(run, step, %model, error = failure.code.text(), "a model call failed");
        CallRecord { model, failure }
    }

    fn unpriced(&self, model: &ProviderModel) -> GatewayError {
        let (group, id) = (&self.route.group.name, &model.id);
        let words = format!(
            "{model} has no price, and the run has a budget: give it one as \
             pricing: [{{model: {id}, input_per_million_usd: …, output_per_million_usd: …}}] of the \
             group {group} in gateway.yaml, or let the workflow say unpriced: allow; a world without \
             max_llm_cost_usd in its budget allows it, too"
        );
        GatewayError::new(Code::BudgetUnpriced, words)
    }

    fn rejection_failure(&self, model: &ProviderModel, why: Rejected) -> GatewayError {
        let provider = &model.provider;
        let words = match why {
            Rejected::TooLate => format!(
                "the rate_limit of {provider} leaves no turn within {} ms",
                self.limit.as_millis()
            ),
            Rejected::TooMany => format!("too many calls wait for {provider} already"),
        };
        let code = Code::NoModelsAvailable;
        GatewayError::passing(code, ErrorCause::RateLimited, words)
    }

    async fn answer(
        &self,
        provider: &Provider,
        _place: Permit<'_>,
        call: &ProviderCall,
    ) -> Result<ProviderReply, GatewayError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let asked = timeout_at(self.deadline, provider.answer(call, left)).await;
        let answer = asked.unwrap_or_else(|_| {
            let limit = self.limit.as_millis();
            let words = format!("no reply within the deadline of {limit} ms");
            let code = Code::ProviderError;
            Err(GatewayError::passing(code, ErrorCause::Timeout, words))
        })?;
        match self.inner.names_a_key(&answer) {
            true => {
                let failure = GatewayError::new(Code::InternalError, NAMES_A_KEY);
                Err(failure.having_used(answer.used))
            }
            false => Ok(answer),
        }
    }

    /// The failure that all failures of the last round amount to.
    fn combined_failure(&self, mut told: Vec<CallRecord<'_>>) -> GatewayError {
        if !self.route.falls_back() || told.len() < 2 {
            let last = told.pop().map(|told| told.failure);
            return last.unwrap_or_else(|| {
                GatewayError::new(Code::InvalidModelConfig, "the group has no model")
            });
        }
        let all = |code: Code| told.iter().all(|told| told.failure.code == code);
        let alike = [Code::BudgetExceeded, Code::BudgetUnpriced];
        let code = alike.into_iter().find(|code| all(*code));
        let code = code.unwrap_or(Code::NoModelsAvailable);
        let each = told
            .iter()
            .map(|told| format!("{}: {}", told.model, told.failure.message));
        let each: Vec<String> = each.collect();
        let retryable = told.iter().any(|told| told.failure.retryable);
        let words = format!("no model of the group answered: {}", each.join("; "));
        GatewayError {
            retryable,
            ..GatewayError::new(code, words)
        }
    }
}

/// Returns `true` if another model might answer where this failed: not where the request itself is
/// at fault.
fn should_try_next(failure: &GatewayError) -> bool {
    failure.cause != ErrorCause::Request
}
