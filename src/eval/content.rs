//! Checks of files in a workspace.

use ktsu_ledger::Hash;
use serde_json::json;

use crate::bench::{Bench, CheckError};
use ktsu_ledger::event::LookedAt;

use crate::programs::Programs;
use crate::results::{CheckFinding, shown, value_looked_at};
use crate::spec::Content;

/// The files that a run left. An implementation bounds what is read, and keeps to the folder.
pub trait Workspace {
    /// The bytes of a file, by its path from the folder; none if there is no such file.
    ///
    /// # Errors
    /// Why it cannot be read, in words for people.
    fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, String>;

    /// Returns `true` if there is anything of this name: a file, a folder, or a link, wherever it
    /// leads.
    ///
    /// # Errors
    /// Why that cannot be said, in words for people.
    fn exists(&self, relative: &str) -> Result<bool, String>;

    /// The names of all files, and the text of those that are text, for a model; bounded.
    ///
    /// # Errors
    /// Why there is none, in words for people.
    fn overview(&self) -> Result<String, String> {
        Err("the files of this workspace cannot be listed".to_owned())
    }

    /// The interface for running programs beside these files, if programs can be run.
    fn programs(&self) -> Option<&dyn Programs> {
        None
    }
}

/// Checks that a file exists, or that it does not.
pub(crate) fn exists(
    path: &str,
    wanted: bool,
    workspace: Option<&dyn Workspace>,
) -> Result<CheckFinding, CheckError> {
    let exists = given(workspace)?.exists(path);
    let exists = exists.map_err(|error| CheckError::new(format!("{path} {error}")))?;
    let reason = match exists {
        true => format!("{path} exists"),
        false => format!("{path} does not exist"),
    };
    let looked_at = value_looked_at(&json!({"exists": exists, "path": path}));
    Ok(CheckFinding::of(exists == wanted, reason, looked_at))
}

/// Checks that the content of a file is as required.
pub(crate) fn find(
    check: &Content,
    workspace: Option<&dyn Workspace>,
    bench: &mut Bench<'_, '_>,
) -> Result<CheckFinding, CheckError> {
    let path = &check.path;
    let bytes = read(path, workspace)?;
    let looked_at = looked_at(path, bytes.as_deref());
    let Some(bytes) = bytes else {
        let reason = format!("{path} does not exist");
        return Ok(CheckFinding::of(false, reason, looked_at));
    };
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| CheckError::new(format!("{path} is not text (UTF-8)")))?;
    let missed = missed(check, text, bench)?;
    let reason = match &missed {
        Some(missed) => format!("{path} {missed}"),
        None => format!("{path} is as expected"),
    };
    Ok(CheckFinding::of(missed.is_none(), reason, looked_at))
}

/// The first condition that a text does not meet, in words.
fn missed(
    check: &Content,
    text: &str,
    bench: &mut Bench<'_, '_>,
) -> Result<Option<String>, CheckError> {
    if let Some(part) = &check.contains
        && !text.contains(part)
    {
        return Ok(Some(format!("does not contain {}", shown(&json!(part)))));
    }
    if let Some(part) = &check.not_contains
        && text.contains(part)
    {
        return Ok(Some(format!("contains {}", shown(&json!(part)))));
    }
    let Some(pattern) = &check.pattern else {
        return Ok(None);
    };
    let matches = bench.is_match(pattern, text)?;
    Ok((!matches).then(|| format!("does not match /{pattern}/")))
}

pub(crate) fn given(workspace: Option<&dyn Workspace>) -> Result<&dyn Workspace, CheckError> {
    let words = "there is no workspace to look at: give it with --workspace DIR";
    workspace.ok_or_else(|| CheckError::new(words))
}

fn read(path: &str, workspace: Option<&dyn Workspace>) -> Result<Option<Vec<u8>>, CheckError> {
    let bytes = given(workspace)?.read(path);
    bytes.map_err(|error| CheckError::new(format!("{path} {error}")))
}

fn looked_at(path: &str, bytes: Option<&[u8]>) -> LookedAt {
    value_looked_at(&json!({"path": path, "content": bytes.map(Hash::of)}))
}
