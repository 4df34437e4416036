//! Answers held against `/openapi.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::support::Client;
use crate::support::client::Answer;

/// A route, a method and a status.
pub(super) type Case = (String, String, u16);

/// A client that accepts no answer the description does not have.
pub(super) struct Described {
    pub(super) client: Client,
    document: Value,
    seen: Mutex<BTreeSet<Case>>,
}

impl Described {
    pub(super) async fn new(client: &Client) -> Self {
        let document = client.get("/openapi.json").await;
        assert_eq!(document.status, 200);
        Self {
            client: client.clone(),
            document: document.json(),
            seen: Mutex::default(),
        }
    }

    /// The same description, asked elsewhere.
    pub(super) fn at(&self, client: &Client) -> Self {
        Self {
            client: client.clone(),
            document: self.document.clone(),
            seen: Mutex::default(),
        }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], "").await
    }

    pub(super) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, &[], body).await
    }

    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let answer = self
            .client
            .send(method, path, headers, body.to_owned())
            .await;
        self.check(method, path, &answer);
        answer
    }

    /// Every route, method and status the document describes, but for those that any route may give.
    pub(super) fn described(&self) -> BTreeSet<Case> {
        let mut cases = BTreeSet::new();
        for (route, methods) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    if answer["x-everywhere"] == true {
                        continue;
                    }
                    let status = status.parse().unwrap();
                    cases.insert((route.clone(), method.to_uppercase(), status));
                }
            }
        }
        cases
    }

    /// Counts an answer without an end as given.
    pub(super) fn saw(&self, method: &str, route: &str, status: u16) {
        let case = (route.to_owned(), method.to_owned(), status);
        self.seen.lock().unwrap().insert(case);
    }

    /// What was answered so far.
    pub(super) fn seen(&self) -> BTreeSet<Case> {
        self.seen.lock().unwrap().clone()
    }

    /// An answer has the status, the type and exactly the members that are described.
    pub(super) fn check(&self, method: &str, path: &str, answer: &Answer) {
        let route = route_of(path);
        let told = format!("{method} {path}: {} {}", answer.status, answer.text());
        let operation = &self.document["paths"][&route][method.to_lowercase()];
        let described = &operation["responses"][answer.status.to_string()];
        if described.is_null() {
            // A path or a method that is not served is not described either.
            let expected = if self.document["paths"][&route].is_null() {
                404
            } else {
                405
            };
            assert!(
                operation.is_null() && answer.status == expected,
                "not described: {told}"
            );
            assert_eq!(answer.kind(), "application/problem+json", "{told}");
            return self.fits("Problem", &answer.json(), &told);
        }
        if described["content"].is_null() {
            assert_eq!(answer.text(), "", "a body is not described: {told}");
            let case = (route, method.to_owned(), answer.status);
            self.seen.lock().unwrap().insert(case);
            return;
        }
        // As documents name it: without parameters.
        let kind = answer.kind().split(';').next().unwrap_or_default();
        let schema = &described["content"][kind]["schema"];
        assert!(
            schema.is_object(),
            "the type {kind} is not described: {told}"
        );
        if kind.ends_with("json") {
            self.matches(schema, &answer.json(), &told);
        }
        if answer.status >= 400 && kind == "application/problem+json" {
            assert_eq!(answer.json()["status"], answer.status, "{told}");
        }
        let case = (route, method.to_owned(), answer.status);
        self.seen.lock().unwrap().insert(case);
    }

    /// Whether a value has a shape of the document.
    pub(super) fn fits(&self, name: &str, value: &Value, told: &str) {
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        self.matches(&schema, value, told);
    }

    fn matches(&self, schema: &Value, value: &Value, told: &str) {
        let mut whole = schema.clone();
        whole["components"] = self.document["components"].clone();
        let validator = jsonschema::validator_for(&whole).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{} {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{told}\n{errors:#?}");
    }

    /// The shapes of the document.
    pub(super) fn shapes(&self) -> &serde_json::Map<String, Value> {
        self.document["components"]["schemas"].as_object().unwrap()
    }
}

/// The route of a path; between `/runs/` and the last segment everything names the run.
fn route_of(path: &str) -> String {
    let path = path.split('?').next().unwrap();
    if let Some(rest) = path.strip_prefix("/runs/") {
        let last = rest.rsplit('/').next().unwrap();
        if rest.contains("/steps/") {
            let (_, below) = rest.rsplit_once("/steps/").unwrap();
            return match below.split_once('/') {
                Some((_, below)) => format!("/runs/{{id}}/steps/{{step}}/{below}"),
                None => "/runs/{id}/steps/{step}".to_owned(),
            };
        }
        return match last {
            "cancel" | "envelope" | "events" | "evidence" | "fork" | "frames" | "hold"
            | "overlay" | "pause" | "payload" | "recompute" | "replay" | "resume" | "retry"
            | "search" | "state" | "terminate" | "skeleton" | "trace" | "world"
                if rest.contains('/') =>
            {
                format!("/runs/{{id}}/{last}")
            }
            _ => "/runs/{id}".to_owned(),
        };
    }
    if path.starts_with("/evals/") {
        return "/evals/{id}".to_owned();
    }
    if let Some(rest) = path.strip_prefix("/subscriptions/") {
        let below = rest.split_once('/').map(|(_, below)| format!("/{below}"));
        return format!("/subscriptions/{{id}}{}", below.unwrap_or_default());
    }
    if let Some(rest) = path.strip_prefix("/tools/ktsu/") {
        let below = rest.split_once('/').map(|(_, below)| format!("/{below}"));
        return format!("/tools/ktsu/{{name}}{}", below.unwrap_or_default());
    }
    if path.starts_with("/inspector/evals/") {
        return "/inspector/evals/{id}".to_owned();
    }
    if let Some(rest) = path.strip_prefix("/inspector/") {
        return match rest.strip_prefix("runs") {
            Some("") => path.to_owned(),
            Some(run) if run.starts_with('/') => match run[1..].split_once('/') {
                Some((_, page)) if page.starts_with("steps/") => {
                    "/inspector/runs/{id}/steps/{step}".to_owned()
                }
                Some((_, page)) => format!("/inspector/runs/{{id}}/{page}"),
                None => "/inspector/runs/{id}".to_owned(),
            },
            None if matches!(
                rest,
                "diff"
                    | "inbox"
                    | "sign-in"
                    | "sign-out"
                    | "api"
                    | "live"
                    | "evidence"
                    | "evals"
                    | "kit"
            ) =>
            {
                path.to_owned()
            }
            None if rest.starts_with("kit/") => "/inspector/kit/{workflow}".to_owned(),
            _ => "/inspector/{file}".to_owned(),
        };
    }
    match path.strip_prefix("/invoke/") {
        Some(name) if !name.contains('/') => "/invoke/{workflow}".to_owned(),
        _ => path.to_owned(),
    }
}

#[tokio::test]
async fn parameters_say_what_they_take_and_whether_they_are_needed() {
    let (_kit, _lab, api) = super::lab("http://127.0.0.1:9").await;
    let (mut found, mut required) = (0, BTreeSet::new());
    for (route, methods) in api.document["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for one in parameters.filter(|one| one["in"] != "path") {
                let kind = &one["schema"]["type"];
                assert!(
                    kind.is_string(),
                    "{route}: {one}: nothing is null in a query"
                );
                if kind == "integer" {
                    let bounds = [&one["schema"]["minimum"], &one["schema"]["maximum"]];
                    assert!(bounds.iter().all(|one| one.is_u64()), "{route}: {one}");
                }
                if one["required"] == true {
                    required.insert((route.as_str(), one["name"].as_str().unwrap()));
                }
                found += 1;
            }
        }
    }
    assert_eq!(found, 143);
    let attempt = |below| ["run", "step", "token"].map(|name| (below, name));
    let mut expected = BTreeSet::from([
        ("/runs/{id}/steps/{step}/resume/link", "token"),
        ("/runs/{id}/search", "text"),
        ("/diff", "a"),
        ("/diff", "b"),
        ("/runs/{id}/steps/{step}/report", "token"),
        ("/runs/{id}/steps/{step}/complete", "token"),
        ("/tools/ktsu/{name}/messages", "session_id"),
    ]);
    for route in [
        "/tools/ktsu/{name}",
        "/tools/ktsu/{name}/sse",
        "/tools/ktsu/{name}/messages",
    ] {
        expected.extend(attempt(route));
    }
    assert_eq!(required, expected);
    let parameters = &api.document["paths"]["/runs"]["get"]["parameters"];
    let workflow = json!({"type": "string", "minLength": 1});
    assert_eq!(parameters[1]["schema"], workflow, "nothing is empty");
    let mut all = parameters.as_array().unwrap().iter();
    let limit = all.find(|one| one["name"] == "limit").unwrap();
    assert_eq!(
        limit["schema"],
        json!({"type": "integer", "minimum": 1, "maximum": 1000})
    );
}

/// The shapes are closed: a member nobody described fails the checks above.
#[tokio::test]
async fn every_operation_has_an_id_of_its_own() {
    let (_kit, _lab, api) = super::lab("http://127.0.0.1:9").await;
    let mut routes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, methods) in api.document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let route = format!("{method} {path}");
            let id = operation["operationId"].as_str();
            let id = id.unwrap_or_else(|| panic!("{route} has no id"));
            routes.entry(id).or_default().push(route);
        }
    }
    assert!(routes.len() > 40, "{routes:#?}");
    routes.retain(|_, routes| routes.len() > 1);
    assert!(routes.is_empty(), "{routes:#?}");
}

#[tokio::test]
async fn every_shape_of_ours_refuses_members_it_does_not_name() {
    let (_kit, _lab, api) = super::lab("http://127.0.0.1:9").await;
    // The node of a frame is part of a frame in the tree; a closed shape cannot be extended.
    // Words, and a choice between two closed shapes, have no members of their own.
    let open = [
        "CallSpanKind",
        "AttemptStatus",
        "CallSpanStatus",
        "PayloadType",
        "ForkBoundName",
        "UnknownReason",
        "Placed",
        "LineageNode",
        "Decision",
        "Effects",
        "StepOrItem",
        "EventPost",
        "EventPosts",
        "PersonRequest",
        "ReviewWord",
    ];
    // What services say to each other: a newer one may say more (see `contract`).
    let between = [
        "ApprovalRequested",
        "AttemptUsage",
        "ChatMessage",
        "ClaimedMetrics",
        "Decided",
        "FailureDetails",
        "Finished",
        "Heartbeat",
        "HeartbeatAck",
        "HeartbeatTask",
        "LlmRequest",
        "LlmResponse",
        "ModelAttempt",
        "OfferedTool",
        "Purpose",
        "RecordedFrame",
        "Report",
        "ReportAck",
        "ReportEvent",
        "RequestMessage",
        "TaskCompletion",
        "TaskOutcome",
        "ToolCall",
        "ToolCalled",
        "ToolInDoubt",
        "ToolMessage",
        "ToolMessages",
        "ToolReturned",
    ];
    let shapes = api.shapes();
    let ours = shapes
        .iter()
        .filter(|(name, _)| !between.contains(&name.as_str()));
    // A choice is as closed as what there is to choose from.
    let ours = ours.filter(|(_, shape)| shape.get("anyOf").is_none());
    for (name, shape) in ours {
        let closed = shape["additionalProperties"] == false;
        assert_eq!(closed, !open.contains(&name.as_str()), "{name}: {shape}");
    }
}
