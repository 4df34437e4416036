//! Access to the owner of a ledger for commands that change it: the process that owns it, or an
//! engine in this process for the duration of the command (decision C2).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::Value;

use super::location::{LedgerLocation, ledger_location};
use super::logging::{self, LogFormat};
use super::signals::drain_and_close;
use super::{Common, Failure};
use ktsu_api::judges::JudgeModels;
use ktsu_assemble::{Agents, Engine, Setup};
use ktsu_environment::Environment;
use ktsu_kit::Kit;
use ktsu_opening::engine::{open, receiver};
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::kit::load_kit;
use ktsu_opening::ledger::owner_url;
use ktsu_opening::peer::problem;
use ktsu_opening::peer::{peer_of, remote, token_header};
use ktsu_orchestrator::Orchestrator;
use ktsu_peer::Peer;
use ktsu_receiver::Receiver;

/// Where to find an engine, or what to make one of.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct EngineArguments {
    /// The kit to continue with, if no process owns the ledger
    #[arg(
        long,
        value_name = "DIR",
        alias = "project-dir",
        env = "KTSU_PROJECT_DIR"
    )]
    pub(super) kit: Option<PathBuf>,
    /// The environment file [default: the nearest environments/local.env.yaml]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    pub(super) env: Option<PathBuf>,
}

/// A running engine.
pub(super) struct EngineHandle {
    /// The connection to it.
    pub(super) peer: Peer,
    /// The ledger.
    pub(super) place: LedgerLocation,
    /// The engine in this process, if no other owns the ledger.
    engine: Option<Engine>,
    _receiver: Option<Receiver>,
}

impl EngineArguments {
    /// The environment file of the kit, otherwise of the working directory.
    pub(super) fn environment(&self) -> Result<Option<Environment>, Failure> {
        let kit = self.kit.as_deref().unwrap_or(Path::new("."));
        load_environment(self.env.as_deref(), kit)
    }

    /// Drops the kit if nothing will run; the environment still provides principals, secrets and
    /// limits.
    pub(super) fn without_kit(self) -> Self {
        let found = || Environment::find(self.kit.as_deref()?);
        let env = self.env.clone().or_else(found);
        Self { kit: None, env }
    }
}

impl EngineHandle {
    /// The ledger that is meant.
    pub(super) fn ledger_location(
        common: &Common,
        wanted: &EngineArguments,
    ) -> Result<LedgerLocation, Failure> {
        let environment = match wanted.kit.is_none() && common.ledger.is_some() {
            true => None,
            false => wanted.environment()?,
        };
        ledger_location(common, environment.as_ref())
    }

    /// Connects to the owner of a ledger, or starts an engine that does not resume unfinished runs.
    /// `runs`: whether something will run, which needs a kit.
    pub(super) async fn open(
        place: LedgerLocation,
        wanted: &EngineArguments,
        runs: bool,
    ) -> Result<Self, Failure> {
        if let Some(url) = owner_url(&place.ledger)? {
            return Ok(Self {
                peer: remote(&url)?,
                place,
                engine: None,
                _receiver: None,
            });
        }
        if runs && wanted.kit.is_none() {
            let words = format!("no engine owns {}", place.ledger);
            return Err(
                Failure::could_not_run(words).hint("name the kit to continue with: --kit DIR")
            );
        }
        let token = token_header()?;
        logging::start(LogFormat::Text, logging::default_level("warn"))?;
        // Also without a kit: the known secrets are redacted from messages.
        let environment = wanted.environment()?;
        let (kit, agents) = match &wanted.kit {
            Some(kit) => (load_kit(kit)?, Agents::here()),
            None => (Arc::new(Kit::empty()), Agents::Nowhere),
        };
        let mut process = process_environment();
        let receiver = receiver(environment.as_ref(), &mut process, place.ledger.file()).await?;
        let ledger = place.ledger.clone();
        let engine = open(Setup {
            agents,
            resume_unfinished: false,
            ..Setup::embedded(kit, environment, process, ledger)
        })
        .await?;
        Ok(Self {
            peer: peer_of(&engine, token),
            place,
            engine: Some(engine),
            _receiver: receiver,
        })
    }

    /// The engine in this process, if no other owns the ledger.
    pub(super) fn orchestrator(&self) -> Option<&Orchestrator> {
        self.engine.as_ref().map(|engine| &engine.orchestrator)
    }

    /// The models that checks ask, if no other process owns the ledger.
    pub(super) fn models(&self) -> JudgeModels {
        let engine = self.engine.as_ref();
        engine
            .map(|engine| engine.models.clone())
            .unwrap_or_default()
    }

    /// Returns `true` if the engine ends with this command.
    pub(super) fn is_ours(&self) -> bool {
        self.engine.is_some()
    }

    /// Sends a command, and gives the answer if it is a good one.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        expected: Option<u64>,
    ) -> Result<Value, Failure> {
        let expected = expected.map(|seq| ("if-match", seq.to_string()));
        let headers: Vec<_> = expected.into_iter().collect();
        self.post_with(path, body, &headers).await
    }

    /// As [`EngineHandle::post`], with any headers.
    pub(super) async fn post_with(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, String)],
    ) -> Result<Value, Failure> {
        let mut request = Request::builder().method(Method::POST).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Body::from(body.to_string()))
            .map_err(Failure::of)?;
        let (status, answer) = self.peer.call_and_read(request).await?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        match (200..300).contains(&status) {
            true => Ok(answer),
            false => Err(problem(status, &answer)),
        }
    }

    /// Ends an engine of our own, once the calls in flight are recorded.
    pub(super) async fn close(self) -> Result<(), Failure> {
        match self.engine {
            Some(engine) => drain_and_close(engine)
                .await
                .map_err(Failure::could_not_run),
            None => Ok(()),
        }
    }
}
