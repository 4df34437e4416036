//! The ends of a task.

use serde_json::Value;

use ktsu_contract::report::{FailureDetails, Finished, TaskOutcome};

/// The end with an output.
pub(super) fn completed(output: &Value) -> Finished {
    Finished {
        reason: "completed".to_owned(),
        outcome: TaskOutcome {
            output: Some(output.clone()),
            ..TaskOutcome::default()
        },
    }
}

/// The end with an error, for a reason of decision W7.
pub(crate) fn failed(reason: &str, error: FailureDetails, raw_output: Option<String>) -> Finished {
    Finished {
        reason: reason.to_owned(),
        outcome: TaskOutcome {
            error: Some(error),
            raw_output,
            ..TaskOutcome::default()
        },
    }
}

/// The end by an error of the gateway, or of the orchestrator that refused a call.
pub(crate) fn refused(error: FailureDetails) -> Finished {
    let reason = if error.code == "budget_exceeded" {
        "budget_exceeded"
    } else {
        "error"
    };
    failed(reason, error, None)
}

/// The end by an error of this runtime's making.
pub(crate) fn broken(code: &str, message: impl Into<String>) -> Finished {
    failed("error", failure(code, message), None)
}

/// The end by a text that is no output.
pub(super) fn unusable(code: &str, message: &str, text: String) -> Finished {
    failed("error", failure(code, message), Some(text))
}

/// The end by the bound of the loop. The text is what the model said last.
pub(super) fn no_turns(max_turns: u32, text: Option<&str>) -> Finished {
    let message = format!("no output after {max_turns} turns");
    let text = text.filter(|text| !text.trim().is_empty());
    let error = failure("max_turns_exceeded", message);
    failed("max_turns", error, text.map(str::to_owned))
}

/// The end by a call that no allowlist permits.
pub(super) fn not_permitted(name: &str) -> Finished {
    let message = format!("tool_not_permitted: {name}");
    failed(
        "tool_not_permitted",
        failure("tool_not_permitted", message),
        None,
    )
}

/// An error that another try would meet again.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> FailureDetails {
    FailureDetails {
        code: code.to_owned(),
        message: message.into(),
        retryable: false,
    }
}
