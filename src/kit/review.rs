//! `review:` of an agent's commands: who decides on an output that the agent wants reviewed, and until
//! when (seed 004).

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::flag_meant;
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_ledger::event::plan::{ApprovalTimeout, ReviewPolicy, TimeoutBehavior};

use super::approval;
use super::read::{Fields, KitReader};
use super::shape::agent as shape;
use super::shape::server::MAX_APPROVERS;

/// The time that a decision may take if the file does not say: a week (decision P3).
const TIMEOUT_MS: u64 = 7 * 24 * 3_600_000;

/// The policy of a file that says no more than that there are reviews.
pub(super) fn by_default() -> ReviewPolicy {
    ReviewPolicy {
        not_by_proposer: false,
        quorum: 1,
        roles: Vec::new(),
        timeout: ApprovalTimeout {
            behavior: TimeoutBehavior::Fail,
            ms: TIMEOUT_MS,
        },
    }
}

/// Reads a policy: `true` is one of defaults, and `false` none. Nothing where something in it is wrong,
/// which is reported.
pub(super) fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<Option<ReviewPolicy>> {
    if let YamlValue::Bool(wanted) = &node.data {
        return Some(wanted.then(by_default));
    }
    if !matches!(node.data, YamlValue::Map(_)) {
        return no_policy(reader, node, "review");
    }
    let before = reader.faults.len();
    let fields = reader.shaped(node, &shape::REVIEW)?;
    let quorum = fields.read("quorum", |node| {
        reader.integer(node, "quorum", 1, MAX_APPROVERS)
    });
    let not_by_proposer = fields.read("not_by_proposer", |node| {
        reader.flag(node, "not_by_proposer")
    });
    let roles = roles(reader, &fields);
    let behavior = fields.read("timeout_behavior", |node| {
        reader.keyword(node, "timeout_behavior", &approval::BEHAVIORS)
    });
    let timeout = match fields.get("timeout") {
        Some(node) if approval::is_nothing(node) => {
            approval::no_time(reader, node, "leave timeout out for a week")
        }
        Some(node) => reader.duration(node, "timeout"),
        None => None,
    };
    let mut policy = by_default();
    policy.not_by_proposer = not_by_proposer.unwrap_or(false);
    policy.quorum = quorum
        .and_then(|most| u32::try_from(most).ok())
        .unwrap_or(policy.quorum);
    policy.roles = roles
        .unwrap_or_default()
        .into_iter()
        .map(str::to_owned)
        .collect();
    policy.timeout.behavior = behavior.unwrap_or(policy.timeout.behavior);
    policy.timeout.ms = timeout.unwrap_or(policy.timeout.ms);
    (reader.faults.len() == before).then_some(Some(policy))
}

/// The roles of which a person needs one; nothing where none are named.
pub(super) fn roles<'n>(
    reader: &mut KitReader<'_>,
    fields: &Fields<'n>,
) -> Option<Vec<&'static str>> {
    fields.read("roles", |node| {
        let words = shape::REVIEWERS.map(|role| (role, role));
        if let YamlValue::Text(role) = &node.data {
            let fault = Fault::new(
                FaultCode::WrongType,
                node.place,
                "roles must be a list, got text",
            );
            return reader.reject(fault.hint(format!("roles: [{role}]")));
        }
        let list = reader.list(node, "roles")?.iter();
        if list.len() == 0 {
            let words = "roles is empty, so that only admins could decide";
            let fault = Fault::new(FaultCode::WrongType, node.place, words);
            let hint = "roles: [approver]; or leave roles out for approver and admin";
            return reader.reject(fault.hint(hint));
        }
        let roles = list.map(|one| reader.keyword(one, "a role", &words));
        roles.collect()
    })
}

/// Reports a command that is declared without a value: a file with the key wants it, and an empty one
/// must not mean none.
pub(super) fn left_empty<T>(reader: &mut KitReader<'_>, place: SourceSpan, key: &str) -> Option<T> {
    let fault = Fault::new(
        FaultCode::WrongType,
        place,
        format!("{key:?} is left empty"),
    );
    reader.reject(fault.hint(format!("{key}: true; or false for none")))
}

/// Reports what is neither true nor false nor a map.
pub(super) fn no_policy<T>(reader: &mut KitReader<'_>, node: &YamlNode, key: &str) -> Option<T> {
    let words = format!("{key} must be true, false or a map, got {}", node.kind());
    let hint = match (&node.data, flag_meant(node)) {
        (YamlValue::List(_), _) => format!("{key}: {{roles: [approver]}}"),
        (_, Some(false)) => format!("{key}: false, or leave it out"),
        (_, _) => format!("{key}: true"),
    };
    let fault = Fault::new(FaultCode::WrongType, node.place, words);
    reader.reject(fault.hint(hint))
}
