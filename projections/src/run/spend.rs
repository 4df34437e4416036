//! The cost of a run's model calls, and whether its budget allows one more (decision F4).
//!
//! A call is paid for once it is answered; until then it reserves what it may cost. That is not
//! known in advance: the estimate is the most expensive call of its model group so far. Before any
//! call of the group has been answered, it is everything that is left, so the first call runs
//! alone. Under the budget of a world, whose responders ask much at once, the prices of models give
//! the estimate where they are known.

use std::collections::BTreeMap;

use ktsu_ledger::event::AgentEvent;
use ktsu_ledger::event::plan::Unpriced;

use super::{RunState, Step, StepKey};
use crate::life::model_call::{CallSize, ModelCall};

/// The decision rules from which on calls under way reserve by model group, and a request that has
/// to be held is no frame that may follow. Before, each reserved the dearest call of the run, and
/// nothing while none had been answered.
pub const RESERVING_RULES: u32 = 2;

/// The answer of a budget to one more model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affordability {
    /// It may.
    Affordable,
    /// Not before a call under way has ended: together they may use up the budget.
    Held,
    /// Never: the recorded cost has reached the budget.
    Refused,
}

/// The cost of a run's model calls so far, and the calls under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spend {
    /// Recorded cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The dearest call so far, whatever its group.
    dearest_micro_usd: u64,
    groups: BTreeMap<String, GroupSpend>,
}

/// The calls of one model group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GroupSpend {
    /// Asked for and not answered.
    open: u32,
    /// The dearest, once one has shown what a call costs.
    dearest_micro_usd: Option<u64>,
    /// The size of the open ones together.
    open_size: CallSize,
}

/// The most that a model group costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupPrice {
    /// A million tokens sent, in millionths of a US dollar.
    pub input: u64,
    /// A million tokens received, likewise.
    pub output: u64,
}

impl GroupPrice {
    /// Returns `true` if its calls cost nothing.
    pub fn is_free(self) -> bool {
        self == Self::default()
    }

    fn most_micro_usd(self, size: CallSize) -> u64 {
        let sent = u128::from(self.input) * u128::from(size.sent_bytes);
        let received = u128::from(self.output) * u128::from(size.reply_tokens);
        u64::try_from((sent + received).div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The prices of model groups, as far as they are known.
pub type GroupPrices = BTreeMap<String, GroupPrice>;

impl GroupSpend {
    fn open(&mut self, size: CallSize) {
        self.open += 1;
        let all = &mut self.open_size;
        all.sent_bytes = all.sent_bytes.saturating_add(size.sent_bytes);
        all.reply_tokens = all.reply_tokens.saturating_add(size.reply_tokens);
    }

    fn close(&mut self, size: CallSize) {
        self.open = self.open.saturating_sub(1);
        let all = &mut self.open_size;
        all.sent_bytes = all.sent_bytes.saturating_sub(size.sent_bytes);
        all.reply_tokens = all.reply_tokens.saturating_sub(size.reply_tokens);
    }

    /// The most that the open calls may cost, if that is known.
    fn reserved(&self, price: Option<GroupPrice>) -> Option<u64> {
        let by_price = price.map(|price| price.most_micro_usd(self.open_size));
        let dearest = self.dearest_micro_usd;
        let by_dearest = dearest.map(|dearest| u64::from(self.open).saturating_mul(dearest));
        by_price.max(by_dearest)
    }
}

impl Spend {
    /// Number of calls that are asked for and not answered.
    pub fn open(&self) -> u64 {
        self.groups
            .values()
            .map(|group| u64::from(group.open))
            .sum()
    }

    /// The answer of the budget to one more call of a run under these rules, of whatever group.
    pub fn affords(&self, limit: u64, rules: u32) -> Affordability {
        if self.cost_micro_usd >= limit {
            return Affordability::Refused;
        }
        let reserved = match rules >= RESERVING_RULES {
            true => self.reserved(limit - self.cost_micro_usd),
            false => self.open().saturating_mul(self.dearest_micro_usd),
        };
        match self.open() > 0 && self.cost_micro_usd.saturating_add(reserved) >= limit {
            true => Affordability::Held,
            false => Affordability::Affordable,
        }
    }

    /// The most that the calls under way may cost. `left`: the rest of the budget, which a group
    /// reserves whose cost is unknown.
    fn reserved(&self, left: u64) -> u64 {
        let under_way = self.groups.values().filter(|group| group.open > 0);
        let each = under_way.map(|group| group.reserved(None).unwrap_or(left));
        each.fold(0, u64::saturating_add)
    }

    /// The answer of the budget of a world to one more call. `unknown`: what a group reserves of
    /// which nothing is known.
    fn affords_at(&self, limit: u64, prices: &GroupPrices, unknown: u64) -> Affordability {
        if self.cost_micro_usd >= limit {
            return Affordability::Refused;
        }
        let under_way = self.groups.iter().filter(|(_, group)| group.open > 0);
        let each = under_way.map(|(name, group)| {
            let reserved = group.reserved(prices.get(name).copied());
            reserved.unwrap_or(unknown)
        });
        let reserved = each.fold(0, u64::saturating_add);
        match self.open() > 0 && self.cost_micro_usd.saturating_add(reserved) >= limit {
            true => Affordability::Held,
            false => Affordability::Affordable,
        }
    }

    /// Takes what an agent's frame says of calls. `open`: its task's call that was under way before
    /// it; `after`: the one after it.
    pub(super) fn take(
        &mut self,
        event: &AgentEvent,
        open: Option<&ModelCall>,
        after: Option<&ModelCall>,
    ) {
        match (open, after) {
            (None, Some(call)) => self.group(&call.group).open(call.size),
            (Some(call), None) => self.close(call),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let cost = if let AgentEvent::Response(answer) = event {
            // A call that failed before anything was charged shows no price.
            // Nor does a repeated reply, for which nothing is charged.
            let free = answer.error.is_some() || answer.repeats.is_some();
            let shows = !free || answer.cost_micro_usd > 0;
            if let Some(call) = open.filter(|_| shows) {
                let dearest = &mut self.group(&call.group).dearest_micro_usd;
                *dearest = Some(dearest.unwrap_or(0).max(answer.cost_micro_usd));
            }
            answer.cost_micro_usd
        } else if let AgentEvent::Finished(finished) = event {
            let claimed = finished.metrics.as_ref();
            claimed.map_or(0, |claimed| claimed.cost_micro_usd)
        } else {
            return;
        };
        self.cost_micro_usd = self.cost_micro_usd.saturating_add(cost);
        self.dearest_micro_usd = self.dearest_micro_usd.max(cost);
    }

    /// Calls of a step that nobody waits for any more.
    pub(super) fn close_all(&mut self, step: &Step) {
        let tasks = step.tasks.iter().flat_map(|tasks| &tasks.list);
        for call in tasks.filter_map(|task| task.open_call.as_ref()) {
            self.close(call);
        }
    }

    fn close(&mut self, call: &ModelCall) {
        self.group(&call.group).close(call.size);
    }

    fn group(&mut self, name: &str) -> &mut GroupSpend {
        self.groups.entry(name.to_owned()).or_default()
    }
}

impl RunState {
    /// The cost of model calls so far.
    pub fn spend(&self) -> &Spend {
        &self.spend
    }

    /// The most that the run may cost, in millionths of a US dollar.
    pub fn budget(&self) -> Option<u64> {
        self.outline.root().plan.policy.cost_budget_micro_usd
    }

    /// The answer of the budget to one more model call.
    pub fn affords_a_call(&self) -> Affordability {
        let budget = self.budget();
        budget.map_or(Affordability::Affordable, |limit| {
            self.spend.affords(limit, self.rules())
        })
    }

    /// The most that the worlds of the run may cost, in millionths of a US dollar.
    pub fn world_cost_limit(&self) -> Option<u64> {
        Some(self.world_budget()?.max_llm_cost_micro_usd)
    }

    /// The answer of the budget of the run's worlds to one more model call. Where no file limits
    /// the cost, the usual limit does not make the first call of a group wait for the price of
    /// another.
    pub fn world_affords_a_call(&self, prices: &GroupPrices) -> Affordability {
        let Some(budget) = self.world_budget() else {
            return Affordability::Affordable;
        };
        let limit = budget.max_llm_cost_micro_usd;
        let unknown = match budget.limits_cost {
            true => limit.saturating_sub(self.spend.cost_micro_usd),
            false => 0,
        };
        self.spend.affords_at(limit, prices, unknown)
    }

    /// Returns `true` if a file of the run's worlds limits the cost, and models without a price are
    /// refused, since they would count against no limit.
    pub fn limits_world_cost(&self) -> bool {
        let refused = self.outline.root().plan.policy.unpriced == Unpriced::Refuse;
        refused && self.world_budget().is_some_and(|budget| budget.limits_cost)
    }

    /// Counts the calls under way again, after steps have gone: nobody waits for theirs.
    pub(super) fn recount_calls(&mut self) {
        self.spend
            .groups
            .values_mut()
            .for_each(|group| (group.open, group.open_size) = (0, CallSize::default()));
        let mut gone: Vec<bool> = Vec::with_capacity(self.scopes.len());
        for scope in &self.scopes {
            // A parent begins before its children.
            let orphaned = scope.parent.is_some_and(|parent| {
                let around = gone.get(parent.scope() as usize).copied();
                parent == StepKey::Gone || around.unwrap_or(false)
            });
            gone.push(scope.abandoned || orphaned);
            if scope.abandoned || orphaned {
                continue;
            }
            let tasks = scope.steps.iter().flat_map(|step| &step.tasks);
            let calls = tasks.flat_map(|tasks| &tasks.list);
            for call in calls.filter_map(|task| task.open_call.as_ref()) {
                self.spend.group(&call.group).open(call.size);
            }
        }
    }

    /// Returns `true` if a frame that asks for a model call may follow.
    pub(super) fn may_call_model(&self) -> bool {
        match self.affords_a_call() {
            Affordability::Affordable => true,
            Affordability::Held => self.rules() < RESERVING_RULES,
            Affordability::Refused => false,
        }
    }

    /// Returns `true` if only models whose price is known may be asked under the budget of the
    /// workflow: what others cost would count as nothing.
    pub fn uses_priced_models_only(&self) -> bool {
        let refused = self.outline.root().plan.policy.unpriced == Unpriced::Refuse;
        self.budget().is_some() && refused && self.rules() >= RESERVING_RULES
    }
}
