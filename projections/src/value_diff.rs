//! The differences of two values, path by path.
//!
//! Objects are compared by key, arrays by index, everything else as a whole. A path is a JSON
//! pointer (RFC 6901); a missing value differs from null.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One place where two values differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename = "Change")]
#[schema(as = Change)]
pub struct ValueDifference {
    /// JSON pointer; empty for the value itself.
    pub path: String,
    /// What stood there before; absent: nothing.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub before: Option<Value>,
    /// What stands there after; absent: nothing.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<Value>,
}

impl ValueDifference {
    /// The same difference, seen from the other side.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self {
            path: self.path,
            before: self.after,
            after: self.before,
        }
    }
}

/// A member that is there is a value, null included.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// Every place where two values differ: the keys of an object in order, arrays by index.
pub fn diff(before: &Value, after: &Value) -> Vec<ValueDifference> {
    let mut changes = Vec::new();
    compare(before, after, &mut String::new(), &mut changes);
    changes
}

/// The value that `changes` lead to from `base`, which stays as it is. A change whose place is not
/// there changes nothing.
pub fn apply(base: &Value, changes: &[ValueDifference]) -> Value {
    let mut value = base.clone();
    for change in changes {
        put(&mut value, change);
    }
    value
}

/// A key or an index as it stands in a JSON pointer.
pub fn segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn compare(before: &Value, after: &Value, path: &mut String, changes: &mut Vec<ValueDifference>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let at = segment(name);
                below(old.get(name), new.get(name), &at, path, changes);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                let at = index.to_string();
                below(old.get(index), new.get(index), &at, path, changes);
            }
        }
        _ if before == after => {}
        _ => changes.push(ValueDifference {
            path: path.clone(),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

fn below(
    before: Option<&Value>,
    after: Option<&Value>,
    at: &str,
    path: &mut String,
    changes: &mut Vec<ValueDifference>,
) {
    let length = path.len();
    path.push('/');
    path.push_str(at);
    match (before, after) {
        (Some(before), Some(after)) => compare(before, after, path, changes),
        _ => changes.push(ValueDifference {
            path: path.clone(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
    path.truncate(length);
}

fn put(value: &mut Value, change: &ValueDifference) {
    let Some((parent, last)) = change.path.rsplit_once('/') else {
        if let Some(after) = &change.after {
            *value = after.clone();
        }
        return;
    };
    match value.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            let name = last.replace("~1", "/").replace("~0", "~");
            match &change.after {
                Some(after) => {
                    members.insert(name, after.clone());
                }
                None => {
                    members.remove(&name);
                }
            }
        }
        Some(Value::Array(items)) => {
            let Ok(index) = last.parse::<usize>() else {
                return;
            };
            let end = items.len();
            match (&change.after, items.get_mut(index)) {
                (Some(after), Some(item)) => *item = after.clone(),
                (Some(after), None) if index == end => items.push(after.clone()),
                (Some(_), None) => {}
                // Elements are missing at the end only: whatever follows goes as well.
                (None, _) => items.truncate(index),
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
