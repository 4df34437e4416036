//! `ktsu resume RUN --step STEP --data JSON`: gives a suspended step the data that it waits for, and
//! `--link`, the link by which a person without a token may.

use std::process::ExitCode;

use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::suspensions::is_suspend_id;
use serde_json::{Value, json};

use super::approvals::{ended_text, find_record, send};
use super::input::given_json;
use super::interventions::{self, ResumeArguments};
use super::output::{line, note_dim, print_json};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::{Common, Failure};
use ktsu_history::approvals::requests_of_run;
use ktsu_opening::find::find_run;

/// The data for a step.
struct StepData {
    /// The run, with the path of an inline child; or the id of the suspension.
    run: String,
    /// The step, unless the suspension is named.
    step: Option<String>,
    /// The data; nothing for a link.
    data: Option<String>,
    /// The reason, where one was given.
    reason: Option<String>,
}

/// The form of the command.
const FORM: &str = r#"ktsu resume RUN --step STEP --data '{"text": "…"}', or @FILE, or -"#;

/// `ktsu resume`: of a step that waits for data, or of a run.
pub(super) async fn resume(
    common: &Common,
    arguments: ResumeArguments,
) -> Result<ExitCode, Failure> {
    let waits = is_suspend_id(arguments.run.trim());
    if waits || arguments.step.is_some() || arguments.data.is_some() || arguments.link {
        if !waits && arguments.step.is_none() {
            let words = "which step is meant?";
            return Err(
                Failure::could_not_run(words).hint("--step STEP; ktsu approvals lists them")
            );
        }
        if arguments.data.is_none() && !arguments.link {
            let words = "a step that waits for data is resumed with them";
            return Err(Failure::could_not_run(words).hint("--data JSON, --data @FILE, or --link"));
        }
        let given = StepData {
            run: arguments.run,
            step: arguments.step.filter(|_| !waits),
            data: arguments.data,
            reason: arguments.reason,
        };
        return resume_step(common, arguments.engine, given).await;
    }
    interventions::resume(common, arguments).await
}

/// Gives a step its data, or makes the link for that.
async fn resume_step(
    common: &Common,
    engine: EngineArguments,
    given: StepData,
) -> Result<ExitCode, Failure> {
    let place = EngineHandle::ledger_location(common, &engine)?;
    let reader = open_at(&place.ledger)?;
    let record = match &given.step {
        None => find_record(&reader, &given.run)?,
        Some(step) => {
            let (stream, scope) = find_run(&reader, &given.run)?;
            let of = |record: &PersonRequest| {
                let waits = matches!(record, PersonRequest::Suspension(_));
                waits && record.scope() == scope && record.step_id() == step
            };
            let mut records = requests_of_run(&reader, &stream)?.into_iter();
            records.rfind(of).ok_or_else(|| {
                let words = format!("step {step:?} of {} has not asked for data", stream.name());
                Failure::could_not_run(words).hint("what waits: ktsu approvals")
            })?
        }
    };
    if !matches!(record, PersonRequest::Suspension(_)) {
        let words = format!("{} does not wait for data", record.id());
        let hint = format!(
            "ktsu approve {}, or ktsu reject {}",
            record.id(),
            record.id()
        );
        return Err(Failure::could_not_run(words).hint(hint));
    }
    if record.status() != ApprovalStatus::Pending {
        let failure = Failure::could_not_run(ended_text(&record));
        return Err(failure.hint("what waits: ktsu approvals"));
    }
    let Some(data) = &given.data else {
        return link(common, &engine, &record).await;
    };
    let data = given_json(
        data,
        "the data are",
        ("ktsu resume RUN --step STEP --data", FORM),
    )?;
    let mut body = json!({"data": data, "suspend_id": record.id()});
    if let Some(reason) = given.reason {
        body["reason"] = Value::from(reason);
    }
    send(common, engine, (place, &record), body).await
}

async fn link(
    common: &Common,
    engine: &EngineArguments,
    record: &PersonRequest,
) -> Result<ExitCode, Failure> {
    let place = EngineHandle::ledger_location(common, engine)?;
    let owner = EngineHandle::open(place, engine, true).await?;
    if owner.is_ours() {
        owner.close().await?;
        let words = "no engine serves this ledger, so no link would lead to it";
        return Err(Failure::could_not_run(words).hint("ktsu start"));
    }
    let run = record.run_id().replace('/', "%2F");
    let path = format!("/runs/{run}/steps/{}/suspend/link", record.step_id());
    let made = owner.post(&path, &Value::Null, None).await;
    owner.close().await?;
    let made = made?;
    if common.json {
        return print_json(&made);
    }
    line(made["url"].as_str().unwrap_or_default());
    let until = made["expires_at"].as_str().unwrap_or_default();
    note_dim(&format!(
        "  its holder may post {{\"data\": …}} there once, until {until}"
    ));
    Ok(ExitCode::SUCCESS)
}
