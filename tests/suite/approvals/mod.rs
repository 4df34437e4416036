//! People who decide: many at once and against the clock, and those who may not.

mod clock;
mod edges;
mod races;
mod refused;
mod times;

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use crate::support::model::{self, KEY, Model, Said};
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Client, KitDir, Lab};

/// How many people decide.
const PEOPLE: usize = 50;

const ACTOR: &str = r#"
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers:
  - name: desk
    path: ../servers/desk.server.yaml
"#;

/// A desk with people, a tool that they are asked about, and a workflow for each policy, by name.
struct Desk {
    lab: Lab,
    server: ToolServer,
    _kit: KitDir,
}

impl Desk {
    async fn new(policies: &[(&str, &str)]) -> Self {
        let server = ToolServer::scripted(tools::any(&["put"]), |_| Given::text("put")).await;
        let model = Model::scripted(|call| match call.turn() {
            0 => Said::calls(&[("put", json!({"what": call.user()}))]),
            _ => Said::answer(&call.results().join("")),
        })
        .await;
        let flow = |name: &str| {
            format!(
                "params: {{schema: {{type: object, required: [msg], properties: {{msg: {{type: string}}}}}}}}
pipeline: [{{id: act, agent: ./agents/{name}.agent.yaml, params: {{msg: '{{{{ params.msg }}}}'}}}}]\n"
            )
        };
        let flows: Vec<(&str, String)> = policies
            .iter()
            .map(|(name, _)| (*name, flow(name)))
            .collect();
        let flows: Vec<(&str, &str)> = flows.iter().map(|(name, flow)| (*name, &**flow)).collect();
        let desk = format!("name: desk\nversion: 1.0.0\nurl: {}\n", server.url);
        let mut kit = model::kit(&model, &flows).with("servers/desk.server.yaml", &desk);
        for (name, policy) in policies {
            let agent = format!(
                "name: {name}{ACTOR}    access: {{allowlist: [{{name: put, require_approval: {{{policy}}}}}]}}\n"
            );
            kit = kit.with(&format!("agents/{name}.agent.yaml"), &agent);
        }
        // On a disk, where a decision takes a while to be recorded.
        let place = LedgerPlace::File(kit.dir.path().join("ledger.db"));
        let lab = Lab::in_environment(place, &kit, &environment(), &[KEY]).await;
        Self {
            lab,
            server,
            _kit: kit,
        }
    }

    fn who(&self, name: &str) -> Client {
        Client::showing(&self.lab.engine.url, &format!("token-of-{name}"))
    }

    /// A run that waits for a decision, and its record.
    async fn waiting(&self, flow: &str, msg: &str) -> (String, Value) {
        let olga = self.who("olga");
        let run = olga.invoke(flow, json!({"msg": msg})).await;
        seen(&olga, &run, "approval.requested").await;
        let path = format!("/runs/{run}/steps/act/approval");
        (run, self.who("vera").get(&path).await.json())
    }
}

/// Waits for a frame of a type.
async fn seen(client: &Client, run: &str, kind: &str) {
    let mut events = client.events(run, None).await;
    let mut others = Vec::new();
    while let Some(event) = events.next().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        if frame["type"] == kind {
            return;
        }
        others.push(event.data);
    }
    panic!("{run} ended without {kind}: {}", others.join("\n"));
}

/// Where a decision on a run is made.
fn decide(run: &str) -> String {
    format!("/runs/{run}/steps/act/approval/decide")
}

/// Somebody with every role, and many who may approve.
fn environment() -> String {
    let mut variables = String::new();
    let mut principals = String::new();
    let mut add = |name: &str, roles: &str| {
        let variable = name.to_uppercase();
        variables.push_str(&format!("  TOKEN_{variable}: token-of-{name}\n"));
        let token = format!("{{env: TOKEN_{variable}}}");
        principals.push_str(&format!(
            "  - {{name: {name}, token: {token}, roles: [{roles}]}}\n"
        ));
    };
    add("olga", "operator");
    add("vera", "viewer");
    add("axel", "auditor");
    add("rita", "runtime");
    add("both", "operator, approver");
    for number in 0..PEOPLE {
        add(&format!("p{number}"), "approver");
    }
    format!("egress: {{allow: [127.0.0.1]}}\nvariables:\n{variables}principals:\n{principals}")
}

/// The frames that decide or end a wait.
async fn decisions(desk: &Desk, run: &str) -> Vec<Value> {
    let mut frames = desk.who("axel").frames(run).await;
    frames
        .retain(|frame| frame["type"] == "approval.decided" || frame["type"] == "approval.expired");
    frames
}
