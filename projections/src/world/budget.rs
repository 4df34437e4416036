//! Limits of the activity of responders that people raised (decision F5).

use ktsu_ledger::event::BudgetRaised;
use ktsu_ledger::event::plan::world::WorldBudget;

/// The last value that was given for each limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LatestLimits {
    events: Option<u64>,
    cost_micro_usd: Option<u64>,
    depth: Option<u32>,
    wall_ms: Option<u64>,
}

impl LatestLimits {
    pub(super) fn take(&mut self, raised: &BudgetRaised) {
        self.events = raised.max_events.or(self.events);
        self.cost_micro_usd = raised.max_llm_cost_micro_usd.or(self.cost_micro_usd);
        self.depth = raised.max_recursion_depth.or(self.depth);
        self.wall_ms = raised.max_wall_ms.or(self.wall_ms);
    }

    /// Limits, but for those that were raised.
    pub(super) fn over(&self, limits: WorldBudget) -> WorldBudget {
        WorldBudget {
            max_events: self.events.unwrap_or(limits.max_events),
            limits_cost: limits.limits_cost,
            max_llm_cost_micro_usd: self.cost_micro_usd.unwrap_or(limits.max_llm_cost_micro_usd),
            max_recursion_depth: self.depth.unwrap_or(limits.max_recursion_depth),
            max_wall_ms: self.wall_ms.unwrap_or(limits.max_wall_ms),
        }
    }
}
