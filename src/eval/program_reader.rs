//! Reads what a check says of the program that it runs.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::YamlNode;

use crate::programs::{CommandCheck, CustomCheck, ProgramLimits};
use crate::shapes::MAX_PROGRAM_MS;

/// The most bytes of a command.
const MAX_COMMAND: usize = 64 << 10;

/// A command, but for its limits.
pub(crate) fn command(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<CommandCheck> {
    let node = fields.get("command")?;
    let command = reader.string(node, "command")?;
    if command.trim().is_empty() || command.len() > MAX_COMMAND || command.contains('\0') {
        let words = format!("command needs 1 to {MAX_COMMAND} bytes of text, without a null byte");
        return reader.bad_value(node, words);
    }
    let command = command.to_owned();
    let exit_code = match fields.get("exit_code") {
        Some(node) => reader.integer(node, "exit_code", 0, 255)?,
        None => 0,
    };
    Some(CommandCheck {
        command,
        exit_code: i32::try_from(exit_code).ok()?,
        limits: ProgramLimits::default(),
    })
}

/// A query.
pub(crate) fn query(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<String> {
    let node = fields.get("query")?;
    let query = reader.string(node, "query")?;
    if query.trim().is_empty() || query.len() > MAX_COMMAND || query.contains('\0') {
        let words = format!("query needs 1 to {MAX_COMMAND} bytes of text, without a null byte");
        return reader.bad_value(node, words);
    }
    Some(query.to_owned())
}

/// A file in the folder of the spec or below it.
pub(crate) fn file(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    name: &str,
    example: &str,
) -> Option<String> {
    let path = reader.string(node, name)?;
    let leads_out = path.starts_with('/') || path.split('/').any(|part| part == "..");
    if path.is_empty() || leads_out || path.contains(['\0', '\\']) {
        let words =
            format!("{name} must be relative to the folder of the spec, and stay within it");
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint(format!("{name}: {example}, for instance")));
    }
    Some(path.to_owned())
}

/// A script, but for its limits.
pub(crate) fn custom(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<CustomCheck> {
    let script = file(reader, fields.get("script")?, "script", "checks/summary.py")?;
    let places = [("host", true), ("sandbox", false)];
    let reads_only = match fields.get("runs_in") {
        Some(node) => reader.keyword(node, "runs_in", &places)?,
        None => true,
    };
    Some(CustomCheck {
        script,
        reads_only,
        limits: ProgramLimits::default(),
    })
}

/// The limits of a program.
pub(crate) fn limits(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<ProgramLimits> {
    let before = reader.faults.len();
    let mut most = |name: &str, least: i64, most: i64, unit: u64| {
        let node = fields.get(name)?;
        let number = reader.integer(node, name, least, most)?;
        u64::try_from(number).ok()?.checked_mul(unit)
    };
    let limits = ProgramLimits {
        disk: most("disk_mb", 1, 100_000, 1 << 20),
        memory: most("memory_mb", 16, 1_000_000, 1 << 20),
        processes: most("processes", 1, 10_000, 1),
        time_ms: fields.read("time", |node| reader.duration(node, "time")),
    };
    if let Some(node) = fields.get("time")
        && limits
            .time_ms
            .is_some_and(|time| time == 0 || time > MAX_PROGRAM_MS)
    {
        return reader.bad_value(node, "time is from 1ms to 1h");
    }
    (reader.faults.len() == before).then_some(limits)
}
