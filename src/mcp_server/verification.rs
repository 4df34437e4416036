//! `verify_run`.

use ktsu_ledger::verify::VerifyOptions;
use serde_json::{Value, json};

use super::access::CallerAccess;
use super::answer::{AnswerError, ToolAnswer};
use super::ask::{post, run_path};
use super::context::ToolContext;
use super::inputs::ToolInputs;
use super::setup::ServerSetup;
use ktsu_history::verify;
use ktsu_opening::Failure;
use ktsu_opening::find::find_run;

/// Verifies the ledger for a run, and decides the run again. The engine replays, so it also decides
/// whether the caller may.
pub(super) async fn verify_run(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.reading(caller).await?;
    let path = format!("{}/replay", run_path(inputs.text("run_id")));
    let replayed = post(&link.peer, &path, &[], &json!({"strict": true})).await?;
    let run_id = replayed["run_id"].as_str().unwrap_or_default().to_owned();
    let setup = context.engines.setup.clone();
    let verified = tokio::task::spawn_blocking(move || verify_file(&setup, &run_id)).await;
    let mut answer = verified.map_err(|_| AnswerError::new("the verification failed"))??;
    let verdict = replayed["verdict"].as_str().unwrap_or_default();
    answer["verified"] = json!(answer["sound"] == true && verdict == "ok");
    answer["replay"] = json!(verdict);
    for name in ["message", "divergence"] {
        if !replayed[name].is_null() {
            answer[name] = replayed[name].clone();
        }
    }
    Ok(answer)
}

fn verify_file(setup: &ServerSetup, run_id: &str) -> Result<Value, Failure> {
    let ledger = &setup.ledger;
    let mut report = verify::ledger(ledger, &VerifyOptions::default(), &mut |_| {})?;
    let reader = (setup.console.open_ledger)(ledger)?;
    let (stream, _) = find_run(&reader, run_id)?;
    report.problems.retain(verify::concerns(&reader, &stream));
    let end = verify::end(&reader, &stream);
    Ok(json!({
        "run_id": run_id,
        "sound": report.is_sound(),
        "frames": end.as_ref().map(|end| end.frames),
        "head": end.as_ref().map(|end| end.head.to_string()),
        "problems": report.problems,
        "not_covered": report.not_covered,
    }))
}
