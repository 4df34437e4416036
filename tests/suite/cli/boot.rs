//! Whatever is called a boot error: `validate` finds it, and nothing starts in spite of it, in the
//! same words (seed 000; one row for each invariant that promises one).

use super::Desk;

/// A workflow of these steps, and what else stands at its top.
fn workflow(top: &str, steps: &str) -> String {
    format!("kind: workflow\nname: w\nversion: 1.0.0\n{top}pipeline:\n{steps}")
}

const STEP: &str = "  - {id: one, transform: {}}\n";
const CALL: &str = "  - {id: ask, agent: agents/a.agent.yaml, params: {tok: \"{{ env.K }}\"}}\n";
const KEY: &str = "env: [{name: K, secret: true}]\n";

/// The agent that uses a server, with these lines about it and about its param.
fn agent(server: &str, param: &str) -> String {
    format!(
        "name: a\nversion: 1.0.0\nmodel: std\nprompt: {{system: s}}\noutput: {{schema: {{type: \
         object}}}}\nparams: {{schema: {{required: [tok], properties: {{tok: {param}}}}}}}\n\
         servers:\n  - {server}\n"
    )
}

const SECRET: &str = "{type: string, secret: true}";
const USES: &str = "{name: crm, path: ../servers/crm.server.yaml, params: {api_key: \
                    \"{{ params.tok }}\"}}";
const SERVER: &str = "name: crm\nversion: 1.0.0\nurl: https://crm.example/mcp\n";
const AUTH: &str = "params: {api_key: {secret: true}}\nauth: {header: X-Api-Key, scheme: raw, \
                    secret: \"{{ params.api_key }}\"}\n";
const SERVER_FILE: &str = "servers/crm.server.yaml";
const AGENT_FILE: &str = "agents/a.agent.yaml";
const WORKFLOW_FILE: &str = "workflows/w.workflow.yaml";

/// A project with a fault, in these files beside the workflow.
struct Case {
    /// The invariant that calls it one.
    row: &'static str,
    workflow: String,
    files: Vec<(&'static str, String)>,
    /// Where it is told, and which words are in it.
    place: &'static str,
    words: &'static [&'static str],
}

fn case(
    row: &'static str,
    workflow: String,
    files: &[(&'static str, &str)],
    place: &'static str,
    words: &'static [&'static str],
) -> Case {
    let files = files.iter();
    Case {
        row,
        workflow,
        files: files
            .map(|(path, text)| (*path, (*text).to_owned()))
            .collect(),
        place,
        words,
    }
}

/// `validate` exits 1 with the words at the place; `run`, `start` and `invoke --kit` exit 2 and
/// say the same.
fn refused(case: &Case) {
    let desk = Desk::new();
    desk.write_kit("w", &case.workflow);
    for (path, text) in &case.files {
        desk.write_file(&format!("w/{path}"), text);
    }
    let said = desk.ktsu(&["validate", "w"]);
    assert_eq!(said.code, 1, "{}: {said:#?}", case.row);
    let all = format!("{}{}", said.out, said.err);
    assert!(!all.contains("hunter2"), "{}: a secret in {all}", case.row);
    for words in case.words.iter().chain(&[case.place, "not valid ("]) {
        assert!(said.out.contains(words), "{}: {words}: {said:#?}", case.row);
    }
    let reports = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_end().to_owned());
        let told = |line: &String| {
            ["error[", "warning[", " --> ", "  --> ", "help: "]
                .iter()
                .any(|begin| line.trim_start_matches(' ').starts_with(begin.trim_start()))
        };
        lines.filter(told).collect()
    };
    let expected = reports(&said.out);
    assert!(expected.len() >= 2, "{}: {said:#?}", case.row);
    for command in [
        vec!["run", "w"],
        vec!["start", "--kit", "w", "--port", "0"],
        vec!["invoke", "w", "--kit", "w"],
    ] {
        let said = desk.ktsu(&command);
        assert_eq!(said.code, 2, "{} {command:?}: {said:#?}", case.row);
        let is_hidden = !said.err.contains("hunter2");
        assert!(is_hidden, "{} {command:?}: {said:#?}", case.row);
        for line in &expected {
            let has = said
                .err
                .lines()
                .any(|other| other.trim_end().ends_with(line.as_str()));
            assert!(has, "{} {command:?}: {line}: {said:#?}", case.row);
        }
    }
    assert!(
        !desk.path().join(".ktsu").exists(),
        "{}: a ledger",
        case.row
    );
}

fn all_refused(cases: &[Case]) {
    for case in cases {
        refused(case);
    }
}

/// A server that no agent uses.
fn lone(
    row: &'static str,
    rest: &str,
    place: &'static str,
    words: &'static [&'static str],
) -> Case {
    let text = format!("name: crm\nversion: 1.0.0\n{rest}");
    case(
        row,
        workflow("", STEP),
        &[(SERVER_FILE, &text)],
        place,
        words,
    )
}

#[test]
fn servers_are_pointers_to_what_is_elsewhere() {
    let url = "url: https://crm.example/mcp\n";
    let key = |rest: &str| format!("{url}{rest}");
    all_refused(&[
        lone(
            "1",
            &key("stateful: \"yes\"\n"),
            "crm.server.yaml:4:11",
            &["wrong-type", "stateful"],
        ),
        lone(
            "2",
            &key("command: [crm]\n"),
            "crm.server.yaml:4:1",
            &["unknown key \"command\""],
        ),
        lone(
            "2",
            &key("image: crm:1\n"),
            "crm.server.yaml:4:1",
            &["unknown key \"image\""],
        ),
        lone(
            "7",
            "url: stdio://x\n",
            "crm.server.yaml:3:6",
            &["bad-url", "stdio://x"],
        ),
        lone(
            "7",
            "url: unix:///x\n",
            "crm.server.yaml:3:6",
            &["bad-url", "unix:///x"],
        ),
        lone(
            "12",
            "url: https://x\nversion: banana\n",
            "crm.server.yaml:4:1",
            &["appears twice"],
        ),
        case(
            "3",
            workflow(KEY, CALL),
            &[(
                AGENT_FILE,
                &agent("{name: crm, access: {allowlist: [\"*\"]}}", SECRET),
            )],
            "agents/a.agent.yaml:8:12",
            &["unknown-server", "crm", "servers.yaml"],
        ),
    ]);
}

#[test]
fn an_allowlist_has_no_stars_inside() {
    for entry in ["crm-*-customer", "re?d-a", "[r]ead-a", "*-a"] {
        for place in [AGENT_FILE, SERVER_FILE] {
            let access = format!("access: {{allowlist: [\"{entry}\"]}}");
            let server = if place == SERVER_FILE {
                format!("{SERVER}{access}\n")
            } else {
                SERVER.to_owned()
            };
            let uses = match place == AGENT_FILE {
                true => format!("{{name: crm, path: ../servers/crm.server.yaml, {access}}}"),
                false => "{name: crm, path: ../servers/crm.server.yaml}".to_owned(),
            };
            let agent = agent(&uses, SECRET);
            let one = case(
                "5",
                workflow(KEY, CALL),
                &[(AGENT_FILE, agent.as_str()), (SERVER_FILE, server.as_str())],
                place,
                &["bad-allowlist"],
            );
            refused(&one);
        }
    }
    let uses =
        "{name: crm, path: ../servers/crm.server.yaml, access: {allowlist: [], blocklist: [x]}}";
    all_refused(&[case(
        "5d",
        workflow(KEY, CALL),
        &[(AGENT_FILE, &agent(uses, SECRET)), (SERVER_FILE, SERVER)],
        AGENT_FILE,
        &["unknown key \"blocklist\""],
    )]);
}

#[test]
fn a_secret_is_marked_at_every_layer_of_its_way() {
    let (uses, server) = (agent(USES, SECRET), format!("{SERVER}{AUTH}"));
    let plain = agent(USES, "{type: string}");
    let unmarked = server.replace("{secret: true}", "{}");
    let literal = server.replace("\"{{ params.api_key }}\"", "hunter2-hunter2");
    let with = |agent: &str, server: &str| {
        vec![
            (AGENT_FILE, agent.to_owned()),
            (SERVER_FILE, server.to_owned()),
        ]
    };
    let layer = |row, top: &str, files: Vec<(&'static str, String)>, place, words| Case {
        row,
        workflow: workflow(top, CALL),
        files,
        place,
        words,
    };
    let mut cases = vec![
        layer(
            "10 workflow",
            "env: [{name: K}]\n",
            with(&uses, &server),
            "workflows/w.workflow.yaml:4:7",
            &[
                "workflow variable \"K\"",
                "agent param \"tok\"",
                "secret: true",
            ],
        ),
        layer(
            "10 agent",
            KEY,
            with(&plain, &server),
            "agents/a.agent.yaml:6:49",
            &[
                "agent param \"tok\"",
                "server param \"api_key\"",
                "secret: true",
            ],
        ),
        layer(
            "10 server",
            KEY,
            with(&uses, &unmarked),
            "servers/crm.server.yaml:4:10",
            &["server param \"api_key\"", "auth.secret", "{secret: true}"],
        ),
        layer(
            "10 header",
            KEY,
            with(&uses, &literal),
            "servers/crm.server.yaml:5:48",
            &["auth.secret is written out"],
        ),
    ];
    for (file, code) in [(AGENT_FILE, "env-in-agent"), (SERVER_FILE, "env-in-server")] {
        for form in ["env:K", "\"{{ env.K }}\""] {
            let line = format!("description: {form}\n");
            let (mut agent, mut server) = (uses.clone(), server.clone());
            let text = if file == AGENT_FILE {
                &mut agent
            } else {
                &mut server
            };
            text.push_str(&line);
            cases.push(layer(
                "10 env",
                KEY,
                with(&agent, &server),
                file,
                match code {
                    "env-in-agent" => &["env-in-agent"],
                    _ => &["env-in-server"],
                },
            ));
        }
    }
    all_refused(&cases);
    // Whole, nothing is said.
    let desk = Desk::new();
    desk.write_kit("w", &workflow(KEY, CALL));
    for (path, text) in with(&uses, &server) {
        desk.write_file(&format!("w/{path}"), &text);
    }
    let said = desk.ktsu(&["validate", "w", "--no-env"]);
    said.is(0).says("valid");
    assert!(!said.out.contains("warning"), "{said:#?}");
    let tree = desk.ktsu(&["workflow", "tree", "w/workflows/w.workflow.yaml", "--json"]);
    let tree = tree.is(0).json();
    let found = &tree["children"][0]["children"][0];
    assert_eq!(
        (&found["kind"], &found["stateful"]),
        (&"server".into(), &false.into())
    );
    desk.write_file(
        &format!("w/{SERVER_FILE}"),
        &format!("{server}stateful: true\n"),
    );
    desk.ktsu(&["workflow", "tree", "w/workflows/w.workflow.yaml"])
        .is(0)
        .says("servers/crm.server.yaml (server, stateful)");
    let tree = desk.ktsu(&["workflow", "tree", "w/workflows/w.workflow.yaml", "--json"]);
    let found = &tree.json()["children"][0]["children"][0];
    assert_eq!(found["stateful"], true);
    assert_eq!(found["allowlist"], serde_json::json!(["*"]));
}

#[test]
fn variables_steps_and_ops_are_what_they_say() {
    let one = |row, top: &str, steps: &str, place, words| {
        case(row, workflow(top, steps), &[], place, words)
    };
    let hook =
        |rest: &str| format!("  - id: a\n    webhook: {{url: http://127.0.0.1:9}}\n    {rest}\n");
    all_refused(&[
        one(
            "10",
            "",
            "  - {id: a, webhook: {url: \"{{ env.UNDECLARED }}\"}}\n",
            "w.workflow.yaml:5:28",
            &["undeclared-variable", "UNDECLARED"],
        ),
        one(
            "11",
            "",
            &hook("continue_on_error: true"),
            ":7:5",
            &["unknown key \"continue_on_error\""],
        ),
        one(
            "11",
            "",
            &hook("optional: true"),
            ":7:5",
            &["unknown key \"optional\""],
        ),
        one(
            "11",
            "",
            &hook("allow_failed: true"),
            ":7:5",
            &["unknown key \"allow_failed\""],
        ),
        one("20", "", "  - {id: a}\n", ":5:10", &["no-primitive"]),
        one(
            "20",
            "",
            "  - id: a\n    agent: x\n    webhook: {}\n",
            ":7:5",
            &["two-primitives", "agent and webhook"],
        ),
        one(
            "20",
            "",
            "  - {id: a, script: x}\n",
            ":5:13",
            &["unknown key \"script\""],
        ),
        one(
            "23",
            "",
            "  - {id: a, transform: {ops: [{exec: {cmd: ls}}]}}\n",
            WORKFLOW_FILE,
            &["unknown-op", "exec"],
        ),
        one(
            "23",
            "",
            "  - {id: a, transform: {ops: [{map: {expr: \"__import__('os')\"}}]}}\n",
            WORKFLOW_FILE,
            &["bad-expression"],
        ),
        one(
            "23",
            "",
            "  - {id: a, transform: {ops: [{map: {expr: a}, sort: {field: b}}]}}\n",
            WORKFLOW_FILE,
            &["two-ops"],
        ),
        one(
            "24",
            "",
            "  - {id: a, agent: ktsu/x@1.0.0}\n",
            ":5:20",
            &["agent-not-found", "ktsu/x", "ktsu/secure-parser@1.0.0"],
        ),
        one(
            "25",
            "",
            &hook("condition: \"a [\""),
            WORKFLOW_FILE,
            &["bad-expression"],
        ),
        one(
            "30",
            "visibility: sub-workflow\nenv: [{name: A}]\n",
            STEP,
            ":5:1",
            &["env-in-sub-workflow"],
        ),
        one(
            "A2",
            "",
            "  - {id: params, transform: {}}\n",
            ":5:10",
            &["reserved-id"],
        ),
        one(
            "A12",
            "",
            "  - {id: a, workflow: ./w.workflow.yaml}\n",
            ":5:23",
            &["workflow-cycle"],
        ),
    ]);
}

#[test]
fn versions_are_versions_and_are_what_is_asked_for() {
    let agent = "name: a\nversion: 1.1.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\n";
    let call = |version: &str| format!("  - {{id: a, agent: agents/a.agent.yaml@{version}}}\n");
    let child = "kind: workflow\nname: c\nversion: 1.1.0\nvisibility: sub-workflow\npipeline: []\n";
    all_refused(&[
        case(
            "12",
            "kind: workflow\nname: w\nversion: banana\npipeline: []\n".into(),
            &[],
            ":3:10",
            &["bad-version", "banana"],
        ),
        case(
            "12",
            workflow("", &call("1.0.0")),
            &[(AGENT_FILE, agent)],
            ":5:20",
            &["version-mismatch", "1.0.0", "1.1.0"],
        ),
        case(
            "12",
            workflow("", &call("1.1.0")),
            &[(AGENT_FILE, &agent.replace("1.1.0", "banana"))],
            "a.agent.yaml:2:10",
            &["bad-version"],
        ),
        case(
            "12",
            workflow("", "  - {id: a, workflow: c.workflow.yaml@1.0.0}\n"),
            &[("workflows/c.workflow.yaml", child)],
            ":5:23",
            &["version-mismatch", "1.0.0", "1.1.0"],
        ),
    ]);
}

#[test]
fn children_and_groups_get_what_they_ask_for() {
    let child = "kind: workflow\nname: c\nversion: 1.0.0\nvisibility: sub-workflow\nparams: {schema: \
                 {additionalProperties: false, required: [x], properties: {x: {}, y: {default: d}}}}\n\
                 pipeline: []\n";
    let file: (&str, &str) = ("workflows/c.workflow.yaml", child);
    let call = |params: &str| {
        workflow(
            "",
            &format!("  - {{id: a, workflow: ./c.workflow.yaml, params: {params}}}\n"),
        )
    };
    let agent = "name: a\nversion: 1.0.0\nmodel: fast\nprompt: {system: s}\noutput: {schema: {type: object}}\n";
    let gateway = "providers: [{name: s, type: scripted, config: {rules: rules.yaml}}]\nmodel_groups: [{name: std, models: [s/m]}]\n";
    all_refused(&[
        case(
            "32",
            call("{}"),
            &[file],
            ":5:50",
            &["missing-param", "\"x\""],
        ),
        case(
            "32",
            call("{x: 1, z: 2}"),
            &[file],
            ":5:57",
            &["unknown-param", "\"z\""],
        ),
        case(
            "17",
            workflow("", "  - {id: a, agent: agents/a.agent.yaml}\n"),
            &[
                (AGENT_FILE, agent),
                ("gateway.yaml", gateway),
                ("rules.yaml", "rules: []\n"),
            ],
            "a.agent.yaml:3:8",
            &["unknown-group", "fast", "std"],
        ),
    ]);
}

/// Runs record plain values as they are, so a secret in one would stand in the ledger.
#[test]
fn a_plain_variable_with_a_secret_in_it_starts_nothing() {
    let desk = Desk::new();
    desk.write_kit(
        "w",
        "kind: workflow\nname: w\nversion: 1.0.0\nenv: [{name: K, secret: true}, {name: P}]\npipeline: []\n",
    );
    desk.write_file("x.env.yaml", "evidence: {witness: nonsense}\n");
    let run = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        command.env("K", "geheimnis99");
        command.env("P", "postgres://u:geheimnis99@db/x");
        let output = command.output().unwrap();
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8(words).unwrap();
        assert!(!words.contains("geheimnis99"), "{words}");
        (output.status.code(), words)
    };
    let (code, words) = run(&["run", "w"]);
    assert_eq!(code, Some(2), "{words}");
    let expected = "there is a secret in the value of P: declare it with secret: true";
    assert!(words.contains(expected), "{words}");
    assert!(!desk.path().join(".ktsu/ledger.db").exists());
    let (code, words) = run(&["validate", "w", "--env", "x.env.yaml"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains(expected), "{words}");
    assert!(words.contains("evidence.witness: "), "{words}");
}
