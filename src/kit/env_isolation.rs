//! Checks that agent and server files mention no variables, in any form (seed 000, invariant 10;
//! decision T5).

use super::read::KitReader;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_workflow::expression::Root;
use ktsu_workflow::template::Template;

/// The fault that is reported where a file reaches for the environment.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsolationRule {
    code: FaultCode,
    file: &'static str,
    hint: &'static str,
}

/// Of agent files.
pub(super) const AGENT: IsolationRule = IsolationRule {
    code: FaultCode::EnvInAgent,
    file: "an agent file",
    hint: "declare a param here, and give it \"{{ env.NAME }}\" in the workflow's step",
};

/// Of server files, and of the central list.
pub(super) const SERVER: IsolationRule = IsolationRule {
    code: FaultCode::EnvInServer,
    file: "a server file",
    hint: "declare a param here, and hand the value down: workflow, agent, server",
};

/// Tells of every place of a file that names a variable.
pub(super) fn check(reader: &mut KitReader<'_>, node: &YamlNode, seal: IsolationRule) {
    match &node.data {
        YamlValue::Text(text) => {
            if let Some(at) = mentions_environment(text) {
                let place = reader.spot(node, at, "env".len());
                let words = format!("{} cannot reach the environment", seal.file);
                let fault = Fault::new(seal.code, place, words);
                reader.fault(fault.hint(seal.hint));
            }
        }
        YamlValue::List(items) => items.iter().for_each(|item| check(reader, item, seal)),
        YamlValue::Map(members) => members
            .iter()
            .for_each(|(_, member)| check(reader, member, seal)),
        _ => {}
    }
}

/// The position at which a text names a variable: `env:NAME` as a word of its own, a text that
/// begins with `env:`, `env` inside braces, or an expression that names one in any other spelling.
pub(super) fn mentions_environment(text: &str) -> Option<usize> {
    written(text).or_else(|| evaluated(text))
}

/// The first expression of a template that would be given a variable: `{{ \"env\".K }}`, too.
fn evaluated(text: &str) -> Option<usize> {
    let template = Template::text(text).ok()?;
    let names = |root: &Root| matches!(root, Root::Env(_));
    let mut done = 0;
    for expression in template.expressions() {
        let source = expression.source();
        let rest = text.get(done..)?;
        let open = rest.find("{{")?;
        let at = done + open + rest.get(open..)?.find(source)?;
        if expression.roots().iter().any(names) {
            return Some(at + source.find("env").unwrap_or_default());
        }
        done = at + source.len();
    }
    None
}

fn written(text: &str) -> Option<usize> {
    let lead = text.len() - text.trim_start().len();
    if text
        .get(lead..)
        .is_some_and(|rest| rest.starts_with("env:"))
    {
        return Some(lead);
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("env").find_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + 3..)?);
        let begins = !before.ends_with(|c: char| word(c) || c == '.');
        let inside = before.rfind("{{").is_some_and(|open| {
            before
                .get(open..)
                .is_some_and(|inner| !inner.contains("}}"))
        });
        let named = after
            .strip_prefix(':')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        let dotted = inside && after.trim_start().starts_with(['.', ':']);
        (begins && (named || dotted)).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::mentions_environment;

    #[test]
    fn variables_are_found_in_every_form_and_prose_is_left_alone() {
        for (text, at) in [
            ("env:KEY", Some(0)),
            ("  env: KEY", Some(2)),
            ("Bearer env:KEY", Some(7)),
            ("{{ env.KEY }}", Some(3)),
            ("a {{ params.x }} {{join('', [env.KEY])}}", Some(29)),
            ("set env: production first", None),
            ("the env.KEY outside braces", None),
            ("{{ \"env\".KEY }}", Some(4)),
            ("a {{ params.x }} {{ \"\\u0065nv\".KEY }}", Some(20)),
            ("{{ params.a || (\"env\" | KEY) }}", Some(17)),
            ("{{ 'env.KEY' }}", Some(4)),
            ("{{ params.\"env\".x }}", None),
            ("{{ params.env.x }}", None),
            ("{{ params.x }} env.x", None),
            ("my_env:X, environment", None),
        ] {
            assert_eq!(mentions_environment(text), at, "{text}");
        }
    }
}
