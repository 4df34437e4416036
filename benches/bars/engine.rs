//! A real engine on a file, and runs as a client starts them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use ktsu::assemble::{self, Engine, LedgerPlace, Setup};
use ktsu_environment::Environment;
use ktsu_kit::Kit;
use ktsu_ledger::event::{Effects, Principal};
use ktsu_ledger::store::{Audit as _, SqliteReader};
use ktsu_orchestrator::{self as orchestrator, MicrosClock, Orchestrator};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::plans;

/// A runtime as the command line has one.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .max_blocking_threads(16)
        .build()
        .unwrap()
}

/// An engine on `ledger.db` in a folder.
pub(crate) async fn open(folder: &Path, kit: Arc<Kit>) -> Engine {
    open_in(folder, kit, None, BTreeMap::new()).await
}

/// An engine whose ledger is in another place, with these variables.
pub(crate) async fn open_on(
    ledger: LedgerPlace,
    kit: Arc<Kit>,
    process: BTreeMap<String, String>,
) -> Engine {
    let setup = Setup {
        ledger,
        ..setup(Path::new("."), kit, None, process)
    };
    assemble::open(setup).await.unwrap()
}

/// As [`open`], in an environment, with these variables.
pub(crate) async fn open_in(
    folder: &Path,
    kit: Arc<Kit>,
    environment: Option<Environment>,
    process: BTreeMap<String, String>,
) -> Engine {
    assemble::open(setup(folder, kit, environment, process))
        .await
        .unwrap()
}

/// The same at another time.
pub(crate) async fn open_at(
    folder: &Path,
    kit: Arc<Kit>,
    environment: Option<Environment>,
    clock: MicrosClock,
) -> Engine {
    let mut setup = setup(folder, kit, environment, BTreeMap::new());
    setup.clock = Some(clock);
    assemble::open(setup).await.unwrap()
}

fn setup(
    folder: &Path,
    kit: Arc<Kit>,
    environment: Option<Environment>,
    process: BTreeMap<String, String>,
) -> Setup {
    Setup {
        kit,
        environment,
        process,
        ledger: LedgerPlace::File(folder.join("ledger.db")),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        clock: None,
        agents: ktsu::assemble::Agents::here(),
        own_url: None,
        certificates: None,
        service_token: None,
        standby: None,
        kit_checks: Default::default(),
        gateway: None,
        resume_unfinished: true,
        read_again: None,
    }
}

/// Starts a run; gives its id once it is acknowledged.
pub(crate) async fn invoke(orchestrator: &Orchestrator, workflow: &str) -> String {
    let request = orchestrator::InvokeRequest {
        workflow: workflow.to_owned(),
        body: plans::params(),
        idempotency_key: None,
        principal: Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        },
        groups: std::collections::BTreeMap::new(),
        effects: Effects::Execute,
        no_cache: false,
        references: None,
    };
    orchestrator.invoke(request).await.unwrap().run_id
}

/// Asks for a run and its envelope, through the routes.
pub(crate) async fn reply(engine: &Engine, workflow: &str) {
    reply_to(engine, workflow, &plans::params()).await;
}

/// The same with these params.
pub(crate) async fn reply_to(engine: &Engine, workflow: &str, params: &Value) {
    let request = Request::post(format!("/invoke/{workflow}?wait=600"))
        .header("content-type", "application/json")
        .body(Body::from(params.to_string()))
        .unwrap();
    let response = engine.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = axum::body::to_bytes(response.into_body(), usize::MAX);
    drop(body.await.unwrap());
}

/// The bodies of the first frames of a ledger, in the order they were appended.
pub(crate) fn bodies(folder: &Path, limit: usize) -> Vec<String> {
    let reader = SqliteReader::open(&folder.join("ledger.db")).unwrap();
    let (mut bodies, mut from) = (Vec::new(), 1);
    while bodies.len() < limit {
        let page = reader.scan_frames(from, 10_000).unwrap();
        let Some(last) = page.last() else { break };
        from = last.position + 1;
        let texts = page
            .into_iter()
            .map(|frame| String::from_utf8(frame.body).unwrap());
        bodies.extend(texts);
    }
    bodies
}
