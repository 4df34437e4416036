//! The limits of programs of specs.

use std::time::Duration;

use ktsu_eval::ProgramLimits;
use ktsu_sandbox::SandboxLimits;

/// The limits of a program that ends by itself.
pub(super) fn limits(given: ProgramLimits) -> SandboxLimits {
    let usual = SandboxLimits::default();
    SandboxLimits {
        time: given.time_ms.map_or(usual.time, Duration::from_millis),
        memory: given.memory.unwrap_or(usual.memory),
        processes: given.processes.unwrap_or(usual.processes),
        disk: given.disk.unwrap_or(usual.disk),
        files: usual.files,
        output: usual.output,
    }
}

/// The limits of a service, which has any time unless its suite limits it.
pub(super) fn service_limits(given: ProgramLimits) -> SandboxLimits {
    let time = given.time_ms.map_or(Duration::MAX, Duration::from_millis);
    SandboxLimits {
        time,
        ..limits(given)
    }
}
