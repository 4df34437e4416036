//! Arguments that several commands read alike.

use std::io::Read as _;
use std::path::Path;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ktsu_ledger::event::Effects;
use serde_json::Value;

use super::Failure;
use ktsu_opening::input::read;
use ktsu_server::body::MAX_BODY;
use ktsu_server::json_words;

/// A parser of the argument that says whether webhooks and messages are sent.
pub(super) fn effects_words() -> impl TypedValueParser<Value = Effects> {
    PossibleValuesParser::new(["execute", "suppress"]).map(|word| match word.as_str() {
        "suppress" => Effects::Suppress,
        _ => Effects::Execute,
    })
}

/// JSON that is given as such, in a file (`@FILE`), or on stdin (`-`). `what` is it, in words, before "not
/// JSON"; `command` the one that takes it, and how it does.
pub(super) fn given_json(
    given: &str,
    what: &str,
    (command, form): (&str, &str),
) -> Result<Value, Failure> {
    let text = match given.strip_prefix('@') {
        _ if given == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin()
                .take(MAX_BODY as u64 + 1)
                .read_to_end(&mut bytes)?;
            if bytes.len() > MAX_BODY {
                let words = format!("{what} more than {MAX_BODY} bytes");
                return Err(Failure::could_not_run(words));
            }
            String::from_utf8(bytes)
                .map_err(|_| Failure::could_not_run(format!("{what} not UTF-8")))?
        }
        Some(path) => read(Path::new(path))?,
        None => given.to_owned(),
    };
    let parsed = ktsu_ledger::canonical::parse_strict(text.as_bytes());
    parsed.map_err(|error| {
        let why = json_words::of_refused(&error);
        let failure = Failure::could_not_run(format!("{what} not JSON: {why}"));
        match Path::new(given).is_file() {
            true => failure.hint(format!("for a file: {command} @{given}")),
            false => failure.hint(form),
        }
    })
}
