//! The OpenAPI description as it is declared with the handlers, and what declarations cannot express. `openapi.json`
//! says the same; with `KTSU_WRITE_SNAPSHOTS` in the environment, this writes it.

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::inspector::why;
use super::policy::{self, AccessPolicy};
use super::shape::SHAPES;
use super::{declared, payload, trace, wire};
use ktsu_workflow::admit::post::MAX_POST_EVENTS;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ktsu orchestrator",
        description = "Start runs, look at them, follow their frames. Errors are RFC 9457 problem \
                       documents with a stable `code`."
    ),
    components(schemas(wire::Problem))
)]
struct Api;

/// The description, on one line for each route and each shape.
fn text() -> String {
    let mut api = Api::openapi();
    api.merge(declared().split_for_parts().1);
    let mut document = serde_json::to_value(api).unwrap();
    describe(&mut document);
    refine(&mut document);
    let mut parts = Vec::new();
    for (name, value) in document.as_object().unwrap() {
        let value = match name.as_str() {
            "paths" => lines(value),
            "components" => {
                let of = value.as_object().unwrap().iter();
                let of = of.map(|(name, value)| format!("{}:{}", json!(name), lines(value)));
                format!("{{{}}}", of.collect::<Vec<_>>().join(",\n"))
            }
            _ => value.to_string(),
        };
        parts.push(format!("{}:{value}", json!(name)));
    }
    format!("{{{}}}\n", parts.join(",\n"))
}

fn lines(value: &Value) -> String {
    let of = value.as_object().unwrap().iter();
    let of = of.map(|(name, value)| format!("{}:{value}", json!(name)));
    format!("{{\n{}\n}}", of.collect::<Vec<_>>().join(",\n"))
}

#[test]
fn the_description_that_is_served_is_the_one_that_the_handlers_declare() {
    let declared = text();
    if std::env::var_os("KTSU_WRITE_SNAPSHOTS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        std::fs::write(file, &declared).unwrap();
    }
    let differs = |(one, other): &(&str, &str)| one != other;
    let mut both = declared.lines().zip(super::DESCRIPTION.lines());
    let first = both.find(differs);
    let first = first.map(|(line, _)| line.chars().take(100).collect::<String>());
    let same = first.is_none() && declared == super::DESCRIPTION;
    assert!(same, "run this test with KTSU_WRITE_SNAPSHOTS=1: {first:?}");
}

/// Adds to the description which routes need a token.
fn describe(document: &mut Value) {
    document["components"]["securitySchemes"] =
        json!({"principal": {"type": "http", "scheme": "bearer"}});
    for (method, path, policy) in policy::TABLE {
        if let AccessPolicy::Roles(roles) = policy {
            let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
            document["paths"][path][method.to_lowercase()]["security"] =
                json!([{"principal": roles}]);
        }
    }
}

/// Adds what Rust declarations do not express: bounds of integers, overlapping choices, and members
/// that exclude each other.
fn refine(document: &mut Value) {
    walk(document);
    let shapes = &mut document["components"]["schemas"];
    for name in CLOSED {
        shapes[name]["additionalProperties"] = json!(false);
    }
    if let Some(shapes) = shapes.as_object_mut() {
        merge_flattened(shapes);
    }
    shapes["Fork"]["not"] = json!({"anyOf": [
        both("at", "at_frame"), both("at", "before"), both("at_frame", "before"),
    ]});
    shapes["Fork"]["properties"]["set"]["propertyNames"] = json!({
        "pattern": r"^(params(\.[^.]+)+|step\.[^.]+\.(output\.)?[^.]+)$",
        "not": {"pattern": r"^step\..*\.output$"},
    });
    shapes["Resume"]["not"] = json!({"anyOf": [both("from", "raise")]});
    shapes["Decide"]["if"] = json!({"properties": {"decision": {"const": "happened"}}});
    shapes["Decide"]["then"] =
        json!({"required": ["result"], "properties": {"result": {"type": "string"}}});
    shapes["Decide"]["else"] = json!({"properties": {"result": {"type": "null"}}});
    for (name, syntax) in [
        ("pattern", ktsu_delivery::PATTERN_SYNTAX),
        ("secret", wire::SECRET_SYNTAX),
        ("url", wire::URL_SYNTAX),
    ] {
        shapes["SubscriptionRequest"]["properties"][name]["pattern"] = json!(syntax);
    }
    let topics = &mut shapes["SubscriptionRequest"]["properties"]["topics"];
    topics["pattern"] = json!(ktsu_delivery::TOPIC_PATTERN_SYNTAX);
    let neither = json!({"properties": {"pattern": {"type": "null"}, "topics": {"type": "null"}}});
    shapes["SubscriptionRequest"]["not"] = json!({"anyOf": [both("pattern", "topics"), neither]});
    let several = &mut shapes["EventPosts"]["anyOf"][1];
    several["minItems"] = json!(1);
    several["maxItems"] = json!(MAX_POST_EVENTS);
    refine_messages(shapes);
    let trace = &mut document["paths"]["/runs/{id}/trace"]["get"];
    let chosen = trace::TREE_PARAMETERS.into_iter();
    let pairs = chosen.flat_map(|name| trace::EXCLUSIVE.map(|other| json!([name, other])));
    let groups = std::iter::once(json!(trace::EXCLUSIVE)).chain(pairs);
    trace["x-exclusive"] = groups.collect();
    let (name, needed) = trace::REQUIRED_TOGETHER;
    trace["x-needs"] = json!({name: needed});
    let page = &mut document["paths"]["/inspector/runs/{id}/why"]["get"];
    page["x-exclusive"] = json!([why::EXCLUSIVE]);
    let value = &mut document["paths"]["/runs/{id}/payload"]["get"];
    value["x-exclusive"] = json!([payload::EXCLUSIVE]);
    let (name, needed) = payload::REQUIRED_TOGETHER;
    value["x-needs"] = json!({name: needed});
    for (method, path, policy) in policy::TABLE {
        let route = document["paths"].get_mut(path);
        if let Some(operation) = route.and_then(|route| route.get_mut(method.to_lowercase())) {
            add_problems(path, policy, operation);
        }
    }
}

/// Types that clients read leniently, and of which the server sends nothing else.
const CLOSED: [&str; 13] = [
    "ApprovalRecord",
    "ApprovalVote",
    "Change",
    "FieldViolation",
    "LayerConflict",
    "ResumeLink",
    "Resumed",
    "Review",
    "ReviewRecord",
    "StateLayers",
    "SteeringView",
    "StepLayers",
    "SuspensionRecord",
];

/// Merges closed schemas with those that they are flattened into, which could have no members of
/// their own otherwise.
fn merge_flattened(shapes: &mut Map<String, Value>) {
    let all = shapes.clone();
    let closed = |part: &Value| {
        let name = part["$ref"].as_str()?.strip_prefix(SHAPES)?;
        let (name, shape) = all.get_key_value(name)?;
        (shape["additionalProperties"] == false).then_some((name, shape))
    };
    for (name, shape) in &all {
        let parts = shape["allOf"].as_array().map_or(&[][..], Vec::as_slice);
        let flattened: Vec<&String> = parts.iter().filter_map(closed).map(|it| it.0).collect();
        if flattened.is_empty() {
            continue;
        }
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in parts {
            let part = closed(part).map_or(part, |(_, shape)| shape);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        let whole = json!({
            "type": "object",
            "description": shape["description"],
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        shapes.insert(name.clone(), whole);
        flattened
            .into_iter()
            .for_each(|part| drop(shapes.remove(part)));
    }
}

/// Adds the problems that follow from the path, the policy and the body of a route.
fn add_problems(path: &str, policy: AccessPolicy, operation: &mut Value) {
    let has_body = operation["requestBody"].is_object();
    let compares = [
        "/diff",
        "/inspector/diff",
        "/inspector/evals",
        "/checks",
        "/evals",
    ];
    let names_run = path.contains("/runs/{id}") || compares.contains(&path);
    let records = match path {
        "/runs/{id}/replay" => false,
        _ => has_body && (names_run || path.starts_with("/invoke/")),
    };
    let own = [
        ("400", true),
        (
            "401",
            !matches!(policy, AccessPolicy::Public | AccessPolicy::Optional),
        ),
        ("403", true),
        ("404", names_run || path.contains('{')),
        ("409", names_run),
        ("413", has_body),
        (
            "422",
            has_body || ["/runs/{id}/trace", "/runs/{id}/fork"].contains(&path),
        ),
        ("503", records),
        ("507", records && policy != AccessPolicy::Attempt),
    ];
    let own = own.into_iter().filter(|(_, applies)| *applies);
    own.for_each(|(status, _)| add_problem(operation, status, json!({})));
    let is_answer = |status: &&str| operation["responses"][*status].is_object();
    let changes_subscriptions =
        path.starts_with("/subscriptions") && ["201", "202", "204"].iter().any(is_answer);
    let is_stream = operation["responses"]["200"]["content"]["text/event-stream"].is_object();
    let everywhere = [
        (
            "429",
            "Too many streams of events are open.",
            is_stream && policy != AccessPolicy::Attempt,
        ),
        ("410", "The run was removed.", names_run),
        (
            "500",
            "What is recorded cannot be read, or ktsu has failed.",
            true,
        ),
        ("503", "Too many requests at once.", true),
        ("507", "The disk is nearly full.", changes_subscriptions),
    ];
    let everywhere = everywhere.into_iter().filter(|(.., applies)| *applies);
    for (status, words, _) in everywhere {
        let response = json!({"description": words, "x-everywhere": true});
        add_problem(operation, status, response);
    }
}

/// Adds a response, unless the route describes it itself.
fn add_problem(operation: &mut Value, status: &str, mut response: Value) {
    let shape = json!({"$ref": format!("{SHAPES}Problem")});
    response["content"] = json!({"application/problem+json": {"schema": shape}});
    if let Some(responses) = operation["responses"].as_object_mut() {
        responses.entry(status).or_insert(response);
    }
}

/// Messages of MCP, which are requests, notifications, or answers.
fn refine_messages(shapes: &mut Value) {
    let whole = json!({"type": ["string", "integer"], "maxLength": 256});
    let message = &mut shapes["ToolMessage"];
    message["properties"]["method"]["type"] = json!("string");
    let no_method = json!({"required": ["method"]});
    message["anyOf"] = json!([
        {
            "title": "A request",
            "required": ["id", "method"],
            "properties": {"id": whole, "params": {"type": ["object", "null"]}},
        },
        {
            "title": "A notification",
            "required": ["method"],
            "not": {"required": ["id"]},
        },
        {
            "title": "An answer",
            "required": ["id", "result"],
            "not": no_method,
            "properties": {"id": whole, "result": {"type": "object"}},
        },
        {
            "title": "A refusal",
            "required": ["id", "error"],
            "not": no_method,
            "properties": {
                "id": {"type": ["string", "integer", "null"], "maxLength": 256},
                "error": {"type": "object"},
            },
        },
    ]);
    let several = &mut shapes["ToolMessages"]["anyOf"][1];
    several["minItems"] = json!(1);
    several["maxItems"] = json!(16);
    several["not"] = json!({"contains": {
        "required": ["method"],
        "properties": {"method": {"const": "initialize"}},
    }});
}

/// Both members are given; null is absence.
fn both(one: &str, other: &str) -> Value {
    let given = json!({"not": {"type": "null"}});
    let properties: Map<String, Value> = [one, other]
        .map(|name| (name.to_owned(), given.clone()))
        .into_iter()
        .collect();
    json!({"required": [one, other], "properties": properties})
}

/// Walks the document, which contains no outside data.
fn walk(value: &mut Value) {
    match value {
        Value::Object(members) => {
            // The widths of Rust's integers, which have no name of their own in a format.
            let format = members.get("format").and_then(Value::as_str);
            let least = members.get("minimum").and_then(Value::as_u64);
            let most = match (format, least) {
                (Some("int32"), Some(_)) => Some(u64::from(u32::MAX)),
                (Some("int64"), Some(_)) => Some(u64::MAX),
                _ => None,
            };
            if let Some(most) = most {
                members.remove("format");
                members.entry("maximum").or_insert(json!(most));
            }
            // A message of a conversation may look like a reference to one: either will do.
            if let Some(choices) = members.remove("oneOf") {
                members.insert("anyOf".to_owned(), choices);
            }
            members.values_mut().for_each(walk);
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
