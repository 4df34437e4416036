//! The parts that an engine is made of.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use super::error::OpenEngineError;
use ktsu_api::kit_checks::KitChecks;
use ktsu_egress as egress;
use ktsu_environment::Environment;
use ktsu_gateway::Gateway;
use ktsu_kit::Kit;
use ktsu_ledger::LedgerPlace;
use ktsu_orchestrator::{MicrosClock, OwnerView};
use ktsu_tls::Certificates;

/// The parts that an engine is made of.
pub struct Setup {
    /// The kit whose workflows may be invoked.
    pub kit: Arc<Kit>,
    /// The environment file, if there is one.
    pub environment: Option<Environment>,
    /// The environment file as a standby read it again, whose principals are in force in place of those of
    /// `environment`.
    pub read_again: Option<Environment>,
    /// The process environment.
    pub process: BTreeMap<String, String>,
    /// The place of the ledger.
    pub ledger: LedgerPlace,
    /// The address to listen at; loopback only where no principals are configured (decision H5).
    pub listen: SocketAddr,
    /// The time; the machine's, unless a test stops it.
    pub clock: Option<MicrosClock>,
    /// The place where agents run.
    pub agents: Agents,
    /// The URL by which runtimes reach this engine, if not where it listens.
    pub own_url: Option<String>,
    /// The certificates to show and to trust.
    pub certificates: Option<Certificates>,
    /// The token that this engine shows to runtimes and gateways; that of the first principal with the role
    /// `orchestrator` if there is none.
    pub service_token: Option<String>,
    /// The gateway's file, if not `gateway.yaml` in the kit's folder.
    pub gateway: Option<PathBuf>,
    /// True if runs that were left unfinished continue.
    pub resume_unfinished: bool,
    /// The owner of the ledger, where this engine is its standby.
    pub standby: Option<OwnerView>,
    /// The checks of the files of the kit, where those are watched.
    pub kit_checks: KitChecks,
}

/// The place where agents run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agents {
    /// In this process, runtime and gateway both; they listen, too, where an address is given.
    Here {
        /// For the runtime.
        runtime: Option<SocketAddr>,
        /// For the gateway.
        gateway: Option<SocketAddr>,
    },
    /// Elsewhere.
    Remote {
        /// `http://127.0.0.1:5051`; at least one.
        runtimes: Vec<String>,
        /// `http://127.0.0.1:5052`; for health checks and judges.
        gateways: Vec<String>,
    },
    /// Nowhere: workflows with agent steps are refused.
    Nowhere,
}

impl Agents {
    /// In this process, without sockets.
    pub fn here() -> Self {
        Self::Here {
            runtime: None,
            gateway: None,
        }
    }
}

impl Setup {
    /// An engine that runs everything in this process, on any port of this machine.
    pub fn embedded(
        kit: Arc<Kit>,
        environment: Option<Environment>,
        process: BTreeMap<String, String>,
        ledger: LedgerPlace,
    ) -> Self {
        Self {
            kit,
            environment,
            read_again: None,
            process,
            ledger,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            clock: None,
            agents: Agents::here(),
            own_url: None,
            certificates: None,
            service_token: None,
            gateway: None,
            resume_unfinished: true,
            standby: None,
            kit_checks: KitChecks::default(),
        }
    }

    /// The gateway of this process, if agents run here.
    pub(super) fn gateway(&self, egress: &egress::Client) -> Result<Gateway, OpenEngineError> {
        let file = self.gateway.clone();
        let file = file.unwrap_or_else(|| self.kit.root.join("gateway.yaml"));
        let wanted = matches!(self.agents, Agents::Here { .. });
        match wanted && (self.gateway.is_some() || file.is_file()) {
            true => Gateway::load(&file, self.environment.as_ref(), &self.process, egress)
                .map_err(OpenEngineError::Gateway),
            false => Ok(Gateway::empty()),
        }
    }
}
