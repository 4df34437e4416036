//! `suspend:` of an agent's commands, and `resume:` of a step: who gives the data that a step waits for,
//! what they have to be, and until when (seed 004).

use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{ResumePlan, SuspendPolicy};

use super::approval;
use super::read::{Fields, KitReader};
use super::review;
use super::shape::agent as shape;
use super::shape::workflow::RESUME;

/// The time that a step waits if no file says it: a week (decision P3).
const TIMEOUT_MS: u64 = 7 * 24 * 3_600_000;

/// The policy of an agent that says `suspend: true`.
pub(super) fn by_default() -> SuspendPolicy {
    SuspendPolicy {
        roles: Vec::new(),
        schema: None,
        timeout_ms: TIMEOUT_MS,
    }
}

/// Reads what an agent says: `true` is a policy of defaults, and `false` none. Nothing where something in
/// it is wrong, which is reported.
pub(super) fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<Option<SuspendPolicy>> {
    let mut policy = by_default();
    if let YamlValue::Bool(wanted) = &node.data {
        return Some(wanted.then_some(policy));
    }
    if !matches!(node.data, YamlValue::Map(_)) {
        return review::no_policy(reader, node, "suspend");
    }
    let before = reader.faults.len();
    let fields = reader.shaped(node, &shape::SUSPEND)?;
    let (roles, timeout_ms) = limits(reader, &fields);
    policy.roles = roles;
    policy.timeout_ms = timeout_ms.unwrap_or(TIMEOUT_MS);
    (reader.faults.len() == before).then_some(Some(policy))
}

/// Reads what a step says.
pub(super) fn read_resume(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<ResumePlan> {
    let before = reader.faults.len();
    let fields = reader.shaped(node, &RESUME)?;
    let schema: Option<CanonicalJson> = fields.read("schema", |node| reader.schema(node));
    let (roles, timeout_ms) = limits(reader, &fields);
    (reader.faults.len() == before).then_some(ResumePlan {
        roles,
        schema,
        timeout_ms,
    })
}

/// The roles of the people who give the data, and the time that the step waits.
fn limits(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> (Vec<String>, Option<u64>) {
    let roles = review::roles(reader, fields);
    let timeout_ms = match fields.get("timeout") {
        Some(node) if approval::is_nothing(node) => {
            approval::no_time(reader, node, "leave timeout out for a week")
        }
        Some(node) => reader.duration(node, "timeout"),
        None => None,
    };
    fields.read("on_timeout", |node| {
        reader.keyword(node, "on_timeout", &[("fail", ())])
    });
    let roles = roles.unwrap_or_default().into_iter();
    (roles.map(str::to_owned).collect(), timeout_ms)
}
