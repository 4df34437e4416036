//! Checks of files in a workspace.

use ktsu_ledger::Hash;
use serde_json::json;

use crate::bench::CheckError;
use crate::results::{Finding, LookedAt, shown};
use crate::spec::Content;

/// The files that a run left. Whoever implements it bounds what is read, and keeps to the folder.
pub trait Workspace {
    /// The bytes of a file, by its path from the folder; none if there is no such file.
    ///
    /// # Errors
    /// Why it cannot be read, in words for people.
    fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, String>;
}

/// Whether a file is there, or is not.
pub(crate) fn exists(
    path: &str,
    wanted: bool,
    workspace: Option<&dyn Workspace>,
) -> Result<Finding, CheckError> {
    let bytes = read(path, workspace)?;
    let reason = match bytes.is_some() {
        true => format!("{path} exists"),
        false => format!("{path} does not exist"),
    };
    let holds = bytes.is_some() == wanted;
    Ok(Finding::of(
        holds,
        reason,
        looked_at(path, bytes.as_deref()),
    ))
}

/// Whether a file holds what it has to.
pub(crate) fn find(
    check: &Content,
    workspace: Option<&dyn Workspace>,
) -> Result<Finding, CheckError> {
    let path = &check.path;
    let bytes = read(path, workspace)?;
    let looked_at = looked_at(path, bytes.as_deref());
    let Some(bytes) = bytes else {
        let reason = format!("{path} does not exist");
        return Ok(Finding::of(false, reason, looked_at));
    };
    let missed = missed(check, &String::from_utf8_lossy(&bytes));
    let reason = match &missed {
        Some(missed) => format!("{path} {missed}"),
        None => format!("{path} is as expected"),
    };
    Ok(Finding::of(missed.is_none(), reason, looked_at))
}

/// The first condition that a text does not meet, in words.
fn missed(check: &Content, text: &str) -> Option<String> {
    if let Some(part) = &check.contains
        && !text.contains(part)
    {
        return Some(format!("does not contain {}", shown(&json!(part))));
    }
    if let Some(part) = &check.not_contains
        && text.contains(part)
    {
        return Some(format!("contains {}", shown(&json!(part))));
    }
    let pattern = check.pattern.as_ref()?;
    (!pattern.is_match(text)).then(|| format!("does not match /{pattern}/"))
}

fn read(path: &str, workspace: Option<&dyn Workspace>) -> Result<Option<Vec<u8>>, CheckError> {
    let Some(workspace) = workspace else {
        let words = "there is no workspace to look at: give it with --workspace DIR";
        return Err(CheckError::new(words));
    };
    let bytes = workspace.read(path);
    bytes.map_err(|error| CheckError::new(format!("{path} cannot be read: {error}")))
}

fn looked_at(path: &str, bytes: Option<&[u8]>) -> LookedAt {
    LookedAt::value(&json!({"path": path, "content": bytes.map(Hash::of)}))
}
