//! DBOS from PyPI, in an environment of its own that is made for the measurement.

use std::path::Path;
use std::process::Command;

use crate::postgres::Server;

/// Its workflows.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/dbos_steps.py");

/// Its version, and its steps per second with so many workflows at once, for so many seconds.
pub(super) fn steps(
    server: &Server,
    at_once: usize,
    seconds: u64,
) -> Result<(String, f64), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let environment = folder.path().join("dbos");
    let mut make = Command::new("python3");
    output(make.args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python");
    let pip = "-m pip install --quiet --retries=1 --timeout=5 dbos";
    output(Command::new(&python).args(pip.split(' ')))?;
    let mut program = Command::new(&python);
    program.arg(PROGRAM).arg(address(&server.file("")));
    program.args([at_once.to_string(), seconds.to_string()]);
    let said = output(program.current_dir(folder.path()))?;
    let unreadable = || format!("which printed {said:?}");
    let (version, rate) = said.trim().split_once(' ').ok_or_else(unreadable)?;
    let rate = rate.parse().map_err(|_| unreadable())?;
    Ok((version.to_owned(), rate))
}

fn address(socket: &Path) -> String {
    format!("postgresql://ktsu@/dbos?host={}", socket.display())
}

/// What a command prints; of one that fails, the last line of its errors.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let failed = |why: &str| format!("{program}: {why}");
    let output = command
        .output()
        .map_err(|error| failed(&error.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(failed(errors.trim().lines().last().unwrap_or("failed")))
        }
    }
}
