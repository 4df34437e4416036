//! Checks of what a query of a database gives.

use ktsu_ledger::Hash;
use serde_json::{Value, json};

use crate::bench::CheckError;
use crate::commands::{not_ended_well, not_run};
use crate::content::Workspace;
use crate::numbers::{equal, is_same_decimal};
use crate::programs::{CheckProgram, ProgramRun, SqlCheck};
use crate::results::{CheckFinding, printed, shortened, shown, value_looked_at};

/// The most characters of a number in a reason.
const MAX_NUMBER_CHARS: usize = 200;

/// Checks that a query gives what it has to.
pub(crate) fn find(
    check: &SqlCheck,
    workspace: Option<&dyn Workspace>,
) -> Result<CheckFinding, CheckError> {
    let needed = "queries need the database of a suite: ktsu eval run";
    let programs = workspace.and_then(Workspace::programs);
    let programs = programs.ok_or_else(|| CheckError::new(needed))?;
    let ran = programs.run(&CheckProgram::Query(check));
    let ran = ran.map_err(not_run)?;
    if let Some(error) = not_ended_well(&ran, "the query") {
        return Ok(error);
    }
    let text = match value(&ran) {
        Ok(text) => text,
        Err(words) => return Err(CheckError::new(words)),
    };
    let looked_at = value_looked_at(&json!({
        "query": Hash::of(check.query.as_bytes()),
        "service": check.service,
        "value": text.as_deref().map(|text| Hash::of(text.as_bytes())),
    }));
    let (holds, found) = match text {
        None => (false, "the query gives no row".to_owned()),
        Some(text) => compared(&text, &check.equals)?,
    };
    let reason = match holds {
        true => found,
        false => format!("{found}, expected {}", shown(&check.equals)),
    };
    Ok(CheckFinding::of(holds, reason, looked_at))
}

/// The value as JSON; none if there is no row.
fn value(ran: &ProgramRun) -> Result<Option<String>, String> {
    if ran.output_bytes > ran.output.len() as u64 {
        let most = ran.output.len();
        return Err(format!("the value has more than {most} bytes"));
    }
    let text = std::str::from_utf8(&ran.output);
    let text = text.map_err(|_| "the value is not text".to_owned())?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// True if a value is the one that is expected, and the value in words.
fn compared(text: &str, expected: &Value) -> Result<(bool, String), CheckError> {
    // A number may have more digits than numbers of JSON have here.
    if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        let holds = match expected {
            Value::Number(number) => is_same_decimal(text, &number.to_string()),
            _ => false,
        };
        let number = shortened(text, MAX_NUMBER_CHARS);
        return Ok((holds, format!("the value is {number}")));
    }
    let value: Value = serde_json::from_str(text).map_err(|_| {
        let start = printed(shortened(text, MAX_NUMBER_CHARS).as_bytes());
        CheckError::new(format!("the value cannot be read: {start}"))
    })?;
    Ok((
        equal(expected, &value),
        format!("the value is {}", shown(&value)),
    ))
}
