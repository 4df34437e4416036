//! Orchestrator, runtime and gateway as three processes in three folders, each killed and started
//! again by itself.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::Process;
use super::{Client, KitDir};

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Orchestrator,
    Runtime,
    Gateway,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Orchestrator, Self::Runtime, Self::Gateway];

    fn name(self) -> &'static str {
        match self {
            Self::Orchestrator => "orchestrator",
            Self::Runtime => "runtime",
            Self::Gateway => "gateway",
        }
    }
}

/// See the module documentation.
pub(crate) struct Services {
    folders: [tempfile::TempDir; 3],
    kit: PathBuf,
    ports: [u16; 3],
    /// A gateway of somebody else, instead of ours.
    other_gateway: Option<String>,
    /// Of the gateway alone.
    secrets: Vec<(String, String)>,
    running: [Option<Process>; 3],
}

/// Ports nobody has just now, below those that systems give away by themselves: a connection of
/// another test could get one of those while its service is down. Somebody may still take one
/// before we do: then others are tried.
pub(super) fn free() -> [u16; 3] {
    let candidate = || 10_240 + (RandomState::new().build_hasher().finish() % 20_000) as u16;
    let mut held: Vec<TcpListener> = Vec::new();
    while held.len() < 3 {
        held.extend(TcpListener::bind(("127.0.0.1", candidate())));
    }
    let ports = held.iter().map(|one| one.local_addr().unwrap().port());
    ports.collect::<Vec<_>>().try_into().unwrap()
}

impl Services {
    /// All three. Only the gateway's environment has the secrets, only its folder `gateway.yaml`.
    pub(crate) fn start(kit: &KitDir, secrets: &[(&str, &str)]) -> Self {
        Self::with(kit, secrets, None)
    }

    /// Orchestrator and runtime, with a gateway of somebody else.
    pub(crate) fn with_gateway(kit: &KitDir, url: &str) -> Self {
        Self::with(kit, &[], Some(url.to_owned()))
    }

    fn with(kit: &KitDir, secrets: &[(&str, &str)], other_gateway: Option<String>) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut services = Self {
            other_gateway,
            folders: [(); 3].map(|()| tempfile::tempdir().unwrap()),
            kit: kit.dir.path().to_owned(),
            ports: free(),
            secrets: secrets.iter().map(owned).collect(),
            running: [None, None, None],
        };
        let gateway = services.folder(Service::Gateway).join("gateway.yaml");
        std::fs::copy(kit.dir.path().join("gateway.yaml"), gateway).unwrap();
        for _ in 0..10 {
            let own =
                |one: &&Service| **one != Service::Gateway || services.other_gateway.is_none();
            let own: Vec<Service> = Service::ALL.iter().filter(own).copied().collect();
            if own.iter().all(|one| services.try_restart(*one).is_ok()) {
                return services;
            }
            services.running = [None, None, None];
            services.ports = free();
        }
        panic!("the services do not start on ten sets of ports");
    }

    /// The folder a service works in.
    pub(crate) fn folder(&self, service: Service) -> &Path {
        self.folders[service as usize].path()
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder(Service::Orchestrator).join("ledger.db")
    }

    pub(crate) fn url(&self, service: Service) -> String {
        if let (Service::Gateway, Some(other)) = (service, &self.other_gateway) {
            return other.clone();
        }
        format!("http://127.0.0.1:{}", self.ports[service as usize])
    }

    /// A client of the orchestrator.
    pub(crate) fn client(&self) -> Client {
        Client::of(&self.url(Service::Orchestrator))
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, service: Service) {
        self.running[service as usize].take().unwrap().kill();
    }

    /// SIGTERM, and what is sent it.
    pub(crate) fn terminate(&mut self, service: Service) -> Process {
        let process = self.running[service as usize].take().unwrap();
        process.signal("TERM");
        process
    }

    /// Starts it again where it was, on the same port.
    pub(crate) fn restart(&mut self, service: Service) {
        // The port is ours; a connection of the one before may still be closing.
        let mut tries = 0..20;
        let started = tries.find_map(|_| self.try_restart(service).ok());
        started.unwrap_or_else(|| panic!("the {} does not start again", service.name()));
    }

    fn try_restart(&mut self, service: Service) -> Result<(), String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        let port = self.ports[service as usize].to_string();
        command
            .args(["start", service.name(), "--json", "--port", &port])
            .env_clear()
            .env(
                "KTSU_LOG",
                std::env::var("KTSU_TEST_LOG").unwrap_or("error".to_owned()),
            )
            .current_dir(self.folder(service));
        match service {
            Service::Orchestrator => {
                command.arg("--kit").arg(&self.kit);
                command.arg("--ledger").arg(self.ledger());
                command.args(["--runtime-url", &self.url(Service::Runtime)]);
            }
            Service::Runtime => {
                command.args(["--orchestrator", &self.url(Service::Orchestrator)]);
                command.args(["--gateway", &self.url(Service::Gateway)]);
            }
            Service::Gateway => {
                command.args(["--config", "gateway.yaml"]);
                command.envs(self.secrets.iter().cloned());
            }
        }
        self.running[service as usize] = Some(Process::try_spawn(command)?);
        Ok(())
    }
}
