//! Milestones as log lines.

use super::metrics::usd;
use super::milestone::Milestone;
use tracing::Level;

/// The target by which lines about runs are filtered: `KTSU_LOG=ktsu::run=debug`.
pub(super) const TARGET: &str = "ktsu::run";

/// Returns `true` if a line of this level would be written.
pub(super) fn is_on(level: Level) -> bool {
    match level {
        Level::INFO => tracing::enabled!(target: TARGET, Level::INFO),
        _ => tracing::enabled!(target: TARGET, Level::DEBUG),
    }
}

/// Writes a line. `is_on` says beforehand whether anybody reads it.
pub(super) fn write(run_id: &str, workflow: &str, milestone: &Milestone) {
    let fields = &milestone.fields;
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: TARGET,
                run_id,
                workflow,
                step = fields.step.as_deref(),
                item = fields.item,
                attempt = fields.attempt,
                principal = fields.principal.as_deref(),
                status = fields.status,
                code = fields.code.as_deref(),
                duration_ms = fields.duration_ms,
                cost_usd = fields.cost_micro_usd.map(usd),
                kind = fields.kind,
                group = fields.group.as_deref(),
                tool = fields.tool.as_deref(),
                model = fields.model.as_deref(),
                tokens_in = fields.tokens_in,
                tokens_out = fields.tokens_out,
                sending = fields.sending,
                http_status = fields.http_status,
                "{}",
                milestone.words
            )
        };
    }
    match milestone.level {
        Level::INFO => line!(info),
        _ => line!(debug),
    }
}
