//! Finding runs and evals by a part of their id.

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::run::RunStatus;

use crate::Failure;
use ktsu_history::evals::EVAL;
use ktsu_history::find::{self, RunMatch};

/// Finds a run by its id or a part of it, with the scope of an inline child if one is given.
pub fn find_run(reader: &dyn Reader, given: &str) -> Result<(StreamId, String), Failure> {
    let kinds = ["run:", "branch:", "recompute:"];
    let bare = kinds.iter().find_map(|kind| given.strip_prefix(kind));
    let given = bare.unwrap_or(given);
    if is_eval(given) {
        let words = format!("{given} is an eval, and no run");
        return Err(Failure::could_not_run(words).hint(format!("ktsu evals {given}")));
    }
    if given.is_empty() {
        return Err(Failure::could_not_run("the run id is empty").hint("ktsu runs lists them"));
    }
    found(find::run(reader, given)?, given, "run")
}

/// The status of a run, if it has not ended.
pub fn unfinished(reader: &dyn Reader, run: &StreamId) -> Result<Option<RunStatus>, StoreError> {
    let row = reader.row(run)?;
    let status = row.as_ref().map(|row| row.status.as_str());
    let all = [RunStatus::Pending, RunStatus::Running, RunStatus::Waiting];
    Ok(all.into_iter().find(|one| Some(one.as_str()) == status))
}

/// The run that a name means, or the failure where it means none or several.
fn found(found: RunMatch, given: &str, what: &str) -> Result<(StreamId, String), Failure> {
    match found {
        RunMatch::One(stream, scope) => Ok((stream, scope)),
        RunMatch::None => {
            let words = format!("there is no {what} {given}");
            let hint =
                format!("ktsu {what}s lists them; at least three characters of an id are needed");
            Err(Failure::could_not_run(words).hint(hint))
        }
        RunMatch::Removed(removed) => {
            let words = find::removal_in_words(&removed);
            Err(Failure::could_not_run(words).hint(find::REMOVED_HINT))
        }
        RunMatch::Many(some, count) => {
            let more = match count - some.len() {
                0 => String::new(),
                more => format!("\n  and {more} more"),
            };
            let words = format!(
                "{given} matches several {what}s:\n  {}{more}",
                some.join("\n  ")
            );
            Err(Failure::could_not_run(words).hint("give more of the id"))
        }
    }
}

/// Finds an eval by its id or a part of it.
pub fn find_eval(reader: &dyn Reader, given: &str) -> Result<StreamId, Failure> {
    Ok(found(find::eval(reader, given)?, given, "eval")?.0)
}

/// Finds a run as [`find_run`] does, or an eval by what its id begins with: for commands that show
/// frames.
pub fn find_record(reader: &dyn Reader, given: &str) -> Result<(StreamId, String), Failure> {
    match is_eval(given) {
        true => Ok((find_eval(reader, given)?, String::new())),
        false => find_run(reader, given),
    }
}

fn is_eval(given: &str) -> bool {
    given
        .strip_prefix("eval:")
        .unwrap_or(given)
        .starts_with(EVAL)
}

/// A run that has no such child.
pub fn no_such_child(stream: &StreamId, scope: &str) -> Failure {
    let words = format!("{} has no child {scope}", stream.name());
    Failure::could_not_run(words).hint(format!("ktsu trace {}", stream.name()))
}
