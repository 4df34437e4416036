//! One call to a group: which models are asked, how often, and how long it may take.
//!
//! ```text
//! round: model -> door of its provider -> ask -> answered: done
//!          next model of the group, if another might do better <- failed, or the door is shut
//!        where all that are left are shut: the first that opens
//!        pause, then the next round, if `retry` says so and the deadline leaves room
//! ```
//!
//! Whoever drops the call ends it: nothing is left waiting, and no turn is taken.

use std::time::Duration;

use futures_util::future::select_all;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::bill::Bill;
use super::config::Model;
use super::error::{Cause, Code, Failure};
use super::limit::{Entered, Shut};
use super::provider::{Answer, Call, Provider};
use super::route::Route;
use super::{Inner, Served};
use ktsu_contract::gateway::Invoke;

/// How long a call may take whose group names no deadline. One whose providers may take longer has
/// as long as they.
const DEADLINE: Duration = Duration::from_secs(300);

/// Such a name cannot be redacted: it would be another tool's, and an id another call's.
const NAMES_A_KEY: &str = "upstream sent a tool call whose name or id holds a key of the gateway's, \
                           so its reply is not given";

/// What came of asking one model.
struct Told<'r> {
    model: &'r Model,
    failure: Failure,
}

/// Models of a round that were not asked yet.
struct Left<'i, 'r> {
    /// Nobody looked at their doors yet.
    unseen: std::slice::Iter<'r, Model>,
    /// Those whose provider was at its limit.
    busy: Vec<(&'r Model, &'i Served)>,
}

/// A provider that may be asked now, with the place of the call there.
type Admitted<'i> = (&'i Provider, Entered<'i>);

impl Inner {
    /// Asks the models of a group until one answers.
    pub(super) async fn ask<'r>(
        &self,
        route: &'r Route,
        invoke: Invoke,
    ) -> Result<(&'r Model, Answer, Bill), Failure> {
        let start = Instant::now();
        let limit = route.group.deadline.unwrap_or_else(|| self.usual(route));
        let asking = Asking {
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
            Err(failure) => Err(Failure {
                bill: Box::new(bill),
                ..failure
            }),
        }
    }

    fn usual(&self, route: &Route) -> Duration {
        let models = route.group.models.iter();
        let served = models.filter_map(|model| self.providers.get(&model.provider));
        let longest = served.filter_map(|served| served.timeout).max();
        longest.unwrap_or_default().max(DEADLINE)
    }

    /// Whether a key of ours stands in the name or the id of a tool call, in any form.
    fn names_a_key(&self, answer: &Answer) -> bool {
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
struct Asking<'i, 'r> {
    inner: &'i Inner,
    route: &'r Route,
    run: String,
    step: String,
    deadline: Instant,
    limit: Duration,
    priced_only: bool,
}

impl<'i, 'r> Asking<'i, 'r> {
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

    async fn rounds(
        &self,
        mut call: Call,
        bill: &mut Bill,
    ) -> Result<(&'r Model, Answer), Failure> {
        let turn = self.route.turn();
        let mut rounds = 0;
        loop {
            let models = self.route.round(turn, rounds);
            let told = match self.round(models, &mut call, bill).await {
                Ok(answered) => return Ok(answered),
                Err(told) => told,
            };
            rounds += 1;
            let Some(pause) = self.pause(rounds, &told) else {
                return Err(self.summed_up(told));
            };
            sleep(pause).await;
        }
    }

    /// Asks each model once until one answers. No time is lost at a door while another stands open.
    async fn round(
        &self,
        models: &'r [Model],
        call: &mut Call,
        bill: &mut Bill,
    ) -> Result<(&'r Model, Answer), Vec<Told<'r>>> {
        let mut told = Vec::new();
        let mut left = Left {
            unseen: models.iter(),
            busy: Vec::new(),
        };
        while let Some((model, admitted)) = self.next(&mut left).await {
            call.model.clone_from(&model.id);
            let started = Instant::now();
            let asked = match admitted {
                Ok((provider, place)) => {
                    let asked = self.answer(provider, place, call).await;
                    bill.add(&self.route.group, model, &asked, started.elapsed());
                    asked
                }
                // Nobody was asked: not behind a shut door, and not without a price.
                Err(failure) => Err(failure),
            };
            let failure = match asked {
                Ok(answer) => return Ok((model, answer)),
                Err(failure) => self.told(model, failure),
            };
            let goes_on = leads_on(&failure.failure);
            told.push(failure);
            if !goes_on {
                break;
            }
            if Instant::now() >= self.deadline {
                let late = |model: &'r Model| self.told(model, self.shut(model, Shut::TooLate));
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
        left: &mut Left<'i, 'r>,
    ) -> Option<(&'r Model, Result<Admitted<'i>, Failure>)> {
        for model in left.unseen.by_ref() {
            if self.priced_only && self.route.group.prices.of(&model.id).is_none() {
                return Some((model, Err(self.unpriced(model))));
            }
            let Some(served) = self.inner.providers.get(&model.provider) else {
                let words = format!("there is no provider {:?}", model.provider);
                let failure = Failure::new(Code::ProviderNotRegistered, words);
                return Some((model, Err(failure)));
            };
            match served.door.enter_now() {
                Some(place) => return Some((model, Ok((&served.provider, place)))),
                None => left.busy.push((model, served)),
            }
        }
        if left.busy.is_empty() {
            return None;
        }
        let (entered, at) = self.first_open(&left.busy).await;
        let (model, served) = left.busy.remove(at);
        let admitted = match entered {
            Ok(place) => Ok((&served.provider, place)),
            Err(why) => Err(self.shut(model, why)),
        };
        Some((model, admitted))
    }

    /// Waits at all of these doors, of which there is one at least: the first that opens or is of no
    /// use, by the place of its model.
    async fn first_open(
        &self,
        busy: &[(&Model, &'i Served)],
    ) -> (Result<Entered<'i>, Shut>, usize) {
        // In each line once, however many models are behind its door.
        let is_another = |at: usize, served: &Served| {
            let mut before = busy.iter().take(at);
            before.all(|(_, one)| !std::ptr::eq(*one, served))
        };
        let doors = busy.iter().enumerate();
        let doors = doors.filter(|(at, (_, served))| is_another(*at, served));
        let waits = doors.map(|(at, (_, served))| {
            Box::pin(async move { (served.door.enter(self.deadline).await, at) })
        });
        select_all(waits).await.0
    }

    /// How long to wait for another round; none if there is no other in time.
    fn pause(&self, rounds: u32, told: &[Told<'_>]) -> Option<Duration> {
        let failed: Vec<&Failure> = told.iter().map(|told| &told.failure).collect();
        let pause = self.route.group.retry.as_ref()?.pause(rounds, &failed)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        (pause < left).then_some(pause)
    }

    fn told(&self, model: &'r Model, mut failure: Failure) -> Told<'r> {
        failure.message = self.inner.redactor.redact_text(&failure.message);
        let (run, step) = (self.run.as_str(), self.step.as_str());
        // Without the provider's words: they can repeat what the gateway does not know to be secret.
        tracing::warn!(run, step, %model, error = failure.code.text(), "a model call failed");
        Told { model, failure }
    }

    fn unpriced(&self, model: &Model) -> Failure {
        let (group, id) = (&self.route.group.name, &model.id);
        let words = format!(
            "{model} has no price, and the run has a budget: give it one as \
             pricing: [{{model: {id}, input_per_million_usd: …, output_per_million_usd: …}}] of the \
             group {group} in gateway.yaml, or let the workflow say unpriced: allow"
        );
        Failure::new(Code::BudgetUnpriced, words)
    }

    fn shut(&self, model: &Model, why: Shut) -> Failure {
        let provider = &model.provider;
        let words = match why {
            Shut::TooLate => format!(
                "the rate_limit of {provider} leaves no turn within {} ms",
                self.limit.as_millis()
            ),
            Shut::TooMany => format!("too many calls wait for {provider} already"),
        };
        let code = Code::NoModelsAvailable;
        Failure::passing(code, Cause::RateLimited, words)
    }

    async fn answer(
        &self,
        provider: &Provider,
        _place: Entered<'_>,
        call: &Call,
    ) -> Result<Answer, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let asked = timeout_at(self.deadline, provider.answer(call, left)).await;
        let answer = asked.unwrap_or_else(|_| {
            let limit = self.limit.as_millis();
            let words = format!("no reply within the deadline of {limit} ms");
            Err(Failure::passing(Code::ProviderError, Cause::Timeout, words))
        })?;
        match self.inner.names_a_key(&answer) {
            true => {
                let failure = Failure::new(Code::InternalError, NAMES_A_KEY);
                Err(failure.having_used(answer.tokens()))
            }
            false => Ok(answer),
        }
    }

    /// What all failures of the last round come to.
    fn summed_up(&self, mut told: Vec<Told<'_>>) -> Failure {
        if !self.route.falls_back() || told.len() < 2 {
            let last = told.pop().map(|told| told.failure);
            return last.unwrap_or_else(|| {
                Failure::new(Code::InvalidModelConfig, "the group has no model")
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
