//! Who may call what: every route, with every way to show or not to show who one is (decision H5).

use std::collections::BTreeSet;

use ktsu::assemble::LedgerPlace;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::describe::{Case, Described};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, guarded};

pub(super) const ROLES: [&str; 6] = [
    "viewer", "operator", "approver", "auditor", "admin", "runtime",
];

/// A principal of each role, named after it.
pub(super) fn environment() -> String {
    let mut text = "egress: {allow: [127.0.0.1]}\nvariables:\n".to_owned();
    for role in ROLES {
        text.push_str(&format!("  T_{role}: {}\n", token(role)));
    }
    text.push_str("principals:\n");
    for role in ROLES {
        let one = format!("{{name: {role}, token: {{env: T_{role}}}, roles: [{role}]}}");
        text.push_str(&format!("  - {one}\n"));
    }
    text
}

pub(super) fn token(role: &str) -> String {
    format!("token-of-{role}")
}

pub(super) fn kit() -> KitDir {
    KitDir::new(&[
        (
            "hello",
            "pipeline: [{id: greet, transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}}]\n",
        ),
        ("part", "visibility: sub-workflow\npipeline: []\n"),
        (
            "locked",
            r#"
env: [{name: HOOK, secret: true}]
invoke: {auth: {secret: "{{ env.HOOK }}"}}
params: {schema: {type: object, required: [n], properties: {n: {type: integer}}}}
pipeline: []
"#,
        ),
    ])
}

pub(super) const HOOK: (&str, &str) = ("HOOK", "s3cr3t-hook");

/// Who may call a route, and what it then answers to an empty body.
enum Row {
    Everybody(u16),
    Roles(&'static [&'static str], u16),
}

/// Written by hand from docs/http.md: the engine's own table is what is judged.
fn row(method: &str, route: &str) -> Option<Row> {
    let readers = &["viewer", "operator", "approver", "auditor", "admin"];
    let record = &["operator", "auditor", "admin"];
    let operators = &["operator", "admin"];
    Some(match (method, route) {
        ("GET", "/" | "/health" | "/openapi.json") => Row::Everybody(200),
        ("GET", "/inspector/{file}") => Row::Everybody(404),
        ("GET", "/inspector/sign-in") => Row::Everybody(200),
        // No browser sends a form without saying where it is from.
        ("POST", "/inspector/sign-in" | "/inspector/sign-out") => Row::Everybody(403),
        (
            "POST",
            "/runs/{id}/steps/{step}/report"
            | "/runs/{id}/steps/{step}/complete"
            | "/runs/{id}/steps/{step}/resume/link",
        ) => Row::Everybody(401),
        ("POST", "/invoke/{workflow}") => Row::Roles(operators, 202),
        (
            "GET",
            "/runs"
            | "/runs/{id}"
            | "/runs/{id}/envelope"
            | "/runs/{id}/state"
            | "/runs/{id}/steps/{step}"
            | "/runs/{id}/trace"
            | "/runs/{id}/fork"
            | "/runs/{id}/skeleton"
            | "/inspector/runs"
            | "/inspector/diff"
            | "/inspector/inbox"
            | "/inspector/api"
            | "/inspector/evals"
            | "/inspector/evidence"
            | "/inspector/kit"
            | "/inspector/kit/{workflow}"
            | "/evidence"
            | "/statistics"
            | "/inspector/runs/{id}"
            | "/inspector/runs/{id}/frames"
            | "/inspector/runs/{id}/why"
            | "/inspector/runs/{id}/steps/{step}"
            | "/runs/{id}/payload"
            | "/inspector/runs/{id}/graph",
        ) => Row::Roles(readers, 200),
        ("GET", "/runs/{id}/search") => Row::Roles(record, 400),
        ("GET", "/diff") => Row::Roles(readers, 400),
        ("GET", "/runs/{id}/world" | "/inspector/runs/{id}/world") => Row::Roles(readers, 409),
        ("GET", "/runs/{id}/recompute") => Row::Roles(readers, 404),
        // A stream has no end; what cannot be understood is told to those alone who may listen.
        ("GET", "/events") => Row::Roles(record, 400),
        ("GET", "/summaries" | "/inspector/live") => Row::Roles(readers, 400),
        ("GET", "/runs/{id}/frames" | "/runs/{id}/evidence" | "/metrics")
        | ("POST", "/runs/{id}/replay") => Row::Roles(record, 200),
        ("POST", "/runs/{id}/retry") => Row::Roles(operators, 422),
        ("POST", "/runs/{id}/fork") => Row::Roles(operators, 201),
        ("POST" | "PATCH", "/runs/{id}/overlay") => Row::Roles(operators, 422),
        ("POST", "/runs/{id}/resume" | "/runs/{id}/terminate" | "/runs/{id}/pause") => {
            Row::Roles(operators, 409)
        }
        // And whoever started it; here that is the admin.
        ("POST", "/runs/{id}/cancel") => Row::Roles(operators, 409),
        ("POST", "/runs/{id}/events") => Row::Roles(operators, 400),
        ("POST", "/runs/{id}/recompute") => Row::Roles(operators, 422),
        ("POST", "/runs/{id}/hold") => Row::Roles(&["auditor", "admin"], 422),
        ("POST", "/checks") => Row::Roles(record, 422),
        ("GET", "/evals") => Row::Roles(readers, 200),
        ("GET", "/evals/{id}" | "/inspector/evals/{id}") => Row::Roles(readers, 404),
        ("GET", "/approvals" | "/reviews") => Row::Roles(readers, 200),
        ("GET", "/runs/{id}/steps/{step}/approval") => Row::Roles(readers, 404),
        ("POST", "/runs/{id}/steps/{step}/approval/decide") => {
            Row::Roles(&["approver", "admin"], 422)
        }
        ("GET", "/runs/{id}/steps/{step}/review") => Row::Roles(readers, 404),
        // Which of these, the policy of the review says.
        ("POST", "/runs/{id}/steps/{step}/review/decide") => {
            Row::Roles(&["operator", "approver", "admin"], 422)
        }
        ("GET", "/runs/{id}/steps/{step}/suspend") => Row::Roles(readers, 404),
        // Which of these, the policy of the suspension says.
        ("POST", "/runs/{id}/steps/{step}/resume") => {
            Row::Roles(&["operator", "approver", "admin"], 422)
        }
        ("POST", "/runs/{id}/steps/{step}/suspend/link") => {
            Row::Roles(&["operator", "approver", "admin"], 404)
        }
        ("POST", "/tools/ktsu/{name}" | "/tools/ktsu/{name}/messages")
        | ("GET", "/tools/ktsu/{name}/sse") => Row::Everybody(404),
        ("GET", "/subscriptions") => Row::Roles(&["admin"], 200),
        ("POST", "/subscriptions") => Row::Roles(&["admin"], 422),
        ("DELETE", "/subscriptions/{id}")
        | ("GET", "/subscriptions/{id}/dead")
        | ("POST", "/subscriptions/{id}/redrive") => Row::Roles(&["admin"], 404),
        ("POST", "/heartbeat") => Row::Roles(&["runtime", "admin"], 422),
        _ => return None,
    })
}

/// Headers that say nothing, or nothing that can be read, or what is not so.
fn strangers() -> Vec<Vec<(&'static str, String)>> {
    let own = |headers: &[(&'static str, &str)]| {
        let owned = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        headers.iter().map(owned).collect()
    };
    let admin = format!("Bearer {}", token("admin"));
    vec![
        own(&[]),
        own(&[("authorization", "")]),
        own(&[("authorization", "Bearer")]),
        own(&[("authorization", "Bearer ")]),
        own(&[("authorization", "Basic YWRtaW46YWRtaW4=")]),
        own(&[("authorization", &token("admin"))]),
        own(&[("authorization", &admin), ("authorization", &admin)]),
        own(&[("ktsu-token", "")]),
        own(&[("ktsu-token", &admin)]),
        own(&[("authorization", "Bearer token-of-nobody")]),
        own(&[("authorization", &format!("{admin}x"))]),
        own(&[("authorization", &admin[..admin.len() - 1])]),
        own(&[("authorization", "Bearer T_admin")]),
        own(&[("ktsu-token", "token-of-nobody"), ("authorization", &admin)]),
    ]
}

/// The matrix; what it saw counts as answered for the tour of all answers.
pub(super) async fn all(api: &Described) -> BTreeSet<Case> {
    let kit = kit();
    let text = environment();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[HOOK]).await;
    let admin = Client::showing(&lab.engine.url, &token("admin"));
    let run = admin.run("hello", json!({})).await;
    let run = run["run_id"].as_str().unwrap();
    let api = api.at(&lab.client);
    let mut routes: BTreeSet<(String, String)> = api
        .described()
        .into_iter()
        .map(|(route, method, _)| (method, route))
        .collect();
    routes.insert(("GET".to_owned(), "/openapi.json".to_owned()));
    let heads: Vec<_> = routes
        .iter()
        .filter(|(method, _)| method == "GET")
        .collect();
    let heads: Vec<_> = heads
        .iter()
        .map(|(_, route)| ("HEAD".to_owned(), route.clone()))
        .collect();
    for (method, route) in routes.iter().chain(&heads) {
        let known = if method == "HEAD" { "GET" } else { method };
        let row = row(known, route).unwrap_or_else(|| panic!("who may {method} {route}?"));
        one_route(&api, method, route, run, row).await;
    }
    lab.close().await;
    api.seen()
}

async fn one_route(api: &Described, method: &str, route: &str, run: &str, row: Row) {
    let path = route.replace("{workflow}", "hello").replace("{id}", run);
    let path = path.replace("{step}", "greet");
    let path = path.replace("/events", "/events?pattern=.");
    let path = path.replace("/summaries", "/summaries?a=b");
    let path = path.replace("/inspector/live", "/inspector/live?a=b");
    let (roles, allowed) = match row {
        Row::Everybody(status) => (&ROLES[..], status),
        Row::Roles(roles, status) => (roles, status),
    };
    let open = matches!(row, Row::Everybody(_));
    let ask = async |headers: &[(&str, String)]| {
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        match method {
            // A description has no rows for it, and its answers have no body.
            "HEAD" => api.client.send(method, &path, &headers, "").await,
            _ if path == "/openapi.json" => api.client.send(method, &path, &headers, "").await,
            _ => api.call(method, &path, &headers, "").await,
        }
    };
    for headers in strangers() {
        let answer = ask(&headers).await;
        let expected = if open { allowed } else { 401 };
        assert_eq!(answer.status, expected, "{method} {route} {headers:?}");
        if expected == 401 {
            assert_eq!(answer.headers["www-authenticate"], "Bearer", "{route}");
        }
        if !open && method != "HEAD" {
            assert_eq!(answer.json()["code"], "unauthorized");
            let shown = answer.text();
            assert!(!shown.contains("token-of"), "{shown}");
        }
    }
    for role in ROLES {
        let expected = if roles.contains(&role) { allowed } else { 403 };
        let bearer = format!("Bearer {}", token(role));
        for headers in [
            vec![("authorization", bearer)],
            vec![("ktsu-token", token(role))],
            vec![
                ("ktsu-token", token(role)),
                ("authorization", "Bearer of-a-workflow".to_owned()),
            ],
        ] {
            let answer = ask(&headers).await;
            assert_eq!(
                answer.status,
                expected,
                "{method} {route} as {role}: {}",
                answer.text()
            );
            if expected == 403 && !open && method != "HEAD" {
                assert_eq!(answer.json()["code"], "forbidden");
                let message = answer.json()["message"].as_str().unwrap().to_owned();
                for role in roles {
                    assert!(message.contains(role), "{message}");
                }
            }
        }
    }
}

/// Methods that are not served are answered alike, whoever asks.
#[tokio::test]
async fn methods_and_paths_that_are_not_served_tell_no_one_more_than_that() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[HOOK]).await;
    let admin = Client::showing(&lab.engine.url, &token("admin"));
    for client in [&lab.client, &admin] {
        for (method, path, expected) in [
            ("DELETE", "/runs", 405),
            ("PUT", "/invoke/hello", 405),
            ("POST", "/health", 405),
            ("OPTIONS", "/runs", 405),
            ("GET", "/secrets", 404),
            ("GET", "//", 404),
            ("POST", "/", 405),
        ] {
            let answer = client.send(method, path, &[], "").await;
            assert_eq!(answer.status, expected, "{method} {path}");
        }
    }
    lab.close().await;
}

/// The order: who asks, then the name, then what the workflow asks its callers for, then the params.
#[tokio::test]
async fn a_principal_is_asked_first_and_the_workflow_asks_for_itself() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[HOOK]).await;
    let hook = format!("Bearer {}", HOOK.1);
    let operator = token("operator");
    let viewer = token("viewer");
    let sent = [
        ("absent", vec![], "not json", 401),
        ("part", vec![], "not json", 401),
        ("locked", vec![("authorization", hook.as_str())], "{}", 401),
        (
            "locked",
            vec![("ktsu-token", &viewer), ("authorization", &hook)],
            "{}",
            403,
        ),
        ("absent", vec![("ktsu-token", &operator)], "{}", 404),
        ("part", vec![("ktsu-token", &operator)], "{}", 404),
        ("locked", vec![("ktsu-token", &operator)], "{}", 401),
        (
            "locked",
            vec![("ktsu-token", &operator), ("authorization", &hook)],
            "{}",
            422,
        ),
        (
            "locked",
            vec![("ktsu-token", &operator), ("authorization", &hook)],
            r#"{"n":1}"#,
            202,
        ),
    ];
    for (workflow, headers, body, expected) in sent {
        let path = format!("/invoke/{workflow}");
        let answer = lab.client.send("POST", &path, &headers, body).await;
        assert_eq!(
            answer.status,
            expected,
            "{workflow} {headers:?}: {}",
            answer.text()
        );
    }
    let absent = [("ktsu-token", operator.as_str())];
    let unknown = lab
        .client
        .send("POST", "/invoke/absent", &absent, "{}")
        .await;
    let hidden = lab.client.send("POST", "/invoke/part", &absent, "{}").await;
    assert_eq!(unknown.body, hidden.body);
    lab.close().await;
}

/// Frames say who, and how that is known.
#[tokio::test]
async fn what_a_principal_says_is_recorded_under_its_name() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[HOOK]).await;
    let operator = Client::showing(&lab.engine.url, &token("operator"));
    let admin = Client::showing(&lab.engine.url, &token("admin"));
    let run = operator.run("hello", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let value = json!({"step": "greet", "field": "result", "value": {"a": 2}, "reason": "seen"});
    let said = admin
        .post(&format!("/runs/{run}/overlay"), value.to_string())
        .await;
    assert_eq!(said.status, 200, "{}", said.text());
    let resume = json!({"from": "greet"}).to_string();
    let said = operator.post(&format!("/runs/{run}/resume"), resume).await;
    assert_eq!(said.status, 202, "{}", said.text());
    admin.ended(&run).await;
    let branch = admin.post(&format!("/runs/{run}/fork"), "{}").await.json();
    let branch = branch["run_id"].as_str().unwrap().to_owned();
    let frames = operator.frames(&run).await;
    let by = |kind: &str, member: &str, who: &str, frames: &[serde_json::Value]| {
        let frame = frames.iter().find(|frame| frame["type"] == kind).unwrap();
        assert_eq!(frame["actor"], format!("principal:{who}"), "{frame}");
        assert_eq!(
            frame["data"][member],
            json!({"auth": "token", "id": who}),
            "{frame}"
        );
    };
    by("run.created", "principal", "operator", &frames);
    by("overlay.set", "by", "admin", &frames);
    by("run.resumed", "by", "operator", &frames);
    by(
        "branch.created",
        "by",
        "admin",
        &operator.frames(&branch).await,
    );
    lab.close().await;
}

/// Keys of repeated requests belong to whoever sends them.
#[tokio::test]
async fn two_principals_may_use_one_idempotency_key() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[HOOK]).await;
    let mut runs = BTreeSet::new();
    for role in ["operator", "admin", "operator"] {
        let token = token(role);
        let headers = [("ktsu-token", token.as_str()), ("idempotency-key", "once")];
        let answer = lab
            .client
            .send("POST", "/invoke/hello", &headers, "{}")
            .await;
        assert_eq!(answer.status, 202);
        runs.insert(answer.json()["run_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(runs.len(), 2);
    lab.close().await;
}

/// A service with a token may have any name; within the process nobody is asked.
#[tokio::test]
async fn names_of_other_hosts_are_taken_where_a_token_is_asked_for() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(), &[HOOK]).await;
    let viewer = format!("Bearer {}", token("viewer"));
    let within = Client::within(lab.engine.router.clone());
    let own = [("host", "ktsu.example"), ("authorization", viewer.as_str())];
    assert_eq!(within.send("GET", "/runs", &own[..1], "").await.status, 403);
    assert_eq!(within.get("/runs").await.status, 200);
    let wrong = [("authorization", "Bearer of-nobody")];
    assert_eq!(within.send("GET", "/runs", &wrong, "").await.status, 401);
    let evil = [("origin", "https://evil.example"), own[1]];
    assert_eq!(lab.client.send("GET", "/runs", &evil, "").await.status, 403);
    lab.close().await;
}

/// What an environment bounds is bounded.
#[tokio::test]
async fn limits_of_the_environment_hold() {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let kit = KitDir::new(&[(
        "stuck",
        "env: [{name: SINK}]\npipeline: [{id: s, webhook: {url: \"{{ env.SINK }}/x\"}}]\n",
    )]);
    let limits = "limits: {body_bytes: 1024, active_runs: 1, connections: 1}\n";
    let text = format!("{}{limits}", environment());
    let pairs = [("SINK", sink.url.as_str())];
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &pairs).await;
    let within = Client::within(lab.engine.router.clone());
    let large = json!({"x": "x".repeat(1100)}).to_string();
    let answer = within.post("/invoke/stuck", large).await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["code"], "body_too_large");
    let run = within.invoke("stuck", json!({})).await;
    let answer = within.post("/invoke/stuck", "{}").await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["code"], "overloaded");
    // Following a run takes the one connection there is.
    let operator = Client::showing(&lab.engine.url, &token("operator"));
    let _events = operator.events(&run, None).await;
    let place = lab.engine.url.strip_prefix("http://").unwrap();
    let mut other = TcpStream::connect(place).await.unwrap();
    let mut answer = String::new();
    let read = other.read_to_string(&mut answer);
    guarded("the refusal", read).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("connections"), "{answer}");
}
