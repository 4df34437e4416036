//! Names for hints: where a name is found nearby, and lists of names.

use super::ValueType;

/// The path below a value that leads to a field of this name one level further in, or in a list
/// there.
pub(super) fn inside(value: &ValueType, name: &str) -> Option<String> {
    let has = |value: &ValueType| value.known_field(name).is_some();
    if has(&value.items()) {
        return Some(format!("[*].{name}"));
    }
    value.field_names().find_map(|field| {
        let below = value.known_field(field)?;
        if has(below) {
            return Some(format!(".{field}.{name}"));
        }
        has(&below.items()).then(|| format!(".{field}[*].{name}"))
    })
}

/// The first of some names, and how many more there are.
pub(super) fn listed(known: &[&str]) -> String {
    const MAX_LISTED: usize = 8;
    let more = known.len().saturating_sub(MAX_LISTED);
    let shown: Vec<&str> = known.iter().copied().take(MAX_LISTED).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
