//! Finding runs, their inline children, their frames.

use serde_json::{Value, json};

use super::{HOOK, lab};
use crate::support::Sink;

#[tokio::test]
async fn lists_are_filtered_and_come_in_pages_without_gap_or_repeat() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let mut hellos = Vec::new();
    for _ in 0..7 {
        hellos.push(lab.client.run("hello", json!({})).await["run_id"].clone());
    }
    let headers = [("X-Key", HOOK)];
    api.call("POST", "/invoke/locked?wait=60", &headers, "{}")
        .await;
    // The webhook has nowhere to go.
    assert_eq!(lab.client.run("whole", json!({})).await["status"], "failed");
    hellos.reverse();
    for limit in [1, 2, 3, 7, 1000] {
        let mut seen = Vec::new();
        let mut path = format!("/runs?workflow=hello&status=complete&limit={limit}");
        loop {
            let page = api.get(&path).await.json();
            let rows = page["runs"].as_array().unwrap();
            assert!(rows.len() <= limit);
            seen.extend(rows.iter().map(|row| row["run_id"].clone()));
            match page["next"].as_str() {
                Some(next) => {
                    path =
                        format!("/runs?workflow=hello&status=complete&limit={limit}&cursor={next}");
                }
                None => break,
            }
        }
        assert_eq!(seen, hellos, "newest first, limit {limit}");
    }
    let count = async |query: &str| {
        let page = api.get(&format!("/runs{query}")).await.json();
        page["runs"].as_array().unwrap().len()
    };
    assert_eq!(count("").await, 9);
    assert_eq!(count("?status=failed").await, 1);
    assert_eq!(count("?status=running").await, 0);
    assert_eq!(
        count("?workflow=part").await,
        0,
        "a child is not a run of its own"
    );
    assert_eq!(count("?workflow=locked&status=complete").await, 1);
    let failed = api.get("/runs?status=failed").await.json();
    assert_eq!(failed["runs"][0]["error"], "webhook_unreachable");
}

/// Decision H1: `R%2Fcall` always, raw slashes too.
#[tokio::test]
async fn a_child_is_read_like_a_run_under_either_spelling() {
    let sink = Sink::new().await;
    let (_kit, lab, api) = lab(&sink.url).await;
    let whole = lab.client.run("whole", json!({})).await;
    let run = whole["run_id"].as_str().unwrap();
    for below in ["", "/envelope", "/frames", "/trace"] {
        let escaped = api.get(&format!("/runs/{run}%2Finner{below}")).await;
        let raw = api.get(&format!("/runs/{run}/inner{below}")).await;
        assert_eq!(escaped.status, 200, "{below}");
        assert_eq!(escaped.body, raw.body, "{below}");
        // A child nobody called does not exist, and neither does one below a step without any.
        for absent in ["other", "after", "inner%2Fcall"] {
            let answer = api.get(&format!("/runs/{run}%2F{absent}{below}")).await;
            assert_eq!(answer.status, 404, "{absent}{below}: {}", answer.text());
        }
    }
    let child = api
        .get(&format!("/runs/{run}%2Finner/envelope"))
        .await
        .json();
    assert_eq!(child["run_id"], json!(format!("{run}/inner")));
    assert_eq!(child["workflow"], "part");
    assert_eq!(child["steps"][0]["id"], "call");
    let frames = api.get(&format!("/runs/{run}%2Finner/frames")).await.json();
    let frames = frames["frames"].as_array().unwrap();
    assert!(frames.iter().all(|frame| frame["scope"] == "inner"));
    assert_eq!(frames[0]["type"], "run.started");
}

#[tokio::test]
async fn a_command_for_whole_runs_is_refused_for_a_child_whatever_its_body_says() {
    let sink = Sink::new().await;
    let (_kit, lab, api) = lab(&sink.url).await;
    let whole = lab.client.run("whole", json!({})).await;
    let run = whole["run_id"].as_str().unwrap();
    for (command, code) in [
        ("fork", "fork_refused"),
        ("resume", "not_resumable"),
        ("retry", "not_resumable"),
        ("pause", "invalid_run_state"),
        ("cancel", "invalid_run_state"),
        ("terminate", "invalid_run_state"),
    ] {
        let path = format!("/runs/{run}%2Finner/{command}");
        for body in [r#"{"from": "part"}"#, r#"{"colour": "red"}"#] {
            let answer = api.post(&path, body).await;
            assert_eq!(answer.json()["code"], code, "{command} {body}");
        }
    }
}

#[tokio::test]
async fn part_of_an_id_serves_while_it_names_one_run() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let run = lab.client.run("hello", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let bare = run.strip_prefix("run_").unwrap();
    for part in [&run[..12], &bare[..8], &bare[bare.len() - 6..]] {
        let answer = api.get(&format!("/runs/{part}")).await;
        assert_eq!(answer.json()["run"]["run_id"], json!(run), "{part}");
    }
    // Two letters are no search.
    assert_eq!(api.get(&format!("/runs/{}", &bare[..2])).await.status, 404);
}

#[tokio::test]
async fn frames_come_in_pages_and_say_where_they_come_from() {
    let sink = Sink::new().await;
    let (_kit, lab, api) = lab(&sink.url).await;
    let run = lab.client.run("whole", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let all = api.get(&format!("/runs/{run}/frames")).await.json();
    assert!(all.get("next").is_none());
    let all = all["frames"].as_array().unwrap().clone();
    for limit in [1, 2, 5] {
        let mut paged = Vec::new();
        let mut from = Some(0);
        while let Some(start) = from {
            let path = format!("/runs/{run}/frames?from={start}&limit={limit}");
            let page = api.get(&path).await.json();
            paged.extend(page["frames"].as_array().unwrap().iter().cloned());
            from = page["next"].as_u64();
        }
        assert_eq!(paged, all);
    }
    let mut prev = json!("0".repeat(64));
    for (number, frame) in all.iter().enumerate() {
        assert_eq!(frame["seq"], json!(number));
        assert_eq!(frame["id"], json!(format!("run:{run}#{number}")));
        assert_eq!(frame["prev"], prev);
        prev = frame["hash"].clone();
        match frame["cause"][0].as_u64() {
            Some(cause) => {
                assert!(cause < number as u64);
                assert_eq!(
                    frame["source_frame_id"],
                    json!(format!("run:{run}#{cause}"))
                );
            }
            None => assert!(frame.get("source_frame_id").is_none()),
        }
    }
    let past = api
        .get(&format!("/runs/{run}/frames?from=10000"))
        .await
        .json();
    assert_eq!(past, json!({"frames": []}));
}

#[tokio::test]
async fn what_is_kept_as_a_blob_is_put_back_on_request() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let text = "x".repeat(70_000);
    let run = lab.client.run("hello", json!({"msg": text})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let bare = api.get(&format!("/runs/{run}/frames")).await.json();
    let whole = api
        .get(&format!("/runs/{run}/frames?expand=true"))
        .await
        .json();
    let created = &bare["frames"][0];
    assert_eq!(created["data"]["params"], Value::Null);
    assert_eq!(created["data"]["definition"], Value::Null);
    let paths: Vec<_> = created["ext"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["path"])
        .collect();
    assert_eq!(paths, ["/definition", "/params"]);
    let expanded = &whole["frames"][0];
    assert_eq!(expanded["data"]["params"]["msg"], json!(text));
    assert!(expanded["data"]["definition"].is_object());
    assert_eq!(
        expanded["hash"], created["hash"],
        "the hash is that of the stored bytes"
    );
}

#[tokio::test]
async fn the_tree_of_a_run_holds_every_frame_once() {
    let sink = Sink::new().await;
    let (_kit, lab, api) = lab(&sink.url).await;
    let run = lab.client.run("whole", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for scope in ["", "%2Finner"] {
        let frames = api.get(&format!("/runs/{run}{scope}/frames")).await.json();
        let trace = api.get(&format!("/runs/{run}{scope}/trace")).await.json();
        let tree = trace["tree"].as_array().unwrap();
        let number = |one: &Value| one["seq"].as_u64().unwrap();
        let numbers: Vec<u64> = frames["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(number)
            .collect();
        let placed: Vec<u64> = tree.iter().map(number).collect();
        assert_eq!(placed, numbers, "{scope}");
        let roots = tree.iter().filter(|one| one["parent"].is_null()).count();
        assert_eq!(roots, 1, "{scope}");
        for one in tree.iter().filter(|one| !one["parent"].is_null()) {
            let parent = one["parent"].as_u64().unwrap();
            assert!(parent < number(one) && placed.contains(&parent), "{one}");
        }
    }
    // The way from the last frame to the root: each ancestor once, latest first.
    let last = lab.client.frames(&run).await.len() - 1;
    let chain = api
        .get(&format!("/runs/{run}/trace?frame={last}"))
        .await
        .json();
    let chain: Vec<u64> = chain["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(chain.first(), Some(&(last as u64)));
    assert_eq!(chain.last(), Some(&0));
    assert!(chain.windows(2).all(|pair| pair[0] > pair[1]));
}

#[tokio::test]
async fn clients_of_the_earlier_api_find_runs_by_the_names_they_know() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let run = lab.client.run("hello", json!({})).await["run_id"].clone();
    let page = api.get("/runs").await.json();
    let row = &page["runs"][0];
    assert_eq!((&row["id"], &row["run_id"]), (&run, &run));
    assert_eq!(row["workflow_name"], "hello");
    assert!(row["completed_at"].is_string(), "{row:#}");
    assert_eq!(row["completed_at"], row["ended_at"]);
}
