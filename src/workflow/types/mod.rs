//! The types of values, as far as they are known before any run: their kinds, the fields they can
//! have, the elements of their lists.
//!
//! A [`ValueType`] is a set of values, and always a superset of those that can occur: where nothing
//! is known, it contains every value. Whatever it excludes cannot occur, so checks based on it
//! never reject anything that works. Types come from JSON Schemas ([`schema`]), from the work of
//! steps ([`step`], [`transform`]) and from expressions ([`infer`]). A type has a bounded size and
//! depth; a larger one becomes the set of all values.
//!
//! ```text
//! schemas, steps --ValueType--> infer(expression) --> ValueType, findings
//! ```
//!
//! Nothing here takes part in a run: a recorded definition is compiled without it.

mod combine;
mod describe;
mod functions;
pub mod infer;
mod mismatch;
mod near_names;
mod paths;
pub mod schema;
pub mod spelling;
pub mod step;
pub mod transform;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use mismatch::{TypeMismatch, find_mismatch};

/// The most levels of a type, as of a value.
const MAX_TYPE_DEPTH: u16 = 64;
/// The most parts of a type, each counted as often as it occurs.
const MAX_TYPE_SIZE: u32 = 4_096;

/// Kinds of JSON values, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindSet(u8);

impl KindSet {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// Null.
    pub const NULL: Self = Self(1);
    /// Booleans.
    pub const BOOL: Self = Self(2);
    /// Numbers.
    pub const NUMBER: Self = Self(4);
    /// Text.
    pub const STRING: Self = Self(8);
    /// Arrays.
    pub const ARRAY: Self = Self(16);
    /// Objects.
    pub const OBJECT: Self = Self(32);
    /// Every kind.
    pub const ALL: Self = Self(63);
    /// Booleans, numbers and text.
    pub const SCALARS: Self = Self(14);

    /// The kinds that are in both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The kinds that are in either.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The kinds that are not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns `true` if the two have a kind in common.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns `true` if there is none.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A set of values that holds at least those that can occur.
#[derive(Debug, Clone)]
pub struct ValueType {
    kinds: KindSet,
    /// The type of the elements of its arrays; `None` if they can be anything.
    items: Option<Arc<ValueType>>,
    /// The fields of its objects; `None` if they can be anything.
    members: Option<Arc<Members>>,
    size: u32,
    depth: u16,
}

/// The fields of an object.
#[derive(Debug, Clone)]
pub struct Members {
    /// Those that are known by name.
    pub named: BTreeMap<String, Member>,
    /// The type of any other field; `None` if there can be no other.
    pub rest: Option<ValueType>,
}

/// A field that is known by name.
#[derive(Debug, Clone)]
pub struct Member {
    /// The type of its value.
    pub value: ValueType,
    /// True if every object has it.
    pub always: bool,
}

impl ValueType {
    fn of_kinds(kinds: KindSet) -> Self {
        Self {
            kinds,
            items: None,
            members: None,
            size: 1,
            depth: 1,
        }
    }

    /// Every value.
    pub fn any() -> Self {
        Self::of_kinds(KindSet::ALL)
    }

    /// No value.
    pub fn never() -> Self {
        Self::of_kinds(KindSet::NONE)
    }

    /// Null alone.
    pub fn null() -> Self {
        Self::of_kinds(KindSet::NULL)
    }

    /// Both booleans.
    pub fn boolean() -> Self {
        Self::of_kinds(KindSet::BOOL)
    }

    /// Every number.
    pub fn number() -> Self {
        Self::of_kinds(KindSet::NUMBER)
    }

    /// Every text.
    pub fn string() -> Self {
        Self::of_kinds(KindSet::STRING)
    }

    /// Arrays of such elements.
    pub fn array(items: Self) -> Self {
        Self::of_kinds(KindSet::ARRAY).with_items(Some(Arc::new(items)))
    }

    /// Any object.
    pub fn open_object() -> Self {
        Self::of_kinds(KindSet::OBJECT)
    }

    /// Objects with exactly these fields.
    pub fn record<N: Into<String>>(fields: impl IntoIterator<Item = (N, Self)>) -> Self {
        let named = fields.into_iter().map(|(name, value)| {
            let member = Member {
                value,
                always: true,
            };
            (name.into(), member)
        });
        Self::object(Members {
            named: named.collect(),
            rest: None,
        })
    }

    /// Objects with these fields.
    pub fn object(members: Members) -> Self {
        Self::of_kinds(KindSet::OBJECT).with_members(Some(Arc::new(members)))
    }

    /// The one value.
    pub fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::null(),
            Value::Bool(_) => Self::boolean(),
            Value::Number(_) => Self::number(),
            Value::String(_) => Self::string(),
            Value::Array(items) => Self::array(Self::union(items.iter().map(Self::of_value))),
            Value::Object(members) => Self::record(
                members
                    .iter()
                    .map(|(name, member)| (name.as_str(), Self::of_value(member))),
            ),
        }
    }

    /// The values that are in any of these.
    pub fn union(types: impl IntoIterator<Item = Self>) -> Self {
        let types = types.into_iter();
        types.fold(Self::never(), |all, one| all.join(&one))
    }

    /// The same, null included.
    #[must_use]
    pub fn or_null(mut self) -> Self {
        self.kinds = self.kinds.or(KindSet::NULL);
        self
    }

    /// The same without null.
    #[must_use]
    pub fn without_null(mut self) -> Self {
        self.kinds = self.kinds.without(KindSet::NULL);
        self
    }

    /// Those of some kinds.
    #[must_use]
    pub fn only(mut self, kinds: KindSet) -> Self {
        self.kinds = self.kinds.and(kinds);
        self
    }

    /// The kinds of its values.
    pub fn kinds(&self) -> KindSet {
        self.kinds
    }

    /// Returns `true` if nothing at all is known.
    pub fn is_any(&self) -> bool {
        self.kinds == KindSet::ALL && self.items.is_none() && self.members.is_none()
    }

    /// Returns `true` if there is no such value.
    pub fn is_never(&self) -> bool {
        self.kinds.is_none()
    }

    /// Returns `true` if something is known of it that is neither nothing nor null: only then can
    /// it be said to fit nowhere.
    pub fn is_informative(&self) -> bool {
        !self.kinds.without(KindSet::NULL).is_none()
    }

    /// The type of an element of its arrays.
    pub fn items(&self) -> Self {
        match (&self.items, self.kinds.meets(KindSet::ARRAY)) {
            (Some(items), true) => (**items).clone(),
            (None, true) => Self::any(),
            (_, false) => Self::never(),
        }
    }

    /// The fields of its objects, where anything is known of them.
    pub fn members(&self) -> Option<&Members> {
        let members = self.members.as_deref();
        members.filter(|_| self.kinds.meets(KindSet::OBJECT))
    }

    /// The names of fields that can be there.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        let named = self.members().into_iter().flat_map(|one| &one.named);
        named
            .filter(|(_, member)| !member.value.is_never())
            .map(|(name, _)| name.as_str())
    }

    /// The type of a field by its name; `None` if no object has it, or if it is not known by name.
    pub fn known_field(&self, name: &str) -> Option<&Self> {
        let member = self.members()?.named.get(name)?;
        Some(&member.value).filter(|value| !value.is_never())
    }

    /// The type of the values of its objects, all of them together.
    pub fn member_values(&self) -> Self {
        match (self.members(), self.kinds.meets(KindSet::OBJECT)) {
            (Some(members), _) => {
                let named = members.named.values().map(|member| member.value.clone());
                Self::union(named.chain(members.rest.clone()))
            }
            (None, true) => Self::any(),
            (None, false) => Self::never(),
        }
    }

    fn with_items(mut self, items: Option<Arc<Self>>) -> Self {
        self.items = items.filter(|items| !items.is_any());
        self.bounded()
    }

    fn with_members(mut self, members: Option<Arc<Members>>) -> Self {
        self.members = members;
        self.bounded()
    }

    /// Counts its size and depth; what is too large is forgotten.
    fn bounded(mut self) -> Self {
        let items = self.items.iter().map(|items| (items.size, items.depth));
        let members = self.members.iter().flat_map(|members| {
            let named = members.named.values().map(|member| &member.value);
            named
                .chain(&members.rest)
                .map(|value| (value.size, value.depth))
        });
        let (size, depth) = items
            .chain(members)
            .fold((1u32, 0u16), |(size, depth), one| {
                (size.saturating_add(one.0), depth.max(one.1))
            });
        (self.size, self.depth) = (size, depth.saturating_add(1));
        if self.size > MAX_TYPE_SIZE || self.depth > MAX_TYPE_DEPTH {
            return Self::of_kinds(self.kinds);
        }
        self
    }
}

#[cfg(test)]
mod tests;
