//! The types of step outputs, and of the markers in place of an output.

use std::sync::Arc;

use super::{Member, ValueType};
use crate::expression::INVOKED;

/// The type of the output of a webhook that was sent (decision S6).
pub fn webhook() -> ValueType {
    ValueType::record([
        ("sent", ValueType::boolean()),
        ("status_code", ValueType::number()),
    ])
}

/// The type of the object that a transform gives around its value (seed 000, invariant 23).
pub fn result(value: ValueType) -> ValueType {
    ValueType::record([("result", value)])
}

/// The type of the output of a fan-out (decision R4): an item has the output of its agent, or says
/// why it has none.
pub fn results(output: &ValueType) -> ValueType {
    let failed = ValueType::record([
        ("item_index", ValueType::number()),
        ("ktsu_error", ValueType::string()),
    ]);
    let skipped = ValueType::record([
        ("item_index", ValueType::number()),
        ("reason", ValueType::string()),
        ("skipped", ValueType::boolean()),
    ]);
    let item = output.join(&failed).join(&skipped);
    ValueType::record([("results", ValueType::array(item))])
}

/// The type of what is in place of the output of a step that was skipped (decision S3).
pub fn skipped() -> ValueType {
    ValueType::record([
        ("reason", ValueType::string()),
        ("skipped", ValueType::boolean()),
    ])
}

/// The type of what is in place of the output of a webhook that was not sent (decisions S3, S7).
pub fn suppressed() -> ValueType {
    ValueType::record([
        ("reason", ValueType::string()),
        ("suppressed", ValueType::boolean()),
    ])
}

/// The output of a step whose commands may run workflows: beside it stands what those gave.
#[must_use]
pub fn with_invoked(output: ValueType, outputs: impl IntoIterator<Item = ValueType>) -> ValueType {
    let Some(mut members) = output.members().cloned() else {
        return output;
    };
    let invoked = Member {
        value: ValueType::array(ValueType::union(outputs)),
        always: true,
    };
    members.named.insert(INVOKED.to_owned(), invoked);
    output.with_members(Some(Arc::new(members)))
}
