//! Definitions that tests run.

use serde_json::{Value, json};

use super::driven_tests::Driven;

pub(crate) fn workflow(name: &str, steps: Value) -> Value {
    json!({"name": name, "steps": steps, "version": "1.0.0", "visibility": "root",
           "webhooks": "execute"})
}

pub(super) fn transform(id: &str, needs: Value, input: &str) -> Value {
    json!({"id": id, "needs": needs,
           "work": {"transform": {"inputs": [input], "ops": ["flatten"]}}})
}

pub(crate) fn webhook(id: &str, needs: Value, url: &str) -> Value {
    json!({"id": id, "needs": needs, "work": {"webhook":
        {"method": "POST", "timeout_ms": 1000, "url": url, "body": {"n": "{{ params.n }}"}}}})
}

/// A child workflow step.
pub(super) fn child(id: &str, needs: Value, workflow: &str, params: Value) -> Value {
    json!({"id": id, "needs": needs, "work": {"workflow":
        {"workflow": workflow, "webhooks": "execute", "params": params}}})
}

/// An agent step; `more` is added to its work.
pub(super) fn agent(id: &str, needs: Value, file: &str, more: Value) -> Value {
    let mut work = json!({"agent": file, "file": file, "max_tokens": 100});
    merge(&mut work, more);
    json!({"id": id, "needs": needs, "work": {"agent": work}})
}

/// The same with a `for_each`.
pub(super) fn fan_out(id: &str, needs: Value, for_each: Value) -> Value {
    let mut each = json!({"concurrency": 0, "max_failures": 0});
    merge(&mut each, for_each);
    let params = json!({"x": "{{ item }}"});
    agent(
        id,
        needs,
        "plain",
        json!({"for_each": each, "params": params}),
    )
}

pub(super) fn merge(into: &mut Value, more: Value) {
    if let Value::Object(more) = more {
        for (name, value) in more {
            into[name] = value;
        }
    }
}

/// A plan with the agents the tests know: `plain` takes anything; `tells`
/// also emits what begins with `claim.`; `strict` has schemas; `reflects`
/// looks at each draft again; `doubts` only where its confidence is low.
pub(crate) fn plan(workflows: Value) -> Value {
    let file = |name: &str, more: Value| {
        let mut file = json!({"group": "std", "max_turns": 10, "name": name, "version": "1.0.0",
            "output": {"type": "object"}, "prompt": {"system": "s"}});
        merge(&mut file, more);
        file
    };
    let confident = json!({"type": "object", "required": ["ktsu_confidence"],
        "properties": {"ktsu_confidence": {"type": "number"}}});
    json!({"format": 1, "root": "main", "workflows": workflows, "agents": {
        "plain": file("plain", json!({})),
        "tells": file("tells", json!({"commands": {"emit": ["claim.*"]}})),
        "acts": file("acts", json!({"servers": servers()})),
        "strict": file("strict", json!({
            "output": {"type": "object", "required": ["v", "ktsu_confidence"],
                "properties": {"v": {"type": "integer"}}},
            "params": {"required": ["msg"], "properties": {"msg": {"type": "string"},
                "who": {"type": "object"}, "n": {"type": "integer"}}}})),
        "reflects": file("reflects", json!({"prompt": {"system": "s", "reflect": "again"}})),
        "doubts": file("doubts", json!({"output": confident,
            "prompt": {"system": "s", "reflect": "again"}})),
    }})
}

/// The servers of the agent `acts`: `s` may be asked again, `w` changes what lasts, and `t` has some
/// of the tools of `s`.
fn servers() -> Value {
    let gate = |more: Value| {
        let mut policy = json!({"on_reject": "fail", "quorum": 1});
        merge(&mut policy, more);
        policy
    };
    let timeout = |behavior: &str| json!({"behavior": behavior, "ms": 5000});
    json!([
        {"file": "s.server.yaml", "name": "s", "url": "http://127.0.0.1:9", "version": "1.0.0",
         "tools": [
            {"pattern": "read-*"},
            {"pattern": "delete-*", "approval": gate(json!({}))},
            {"pattern": "ask-*", "approval": gate(json!({"on_reject": "recover"}))},
            {"pattern": "late-*", "approval": gate(json!({"timeout": timeout("fail")}))},
            {"pattern": "soft-*", "approval":
                gate(json!({"on_reject": "recover", "timeout": timeout("reject")}))},
            {"pattern": "two-*", "approval": gate(json!({"quorum": 2, "not_by_proposer": true}))},
         ]},
        {"file": "w.server.yaml", "name": "w", "url": "http://127.0.0.1:9", "version": "1.0.0",
         "stateful": true, "tools": [{"pattern": "write"}]},
        {"file": "t.server.yaml", "name": "t", "url": "http://127.0.0.1:9", "version": "1.0.0",
         "tools": [{"pattern": "read-*"}, {"pattern": "delete-*", "approval": gate(json!({}))}]},
    ])
}

/// A run of one workflow.
pub(super) fn run_of(steps: Value, body: Value) -> Driven {
    Driven::invoke(plan(json!({"main": workflow("main", steps)})), body)
}

/// A run of one workflow under a policy.
pub(super) fn run_under(policy: Value, steps: Value, body: Value) -> Driven {
    let mut main = workflow("main", steps);
    main["policy"] = policy;
    Driven::invoke(plan(json!({"main": main})), body)
}
