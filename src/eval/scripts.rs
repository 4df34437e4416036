//! Checks by scripts: a script gets the run as JSON, and prints what it found as JSON.

use ktsu_ledger::Hash;
use ktsu_ledger::event::EvalStatus;
use serde_json::{Map, Value, json};

use crate::bench::CheckError;
use crate::commands::{failed, not_ended_well, not_run, programs};
use crate::content::Workspace;
use crate::frames::FrameView;
use crate::http_mock::record::ServiceRecords;
use crate::programs::{CheckProgram, CustomCheck, DatabasePlace, ProgramPlaces, ProgramRun};
use crate::results::{CheckFinding, MAX_REASON_CHARS, printed, shortened, shown, value_looked_at};
use crate::run_files;

/// The score from which a number alone passes.
const PASSES_FROM: f64 = 0.5;

/// The verdict of a script.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) passed: bool,
    pub(crate) score: f64,
    pub(crate) reason: String,
}

/// Runs a script, and returns its finding.
pub(crate) fn find(
    check: &CustomCheck,
    workspace: Option<&dyn Workspace>,
    services: Option<&ServiceRecords>,
    frames: &[FrameView],
) -> Result<CheckFinding, CheckError> {
    let programs = programs(workspace)?;
    let input = context(frames, &programs.places()).to_string();
    let (audit_log, trace) = (run_files::audit(frames, services), run_files::trace(frames));
    let too_large =
        |what| CheckError::new(format!("the {what} of the run is too large for a script"));
    let program = CheckProgram::Script {
        check,
        input: &input,
        audit_log: &audit_log.ok_or_else(|| too_large("audit log"))?,
        trace: &trace.ok_or_else(|| too_large("trace"))?,
    };
    let ran = programs.run(&program).map_err(not_run)?;
    if let Some(error) = not_ended_well(&ran, "the script") {
        return Ok(error);
    }
    let said = match said(&ran) {
        Ok(said) => said,
        Err(words) => return Ok(failed(&ran, words)),
    };
    let status = match said.passed {
        true => EvalStatus::Passed,
        false => EvalStatus::Failed,
    };
    Ok(CheckFinding {
        status,
        score: Some(said.score),
        reason: said.reason,
        looked_at: value_looked_at(&json!({
            "bytes": ran.output_bytes,
            "exit_code": 0,
            "output": Hash::of(&ran.output),
            "script": ran.script,
        })),
    })
}

/// The standard input of a script.
fn context(frames: &[FrameView], places: &ProgramPlaces) -> Value {
    let created = frames.first().map(FrameView::to_value).unwrap_or_default();
    let params = match &created["data"]["params"] {
        Value::Object(params) => params.clone(),
        _ => Map::new(),
    };
    let prompt = ["goal", "prompt"].into_iter();
    let prompt = prompt.filter_map(|name| params.get(name)?.as_str()).next();
    let databases = places.databases.iter();
    let services: Map<String, Value> = databases
        .map(|(name, place)| (name.clone(), place_of(place)))
        .collect();
    json!({
        "audit_log_path": places.audit_log,
        "sandbox_id": created["stream"].as_str().unwrap_or_default(),
        "scenario_params": params,
        "services": services,
        "task": {"prompt": prompt.unwrap_or_default()},
        "trace_path": places.trace,
        "workspace_path": places.workspace,
    })
}

/// The address of a database, as scripts get it.
fn place_of(place: &DatabasePlace) -> Value {
    let mut shown = json!({"host": place.host, "port": place.port});
    if let Some(socket) = &place.socket {
        shown["socket"] = json!(socket);
    }
    shown
}

/// The verdict that a script printed: `{passed, score, reason, details}`, or a boolean or a number
/// alone.
fn said(ran: &ProgramRun) -> Result<Said, String> {
    if ran.output_bytes > ran.output.len() as u64 {
        return Err(format!(
            "the script printed more than {} bytes",
            ran.output.len()
        ));
    }
    let read = serde_json::from_slice(&ran.output);
    let read: Value = read.map_err(|_| "the script did not print JSON".to_owned())?;
    said_in(&read)
}

/// See [`said`].
pub(crate) fn said_in(read: &Value) -> Result<Said, String> {
    let member = |name: &str| Some(read.get(name)?).filter(|value| !value.is_null());
    let (passed, score) = match read {
        Value::Bool(_) => (Some(read), None),
        Value::Number(_) => (None, Some(read)),
        Value::Object(_) => (member("passed"), member("score")),
        _ => return Err(format!("the script printed {}, and no result", shown(read))),
    };
    let passed = match passed {
        None => None,
        Some(Value::Bool(passed)) => Some(*passed),
        Some(other) => return Err(format!("passed is {}, and not true or false", shown(other))),
    };
    let score = match score {
        None => None,
        Some(value) => match value.as_f64().filter(|score| (0.0..=1.0).contains(score)) {
            Some(score) => Some(score),
            None => return Err(format!("score is {}, and not from 0 to 1", shown(value))),
        },
    };
    let (passed, score) = match (passed, score) {
        (Some(passed), Some(score)) if score == f64::from(u8::from(!passed)) => {
            return Err(format!(
                "passed is {passed} and score is {score}, a contradiction"
            ));
        }
        (Some(passed), Some(score)) => (passed, score),
        (Some(passed), None) => (passed, f64::from(u8::from(passed))),
        (None, Some(score)) => (score >= PASSES_FROM, score),
        (None, None) => return Err("the script printed neither passed nor score".to_owned()),
    };
    let reason = match member("reason") {
        None => format!("the script gives {score}"),
        Some(Value::String(text)) => printed(text.as_bytes()),
        Some(other) => shown(other),
    };
    let reason = match member("details") {
        None => reason,
        Some(details) => format!("{reason} {}", shown(details)),
    };
    Ok(Said {
        passed,
        score,
        reason: shortened(&reason, MAX_REASON_CHARS),
    })
}
