//! `on: resume` of a step, which runs only in place of a suspended step that names it (seed 004).

use super::read::{Fields, KitReader};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;

/// The keys that do not go with `on: resume`, each with the reason.
const UNHEARD: [(&str, &str); 4] = [
    ("condition", "it runs only where a step is resumed to it"),
    ("for_each", "it takes the place of one task"),
    (
        "may_invoke",
        "the workflows of an outcome belong to its own step",
    ),
    (
        "output",
        "its output is that of the suspended step, whose schema holds",
    ),
];

/// Reads `on:` of an agent step: whether it runs only in place of a suspended one.
pub(super) fn read(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> bool {
    let on = fields.get("on");
    let on = on.and_then(|node| reader.keyword(node, "on", &[("resume", ())]));
    if on.is_none() {
        return false;
    }
    for (key, hint) in UNHEARD {
        if let (Some(place), Some(_)) = (fields.key(key), fields.get(key)) {
            let words = format!("{key} does not go with on: resume");
            reader.fault(Fault::new(FaultCode::MisplacedKey, place, words).hint(hint));
        }
    }
    true
}

/// Reports a mention of such a step.
pub(super) fn no_output(reader: &mut KitReader<'_>, id: &str, place: SourceSpan) {
    let words = format!("step {id:?} runs only in place of a suspended step");
    let fault = Fault::new(FaultCode::UnknownStep, place, words);
    reader.fault(fault.hint("name the suspended step: it has the output"));
}
