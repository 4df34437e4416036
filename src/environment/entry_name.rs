//! The names of entries of a list: valid, not reserved, and each given once.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::ConfigReader;
use ktsu_config::yaml::YamlNode;
use ktsu_ledger::id::is_name;

/// Reads the name of an entry. `what` says what the entries are, such as `principal`; `reserved` says
/// why a name may not be used; `lines` has the lines of the names before.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    what: &str,
    reserved: impl Fn(&str) -> Option<String>,
    lines: &mut BTreeMap<String, usize>,
) -> Option<String> {
    let name = reader.string(node, "name")?;
    let (code, words, hint) = if !is_name(name) {
        let words = format!("{name:?} cannot be the name of a {what}");
        let hint = "a letter or digit, then letters, digits, '.', '_' and '-', at most 64";
        (FaultCode::BadValue, words, hint.to_owned())
    } else if let Some(words) = reserved(name) {
        let hint = format!("give the {what} a name of its own");
        (FaultCode::ReservedName, words, hint)
    } else if let Some(first) = lines.get(name) {
        let words = format!("two {what}s are named {name:?}");
        let hint = format!("the first one is on line {first}");
        (FaultCode::DuplicateName, words, hint)
    } else {
        lines.insert(name.to_owned(), node.place.line);
        return Some(name.to_owned());
    };
    reader.reject(Fault::new(code, node.place, words).hint(hint))
}
