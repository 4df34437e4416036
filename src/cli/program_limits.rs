//! What programs of specs may take.

use std::time::Duration;

use ktsu_eval::ProgramLimits;
use ktsu_sandbox::SandboxLimits;

/// What a program may take that ends by itself.
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

/// What a service may take: any time, and what its suite says.
pub(super) fn service_limits(given: ProgramLimits) -> SandboxLimits {
    let time = given.time_ms.map_or(Duration::MAX, Duration::from_millis);
    SandboxLimits {
        time,
        ..limits(given)
    }
}
