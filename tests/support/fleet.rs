//! An engine with several runtimes and gateways, each a process of its own that can be killed.

use std::process::Command;

use super::process::Process;
use super::services::free;
use super::{Client, KitDir};

/// What the fleet consists of.
#[derive(Clone, Copy)]
pub(crate) struct FleetPlan<'a> {
    /// The places of each runtime.
    pub(crate) runtimes: &'a [u32],
    /// The key of each gateway at the provider.
    pub(crate) gateways: &'a [&'a str],
    /// The URL of an orchestrator that is not there comes first everywhere.
    pub(crate) dead_orchestrator: bool,
}

/// See the module documentation.
pub(crate) struct Fleet {
    pub(crate) orchestrator: Process,
    pub(crate) runtimes: Vec<Option<Process>>,
    pub(crate) gateways: Vec<Option<Process>>,
    /// The last, since it is needed for as long as the processes run.
    folder: tempfile::TempDir,
}

impl Fleet {
    pub(crate) fn start(kit: &KitDir, plan: FleetPlan<'_>) -> Self {
        let mut tries = (0..10).map(|_| Self::try_start(kit, plan));
        let started = tries.find_map(Result::ok);
        started.expect("the fleet does not start on ten sets of ports")
    }

    fn try_start(kit: &KitDir, plan: FleetPlan<'_>) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let [port, dead, _] = free();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let at = |service: &str| command(&folder, service);
        let gateways = plan.gateways.iter().map(|key| {
            let mut gateway = at("gateway");
            let config = kit.dir.path().join("gateway.yaml");
            gateway.args(["--port", "0", "--config"]).arg(config);
            gateway.env("LLM_KEY", key);
            Process::try_spawn(gateway)
        });
        let gateways = gateways.collect::<Result<Vec<_>, _>>()?;
        let orchestrators = match plan.dead_orchestrator {
            true => vec![url(dead), url(port)],
            false => vec![url(port)],
        };
        let runtimes = plan.runtimes.iter().map(|places| {
            let mut runtime = at("runtime");
            runtime.args(["--port", "0", "--places", &places.to_string()]);
            for url in &orchestrators {
                runtime.args(["--orchestrator", url]);
            }
            for gateway in &gateways {
                runtime.args(["--gateway", &gateway.url]);
            }
            Process::try_spawn(runtime)
        });
        let runtimes = runtimes.collect::<Result<Vec<_>, _>>()?;
        let mut orchestrator = at("orchestrator");
        let ledger = folder.path().join("ledger.db");
        orchestrator.args(["--port", &port.to_string(), "--kit"]);
        orchestrator.arg(kit.dir.path()).arg("--ledger").arg(ledger);
        let urls: Vec<&str> = runtimes.iter().map(|one| one.url.as_str()).collect();
        orchestrator.args(["--runtime-url", &urls.join(",")]);
        orchestrator.args(["--own-url", &orchestrators[0]]);
        Ok(Self {
            orchestrator: Process::try_spawn(orchestrator)?,
            folder,
            runtimes: runtimes.into_iter().map(Some).collect(),
            gateways: gateways.into_iter().map(Some).collect(),
        })
    }

    pub(crate) fn client(&self) -> Client {
        self.orchestrator.client()
    }

    /// An engine that only reads the ledger of this one.
    pub(crate) fn reader(&self) -> Process {
        let mut reader = command(&self.folder, "orchestrator");
        let ledger = self.folder.path().join("ledger.db");
        reader.args(["--port", "0", "--read-only", "--ledger"]);
        reader.arg(ledger);
        Process::spawn(reader)
    }
}

fn command(folder: &tempfile::TempDir, service: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["start", service, "--json"]);
    command.env_clear().current_dir(folder.path());
    let log = std::env::var("KTSU_TEST_LOG");
    command.env("KTSU_LOG", log.unwrap_or("error".to_owned()));
    command
}
