//! Reads what a check asks a model.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::YamlNode;
use ktsu_ledger::id::is_name;

use crate::http_mock_reader;
use crate::model_judge::check::{JudgeCheck, JudgeInput, PASS_THRESHOLD};
use crate::model_judge::template::{PromptTemplate, Rubric};

/// Reads a check of the type `llm_as_judge`; `rubric`: the fields of its rubric.
pub(crate) fn judge(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    rubric: Option<&Fields<'_>>,
) -> Option<JudgeCheck> {
    let before = reader.faults.len();
    let criteria = filled(reader, fields, "criteria");
    let group = filled(reader, fields, "model");
    let input = fields.read("input_from", |node| input(reader, node));
    let rubric = rubric.map(|fields| Rubric {
        pass: filled(reader, fields, "pass"),
        fail: filled(reader, fields, "fail"),
    });
    let samples = fields.read("samples", |node| reader.integer(node, "samples", 1, 100));
    let temperature = fields.read("temperature", |node| {
        reader.number(node, "temperature", 0.0, 2.0)
    });
    let threshold = fields.read("pass_threshold", |node| {
        reader.number(node, "pass_threshold", 0.0, 1.0)
    });
    let template = fields.read("prompt_template", |node| template(reader, node));
    if reader.faults.len() > before {
        return None;
    }
    let check = JudgeCheck {
        criteria: criteria?,
        rubric: rubric.unwrap_or_default(),
        group: group?,
        input: input.unwrap_or(JudgeInput::Output),
        temperature_millionths: millionths(temperature.unwrap_or(0.0)),
        pass_threshold: threshold.unwrap_or(PASS_THRESHOLD),
        samples: u32::try_from(samples.unwrap_or(1)).ok()?,
        template: template.unwrap_or_else(PromptTemplate::usual),
    };
    if check.template.is_too_large(&check.criteria, &check.rubric) {
        let place = fields.key("criteria").unwrap_or(fields.place);
        let words = "the prompt has more than 256 KiB without what is judged";
        return reader.reject(Fault::new(FaultCode::BadValue, place, words));
    }
    Some(check)
}

fn filled(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, name: &str) -> Option<String> {
    let node = fields.get(name)?;
    let text = reader.string(node, name)?;
    match text.trim().is_empty() {
        true => reader.bad_value(node, format!("{name} is empty")),
        false => Some(text.to_owned()),
    }
}

fn input(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<JudgeInput> {
    match reader.string(node, "input_from")? {
        // A run has one output, and prints nothing beside it.
        "agent_output" | "stdout" => Some(JudgeInput::Output),
        "workspace" => Some(JudgeInput::Workspace),
        other if is_of_service(other) => {
            let (service, written) = other.split_once('.')?;
            Some(JudgeInput::Service {
                service: service.to_owned(),
                field: http_mock_reader::field(reader, node, written)?,
            })
        }
        other => {
            let words = format!("input_from: there is nothing named {other:?} to judge");
            let fault = Fault::new(FaultCode::BadValue, node.place, words);
            reader.reject(
                fault.hint(
                    "input_from: agent_output, stdout, workspace or SERVICE.last_request.body",
                ),
            )
        }
    }
}

/// Returns `true` if a text is `SERVICE.FIELD`.
fn is_of_service(text: &str) -> bool {
    let parts = text.split_once('.');
    parts.is_some_and(|(service, field)| is_name(service) && !field.is_empty())
}

fn template(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<PromptTemplate> {
    let text = reader.string(node, "prompt_template")?;
    match PromptTemplate::parse(text) {
        Ok(template) => Some(template),
        Err(words) => reader.bad_value(node, words),
    }
}

/// A temperature in millionths.
fn millionths(temperature: f64) -> u32 {
    (temperature * 1e6).round() as u32
}
