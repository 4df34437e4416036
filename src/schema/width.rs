//! How many alternatives a schema has for one place of a value. A validator keeps why each of them fails
//! until all are known, so a long value of a wide schema would take gigabytes to say what is wrong.

use serde_json::Value;

/// The most failures of alternatives that are kept at once: some 400 bytes each.
const MAX_KEPT: usize = 100_000;

/// The most alternatives that any `anyOf` or `oneOf` of a schema has.
pub(super) fn of(schema: &Value) -> usize {
    let mut most = 1;
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    if let ("anyOf" | "oneOf", Value::Array(list)) = (name.as_str(), member) {
                        most = most.max(list.len());
                    }
                    open.push(member);
                }
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    most
}

/// Whether all failures of a value with so many alternatives at each place may be too many to keep.
pub(super) fn is_too_much(width: usize, value: &Value) -> bool {
    let most = MAX_KEPT / width;
    let (mut places, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        places += 1;
        if places > most {
            return true;
        }
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => {
                // Elements that are too many by themselves are not listed first.
                if items.len() > most {
                    return true;
                }
                open.extend(items);
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_too_much_where_its_places_times_the_alternatives_are_many() {
        let wide =
            json!({"items": {"anyOf": [{"const": 0}, {"const": 1}, {"oneOf": [{}, {}]}, {}]}});
        assert_eq!(of(&wide), 4);
        assert_eq!(of(&json!({"anyOf": true, "oneOf": []})), 1);
        assert!(!is_too_much(4, &json!(vec![0; 24_000])));
        assert!(is_too_much(4, &json!(vec![0; 25_001])));
        assert!(is_too_much(
            4,
            &json!(vec![json!({"a": 1, "b": [2]}); 9_000])
        ));
        assert!(!is_too_much(1, &json!(vec![0; 99_000])));
    }
}
