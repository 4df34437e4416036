//! `/openapi.json` says what the server accepts, in both directions: requests are made from the
//! served document. What it allows is not refused as malformed, and what it forbids is.
//!
//! `KTSU_TEST_SEED` takes other requests, `KTSU_REQUESTS` more of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::string::string_regex;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use crate::support::client::{Answer, Events};
use crate::support::model::{self, KEY, Model};
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, KitDir, Lab, Sink};

const HELLO: &str = r#"
params: {schema: {type: object}}
pipeline: [{id: greet, transform: {inputs: [{from: params}], ops: []}}]
"#;
const ONE: &str = "pipeline: [{id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}]\n";
const WAITS: &str = "pipeline: [{id: s1, agent: ./agents/waits.agent.yaml}]\n";
const WAITING: &str = "name: waits\nversion: 1.0.0\nmodel: std\nprompt: {system: You wait.}\n\
     commands: {suspend: true}\noutput: {schema: {type: object}}\n";

/// An engine without sockets, a run that has ended, a task that is reported about, one that calls tools,
/// and a step that waits for data.
struct World {
    client: Client,
    document: Value,
    run: String,
    /// Paths and queries of the tasks, by what their routes end with.
    task: BTreeMap<&'static str, String>,
    /// Where messages to a tool server are answered that are posted beside it.
    answers: tokio::sync::Mutex<Events>,
    _lab: Lab,
    _kit: KitDir,
    _runtime: Sink,
}

impl World {
    async fn new() -> Self {
        let model = Model::echo().await;
        let kit = model::kit(&model, &[("hello", HELLO), ("one", ONE), ("waits", WAITS)])
            .with("agents/waits.agent.yaml", WAITING);
        let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
        let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
        let client = Client::within(lab.engine.router.clone());
        let run = client.run("hello", json!({})).await;
        let reports = dispatched(&client, &runtime, "one").await;
        let calls = dispatched(&client, &runtime, "one").await;
        let path = |url: &Value| {
            let url = url.as_str().unwrap().strip_prefix("http://").unwrap();
            url[url.find('/').unwrap()..].to_owned()
        };
        let token = path(&calls["callback_url"]);
        let (_, token) = token.split_once("token=").unwrap();
        let run_id = calls["run_id"].as_str().unwrap();
        let speaker = format!("run={run_id}&step=s1&attempt=1&token={token}");
        let listens = format!("/tools/ktsu/kv/sse?{speaker}");
        let mut answers = listen(&client, &listens).await.unwrap();
        let (_, endpoint) = answers.named().await.unwrap();
        let waits = dispatched(&client, &runtime, "waits").await;
        let asks = json!({"status": "ok", "output": {}, "commands":
            [{"type": "suspend", "reason": "r", "checkpoint": 1}]});
        let told = client
            .post(&path(&waits["callback_url"]), asks.to_string())
            .await;
        assert_eq!(told.status, 200, "{}", told.text());
        let waits = waits["run_id"].as_str().unwrap();
        let link = client
            .post(&format!("/runs/{waits}/steps/s1/suspend/link"), "")
            .await;
        let link = path(&link.json()["url"]);
        Self {
            document: client.get("/openapi.json").await.json(),
            task: BTreeMap::from([
                ("report", path(&reports["report_url"])),
                ("complete", path(&reports["callback_url"])),
                ("{name}", format!("/tools/ktsu/kv?{speaker}")),
                ("sse", listens),
                ("messages", endpoint),
                ("resume/link", link),
            ]),
            answers: tokio::sync::Mutex::new(answers),
            run: run["run_id"].as_str().unwrap().to_owned(),
            client,
            _lab: lab,
            _kit: kit,
            _runtime: runtime,
        }
    }

    /// Everything that can be asked: method, route, what the document says of it.
    fn operations(&self) -> Vec<(String, String, Value)> {
        let mut found = Vec::new();
        for (route, methods) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                found.push((method.to_uppercase(), route.clone(), operation.clone()));
            }
        }
        found
    }

    /// A schema with everything it refers to.
    fn whole(&self, schema: &Value) -> Value {
        let mut whole = schema.clone();
        whole["components"] = self.document["components"].clone();
        whole
    }

    fn resolved(&self, schema: &Value) -> Value {
        match schema["$ref"].as_str() {
            Some(at) => self
                .document
                .pointer(at.strip_prefix('#').unwrap())
                .unwrap()
                .clone(),
            None => schema.clone(),
        }
    }

    /// The path of a route, with the query that its token needs.
    fn path(&self, route: &str) -> String {
        let mut of_task = self.task.iter();
        match of_task.find(|(last, _)| route.ends_with(&format!("/{last}"))) {
            Some((_, path)) => path.clone(),
            None => route
                .replace("{workflow}", "hello")
                .replace("{id}", &self.run)
                .replace("{step}", "greet"),
        }
    }

    /// The parameters that a path has by itself.
    fn held(&self, route: &str) -> Vec<String> {
        let path = self.path(route);
        let (_, query) = path.split_once('?').unwrap_or_default();
        let names = url::form_urlencoded::parse(query.as_bytes());
        names.map(|(name, _)| name.into_owned()).collect()
    }

    async fn ask(&self, method: &str, route: &str, request: &Request) -> Answer {
        let path = self.path(route);
        let (path, token) = path.split_once('?').unwrap_or((&path, ""));
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in url::form_urlencoded::parse(token.as_bytes()) {
            if !request.left_out.iter().any(|left| *left == name) {
                query.append_pair(&name, &value);
            }
        }
        for (name, value) in &request.query {
            query.append_pair(name, value);
        }
        let query = query.finish();
        let headers: Vec<(&str, &str)> = request
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let body = request
            .body
            .as_ref()
            .map_or(String::new(), Value::to_string);
        let asked = format!("{path}?{query}");
        // Streams have no end.
        if ["/events", "/summaries", "/inspector/live"].contains(&route) {
            let mut listening = axum::http::Request::get(&asked);
            for (name, value) in &headers {
                listening = listening.header(*name, *value);
            }
            if let Ok(_events) = self.client.listen(listening).await.unwrap() {
                return Answer {
                    status: 200,
                    headers: Default::default(),
                    body: Vec::new(),
                };
            }
        }
        if route.ends_with("/sse") && listen(&self.client, &asked).await.is_some() {
            return Answer {
                status: 200,
                headers: Default::default(),
                body: Vec::new(),
            };
        }
        let mut answer = self.client.send(method, &asked, &headers, body).await;
        if route.ends_with("/messages") && answer.status == 202 {
            answer.body = self.answered().await.to_string().into_bytes();
        }
        answer
    }

    /// What was answered on the stream since the last time.
    async fn answered(&self) -> Value {
        let ping = json!({"jsonrpc": "2.0", "id": "the last", "method": "ping"});
        let path = &self.task["messages"];
        let posted = self.client.post(path, ping.to_string()).await;
        assert_eq!(posted.status, 202, "{}", posted.text());
        let mut answers = self.answers.lock().await;
        let mut found = Vec::new();
        loop {
            let (_, data) = answers.named().await.unwrap();
            match serde_json::from_str(&data).unwrap() {
                Value::Array(several) => found.extend(several),
                last if last["id"] == "the last" => return Value::Array(found),
                one => found.push(one),
            }
        }
    }
}

/// A task that was sent out.
async fn dispatched(client: &Client, runtime: &Sink, workflow: &str) -> Value {
    let run = client.invoke(workflow, json!({})).await;
    let sent = |heard: &Heard| heard.path == "/invoke" && heard.json()["run_id"] == run.as_str();
    runtime.until(|heard| heard.iter().any(sent)).await;
    let heard = runtime.heard();
    heard.iter().find(|one| sent(one)).unwrap().json()
}

/// A stream of a tool server; nothing if it is refused.
async fn listen(client: &Client, path: &str) -> Option<Events> {
    let request = axum::http::Request::get(path);
    client.listen(request).await.unwrap().ok()
}

#[derive(Debug, Clone, Default)]
struct Request {
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    /// Parameters of the path's own query that are not sent.
    left_out: Vec<String>,
    body: Option<Value>,
}

/// Whether a request was refused for what it looks like, rather than for what it asks.
fn is_malformed(answer: &Answer) -> bool {
    if !refused_messages(answer).is_empty() {
        return true;
    }
    if answer.status < 400 {
        return false;
    }
    let problem = answer.json();
    match problem["code"].as_str().unwrap_or_default() {
        "invalid_json" | "too_deep" | "invalid_query" | "not_an_object" | "invalid_request"
        | "unknown_decision" | "invalid_params" => true,
        // Without places it is a report that does not follow from those before it.
        "invalid_report" => problem["errors"].is_array(),
        _ => false,
    }
}

/// The messages of MCP that were refused for what they look like: their errors.
fn refused_messages(answer: &Answer) -> Vec<Value> {
    let told = serde_json::from_slice(&answer.body).unwrap_or_default();
    let several = match told {
        Value::Array(several) => several,
        one => vec![one],
    };
    let errors = several.into_iter().filter(|one| one["jsonrpc"] == "2.0");
    let errors = errors.map(|one| one["error"].clone());
    let malformed = |error: &Value| error["code"] == -32600 || error["code"] == -32602;
    errors.filter(malformed).collect()
}

/// Makes values from a schema.
struct Maker<'w> {
    world: &'w World,
    runner: TestRunner,
    /// Compiled schemas, by their text.
    compiled: BTreeMap<String, Arc<jsonschema::Validator>>,
}

/// What `set` of a fork takes.
const PATHS: [&str; 5] = [
    "params.a",
    "params.é.b",
    "step.greet.result",
    "step.greet.output.result",
    "step.call/inner.x y",
];
const TEXTS: [&str; 7] = ["a", "greet", "x y", "step.greet", "é😀", "pending", "0"];

impl<'w> Maker<'w> {
    fn new(world: &'w World, seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self {
            world,
            runner: TestRunner::new_with_rng(Config::default(), rng),
            compiled: BTreeMap::new(),
        }
    }

    fn validator(&mut self, schema: &Value) -> Arc<jsonschema::Validator> {
        let world = self.world;
        let compile = || Arc::new(jsonschema::validator_for(&world.whole(schema)).unwrap());
        let known = self.compiled.entry(schema.to_string());
        Arc::clone(known.or_insert_with(compile))
    }

    fn below(&mut self, most: usize) -> usize {
        (0..most).new_tree(&mut self.runner).unwrap().current()
    }

    fn one_of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())].clone()
    }

    /// A value that the schema allows; what its parts alone do not assure is tried until it is so.
    fn valid(&mut self, schema: &Value) -> Value {
        let validator = self.validator(schema);
        for _ in 0..1000 {
            let value = self.value(schema, 0);
            if validator.is_valid(&value) {
                return value;
            }
        }
        panic!("nothing fits {schema}");
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let schema = self.world.resolved(schema);
        if let Some(choices) = schema["anyOf"].as_array() {
            let choice = self.one_of(choices);
            return match schema["properties"].is_object() {
                true => self.object(&narrowed(&schema, &choice), depth),
                false => self.value(&choice, depth + 1),
            };
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.one_of(words);
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.one_of(kinds),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("null") => Value::Null,
            Some("boolean") => json!(self.below(2) == 0),
            Some("integer") => self.integer(&schema),
            Some("number") => json!(self.below(100) as f64 / 4.0),
            Some("string") => json!(self.text(&schema)),
            Some("array") => {
                let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
                let count = least + self.below(3);
                let items = (0..count).map(|_| self.value(&schema["items"], depth + 1));
                items.collect()
            }
            Some("object") => self.object(&schema, depth),
            // Anything at all.
            _ => {
                let some = [
                    json!(null),
                    json!(5.0),
                    json!("x"),
                    json!([1]),
                    json!({"a": {"b": -1}}),
                ];
                self.one_of(&some)
            }
        }
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let least = schema["minimum"].as_u64().unwrap_or(0);
        let most = schema["maximum"].as_u64().unwrap_or(u64::MAX);
        let number = self
            .one_of(&[least, most, least + 1, 3.max(least)])
            .min(most);
        // JSON Schema takes it for an integer however it is written.
        match number < 1 << 53 && self.below(3) == 0 {
            true => json!(number as f64),
            false => json!(number),
        }
    }

    fn text(&mut self, schema: &Value) -> String {
        if schema["not"].is_object() {
            // Names of members; most texts of such a pattern are nothing anybody would write.
            return self.one_of(&PATHS).to_owned();
        }
        if let Some(pattern) = schema["pattern"].as_str() {
            let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX) as usize;
            let texts = string_regex(pattern.trim_matches(['^', '$'])).unwrap();
            let text = texts.new_tree(&mut self.runner).unwrap().current();
            return text.chars().take(most).collect();
        }
        if let Some(most) = schema["maxLength"].as_u64()
            && self.below(4) == 0
        {
            return "€".repeat(most as usize);
        }
        self.one_of(&TEXTS).to_owned()
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut members = Map::new();
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&json!(name)) || (depth < 6 && self.below(2) == 0) {
                members.insert(name.clone(), self.value(member, depth + 1));
            }
        }
        if schema["propertyNames"].is_object() {
            for _ in 0..self.below(3) {
                let name = self.text(&schema["propertyNames"]);
                members.insert(name, json!(1));
            }
        }
        Value::Object(members)
    }

    /// A value that the schema forbids, one step away from one that it allows.
    fn invalid(&mut self, schema: &Value) -> Option<Value> {
        let validator = self.validator(schema);
        for _ in 0..50 {
            let mut value = self.valid(schema);
            self.break_one(&mut value);
            let is_body = value.is_object() || value.is_array();
            if is_body && !validator.is_valid(&value) {
                return Some(value);
            }
        }
        None
    }

    fn break_one(&mut self, value: &mut Value) {
        let mut places = Vec::new();
        pointers(value, String::new(), &mut places);
        let place = self.one_of(&places);
        let spoilt = [
            json!(null),
            json!(true),
            json!(-1),
            json!(1.5),
            json!(1e30),
            json!(""),
            json!("perhaps"),
            json!([]),
            json!({}),
            json!({"zzz": 1}),
            json!("x".repeat(5000)),
        ];
        let spoilt = self.one_of(&spoilt);
        match (value.pointer_mut(&place).unwrap(), self.below(3)) {
            (Value::Object(members), 0) => {
                members.insert("zzz".to_owned(), spoilt);
            }
            (Value::Object(members), 1) if !members.is_empty() => {
                let names: Vec<String> = members.keys().cloned().collect();
                members.remove(&self.one_of(&names));
            }
            (place, _) => *place = spoilt,
        }
    }

    /// A parameter's value as it is sent.
    fn sent(&mut self, parameter: &Value) -> String {
        match self.valid(&parameter["schema"]) {
            Value::String(text) => text,
            Value::Number(number) if number.is_f64() => {
                format!("{:.1}", number.as_f64().unwrap())
            }
            other => other.to_string(),
        }
    }

    /// What a parameter cannot be.
    fn unfit(&mut self, parameter: &Value) -> Option<String> {
        let schema = &parameter["schema"];
        let most = schema["maximum"]
            .as_u64()
            .map(|most| (most + 1).to_string());
        let mut some = match schema["type"].as_str().unwrap() {
            "integer" => vec!["x".to_owned(), "-1".into(), "1.5".into(), String::new()],
            "boolean" => vec!["yes".to_owned(), "1".into(), String::new()],
            _ if schema["enum"].is_array() => vec!["perhaps".to_owned(), String::new()],
            _ if schema["pattern"].is_string() => vec!["a b".to_owned(), String::new()],
            _ if schema["minLength"].is_u64() => vec![String::new()],
            _ => return None,
        };
        some.extend(most);
        if schema["minimum"].as_u64() == Some(1) {
            some.push("0".to_owned());
        }
        if let Some(most) = schema["maxLength"].as_u64() {
            some.push("k".repeat(most as usize + 1));
        }
        Some(self.one_of(&some))
    }

    /// Values that have both of two members that exclude each other, for each such pair.
    fn both(&mut self, schema: &Value) -> Vec<Value> {
        let resolved = self.world.resolved(schema);
        let pairs = resolved["not"]["anyOf"].as_array().cloned();
        let mut found = Vec::new();
        let exclude = |pair: &Value| pair["required"].is_array();
        for pair in pairs.unwrap_or_default().into_iter().filter(exclude) {
            let mut body = self.valid(schema);
            for name in pair["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                let member = &resolved["properties"][name];
                // Null is absence.
                while body[name].is_null() {
                    body[name] = self.valid(member);
                }
            }
            assert!(!self.validator(schema).is_valid(&body), "{body}");
            found.push(body);
        }
        found
    }

    /// A request that the document allows.
    fn allowed(&mut self, route: &str, operation: &Value) -> Request {
        let mut request = Request::default();
        let held = self.world.held(route);
        let exclusive = operation["x-exclusive"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut taken: Vec<Value> = Vec::new();
        for parameter in parameters(operation) {
            let name = parameter["name"].as_str().unwrap().to_owned();
            let groups = exclusive.iter().filter(|group| has(group, &name));
            let groups: Vec<Value> = groups.cloned().collect();
            let is_free = !groups.iter().any(|group| taken.contains(group));
            let is_wanted = parameter["required"] == true || self.below(2) == 1;
            if held.contains(&name) || !is_free || !is_wanted {
                continue;
            }
            taken.extend(groups);
            let value = self.sent(&parameter);
            match parameter["in"] == "header" {
                true => request.headers.push((name, value)),
                false => request.query.push((name, value)),
            }
        }
        let given: Vec<String> = request.query.iter().map(|(name, _)| name.clone()).collect();
        request.query.retain(|(name, _)| {
            let needed = operation["x-needs"][name].as_str();
            needed.is_none_or(|needed| given.iter().any(|one| one == needed))
        });
        request.body = body(operation).map(|schema| self.valid(&schema));
        request
    }
}

/// An object schema with one of its forms.
fn narrowed(schema: &Value, form: &Value) -> Value {
    let mut narrowed = schema.clone();
    narrowed.as_object_mut().unwrap().remove("anyOf");
    let required = form["required"].as_array().into_iter().flatten();
    let all = narrowed["required"].as_array_mut().unwrap();
    all.extend(required.cloned());
    for (name, member) in form["properties"].as_object().into_iter().flatten() {
        narrowed["properties"][name] = member.clone();
    }
    narrowed
}

fn has(group: &Value, name: &str) -> bool {
    group.as_array().unwrap().iter().any(|one| one == name)
}

fn parameters(operation: &Value) -> Vec<Value> {
    let all = operation["parameters"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let all = all.into_iter().filter(|one| one["in"] != "path");
    all.collect()
}

fn body(operation: &Value) -> Option<Value> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    schema.is_object().then(|| schema.clone())
}

/// Every place of a value.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(member, format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                pointers(item, format!("{at}/{place}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(usual, |text| text.parse().unwrap())
}

#[tokio::test]
async fn what_the_description_allows_is_not_refused_as_malformed() {
    let world = World::new().await;
    let seed = ktsu_campaign::seed();
    eprintln!("KTSU_TEST_SEED={seed}");
    let mut maker = Maker::new(&world, seed);
    for (method, route, operation) in world.operations() {
        for _ in 0..number("KTSU_REQUESTS", 25) {
            let request = maker.allowed(&route, &operation);
            let answer = world.ask(&method, &route, &request).await;
            let told = || format!("{method} {route} {request:?}: {}", answer.text());
            assert!(!is_malformed(&answer), "{}", told());
            assert_ne!(answer.status, 500, "{}", told());
            assert_ne!(answer.status, 401, "{}", told());
        }
    }
}

#[tokio::test]
async fn what_the_description_forbids_is_refused_in_our_words() {
    let world = World::new().await;
    let seed = ktsu_campaign::seed();
    eprintln!("KTSU_TEST_SEED={seed}");
    let mut maker = Maker::new(&world, seed);
    let mut broken: BTreeMap<&str, usize> = BTreeMap::new();
    for (method, route, operation) in world.operations() {
        let mut requests = Vec::new();
        for parameter in parameters(&operation) {
            let name = parameter["name"].as_str().unwrap().to_owned();
            if parameter["required"] == true {
                let mut request = maker.allowed(&route, &operation);
                request.query.retain(|(given, _)| *given != name);
                request.left_out.push(name.clone());
                requests.push(("left out", request));
            }
            for _ in 0..3 {
                let Some(value) = maker.unfit(&parameter) else {
                    break;
                };
                let mut request = maker.allowed(&route, &operation);
                request.query.retain(|(given, _)| *given != name);
                request.headers.retain(|(given, _)| *given != name);
                match parameter["in"] == "header" {
                    true => request.headers.push((name.clone(), value)),
                    false => request.query.push((name.clone(), value)),
                }
                requests.push(("parameter", request));
            }
        }
        let mut request = maker.allowed(&route, &operation);
        request.query.push(("zzz".to_owned(), "1".to_owned()));
        requests.push(("unknown", request));
        for group in operation["x-exclusive"].as_array().into_iter().flatten() {
            let mut request = Request::default();
            for parameter in parameters(&operation) {
                let name = parameter["name"].as_str().unwrap();
                if has(group, name) && request.query.len() < 2 {
                    request
                        .query
                        .push((name.to_owned(), maker.sent(&parameter)));
                }
            }
            requests.push(("exclusive", request));
        }
        for parameter in parameters(&operation) {
            let name = parameter["name"].as_str().unwrap();
            if operation["x-needs"][name].is_string() {
                let mut request = Request::default();
                let value = maker.sent(&parameter);
                request.query.push((name.to_owned(), value));
                requests.push(("needed", request));
            }
        }
        let schema = body(&operation);
        let pairs = schema.as_ref().map(|schema| maker.both(schema));
        for both in pairs.unwrap_or_default() {
            let mut request = maker.allowed(&route, &operation);
            request.body = Some(both);
            requests.push(("both", request));
        }
        for _ in 0..number("KTSU_REQUESTS", 25) {
            let Some(body) = schema.as_ref().and_then(|schema| maker.invalid(schema)) else {
                break;
            };
            let mut request = maker.allowed(&route, &operation);
            request.body = Some(body);
            requests.push(("body", request));
        }
        for (what, request) in requests {
            let answer = world.ask(&method, &route, &request).await;
            let told = format!("{what}: {method} {route} {request:?}: {}", answer.text());
            // Without its token nobody is known to speak, and without its name nothing is there.
            let unknown = what == "left out" && matches!(answer.status, 401 | 404);
            assert!(is_malformed(&answer) || unknown, "{told}");
            let words = match refused_messages(&answer).as_slice() {
                [] => answer.json()["detail"].as_str().unwrap().to_owned(),
                [first, ..] => first["message"].as_str().unwrap().to_owned(),
            };
            for theirs in [
                "serde",
                "invalid type",
                "unknown variant",
                "missing field `",
                " line ",
            ] {
                assert!(!words.contains(theirs), "{told}");
            }
            *broken.entry(what).or_default() += 1;
        }
    }
    eprintln!("{broken:?}");
    for (what, least) in [
        ("left out", 14),
        ("parameter", 60),
        ("unknown", 18),
        ("exclusive", 7),
        ("needed", 1),
        ("both", 3),
        ("body", 200),
    ] {
        assert!(
            broken.get(what).copied().unwrap_or_default() >= least,
            "{broken:?}"
        );
    }
}

/// JSON Schema takes `5.0` for an integer, and so do bodies, queries and headers.
#[tokio::test]
async fn an_integer_may_be_written_with_a_fraction_of_zeros() {
    let world = World::new().await;
    let run = &world.run;
    let answer = world.client.get("/runs?limit=5.0").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let fork = world
        .client
        .post(&format!("/runs/{run}/fork"), r#"{"at": 2.0}"#)
        .await;
    assert_eq!(fork.status, 201, "{}", fork.text());
    assert_eq!(fork.json()["fork_position"], 2);
    let report = json!({"attempt": 1.0, "n": 1.0, "events": [{"type": "llm.request", "data": {
        "group": "std", "max_tokens": 1024.0, "purpose": "turn", "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}}]});
    let answer = world
        .client
        .post(&world.task["report"], report.to_string())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["events"][0]["data"]["max_tokens"], 1024);
}
