//! Suites with HTTP servers that reply by rules, and checks of what those received.

use serde_json::{Value, json};

use super::evaluating_services::program;
use super::evaluating_workspaces::KIT;
use super::{Desk, Said};
use crate::support::not_tested;

/// What a tool server sends mails with: it says what was replied.
const SEND: &str = r#"import urllib.error, urllib.request
def send(url, mail):
    body = json.dumps(mail).encode()
    headers = {"Content-Type": "application/json", "X-Key": "k1"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as reply:
            return "%d %s" % (reply.status, reply.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.code)
    except Exception as error:
        return type(error).__name__
"#;

/// Sends one mail.
const ONE: &str = "said = [send(sys.argv[1] + '/mails?copy=1', {'to': ['ada@x', 'bo@x'], 'text': text}), sys.argv[1]]";

/// A desk with a kit whose tool server is a service that does this, with a suite.
fn desk(send: &str, routes: &str, checks: &str) -> Desk {
    let desk = Desk::new();
    for (path, text) in KIT {
        desk.write_file(path, text);
    }
    let file = "name: disk\nversion: 1.0.0\nurl: http://127.0.0.1:9/mcp\n\
        params: {root: {default: ''}}\n";
    desk.write_file("w/servers/disk.server.yaml", file);
    let call = format!("text = given['text']\n{send}\nsaid = ' '.join(said)");
    desk.write_file("w/program/server.py", &program(SEND, &call));
    let spec = format!(
        "subject: {{params: {{at: '{{{{ services.mail.url }}}}'}}}}\nworkspace: {{}}\nservices:\n  \
         mail: {{type: http_mock, record: true{routes}}}\n  \
         disk: {{type: mcp, from: ../program, command: [python3, '{{{{ program }}}}/server.py', \
         '{{{{ services.mail.url }}}}']}}\ninvariants:\n{checks}"
    );
    desk.write_file("w/evals/w.eval.yaml", &spec);
    desk
}

/// What a suite gives; none where there is no sandbox, which is said.
fn run(desk: &Desk, more: &[&str]) -> Option<Said> {
    let arguments = [&["eval", "run", "w", "--json"], more].concat();
    let said = desk.ktsu(&arguments);
    if said.err.contains("there is no sandbox") || said.err.contains("sandbox does not work") {
        not_tested(&format!("HTTP services of suites: {}", said.err));
        return None;
    }
    Some(said)
}

/// A check of the type `http_mock_assertions`, of a weight of its own.
fn received(name: &str, assertions: &str) -> String {
    format!(
        "  {name}: {{description: d, check: {{type: http_mock_assertions, service: mail, assertions: [{assertions}]}}}}\n"
    )
}

/// The results of the only run: the status and the reason, in the order of the checks.
fn results(desk: &Desk, report: &Value) -> Vec<(String, String)> {
    let id = report["eval_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--type", "check.result", "--json"]);
    let frames = frames.is(0).out.clone();
    let of = |line: &str| {
        let frame: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| frame["data"][name].as_str().unwrap().to_owned();
        (text("status"), text("reason"))
    };
    frames.lines().map(of).collect()
}

/// What is recorded of the services of the only run.
fn services(desk: &Desk, report: &Value) -> Value {
    let id = report["eval_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--type", "scenario.started", "--json"]);
    let frame: Value = serde_json::from_str(frames.is(0).out.trim()).unwrap();
    frame["data"]["services"].clone()
}

#[test]
fn programs_in_the_sandbox_reach_a_server_and_its_record_is_checked() {
    let checks = [
        received(
            "once",
            "{field: request_count, filters: {method: post, path: /mails, headers: {x-key: 'k*'}, to: ada@x}, equals: 1}, \
             {field: last_request.body, contains: one}, \
             {field: last_request.headers, filters: {path: '/m*'}, not_equals: {}}, \
             {field: 'requests[0].json.to[1]', equals: bo@x}, {field: last_request.query, equals: copy=1}",
        ),
        received(
            "none_elsewhere",
            "{field: request_count, filters: {path: /other}, equals: 0}",
        ),
        "  said: {description: d, check: {type: output, expr: output.said, equals: \
         '202 {\"id\": \"m1\", \"text\": \"one\"} {{ services.mail.url }}'}}\n"
            .to_owned(),
    ];
    let routes = ", routes: [{method: POST, path: /mails, status: 202, \
        body: '{\"id\": \"m{{ count }}\", \"text\": \"{{ request.json.text }}\"}'}]";
    let desk = desk(ONE, routes, &checks.concat());
    let Some(said) = run(&desk, &[]) else { return };
    let report = said.is(0).json();
    let kept = services(&desk, &report);
    let request = &kept["mail"]["requests"][0];
    assert_eq!(
        (&request["status"], &request["path"]),
        (&json!(202), &json!("/mails"))
    );
    assert!(request["headers"]["host"].is_null(), "{kept:#}");
    // The same without a sandbox, on a port that differs from run to run.
    let without = run(&desk, &["--no-sandbox"]).unwrap().is(0).json();
    assert_eq!(
        services(&desk, &without)["mail"]["requests"][0]["body"],
        request["body"]
    );
    desk.ktsu(&["verify"]).is(0);
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", run, "--json"]).is(0).out.clone();
    assert!(!frames.contains("127.0.0.1:2"), "{frames}");
    // The record is there for another spec, and for both verifiers.
    let id = report["eval_id"].as_str().unwrap();
    let spec = desk.path().join("w/evals/w.eval.yaml");
    let text = std::fs::read_to_string(&spec).unwrap();
    desk.write_file(
        "w/evals/w.eval.yaml",
        &text.replace("equals: 0}", "equals: 1}"),
    );
    let other = [
        "eval",
        "score",
        id,
        "--kit",
        "w",
        "--spec",
        "w/evals/w.eval.yaml",
        "--json",
    ];
    let scored = desk.ktsu(&other).is(1).json();
    let found = results(&desk, &scored);
    assert_eq!(found[0].0, "passed", "{found:?}");
    assert_eq!(
        (&*found[1].0, &*found[1].1),
        ("failed", "request_count is 0, expected 1 (no request)")
    );
}

#[test]
fn delays_faults_and_routes_that_fit_so_often_are_what_clients_meet() {
    let send = "said = [send(sys.argv[1] + path, {'text': text}) for path in ['/busy', '/busy', '/busy', '/gone', '/other', '/slow']]";
    let routes = ", routes: [{path: /busy, times: 2, status: 503, headers: {retry-after: '1'}}, \
        {path: /busy, body: {ok: true}}, {path: /gone, fault: close}, {path: /slow, delay: 50ms, body: '{{ request.method }}'}]";
    let check = "  said: {description: d, check: {type: output, expr: output.said, equals: \
        '503 503 200 {\"ok\":true} RemoteDisconnected 404 200 POST'}}\n";
    let statuses = received(
        "statuses",
        "{field: 'requests[].status', equals: [503, 503, 200, 404, 200]}, {field: request_count, equals: 6}",
    );
    let desk = desk(send, routes, &format!("{check}{statuses}"));
    let Some(said) = run(&desk, &[]) else { return };
    let report = said.is(0).json();
    assert_eq!(report["passed"], 1, "{:?}", results(&desk, &report));
}

#[test]
fn a_server_that_received_nothing_fails_with_a_reason_and_a_flooded_one_is_an_error() {
    let last = received("last", "{field: last_request.body, contains: one}");
    let checks = format!(
        "{last}{}",
        received("none", "{field: request_count, equals: 0}")
    );
    let quiet = desk("said = [text]", "", &checks);
    let Some(said) = run(&quiet, &[]) else { return };
    let found = results(&quiet, &said.is(1).json());
    assert_eq!(
        (&*found[0].0, &*found[0].1),
        (
            "failed",
            "last_request.body is null, expected something that contains \"one\" (no request)"
        )
    );
    assert_eq!(found[1].0, "passed");
    let flood =
        "said = [send(sys.argv[1] + '/a', {'text': str(n) + 'x' * 9000}) for n in range(700)][:1]";
    let flooded = desk(flood, "", &checks);
    let report = run(&flooded, &[]).unwrap().is(2).json();
    let found = results(&flooded, &report);
    assert!(
        found.iter().all(|(status, reason)| status == "error"
            && reason.starts_with("mail received more than is kept: ")
            && reason.ends_with(" of 700 requests are whole")),
        "{found:?}"
    );
    flooded.ktsu(&["verify"]).is(0);
}

/// A kit that sends a webhook to where a variable says.
const HOOK: [(&str, &str); 3] = [
    (
        "h/workflows/h.workflow.yaml",
        "kind: workflow\nname: h\nversion: 1.0.0\nenv: [{name: HOOK_URL}]\n\
         pipeline:\n  - {id: hook, webhook: {url: '{{ env.HOOK_URL }}/hook', body: {at: '{{ env.HOOK_URL }}', n: 1}}}\n\
         output: {map: {sent: '{{ step.hook.sent }}'}}\n",
    ),
    (
        "h/environments/local.env.yaml",
        "name: local\nprincipals: [{name: ada, token: {env: TOKEN_OF_ADA}, roles: [operator]}]\n",
    ),
    (
        "h/evals/h.eval.yaml",
        "subject: {}\nreplicas: 2\nservices: {hooks: {type: http_mock, record: true, variables: [HOOK_URL], \
         routes: [{path: /hook, body: {at: '{{ request.json.at }}'}}]}}\ninvariants:\n  \
         sent: {description: d, check: {type: output, expr: output.sent, equals: true}}\n  \
         hook: {description: d, check: {type: http_mock_assertions, service: hooks, assertions: \
         [{field: request_count, filters: {path: /hook, n: 1}, equals: 1}]}}\n",
    ),
];

#[test]
fn webhooks_go_to_a_server_in_place_of_a_variable_though_nothing_else_is_sent() {
    let desk = Desk::new();
    for (path, text) in HOOK {
        desk.write_file(path, text);
    }
    // No program runs, so no sandbox is needed.
    let said = desk
        .command(&["eval", "run", "h", "--json"])
        .env("TOKEN_OF_ADA", "a-token-of-ada")
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let shown = format!(
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
    assert_eq!(said.status.code(), Some(0), "{shown}");
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", run, "--json"]).is(0).out.clone();
    let frames: Vec<Value> = frames
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| &frames.iter().find(|frame| frame["type"] == kind).unwrap()["data"];
    assert_eq!(
        of("run.created")["env"],
        json!({"HOOK_URL": {"value": "{{ services.hooks.url }}"}})
    );
    assert_eq!(
        of("run.created")["references"],
        json!(["services.hooks.url"])
    );
    assert_eq!(of("webhook.sent")["target"], "{{ services.hooks.url }}");
    // What was replied with the URL in it has the reference again.
    assert_eq!(
        of("webhook.delivered")["response"],
        json!({"at": "{{ services.hooks.url }}"})
    );
    // So has what the server received.
    let report: Value = serde_json::from_slice(&said.stdout).unwrap();
    let id = report["eval_id"].as_str().unwrap();
    let started = desk.ktsu(&["frames", id, "--type", "scenario.started", "--json"]);
    for line in started.is(0).out.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        let request = &frame["data"]["services"]["hooks"]["requests"][0];
        assert_eq!(
            request["body"],
            r#"{"at":"{{ services.hooks.url }}","n":1}"#
        );
    }
    // In a branch, the server is gone.
    let fork = ["fork", run, "--at", "0", "--effects", "execute", "--json"];
    let branch = desk.ktsu(&fork).is(0).json();
    let resume = [
        "resume",
        branch["run_id"].as_str().unwrap(),
        "--kit",
        "h",
        "--json",
    ];
    let resumed = desk
        .command(&resume)
        .env("TOKEN_OF_ADA", "a-token-of-ada")
        .env("HOOK_URL", "http://127.0.0.1:9")
        .output()
        .unwrap();
    let envelope = String::from_utf8_lossy(&resumed.stdout).into_owned();
    assert!(envelope.contains("reference_gone"), "{envelope}");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_url_that_depends_on_a_secret_is_none_of_a_service_and_its_webhook_is_held_back() {
    let desk = Desk::new();
    for (path, text) in HOOK {
        desk.write_file(path, text);
    }
    let workflow = HOOK[0].1.replace(
        "[{name: HOOK_URL}]",
        "[{name: HOOK_URL}, {name: S, secret: true}]",
    );
    let url = r#"url: "{{ env.S == 'redacted' && env.HOOK_URL || 'http://127.0.0.1:9' }}/hook""#;
    let workflow = workflow.replace("url: '{{ env.HOOK_URL }}/hook'", url);
    desk.write_file(HOOK[0].0, &workflow);
    let said = desk
        .command(&["eval", "run", "h", "--json"])
        .env("TOKEN_OF_ADA", "a-token-of-ada")
        .env("S", "abc12345")
        .output()
        .unwrap();
    assert_eq!(
        said.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", run, "--json"]).is(0).out.clone();
    assert!(
        frames.contains("webhooks_suppressed") && !frames.contains("webhook.sent"),
        "{frames}"
    );
}

#[test]
fn a_secret_in_what_a_server_received_makes_its_checks_errors() {
    let send = "said = [send(sys.argv[1] + '/a', {'text': 'sk_live' + '_0123456789'})][:1]";
    let desk = desk(
        send,
        "",
        &received("once", "{field: request_count, equals: 1}"),
    );
    let declared = "version: 1.0.0\nenv: [{name: KEY, secret: true}]\n";
    desk.write_file(
        KIT[0].0,
        &KIT[0].1.replacen("version: 1.0.0\n", declared, 1),
    );
    let judged = |arguments: &[&str]| {
        let said = desk
            .command(arguments)
            .env("KEY", "sk_live_0123456789")
            .output();
        let said = said.unwrap();
        let shown = String::from_utf8_lossy(&said.stderr).into_owned();
        (String::from_utf8_lossy(&said.stdout).into_owned(), shown)
    };
    let (report, shown) = judged(&["eval", "run", "w", "--json"]);
    if shown.contains("there is no sandbox") || shown.contains("sandbox does not work") {
        return not_tested(&format!("HTTP services of suites: {shown}"));
    }
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{shown}"));
    let found = results(&desk, &report);
    assert_eq!(
        (&*found[0].0, &*found[0].1),
        ("error", "a secret was redacted in what mail received")
    );
    let id = report["eval_id"].as_str().unwrap();
    let (scored, shown) = judged(&["eval", "score", id, "--kit", "w", "--json"]);
    assert!(scored.contains("not_kept"), "{scored}{shown}");
}

#[test]
fn slips_in_http_services_and_their_checks_are_reported_at_their_places() {
    let desk = Desk::new();
    for (path, text) in HOOK {
        desk.write_file(path, text);
    }
    let spec = HOOK[2].1;
    for (from, to, words) in [
        (
            "record: true, ",
            "",
            "the service \"hooks\" does not keep what it receives\n --> h/evals/h.eval.yaml:6:71",
        ),
        (
            "service: hooks",
            "service: hook",
            "the suite has no service \"hook\" of the type http_mock",
        ),
        (
            "[HOOK_URL]",
            "[HOOK]",
            "no workflow of the kit has the variable HOOK",
        ),
        (
            "path: /hook, body",
            "path: hook, body",
            "path begins with a slash",
        ),
        (
            "field: request_count",
            "field: requests_count",
            "\"requests_count\" is not a field",
        ),
        ("request.json.at }}", "request. }}", "body: "),
    ] {
        desk.write_file("h/evals/h.eval.yaml", &spec.replacen(from, to, 1));
        let said = desk
            .command(&["eval", "run", "h"])
            .env("TOKEN_OF_ADA", "a-token-of-ada")
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(2), "{shown}");
        assert!(shown.contains(words), "{words}: {shown}");
    }
}
