//! `env:`: the variables that a file declares.

use ktsu_ledger::event::plan::Variable;

use super::fault::{Fault, FaultCode};
use super::read::ConfigReader;
use super::shape::DECLARED;
use super::yaml::{SourceSpan, YamlNode};

/// The variables of an `env:` list, each with its place.
pub fn declared(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Vec<(Variable, SourceSpan)> {
    let mut variables: Vec<(Variable, SourceSpan)> = Vec::new();
    for node in reader.list(node, "env").unwrap_or_default() {
        let Some(variable) = variable(reader, node) else {
            continue;
        };
        if variables
            .iter()
            .any(|(other, _)| other.name == variable.name)
        {
            let words = format!("the variable {:?} is declared twice", variable.name);
            reader.fault(Fault::new(FaultCode::DuplicateVariable, node.place, words));
        }
        variables.push((variable, node.place));
    }
    variables
}

fn variable(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Variable> {
    let fields = reader.shaped(node, &DECLARED)?;
    let secret = fields.read("secret", |node| reader.flag(node, "secret"));
    let default = fields.get("default");
    if let Some(node) = default.filter(|_| secret == Some(true)) {
        let words = "the default of a secret variable is a secret written out";
        let fault = Fault::new(FaultCode::LiteralSecret, node.place, words).hiding(node.place);
        reader.fault(fault.hint("set it in the process environment; for tests, in .env.yaml"));
    }
    let default = default.and_then(|node| reader.string(node, "default"));
    let node = fields.get("name")?;
    let name = reader.string(node, "name")?;
    if !is_variable(name) {
        return reader.bad_value(
            node,
            format!("{name:?} is not the name of a variable: letters, digits and _"),
        );
    }
    Some(Variable {
        default: default.map(str::to_owned),
        name: name.to_owned(),
        secret: secret.unwrap_or(false),
    })
}

/// Returns `true` if a text can be the name of a variable: letters, digits and `_`, at most 64.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.len() <= 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
