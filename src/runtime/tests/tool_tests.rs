//! Tasks that call tools, between a fake orchestrator, a fake gateway and fake servers.

use super::tool_fakes::Heard as Session;
use super::*;

/// A dispatch with these servers.
fn task(world: &World, servers: &Value) -> Value {
    let mut task = world.task();
    task["tool_servers"] = servers.clone();
    task
}

fn one(name: &str) -> Value {
    json!([{"name": name, "url": "http://tools.example/mcp", "allowlist": ["*"]}])
}

/// What a report of a history would have left: the frames, and nothing answered.
fn goes_on(world: &World, frames: &[Value]) {
    world
        .orchestrator
        .with(|recorded| recorded.frames = frames.to_vec());
}

/// The sessions that were heard of until so many are closed.
async fn sessions(world: &mut World, closed: usize) -> Vec<Session> {
    let mut heard = Vec::new();
    while heard
        .iter()
        .filter(|one| matches!(one, Session::Closed(_)))
        .count()
        < closed
    {
        heard.push(soon(world.sessions.recv()).await.unwrap());
    }
    heard
}

fn results(world: &World) -> Vec<Value> {
    let result = |frame: &&Value| frame["type"] == "tool.returned";
    let data = |frame: &Value| frame["data"].clone();
    world
        .orchestrator
        .with(|recorded| recorded.frames.iter().filter(result).map(data).collect())
}

#[tokio::test]
async fn each_step_of_a_task_with_tools_is_reported_before_it_is_taken() {
    let says = || {
        [
            Say::Calls(&[("echo", "{\"n\":1}"), ("fail", "{}")]),
            Say::Text("{\"a\":1}"),
        ]
    };
    for mut world in [local(says()), world(says()).await] {
        world.work(task(&world, &one("files"))).await;
        let reports = world.orchestrator.reports();
        let types: Vec<&str> = reports
            .iter()
            .flat_map(|(_, types)| types)
            .map(String::as_str)
            .collect();
        assert_eq!(
            types,
            [
                "llm.request",
                "llm.response",
                "agent.decided",
                "tool.called",
                "tool.called",
                "tool.returned",
                "tool.returned",
                "llm.request",
                "llm.response",
                "agent.finished",
            ]
        );
        assert_eq!(
            reports[2].1,
            ["agent.decided", "tool.called", "tool.called"]
        );
        assert_eq!(world.finished()["reason"], "completed");
        let mut keys: Vec<String> = world
            .servers
            .calls()
            .into_iter()
            .map(|(_, call)| call.key)
            .collect();
        keys.sort();
        assert_eq!(keys, ["key 12/0", "key 12/1"]);
        let asked = world.gateway.asked();
        assert_eq!(asked[0].1["tools"].as_array().unwrap().len(), 8);
        assert_eq!(
            asked[0].1["tools"][0],
            json!({"name": "echo", "description": "What echo does",
                   "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}})
        );
        assert_eq!(asked[0].1["tools"], asked[1].1["tools"]);
        assert_eq!(
            asked[1].1["messages"],
            json!([{"role": "system", "content": "SYSTEM"},
                   {"role": "user", "content": "USER [REDACTED]"},
                   {"role": "assistant", "content": "", "tool_calls": [
                       {"id": "c0", "name": "echo", "arguments": {"n": 1}},
                       {"id": "c1", "name": "fail", "arguments": {}}]},
                   {"role": "tool", "content": "{\"n\":1}", "tool_call_id": "c0"},
                   {"role": "tool", "content": "{}", "tool_call_id": "c1", "is_error": true}])
        );
        let heard = sessions(&mut world, 1).await;
        let opened = heard
            .iter()
            .filter(|one| matches!(one, Session::Opened(..)))
            .count();
        assert_eq!(opened, 1, "one session a server");
    }
}

#[tokio::test]
async fn the_calls_of_a_reply_are_under_way_at_the_same_time() {
    let mut world = local([Say::Calls(&[
        ("hang", "{}"),
        ("hang", "{}"),
        ("echo", "{}"),
    ])]);
    assert_eq!(world.dispatch(&task(&world, &one("files"))).await.0, 202);
    world.heard("tool.returned").await;
    assert_eq!(
        world.servers.called(),
        ["files/echo", "files/hang", "files/hang"]
    );
    // Whoever stops the task stops its calls, and the session is closed after them.
    world.runtime.stop();
    let heard = sessions(&mut world, 1).await;
    assert_eq!(
        heard[heard.len() - 3..],
        [
            Session::Dropped,
            Session::Dropped,
            Session::Closed("files".to_owned()),
        ]
    );
}

#[tokio::test]
async fn a_secret_reaches_no_server() {
    let world = local([
        Say::Calls(&[("echo", "{\"k\":\"s3cret\"}")]),
        Say::Text("{}"),
    ]);
    world.work(task(&world, &one("files"))).await;
    assert_eq!(world.servers.called(), Vec::<String>::new());
    assert_eq!(results(&world)[0]["not_sent"], "secret_in_arguments");
    assert_eq!(world.finished()["reason"], "completed");
}

#[tokio::test]
async fn a_name_that_is_not_permitted_ends_the_task_and_nothing_is_sent() {
    let world = local([Say::Calls(&[("echo", "{}"), ("write", "{}")])]);
    let mut servers = one("files");
    servers[0]["allowlist"] = json!(["echo"]);
    world.work(task(&world, &servers)).await;
    assert_eq!(world.servers.called(), Vec::<String>::new());
    assert_eq!(
        world.orchestrator.reports()[2].1,
        ["agent.decided", "agent.finished"]
    );
    assert_eq!(
        world.finished(),
        json!({"reason": "tool_not_permitted", "outcome": {"error": {
            "code": "tool_not_permitted", "message": "tool_not_permitted: write",
            "retryable": false}}})
    );
}

#[tokio::test]
async fn a_gated_call_waits_for_people_outside_of_the_runtime() {
    let says = [
        Say::Calls(&[("write", "{\"n\":1}"), ("echo", "{}")]),
        Say::Text("{}"),
    ];
    let mut world = local(says);
    let mut servers = one("files");
    servers[0]["approval_rules"] = json!([{"pattern": "write", "on_reject": "recover"}]);
    let mut task = task(&world, &servers);
    assert_eq!(world.dispatch(&task).await.0, 202);
    let asked = world.heard("approval.requested").await;
    assert_eq!(
        asked["events"],
        json!([{"type": "approval.requested",
                "data": {"response": 12, "call": 0, "server": "files", "tool": "write"}}])
    );
    sessions(&mut world, 1).await;
    while !world.runtime.0.tasks.active().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.servers.called(), ["files/echo"]);
    assert_eq!(
        world.orchestrator.types().last().unwrap(),
        "approval.requested"
    );

    let frames = world.orchestrator.with(|recorded| recorded.frames.clone());
    let mut history = frames.clone();
    let request = frames.last().unwrap()["seq"].clone();
    history.push(json!({"seq": 999, "type": "approval.decided",
                        "data": {"request": request, "decision": "approved"}}));
    goes_on(&world, &history);
    task["attempt"] = json!(2);
    task["history"] = json!(history);
    world.work(task).await;
    assert_eq!(world.servers.called(), ["files/echo", "files/write"]);
    assert_eq!(world.finished()["reason"], "completed");
    let request = world.orchestrator.last("llm.request");
    assert_eq!(
        request.get("base"),
        None,
        "an attempt begins with a whole request"
    );
    let roles = request["messages"].as_array().unwrap().iter();
    let roles: Vec<&str> = roles.map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
}

#[tokio::test]
async fn a_server_out_of_reach_ends_the_task_by_its_name_before_a_model_is_asked() {
    let mut world = local([Say::Text("{}")]);
    let servers = json!([
        {"name": "files", "url": "http://h/", "allowlist": ["echo"]},
        {"name": "gone", "url": "http://h/", "allowlist": ["*"]},
        {"name": "unused", "url": "http://h/"},
    ]);
    world.work(task(&world, &servers)).await;
    assert_eq!(
        world.finished()["outcome"]["error"],
        json!({"code": "tool_server_unreachable", "retryable": true,
               "message": "the tool server gone cannot be used: nobody is let in (unauthorized)"})
    );
    assert_eq!(world.gateway.asked(), []);
    let mut opened: Vec<String> = Vec::new();
    for one in sessions(&mut world, 1).await {
        if let Session::Opened(name, ..) = one {
            opened.push(name);
        }
    }
    opened.sort();
    assert_eq!(
        opened,
        ["files", "gone"],
        "where nothing may be called, nobody is asked"
    );
}

#[tokio::test]
async fn a_tool_that_is_not_as_it_was_locked_ends_the_task() {
    let world = local([Say::Text("{}")]);
    let mut servers = one("files");
    servers[0]["allowlist"] = json!(["echo"]);
    servers[0]["pins"] = json!({"echo": "another digest"});
    world.work(task(&world, &servers)).await;
    assert_eq!(world.finished()["outcome"]["error"]["code"], "tool_drift");
    assert_eq!(world.gateway.asked(), []);
    // Locked when there was nothing to call: whatever is there now is new.
    servers[0]["pins"] = json!({});
    let world = local([Say::Text("{}")]);
    world.work(task(&world, &servers)).await;
    assert_eq!(world.finished()["outcome"]["error"]["code"], "tool_drift");
    assert_eq!(world.gateway.asked(), []);
    servers[0]["pins"] = json!({"echo": "digest of echo"});
    let world = local([Say::Text("{}")]);
    world.work(task(&world, &servers)).await;
    assert_eq!(world.finished()["reason"], "completed");
}

#[tokio::test]
async fn a_server_that_changes_its_tools_ends_the_task_once_its_calls_are_over() {
    let world = local([
        Say::Calls(&[("drift", "{}"), ("echo", "{}")]),
        Say::Text("{}"),
    ]);
    world.work(task(&world, &one("files"))).await;
    assert_eq!(results(&world).len(), 2);
    let error = world.finished()["outcome"]["error"].clone();
    assert_eq!(error["code"], "tool_drift");
    assert_eq!(world.gateway.asked().len(), 1);
}

#[tokio::test]
async fn before_each_call_a_server_is_held_to_what_the_model_was_given() {
    let says = [Say::Calls(&[("echo", "{}")]), Say::Text("{}")];
    let world = local(says.clone());
    world.work(task(&world, &one("moves"))).await;
    assert_eq!(world.servers.called(), Vec::<String>::new());
    let error = world.finished()["outcome"]["error"].clone();
    assert_eq!(
        error,
        json!({"code": "tool_drift", "retryable": false,
               "message": "the tool echo of the server moves is not the tool that the model \
                           was shown; look at it, then start the run again"})
    );
    let world = local(says.clone());
    world.work(task(&world, &one("grows"))).await;
    assert_eq!(world.servers.called(), ["grows/echo"]);
    assert_eq!(world.finished()["reason"], "completed");
    // Where only known tools may be called, one more is none that may.
    let world = local(says.clone());
    let mut servers = one("grows");
    servers[0]["allowlist"] = json!(["echo", "m*"]);
    servers[0]["pins"] = json!({"echo": "digest of echo"});
    world.work(task(&world, &servers)).await;
    assert_eq!(world.servers.called(), Vec::<String>::new());
    assert_eq!(world.finished()["outcome"]["error"]["code"], "tool_drift");
    let world = local(says);
    world.work(task(&world, &one("away"))).await;
    assert_eq!(world.servers.called(), Vec::<String>::new());
    let told = "Error: the tool could not be used: who are you? (session_expired).";
    assert_eq!(results(&world)[0]["content"][0]["text"], told);
    assert_eq!(world.finished()["reason"], "completed");
}

#[tokio::test]
async fn a_call_may_take_as_long_as_its_server_says_and_no_longer_than_the_task() {
    for (server, task_ms, seconds) in [
        (None, None, 60..=60),
        (Some(120_000), None, 120..=120),
        (Some(3_600_000), Some(90_000), 1..=90),
    ] {
        let world = local([Say::Calls(&[("echo", "{}")]), Say::Text("{}")]);
        let mut servers = one("files");
        servers[0]["timeout_ms"] = json!(server);
        let mut task = task(&world, &servers);
        task["timeout_ms"] = json!(task_ms);
        world.work(task).await;
        let limit = world.servers.calls()[0].1.limit;
        assert!(seconds.contains(&limit.as_secs()), "{limit:?}");
    }
}

#[tokio::test]
async fn a_call_without_an_answer_is_an_error_or_a_doubt() {
    for (name, stateful, doubted) in [
        ("silent", false, false),
        ("silent", true, true),
        ("refused", true, false),
        ("broken", false, false),
        ("broken", true, true),
    ] {
        let calls: &'static [(&str, &str)] = match name {
            "silent" => &[("silent", "{}"), ("echo", "{}")],
            "refused" => &[("refused", "{}"), ("echo", "{}")],
            _ => &[("broken", "{}"), ("echo", "{}")],
        };
        let world = local([Say::Calls(calls), Say::Text("{}")]);
        let mut servers = one("files");
        servers[0]["stateful"] = json!(stateful);
        world.work(task(&world, &servers)).await;
        let reports = world.orchestrator.reports();
        if doubted {
            assert_eq!(reports.last().unwrap().1, ["tool.in_doubt"], "{name}");
            let called = world
                .orchestrator
                .with(|recorded| recorded.frames[3]["seq"].clone());
            assert_eq!(
                world.orchestrator.last("tool.in_doubt"),
                json!({"called": called})
            );
            assert_eq!(results(&world).len(), 1);
        } else {
            assert_eq!(world.finished()["reason"], "completed", "{name}");
            let failed = results(&world);
            let failed = failed.iter().find(|one| one["call"] == 0).unwrap();
            assert_eq!(
                (&failed["is_error"], failed.get("not_sent")),
                (&json!(true), None)
            );
        }
    }
}

#[tokio::test]
async fn a_call_that_met_a_forgotten_session_is_made_once_more_under_its_key_and_never_in_doubt() {
    for (name, failed) in [("forgets", false), ("forgets always", true)] {
        let world = local([Say::Calls(&[("echo", "{}")]), Say::Text("{}")]);
        let mut servers = one(name);
        servers[0]["stateful"] = json!(true);
        world.work(task(&world, &servers)).await;
        let calls = world.servers.calls();
        let keys: Vec<&str> = calls.iter().map(|(_, call)| call.key.as_str()).collect();
        assert_eq!(keys, ["key 12/0", "key 12/0"], "{name}");
        let reports = world.orchestrator.reports();
        let types = reports.iter().flat_map(|(_, types)| types);
        let types: Vec<&str> = types.map(String::as_str).collect();
        let count = |wanted: &str| types.iter().filter(|one| **one == wanted).count();
        assert_eq!(
            (count("tool.called"), count("tool.in_doubt")),
            (1, 0),
            "{name}"
        );
        assert_eq!(results(&world)[0]["is_error"], failed, "{name}");
        assert_eq!(world.finished()["reason"], "completed", "{name}");
    }
    let world = local([Say::Calls(&[("echo", "{}")]), Say::Text("{}")]);
    world.work(task(&world, &one("forgets and moves"))).await;
    assert_eq!(world.servers.calls().len(), 1, "other tools are not called");
    assert_eq!(world.finished()["outcome"]["error"]["code"], "tool_drift");
}

#[tokio::test]
async fn the_result_of_a_failed_call_says_how_long_the_call_took() {
    let world = local([Say::Calls(&[("silent", "{}")]), Say::Text("{}")]);
    world.work(task(&world, &one("files"))).await;
    assert_eq!(results(&world)[0]["duration_ms"], 4711);
}

#[tokio::test]
async fn a_call_that_no_one_heard_the_answer_to_is_announced_and_sent_again_with_its_key() {
    let mut first = local([Say::Calls(&[("hang", "{}")])]);
    let mut task = task(&first, &one("files"));
    first.dispatch(&task).await;
    while soon(first.sessions.recv()).await.unwrap() != Session::Called("hang".to_owned()) {}
    first.runtime.stop();
    let frames = first.orchestrator.with(|recorded| recorded.frames.clone());
    let mut second = local([Say::Text("{}")]);
    goes_on(&second, &frames);
    task["attempt"] = json!(2);
    task["history"] = json!(frames);
    second.dispatch(&task).await;
    while soon(second.sessions.recv()).await.unwrap() != Session::Called("hang".to_owned()) {}
    let again = second.orchestrator.last("tool.called");
    assert_eq!(again["again"], frames.last().unwrap()["seq"]);
    let key = |world: &World| world.servers.calls()[0].1.key.clone();
    assert_eq!(key(&first), key(&second));
}

#[tokio::test]
async fn a_task_whose_time_is_over_says_which_calls_are_in_doubt() {
    let mut world = local([Say::Calls(&[
        ("hang", "{}"),
        ("echo", "{}"),
        ("hang", "{}"),
    ])]);
    let mut task = task(&world, &one("files"));
    task["timeout_ms"] = json!(150);
    world.work(task).await;
    let reports = world.orchestrator.reports();
    assert_eq!(
        reports.last().unwrap().1,
        ["tool.in_doubt", "tool.in_doubt", "agent.finished"]
    );
    assert_eq!(world.finished()["reason"], "timeout");
    let heard = sessions(&mut world, 1).await;
    let dropped = heard.iter().filter(|one| **one == Session::Dropped).count();
    assert_eq!(dropped, 2);
}

#[tokio::test]
async fn a_report_that_is_refused_for_good_ends_the_task_with_its_doubts() {
    let mut world = local([Say::Calls(&[("hang", "{}"), ("echo", "{}")])]);
    world
        .orchestrator
        .with(|recorded| recorded.refuse = Some("tool.returned"));
    assert_eq!(world.dispatch(&task(&world, &one("files"))).await.0, 202);
    let said = world.heard("agent.finished").await;
    let types = said["events"].as_array().unwrap().iter();
    let types: Vec<&Value> = types.map(|event| &event["type"]).collect();
    // The answer of one was refused, so that nobody has it; the other has none.
    assert_eq!(types, ["tool.in_doubt", "tool.in_doubt", "agent.finished"]);
    assert_eq!(
        said["events"][2]["data"]["outcome"]["error"]["code"],
        "report_refused"
    );
}

#[tokio::test]
async fn the_orchestrators_own_servers_are_reached_by_its_callbacks_with_the_tasks_token() {
    let mut world = local([Say::Text("{}")]);
    let servers = json!([
        {"name": "memory", "url": "ktsu:kv", "allowlist": ["*"]},
        {"name": "files", "url": "http://h/mcp", "allowlist": ["*"],
         "auth_header": "authorization", "auth_value": "Bearer t0ken"},
    ]);
    world.work(task(&world, &servers)).await;
    let mut opened = sessions(&mut world, 2).await;
    opened.retain(|one| matches!(one, Session::Opened(..)));
    opened.sort_by_key(|one| format!("{one:?}"));
    let own = "/tools/ktsu/kv?run=run_1&step=s&attempt=1&token=t";
    assert_eq!(
        opened,
        [
            Session::Opened(
                "files".to_owned(),
                "http://h/mcp".to_owned(),
                Some("authorization: Bearer t0ken".to_owned()),
            ),
            Session::Opened("memory".to_owned(), own.to_owned(), None),
        ]
    );
}

#[tokio::test]
async fn tools_work_for_an_orchestrator_that_takes_no_reports_and_approvals_do_not() {
    let says = [
        Say::Calls(&[("echo", "{}"), ("silent", "{}")]),
        Say::Calls(&[("write", "{}")]),
        Say::Text("{\"a\":1}"),
    ];
    for gated in [false, true] {
        let world = local(says.clone());
        let mut servers = one("files");
        servers[0]["stateful"] = json!(true);
        if gated {
            servers[0]["approval_rules"] = json!([{"pattern": "write", "on_reject": "fail"}]);
        }
        let mut task = task(&world, &servers);
        task.as_object_mut().unwrap().remove("report_url");
        world.work(task).await;
        let body = world
            .orchestrator
            .with(|recorded| recorded.came[0].1.clone());
        let complete: Value = serde_json::from_slice(&body).unwrap();
        if gated {
            assert_eq!(complete["error"]["code"], "approval_unsupported");
            assert_eq!(world.servers.called(), ["files/echo", "files/silent"]);
            continue;
        }
        assert_eq!(complete["output"], json!({"a": 1}));
        assert_eq!(complete["metrics"]["tool_calls"], 3);
        let mut keys: Vec<String> = world
            .servers
            .calls()
            .into_iter()
            .map(|(_, call)| call.key)
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 3, "every call has a name of its own");
    }
}

#[tokio::test]
async fn arguments_that_are_nested_too_deep_for_a_frame_reach_no_one() {
    let deep: &'static str =
        Box::leak(format!("{{\"k\":{}{}}}", "[".repeat(60), "]".repeat(60)).into_boxed_str());
    let calls: &'static [(&str, &str)] = Box::leak(Box::new([("echo", deep)]));
    let world = local([Say::Calls(calls), Say::Text("{}")]);
    world.work(task(&world, &one("files"))).await;
    assert_eq!(world.servers.called(), Vec::<String>::new());
    assert_eq!(results(&world)[0]["not_sent"], "invalid_arguments");
}

#[tokio::test]
async fn only_a_turn_leads_to_tools() {
    let says = [Say::Text("no"), Say::Calls(&[("echo", "{}")])];
    let world = local(says);
    world.work(task(&world, &one("files"))).await;
    assert_eq!(world.orchestrator.last("llm.request")["purpose"], "repair");
    let repaired = world.orchestrator.last("llm.response");
    assert_eq!(repaired.get("tool_calls"), None);
    assert_eq!(world.servers.called(), Vec::<String>::new());
    let error = world.finished()["outcome"]["error"].clone();
    assert_eq!(error["code"], "output_invalid");
}

#[tokio::test]
async fn a_task_that_is_suspended_says_nothing_more() {
    let world = local([Say::Calls(&[("echo", "{}")]), Say::Text("{}")]);
    world
        .orchestrator
        .with(|recorded| recorded.suspend = Some("tool.returned"));
    world.work(task(&world, &one("files"))).await;
    assert_eq!(world.orchestrator.types().last().unwrap(), "tool.returned");
    assert_eq!(world.gateway.asked().len(), 1);
}
