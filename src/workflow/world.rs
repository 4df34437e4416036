//! The names and the sizes that the parts of a world file may have: the rules that its reader and
//! its compiler share.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a guard against a second one is made of a few kinds of nodes"
)]

use std::collections::BTreeSet;

use jmespath::ast::{Ast, Comparator};
use ktsu_ledger::id::is_name;

use crate::expression::Expression;

/// The most responders of all worlds of a run.
pub const MAX_RESPONDERS: usize = 1_000;
/// The most types of objects and of relations of a world, each.
pub const MAX_WORLD_TYPES: usize = 1_000;
/// The most names of `with` of a responder.
pub const MAX_LOOKUPS: usize = 32;
/// The most conditions of one look-up.
pub const MAX_CONDITIONS: usize = 16;
/// The most entries that a responder makes for an item, those of `then` included.
pub const MAX_ENTRIES: usize = 256;
/// The most messages of a question to a model.
pub const MAX_MESSAGES: usize = 64;
/// The most events that one responder reacts to.
pub const MAX_TRIGGERS: usize = 64;

/// The most characters of an id, an end of a relation or a key, whoever gives it. A longer text would
/// be moved out of its frame, where ids are read.
pub const MAX_ID_CHARS: usize = 256;
/// The longest `after`, in milliseconds: a year, as of all durations in files.
pub const MAX_AFTER_MS: u64 = 31_536_000_000;

/// The type of the objects that stand for completed steps: `step/ID`.
pub const STEP_OBJECT: &str = "step";

/// The prefix of the ids of objects that represent steps. No other object may have such an id.
pub const STEP_ID_PREFIX: &str = "step/";

/// The type of the object that a goal becomes where no world says otherwise.
pub const GOAL_OBJECT: &str = "Goal";

/// The names that expressions know by themselves; `with` and `as` cannot have them (decision S1).
pub const RESERVED_NAMES: [&str; 17] = [
    "before",
    "env",
    "event",
    "goal",
    "item",
    "item_index",
    "null",
    "object",
    "params",
    "patch",
    "relation",
    "reply",
    "result",
    "run",
    "source",
    "step",
    "target",
];

/// Returns `true` if `with` and `as` cannot have this name.
pub fn is_reserved_name(name: &str) -> bool {
    RESERVED_NAMES.contains(&name)
}

/// Returns `true` if a text can name a responder, a type or a value: a letter or `_`, then letters,
/// digits, `_`, `-`, at most 64 characters (decision S1).
pub fn is_identifier(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The kind of an event's subject, which decides what names its responders have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TriggerKind {
    /// `*`.
    Every,
    /// `object.created`, and `step.completed`, whose object is the one that stands for the step.
    Object,
    /// `object.patched`.
    Patch,
    /// `relation.created` and `relation.removed`.
    Relation,
    /// `step.completed`.
    Step,
    /// `note` and `x.KIT.NAME`: what they hold is `event.data`.
    Posted,
}

/// The events that a responder can name, but for those of kits.
pub const EVENTS: [&str; 7] = [
    "object.created",
    "object.patched",
    "relation.created",
    "relation.removed",
    "step.completed",
    "note",
    "*",
];

impl TriggerKind {
    /// The kind of an event, if responders react to it.
    pub fn of(event: &str) -> Option<Self> {
        match event {
            "*" => Some(Self::Every),
            "object.created" => Some(Self::Object),
            "object.patched" => Some(Self::Patch),
            "relation.created" | "relation.removed" => Some(Self::Relation),
            "step.completed" => Some(Self::Step),
            "note" => Some(Self::Posted),
            event => is_kit_event(event).then_some(Self::Posted),
        }
    }

    /// The names that a trigger of this kind brings, beside those that all have.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Every => &["object", "before", "patch", "relation", "source", "target"],
            Self::Object | Self::Step => &["object"],
            Self::Patch => &["object", "before", "patch"],
            Self::Relation => &["relation", "source", "target"],
            Self::Posted => &[],
        }
    }

    /// Returns `true` if it can be about an object or a relation, which has a type.
    pub fn has_type(self) -> bool {
        !matches!(self, Self::Step | Self::Posted)
    }
}

/// Returns `true` if an event is one of a kit: `x.KIT.NAME`.
pub fn is_kit_event(event: &str) -> bool {
    let mut parts = event.split('.');
    let of_kit = parts.next() == Some("x");
    let names: Vec<&str> = parts.collect();
    let is_part = |name: &str| is_name(name) && !name.contains('.');
    of_kit && names.len() == 2 && names.into_iter().all(is_part)
}

/// The names of which a guard wants that there is nothing: `!x`, `x == 0`, `length(x) == 0`, alone or
/// beside other conditions.
pub fn names_wanted_absent(guard: &Expression) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open = vec![guard.ast()];
    while let Some(ast) = open.pop() {
        match ast {
            Ast::And { lhs, rhs, .. } | Ast::Or { lhs, rhs, .. } => open.extend([&**lhs, &**rhs]),
            Ast::Not { node, .. } => names.extend(counted_name(node)),
            Ast::Comparison {
                comparator: Comparator::Equal,
                lhs,
                rhs,
                ..
            } if is_zero(rhs) => names.extend(counted_name(lhs)),
            _ => {}
        }
    }
    names
}

/// The name that stands alone, or whose length is taken.
fn counted_name(ast: &Ast) -> Option<String> {
    match ast {
        Ast::Field { name, .. } => Some(name.clone()),
        Ast::Function { name, args, .. } if name == "length" => match args.as_slice() {
            [Ast::Field { name, .. }] => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn is_zero(ast: &Ast) -> bool {
    matches!(ast, Ast::Literal { value, .. } if value.as_number() == Some(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_kit_has_the_name_of_the_kit_and_its_own() {
        assert!(is_kit_event("x.incidents.alert-raised"));
        for event in ["x", "x.a", "x.a.b.c", "x.a.", "x..b", "y.a.b", "x.-a.b"] {
            assert!(!is_kit_event(event), "{event}");
            assert_eq!(TriggerKind::of(event), None, "{event}");
        }
    }

    #[test]
    fn every_event_that_is_listed_has_a_kind() {
        for event in EVENTS {
            assert!(TriggerKind::of(event).is_some(), "{event}");
        }
        assert_eq!(TriggerKind::of("llm.response"), None);
    }

    #[test]
    fn a_guard_that_wants_nothing_there_is_known_by_its_negation() {
        use crate::expression::Vocabulary;
        for (guard, names) in [
            ("a && !b && length(c) == `0`", vec!["b", "c"]),
            ("d == `0` || !(e.f)", vec!["d"]),
            ("a && b != `0`", vec![]),
        ] {
            let guard = Expression::parse_with(guard, Vocabulary::Responder).unwrap();
            assert_eq!(Vec::from_iter(names_wanted_absent(&guard)), names);
        }
    }

    #[test]
    fn an_identifier_is_one_an_expression_can_name() {
        for name in ["a", "_a", "Claim", "a-b_9"] {
            assert!(is_identifier(name), "{name}");
        }
        for name in ["", "9a", "-a", "a.b", "a b", "ä", &"a".repeat(65)] {
            assert!(!is_identifier(name), "{name}");
        }
    }
}
