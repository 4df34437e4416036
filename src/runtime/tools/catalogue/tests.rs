use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use ktsu_contract::runtime::ApprovalRule;

fn server(name: &str, allowlist: &[&str]) -> ToolServer {
    ToolServer {
        name: name.to_owned(),
        allowlist: allowlist.iter().map(|&entry| entry.to_owned()).collect(),
        ..ToolServer::default()
    }
}

fn tool(name: &str) -> ServerTool {
    ServerTool {
        name: name.to_owned(),
        input_schema: json!({"type": "object"}),
        digest: format!("digest of {name}"),
        ..ServerTool::default()
    }
}

fn catalogue(servers: &[(ToolServer, &[&str])]) -> Catalogue {
    let dispatched: Vec<ToolServer> = servers.iter().map(|(server, _)| server.clone()).collect();
    let mut catalogue = Catalogue::of(&dispatched);
    for (server, offered) in servers {
        let offered: Vec<Arc<ServerTool>> =
            offered.iter().map(|name| Arc::new(tool(name))).collect();
        catalogue.add_server(server, &offered).unwrap();
    }
    catalogue
}

fn judge(catalogue: &Catalogue, name: &str) -> String {
    let call = ToolCall {
        id: "c".to_owned(),
        name: name.to_owned(),
        arguments: json!({}),
    };
    match catalogue.check_call(&call, false) {
        CallVerdict::NotPermitted => "not permitted".to_owned(),
        CallVerdict::Refused(why, _) => why.to_owned(),
        CallVerdict::Gated(target) => format!("gated {}/{}", target.server, target.tool),
        CallVerdict::Allowed(target) => format!("{}/{}", target.server, target.tool),
    }
}

#[test]
fn a_name_is_a_tool_only_if_its_server_offers_and_its_allowlist_permits_it() {
    let catalogue = catalogue(&[
        (
            server("a", &["read", "list_*"]),
            &["read", "write", "list_all", "both"],
        ),
        (server("b", &["both", "gone"]), &["both", "read"]),
        (server("c", &["both"]), &["both"]),
        (server("nothing", &[]), &["write"]),
    ]);
    for (name, verdict) in [
        ("read", "a/read"),
        ("a__read", "a/read"),
        ("list_all", "a/list_all"),
        ("b__both", "b/both"),
        ("c__both", "c/both"),
        // Permitted, and not offered, or not under this name.
        ("list_none", "unknown_tool"),
        ("gone", "unknown_tool"),
        ("both", "unknown_tool"),
        ("b__gone", "unknown_tool"),
        // Offered by somebody, and permitted by nobody who offers it.
        ("write", "not permitted"),
        ("nothing__write", "not permitted"),
        ("b__read", "not permitted"),
        ("a__both", "not permitted"),
        ("Read", "not permitted"),
        ("read\0", "not permitted"),
        ("read ", "not permitted"),
        ("", "not permitted"),
        ("*", "not permitted"),
        ("a__", "not permitted"),
    ] {
        assert_eq!(judge(&catalogue, name), verdict, "{name:?}");
    }
    assert_eq!(judge(&Catalogue::default(), "read"), "not permitted");
}

#[test]
fn a_gate_is_about_the_bare_name_of_its_server() {
    let mut gated = server("a", &["*"]);
    gated.approval_rules = vec![ApprovalRule {
        pattern: "write*".to_owned(),
        on_reject: "fail".to_owned(),
        timeout_ms: 0,
        timeout_behavior: None,
    }];
    let tools: &[&str] = &["write_all", "read"];
    let catalogue = catalogue(&[(gated, tools), (server("b", &["*"]), tools)]);
    assert_eq!(judge(&catalogue, "a__write_all"), "gated a/write_all");
    assert_eq!(judge(&catalogue, "b__write_all"), "b/write_all");
    assert_eq!(judge(&catalogue, "a__read"), "a/read");
}

#[test]
fn an_unusable_schema_refuses_the_call_and_says_whose_fault_it_is() {
    let server = server("a", &["*"]);
    let mut catalogue = Catalogue::of(std::slice::from_ref(&server));
    let broken = ServerTool {
        input_schema: json!({"$ref": "http://127.0.0.1:1/x.json"}),
        ..tool("x")
    };
    catalogue.add_server(&server, &[Arc::new(broken)]).unwrap();
    let call = ToolCall {
        name: "x".to_owned(),
        arguments: json!({}),
        ..ToolCall::default()
    };
    let CallVerdict::Refused("invalid_arguments", words) = catalogue.check_call(&call, false)
    else {
        panic!("it cannot be judged");
    };
    assert!(
        words.contains("the schema that the server gives"),
        "{words}"
    );
}

#[test]
fn tools_that_are_not_as_they_were_locked_are_found() {
    let pins = |pins: &[(&str, &str)]| {
        let pins = pins
            .iter()
            .map(|&(name, digest)| (name.to_owned(), digest.to_owned()));
        ToolServer {
            pins: Some(pins.collect::<BTreeMap<_, _>>()),
            ..server("a", &["x", "y"])
        }
    };
    let list = |server: &ToolServer, offered: &[&str]| {
        let offered: Vec<Arc<ServerTool>> =
            offered.iter().map(|name| Arc::new(tool(name))).collect();
        let listed = Catalogue::of(std::slice::from_ref(server)).add_server(server, &offered);
        listed.map_err(|drift| drift.to_string())
    };
    let hint = "look at it, then type: ktsu lock --tools";
    let x = ("x", "digest of x");
    assert_eq!(
        list(&pins(&[x]), &["x", "z"]),
        Ok(()),
        "what is not permitted does not count"
    );
    assert_eq!(
        list(&server("a", &["x", "y"]), &["x", "y"]),
        Ok(()),
        "without a lock nothing is pinned"
    );
    assert_eq!(
        list(&pins(&[]), &["z"]),
        Ok(()),
        "locked when there was nothing to call"
    );
    assert_eq!(
        list(&pins(&[]), &["x"]),
        Err(format!(
            "the tool x of the server a is not in the lock; {hint}"
        ))
    );
    assert_eq!(
        list(&pins(&[x]), &["x", "y"]),
        Err(format!(
            "the tool y of the server a is not in the lock; {hint}"
        ))
    );
    assert_eq!(
        list(&pins(&[("x", "digest of z")]), &["x"]),
        Err(format!(
            "the tool x of the server a is not the one that was locked; {hint}"
        ))
    );
    assert_eq!(
        list(&pins(&[x, ("y", "digest of y")]), &["x"]),
        Err(format!(
            "the tool y of the server a is not offered any more; {hint}"
        ))
    );
}

#[test]
fn what_a_reply_asks_for_is_compiled_once_and_nothing_else_is() {
    let catalogue = catalogue(&[(server("a", &["*"]), &["x", "y", "z"])]);
    let y = ToolTarget {
        server: "a".to_owned(),
        tool: "y".to_owned(),
    };
    let calls = [("x", None), ("any", Some(&y)), ("nobody", None)];
    let found = catalogue.uncompiled(&calls);
    let names: Vec<&str> = found.iter().map(|known| known.tool.name.as_str()).collect();
    assert_eq!(names, ["x", "y"]);
    assert!(found.iter().all(|known| known.compile().is_ok()));
    assert!(catalogue.uncompiled(&calls).is_empty());
    assert_eq!(catalogue.uncompiled(&[("a__z", None)]).len(), 1);
}
