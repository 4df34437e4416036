//! Tool servers of whole kits: what the loader keeps of them, and that no text in them does harm.

use std::fs;

use ktsu_ledger::event::plan::AuthScheme;
use serde_json::json;

use super::super::{load, tree};
use super::{AGENT, CHILD, PARENT, kit, sound};

const SERVER: &str = "name: crm
version: 1.0.0
url: https://crm.example/mcp
stateful: true
timeout: 2m
params: {key: {secret: true}, region: {default: eu}}
auth: {header: X-Key, scheme: raw, secret: '{{ params.key }}'}
access: {allowlist: ['crm-*', {name: delete-*, require_approval: {on_reject: fail}}]}
";

#[test]
fn a_kit_knows_its_servers_and_what_agents_may_call_on_them() {
    let dir = sound();
    let uses = "servers:
  - name: crm
    path: ../servers/crm.server.yaml@1.0.0
    params: {key: '{{ params.k }}'}
    access: {allowlist: [crm-read, delete-a, other]}
  - {name: mail, params: {}}
";
    let write = |path: &str, text: &str| {
        fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
        fs::write(dir.path().join(path), text).unwrap();
    };
    write("agents/a.agent.yaml", &format!("{AGENT}{uses}"));
    write("servers/crm.server.yaml", SERVER);
    let central = "servers: [{name: mail, version: 2.0.0, url: 'http://mail'}]";
    write("servers.yaml", central);
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let files: Vec<_> = kit
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.file()))
        .collect();
    assert_eq!(files[1], ("servers.yaml#mail", "servers.yaml"));
    assert_eq!(
        files[2],
        ("servers/crm.server.yaml", "servers/crm.server.yaml")
    );
    assert_eq!(kit.source(&kit.files[1]), Some(central));
    let crm = &kit.servers["servers/crm.server.yaml"];
    assert_eq!(
        (crm.stateful, crm.params["region"].default.as_deref()),
        (true, Some("eu"))
    );
    assert_eq!(
        crm.auth
            .as_ref()
            .map(|auth| (auth.scheme, auth.param.as_str())),
        Some((AuthScheme::Raw, "key"))
    );
    let uses = &kit.uses["agents/a.agent.yaml"];
    let allowed: Vec<Vec<&str>> = uses
        .iter()
        .map(|one| one.allowlist.patterns().collect())
        .collect();
    assert_eq!(allowed, [vec!["crm-read", "delete-a"], vec!["*"]]);
    assert_eq!(
        (uses[1].server.as_str(), uses[0].params["key"].as_str()),
        ("servers.yaml#mail", "{{ params.k }}")
    );
    let plan = &kit.workflows["parent"].definition.plan;
    let servers = serde_json::to_value(&plan.agents["agents/a.agent.yaml"].servers).unwrap();
    assert_eq!(
        servers,
        json!([
            {
                "auth": {"header": "X-Key", "param": "key", "scheme": "raw"},
                "file": "servers/crm.server.yaml",
                "name": "crm",
                "params": {
                    "key": {"secret": true, "value": "{{ params.k }}"},
                    "region": {"value": "eu"},
                },
                "stateful": true,
                "timeout_ms": 120_000,
                "tools": [
                    {"pattern": "crm-read"},
                    {
                        "approval": {"on_reject": "fail", "quorum": 1},
                        "pattern": "delete-a",
                    },
                ],
                "url": "https://crm.example/mcp",
                "version": "1.0.0",
            },
            {
                "file": "servers.yaml#mail",
                "name": "mail",
                "tools": [{"pattern": "*"}],
                "url": "http://mail",
                "version": "2.0.0",
            },
        ])
    );
    let branch = tree::branch(&kit, &kit.workflows["parent"].definition.plan);
    let text = branch.text(termtree::GlyphPalette::new());
    assert!(
        text.contains("servers/crm.server.yaml (server, stateful)"),
        "{text}"
    );
    assert!(text.contains("servers.yaml#mail (server)\n"), "{text}");
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(64))]
    #[test]
    fn no_server_file_makes_loading_panic(cuts in proptest::collection::vec((0usize..300, "[a-z:{}é\\[\\]'\"&*|> \n.-]{0,6}"), 0..4), central in proptest::bool::ANY) {
        let mut text = SERVER.to_owned();
        for (at, with) in cuts {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            text.insert_str(at, &with);
        }
        let uses = match central {
            true => "servers: [{name: crm, params: {key: '{{ params.k }}'}}]",
            false => "servers: [{name: crm, path: ../servers/crm.server.yaml, params: {key: '{{ params.k }}'}}]",
        };
        let agent = format!("{AGENT}{uses}\n");
        let (path, text) = match central {
            true => ("servers.yaml", format!("servers:\n  - {}", text.replace('\n', "\n    "))),
            false => ("servers/crm.server.yaml", text),
        };
        let files = [
            ("workflows/parent.workflow.yaml", PARENT),
            ("workflows/sub/child.workflow.yaml", CHILD),
            ("agents/a.agent.yaml", agent.as_str()),
            (path, text.as_str()),
        ];
        if let Err(faults) = load(kit(&files).path()) {
            let _ = faults.to_string();
        }
    }
}
