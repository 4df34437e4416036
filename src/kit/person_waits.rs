//! The time that a kit waits for people: for a review, or for the data of a step.

use std::path::Path;

use ktsu_ledger::event::plan::StepWork;

use super::loader::Loader;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;

const MS_PER_DAY: u64 = 86_400_000;

/// A wait that a file of a kit allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonWait {
    file: String,
    place: SourceSpan,
    /// `a review`.
    what: &'static str,
    /// The longest, in milliseconds.
    timeout_ms: u64,
}

/// The waits of a kit, in the order of its files.
pub(super) fn of(loader: &Loader) -> Vec<PersonWait> {
    let mut found = Vec::new();
    let mut add = |file: &String, place, what, timeout_ms| {
        found.push(PersonWait {
            file: file.clone(),
            place,
            what,
            timeout_ms,
        });
    };
    for (path, draft) in &loader.agents {
        let Some(draft) = draft else { continue };
        if let Some((place, policy)) = draft.review() {
            add(path, place, "a review", policy.timeout.ms);
        }
        if let Some((place, policy)) = draft.suspension() {
            add(path, place, "a step of this agent", policy.timeout_ms);
        }
    }
    for (path, draft) in &loader.drafts {
        for step in draft.iter().flat_map(|draft| &draft.steps) {
            if let StepWork::Agent(agent) = &step.plan.work
                && let Some(timeout_ms) = agent.resume.as_ref().and_then(|one| one.timeout_ms)
                && let Some(place) = step.agent.as_ref().and_then(|call| call.resume)
            {
                add(path, place, "this step", timeout_ms);
            }
        }
    }
    found
}

/// Reports waits that may take longer than runs are kept that have ended: in days, the shortest time of
/// the environment.
pub fn beyond_retention(waits: &[PersonWait], kept_days: u32) -> Vec<Fault> {
    let kept_ms = u64::from(kept_days) * MS_PER_DAY;
    let long = waits.iter().filter(|wait| wait.timeout_ms > kept_ms);
    let faults = long.map(|wait| {
        let (what, days) = (wait.what, wait.timeout_ms / MS_PER_DAY);
        let kept = match kept_days {
            1 => "1 day".to_owned(),
            many => format!("{many} days"),
        };
        let words = match wait.timeout_ms % MS_PER_DAY {
            0 => format!("{what} may wait {days} days, and ended runs are kept for {kept}"),
            _ => format!("{what} may wait longer than the {kept} that ended runs are kept"),
        };
        let fault = Fault::new(FaultCode::WaitBeyondRetention, wait.place, words).warning();
        let hint = format!(
            "timeout: {}h, or keep runs longer: retention",
            kept_days * 24
        );
        fault.hint(hint).in_file(Path::new(&wait.file))
    });
    faults.collect()
}
