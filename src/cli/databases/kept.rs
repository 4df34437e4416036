//! The record of databases: `services` of `scenario.started`.

use std::collections::BTreeMap;

use ktsu_ledger::Hash;
use serde_json::{Map, Value, json};

use super::super::folder_contents::json_length;

/// The most bytes of JSON of all services of a run. A dump that is beyond it is left out.
pub(super) const MAX_SERVICES_JSON: u64 = 4 << 20;

/// The dump of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dumped {
    /// All that it holds, as SQL.
    Whole(String),
    /// So many bytes, which are more than are kept.
    TooLarge(u64),
    /// Nothing: its server has ended, or it holds something that SQL does not make again.
    Nothing,
}

/// The record of databases, by their names.
pub(super) fn recorded(dumps: &BTreeMap<String, Dumped>) -> Map<String, Value> {
    let mut recorded = Map::new();
    let mut left = MAX_SERVICES_JSON;
    for (name, dumped) in dumps {
        let of_this = match dumped {
            Dumped::Nothing => json!({"whole": false}),
            Dumped::TooLarge(bytes) => json!({"bytes": bytes, "whole": false}),
            Dumped::Whole(dump) => {
                let digest = Hash::of(dump.as_bytes());
                let whole = json!({"digest": digest, "dump": dump, "whole": true});
                match left.checked_sub(json_length(&whole)) {
                    Some(rest) => {
                        left = rest;
                        whole
                    }
                    None => json!({"bytes": dump.len(), "whole": false}),
                }
            }
        };
        recorded.insert(name.clone(), of_this);
    }
    recorded
}

/// The dump of a database, if it was recorded as it was: without a digest that fits, something in it was
/// redacted.
pub(super) fn dump_of<'r>(recorded: &'r Value, name: &str) -> Option<&'r str> {
    let of_this = recorded.get(name)?;
    let dump = of_this.get("dump")?.as_str()?;
    let is_as_it_was = of_this["digest"] == json!(Hash::of(dump.as_bytes()));
    (of_this["whole"] == json!(true) && is_as_it_was).then_some(dump)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps(all: &[(&str, Dumped)]) -> BTreeMap<String, Dumped> {
        let all = all.iter();
        all.map(|(name, dumped)| ((*name).to_owned(), dumped.clone()))
            .collect()
    }

    #[test]
    fn a_dump_is_read_as_it_was_recorded() {
        let dumps = dumps(&[("a", Dumped::Whole("SELECT 1;\n".to_owned()))]);
        let mut recorded = Value::Object(recorded(&dumps));
        assert_eq!(dump_of(&recorded, "a"), Some("SELECT 1;\n"));
        assert_eq!(dump_of(&recorded, "b"), None);
        recorded["a"]["dump"] = json!("SELECT [redacted];\n");
        assert_eq!(dump_of(&recorded, "a"), None);
    }

    #[test]
    fn dumps_beyond_the_bound_are_left_out_with_their_length() {
        let most = usize::try_from(MAX_SERVICES_JSON).unwrap();
        let half = Dumped::Whole("\u{1}".repeat(most / 12));
        let all = [
            ("a", half.clone()),
            ("b", half),
            ("c", Dumped::Whole("small".to_owned())),
            ("d", Dumped::TooLarge(7)),
            ("e", Dumped::Nothing),
        ];
        let recorded = Value::Object(recorded(&dumps(&all)));
        assert_eq!(recorded["b"], json!({"bytes": most / 12, "whole": false}));
        assert_eq!(recorded["d"], json!({"bytes": 7, "whole": false}));
        assert_eq!(recorded["e"], json!({"whole": false}));
        let whole = ["a", "c"].map(|name| dump_of(&recorded, name).is_some());
        assert_eq!(whole, [true, true]);
        for name in ["b", "d", "e"] {
            assert_eq!(dump_of(&recorded, name), None, "{name}");
        }
    }
}
