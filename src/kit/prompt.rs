//! The `prompt:` of an agent file: static instructions, and templates over the params alone.

use super::read::{Fields, KitReader, NameUsage};
use super::schemas::Params;
use super::shape::agent::PROMPT;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode};
use ktsu_workflow::expression::{Expression, Root};
use ktsu_workflow::template::Template;

/// The three texts.
pub(super) struct PromptDraft {
    pub(super) system: String,
    pub(super) user: Option<String>,
    pub(super) reflect_text: Option<String>,
    /// Of the reflect prompt.
    pub(super) reflect: Option<SourceSpan>,
}

pub(super) fn read(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    params: Option<&Params>,
) -> Option<PromptDraft> {
    let fields = reader.shaped(node, &PROMPT)?;
    let system = system(reader, &fields);
    let user = fields.read("user", |node| template(reader, node, "prompt.user", params));
    let node = fields.get("reflect");
    let reflect_text = node.and_then(|node| {
        let text = template(reader, node, "prompt.reflect", params)?;
        if text.trim().is_empty() {
            let words = "the reflect prompt is empty or whitespace";
            let fault = Fault::new(FaultCode::EmptyPrompt, node.place, words);
            reader.fault(fault.hint("leave reflect out if the agent is not to look again"));
        }
        Some(text)
    });
    Some(PromptDraft {
        system: system?,
        user,
        reflect: reflect_text.as_ref().and(node).map(|node| node.place),
        reflect_text,
    })
}

fn system(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<String> {
    let node = fields.get("system")?;
    let text = reader.string(node, "prompt.system")?;
    if let Some(at) = text.find("{{") {
        let place = reader.spot(node, at, 2);
        let words = "prompt.system is static: {{ }} is not evaluated there";
        let fault = Fault::new(FaultCode::PromptNotStatic, place, words);
        reader.fault(fault.hint("move what changes to prompt.user"));
    }
    Some(text.to_owned())
}

/// A template that mentions nothing but params, and no secret ones.
fn template(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    what: &str,
    params: Option<&Params>,
) -> Option<String> {
    let text = reader.string(node, what)?.to_owned();
    reader.template(node, NameUsage::Value)?;
    reader.mentions.clear();
    let template = Template::text(&text).ok()?;
    let mut done = 0;
    for expression in template.expressions() {
        let at = after(&text, done, expression.source());
        done = at + expression.source().len();
        let place = reader.spot(node, at, expression.source().chars().count());
        for fault in judge(expression, place, what, params) {
            reader.fault(fault);
        }
    }
    Some(text)
}

/// The position of an expression that comes after the first `done` bytes.
fn after(text: &str, done: usize, source: &str) -> usize {
    let rest = text.get(done..).unwrap_or_default();
    let open = rest.find("{{").unwrap_or_default();
    let found = rest.get(open..).and_then(|rest| rest.find(source));
    done + open + found.unwrap_or_default()
}

fn judge(
    expression: &Expression,
    place: SourceSpan,
    what: &str,
    params: Option<&Params>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for root in expression.roots() {
        let name = match root {
            // Variables were reported already.
            Root::Params | Root::Env(_) => continue,
            Root::Step(id) => format!("the step {id:?}"),
            Root::Item => "item".to_owned(),
            Root::ItemIndex => "item_index".to_owned(),
            Root::Resume => "resume".to_owned(),
            Root::Name(name) => name.clone(),
        };
        let words = format!("{what} sees params alone, not {name}");
        let fault = Fault::new(FaultCode::PromptBeyondParams, place, words);
        faults.push(fault.hint("give the step a param, and write {{ params.NAME }}"));
    }
    let Some(params) = params else {
        return faults;
    };
    let taken = expression.params();
    let shown = params
        .secrets
        .iter()
        .find(|secret| taken.whole || taken.names.contains(*secret));
    if let Some(secret) = shown {
        let words = format!("the secret param {secret:?} must not appear in {what}");
        let fault = Fault::new(FaultCode::SecretNotAllowed, place, words);
        faults.push(fault.hint("secrets go to tool servers; a model never sees them"));
    }
    let known: Vec<&str> = params.schema.properties().collect();
    for name in taken
        .names
        .iter()
        .filter(|name| !known.contains(&name.as_str()))
    {
        let words = format!("the params of this agent do not declare {name:?}");
        let fault = if params.schema.is_closed() {
            Fault::new(FaultCode::UnknownParam, place, words)
        } else if params.schema.is_left_open() {
            Fault::new(FaultCode::UndeclaredParam, place, words).warning()
        } else {
            continue;
        };
        faults.push(fault.suggest_or(
            name,
            known.iter().copied(),
            "declare it in params.schema.properties",
        ));
    }
    faults
}
