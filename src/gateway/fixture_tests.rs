//! Conversations with providers, written from the public descriptions of their APIs: each goes
//! through the whole gateway over a socket, and what the provider is sent and what the caller gets
//! are compared exactly. `KEY` stands for the provider's key.

use std::path::Path;

use serde_json::{Value, json};

use super::tests::{KEY, Reply, gateway, post, provider};

#[tokio::test]
async fn every_conversation_converts_exactly_both_ways() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/providers");
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.file_stem().unwrap().to_string_lossy();
        let text = std::fs::read_to_string(file).unwrap().replace("KEY", KEY);
        let fixture: Value = serde_json::from_str(&text).unwrap();
        for (what, got, wanted) in converted(&fixture).await {
            if got != wanted {
                wrong.push(format!("{name}: {what}\n got {got}\nnot {wanted}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(files.len() >= 40, "only {} conversations", files.len());
}

/// What is compared: its name, what came, what should have come.
async fn converted(fixture: &Value) -> Vec<(&'static str, Value, Value)> {
    let response = &fixture["upstream"]["response"];
    let (url, mut asked) = provider(vec![reply(response)]).await;
    let (model, base) = match fixture["provider"].as_str().unwrap() {
        "openai" => ("gpt-4o-mini", format!("{url}/v1")),
        _ => ("claude-sonnet-4-6", url),
    };
    let mut config = json!({"base_url": base, "api_key": KEY, "timeout_s": 20});
    if let Some(more) = fixture["config"].as_object() {
        config.as_object_mut().unwrap().extend(more.clone());
    }
    // JSON is YAML, too.
    let yaml = json!({
        "providers": [{"name": "p", "type": fixture["provider"], "config": config}],
        "model_groups": [{"name": "g", "models": [format!("p/{model}")]}],
    });
    let peer = gateway(&yaml.to_string(), "rules: []");
    let (status, mut said) = post(&peer, None, fixture["invoke"].to_string()).await;
    // Attempts have times, and are compared where they are made.
    if let Some(members) = said.as_object_mut() {
        members.remove("attempts");
    }
    let asked = asked.recv().await.unwrap();

    let request = &fixture["upstream"]["request"];
    let mut compared = vec![
        ("the path", json!(asked.path), request["path"].clone()),
        ("the request", asked.body, request["body"].clone()),
    ];
    for (name, value) in request["headers"].as_object().unwrap() {
        let got = asked.headers.get(name);
        let got = got.map_or(Value::Null, |got| json!(got.to_str().unwrap()));
        compared.push(("a header", got, value.clone()));
    }
    let (wanted, body) = match fixture.get("reply") {
        Some(reply) => (json!(200), reply.clone()),
        None => {
            let refused = &fixture["refused"];
            (refused["status"].clone(), refused["body"].clone())
        }
    };
    compared.extend([
        ("the status", json!(status), wanted),
        ("the reply", said, body),
    ]);
    compared
}

fn reply(response: &Value) -> Reply {
    let text = response["text"].as_str().map(str::to_owned);
    let headers = response["headers"].as_object().into_iter().flatten();
    Reply {
        status: u16::try_from(response["status"].as_u64().unwrap()).unwrap(),
        headers: headers
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect(),
        body: text.unwrap_or_else(|| response["body"].to_string()),
    }
}
