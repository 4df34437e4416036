//! `require_approval:` of an allowlist entry: the approval a tool needs before it is called (seed
//! 000, invariant 34), and how several entries are combined.

use ktsu_ledger::event::plan::{ApprovalPolicy, ApprovalTimeout, OnReject, TimeoutBehavior};

use super::read::{Fields, KitReader, milliseconds};
use super::shape::server as shape;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{YamlNode, YamlValue};

/// `timeout_behavior:`.
pub(super) const BEHAVIORS: [(&str, TimeoutBehavior); 2] = [
    ("fail", TimeoutBehavior::Fail),
    ("reject", TimeoutBehavior::Reject),
];

/// Reads a policy; nothing where something in it is wrong, which is told.
pub(super) fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<ApprovalPolicy> {
    let before = reader.faults.len();
    let fields = reader.shaped(node, &shape::APPROVAL)?;
    let on_reject = fields.read("on_reject", |node| {
        let words = [("fail", OnReject::Fail), ("recover", OnReject::Recover)];
        reader.keyword(node, "on_reject", &words)
    });
    let quorum = fields.read("quorum", |node| {
        reader.integer(node, "quorum", 1, shape::MAX_APPROVERS)
    });
    let not_by_proposer = fields.read("not_by_proposer", |node| {
        reader.flag(node, "not_by_proposer")
    });
    let timeout = timeout(reader, &fields);
    (reader.faults.len() == before).then(|| ApprovalPolicy {
        not_by_proposer: not_by_proposer.unwrap_or(false),
        on_reject: on_reject.unwrap_or(OnReject::Fail),
        quorum: quorum
            .and_then(|most| u32::try_from(most).ok())
            .unwrap_or(1),
        timeout,
    })
}

fn timeout(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<ApprovalTimeout> {
    let behavior = fields.read("timeout_behavior", |node| {
        reader.keyword(node, "timeout_behavior", &BEHAVIORS)
    });
    let node = fields.get("timeout").filter(|node| !is_none(node))?;
    if is_nothing(node) {
        let hint = "leave timeout out where a decision may take for ever";
        return no_time(reader, node, hint);
    }
    let ms = reader.duration(node, "timeout")?;
    reader.required(fields, "timeout_behavior", "an approval with a timeout");
    Some(ApprovalTimeout {
        behavior: behavior?,
        ms,
    })
}

/// Reports a timeout that ends every wait before it begins.
pub(super) fn no_time<T>(reader: &mut KitReader<'_>, node: &YamlNode, hint: &str) -> Option<T> {
    let words = "a timeout of no time would end every wait before it begins";
    let fault = Fault::new(FaultCode::BadValue, node.place, words);
    reader.reject(fault.hint(hint))
}

/// The bare number 0 means that there is no timeout, as it does in files that name every key.
fn is_none(node: &YamlNode) -> bool {
    match &node.data {
        YamlValue::Number(number) => number.as_u64() == Some(0),
        _ => false,
    }
}

/// Returns `true` if a duration is none: `0s`, which could be taken for "at once" and for "never".
pub(super) fn is_nothing(node: &YamlNode) -> bool {
    matches!(&node.data, YamlValue::Text(text) if milliseconds(text) == Some(0.0))
}

/// The policy that two entries ask for together: in every respect the stricter. Failing counts
/// before recovering, more people before fewer, a shorter wait before a longer one, and that the
/// proposer may not approve before that anyone may.
pub(super) fn stricter(one: &ApprovalPolicy, two: &ApprovalPolicy) -> ApprovalPolicy {
    ApprovalPolicy {
        not_by_proposer: one.not_by_proposer || two.not_by_proposer,
        on_reject: match (one.on_reject, two.on_reject) {
            (OnReject::Recover, OnReject::Recover) => OnReject::Recover,
            (OnReject::Fail, _) | (_, OnReject::Fail) => OnReject::Fail,
        },
        quorum: one.quorum.max(two.quorum),
        timeout: match (&one.timeout, &two.timeout) {
            (Some(one), Some(two)) => Some(sooner(one, two)),
            (Some(only), None) | (None, Some(only)) => Some(only.clone()),
            (None, None) => None,
        },
    }
}

fn sooner(one: &ApprovalTimeout, two: &ApprovalTimeout) -> ApprovalTimeout {
    ApprovalTimeout {
        behavior: match (one.behavior, two.behavior) {
            (TimeoutBehavior::Reject, TimeoutBehavior::Reject) => TimeoutBehavior::Reject,
            (TimeoutBehavior::Fail, _) | (_, TimeoutBehavior::Fail) => TimeoutBehavior::Fail,
        },
        ms: one.ms.min(two.ms),
    }
}

/// The same of what may not be asked at all.
pub(super) fn both(
    one: Option<&ApprovalPolicy>,
    two: Option<&ApprovalPolicy>,
) -> Option<ApprovalPolicy> {
    match (one, two) {
        (Some(one), Some(two)) => Some(stricter(one, two)),
        (Some(only), None) | (None, Some(only)) => Some(only.clone()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(
        on_reject: OnReject,
        quorum: u32,
        not_by_proposer: bool,
        timeout: Option<(u64, TimeoutBehavior)>,
    ) -> ApprovalPolicy {
        ApprovalPolicy {
            not_by_proposer,
            on_reject,
            quorum,
            timeout: timeout.map(|(ms, behavior)| ApprovalTimeout { behavior, ms }),
        }
    }

    #[test]
    fn of_two_policies_the_stricter_counts_in_every_respect() {
        use OnReject::{Fail, Recover};
        let reject = TimeoutBehavior::Reject;
        let fail = TimeoutBehavior::Fail;
        let cases = [
            (
                policy(Fail, 1, false, None),
                policy(Recover, 3, true, Some((5, reject))),
                policy(Fail, 3, true, Some((5, reject))),
            ),
            (
                policy(Recover, 2, false, Some((9, fail))),
                policy(Recover, 1, false, Some((5, reject))),
                policy(Recover, 2, false, Some((5, fail))),
            ),
            (
                policy(Recover, 1, false, Some((7, reject))),
                policy(Recover, 1, false, Some((9, reject))),
                policy(Recover, 1, false, Some((7, reject))),
            ),
        ];
        for (one, two, both) in cases {
            assert_eq!(stricter(&one, &two), both);
            assert_eq!(stricter(&two, &one), both, "the order says nothing");
            assert_eq!(stricter(&one, &one), one, "and twice is once");
        }
    }
}
