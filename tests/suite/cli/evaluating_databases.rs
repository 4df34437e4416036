//! Suites with databases: a PostgreSQL server for each run, and checks that query it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::evaluating_services::program;
use super::evaluating_workspaces::KIT;
use super::{Desk, Said, has_process};
use crate::support::not_tested;

/// What a tool server does that runs psql: each call adds a note.
const NOTE: &str = r#"ran = subprocess.run(client + ["INSERT INTO notes VALUES ('%s')" % given["text"]], capture_output=True, text=True)
path = given["path"].removesuffix("/note.txt")
same = "same" if path == sys.argv[1] else path
said = same + " " + (ran.stdout or ran.stderr).strip()"#;

/// A tool server whose tool adds a note. `client`: the words of a client before its statement, in Python.
pub(super) fn noting(client: &str) -> String {
    program(&format!("import glob, subprocess\nclient = {client}"), NOTE)
}

/// psql, as [`noting`] has it.
const PSQL: &str =
    r#"[sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1], "-X", "-d", sys.argv[1], "-c"]"#;

const SCHEMA: &str = "CREATE TABLE notes (text text);\n\
    CREATE TABLE amounts (id bigint PRIMARY KEY, amount numeric(20, 3), note text);\n\
    INSERT INTO amounts VALUES (1, 10.5, 'first'), (9007199254740993, 0.1, NULL);\n\
    CREATE SEQUENCE numbers;\n";

/// The secret of a kit that has one.
const SECRET: &str = "sup3r's3cret\\value";

/// A desk with a kit whose suite has a database.
pub(super) fn desk(services: &str, checks: &[(&str, &str)]) -> Desk {
    let desk = Desk::new();
    for (path, text) in KIT {
        desk.write_file(path, text);
    }
    let file = "name: disk\nversion: 1.0.0\nurl: http://127.0.0.1:9/mcp\n\
        params: {root: {default: ''}}\n";
    desk.write_file("w/servers/disk.server.yaml", file);
    desk.write_file("w/program/server.py", &noting(PSQL));
    desk.write_file("w/evals/sql/schema.sql", SCHEMA);
    let checks: String = checks
        .iter()
        .map(|(name, check)| format!("  {name}: {{description: d, check: {check}}}\n"))
        .collect();
    let spec = format!(
        "subject: {{params: {{at: '{{{{ services.db.url }}}}'}}}}\nworkspace: {{}}\n{services}\
         invariants:\n{checks}"
    );
    desk.write_file("w/evals/w.eval.yaml", &spec);
    desk
}

/// The services of a suite: the database, and a tool server that uses it. `limits`: of the database.
fn services(limits: &str) -> String {
    format!(
        "services:\n  db: {{type: postgres, init: [sql/schema.sql]{limits}}}\n  \
         disk: {{type: mcp, from: ../program, command: [python3, '{{{{ program }}}}/server.py', \
         '{{{{ services.db.url }}}}']}}\n"
    )
}

/// What the suite gives; none where there is no sandbox or no PostgreSQL, which is said.
pub(super) fn run(desk: &Desk) -> Option<Said> {
    let temporary = desk.path().join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    // The user that programs run as has to reach it.
    for folder in temporary.ancestors().take(2) {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder, open).unwrap();
    }
    let mut command = desk.command(&["eval", "run", "w", "--json"]);
    let said = said(command.env("TMPDIR", &temporary));
    let missing = [
        "there is no sandbox",
        "sandbox does not work",
        "there is no PostgreSQL",
        "there is no MariaDB",
    ];
    if missing.iter().any(|words| said.err.contains(words)) {
        not_tested(&format!("databases of suites: {}", said.err));
        return None;
    }
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(
        !has_process(&temporary.display().to_string()),
        "a process has its folder there"
    );
    Some(said)
}

/// What a command gives that may need the secret of its kit.
fn said(command: &mut Command) -> Said {
    Said::of(command.env("TOK", SECRET))
}

/// The results of the only run by the names of their checks: the status and the reason.
pub(super) fn results(desk: &Desk, said: &Said) -> Vec<(String, String, String)> {
    let report = serde_json::from_str::<Value>(&said.out);
    let report = report.unwrap_or_else(|_| panic!("{}{}", said.out, said.err));
    let id = report["eval_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--type", "check.result", "--json"]);
    let frames = frames.is(0).out.clone();
    let of = |line: &str| {
        let frame: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| frame["data"][name].as_str().unwrap().to_owned();
        (text("name"), text("status"), text("reason"))
    };
    frames.lines().map(of).collect()
}

/// A check of what a query gives.
pub(super) fn sql(query: &str, equals: &str) -> String {
    format!("{{type: sql, service: db, query: {query:?}, equals: {equals}, limits: {{time: 20s}}}}")
}

#[test]
fn what_a_query_gives_is_compared_with_its_type() {
    let cases = [
        (
            "SELECT count(*) FROM amounts;",
            "2",
            "passed",
            "the value is 2",
        ),
        (
            "SELECT count(*) FROM amounts",
            "'2'",
            "failed",
            "the value is 2, expected \"2\"",
        ),
        (
            "SELECT amount FROM amounts ORDER BY id",
            "10.5",
            "passed",
            "the value is 10.500",
        ),
        (
            "SELECT sum(amount) FROM amounts",
            "10.6",
            "passed",
            "the value is 10.600",
        ),
        (
            "SELECT 0.1000000000000000055",
            "0.1",
            "failed",
            "expected 0.1",
        ),
        (
            "SELECT max(id) FROM amounts",
            "9007199254740993",
            "passed",
            "",
        ),
        (
            "SELECT max(id) FROM amounts",
            "9007199254740992",
            "failed",
            "",
        ),
        (
            "SELECT note FROM amounts WHERE note IS NULL",
            "null",
            "passed",
            "the value is null",
        ),
        (
            "SELECT note FROM amounts WHERE false",
            "null",
            "failed",
            "the query gives no row, expected null",
        ),
        (
            "SELECT note, id FROM amounts ORDER BY id -- the first",
            "first",
            "passed",
            "",
        ),
        (
            "SELECT a.id, b.id FROM amounts a, amounts b ORDER BY 1, 2",
            "1",
            "passed",
            "",
        ),
        (
            "SELECT count(*) > 1 FROM amounts",
            "true",
            "passed",
            "the value is true",
        ),
        (
            "SELECT '{\"b\": [1.0, null]}'::jsonb",
            "{b: [1, null]}",
            "passed",
            "",
        ),
        (
            "SELECT '\\! touch /work/made'",
            "'\\! touch /work/made'",
            "passed",
            "",
        ),
        (
            "\\! touch /work/made",
            "1",
            "error",
            "syntax error at or near \"\\\"",
        ),
        (
            "SELECT nextval('numbers')",
            "1",
            "error",
            "cannot execute nextval() in a read-only transaction",
        ),
        ("DROP TABLE amounts", "1", "error", "syntax error"),
        (
            "SELECT * FROM absent",
            "1",
            "error",
            "relation \"absent\" does not exist",
        ),
        (
            "SELECT repeat('x', 100000000)",
            "1",
            "error",
            "the value has more than 65536 bytes",
        ),
        (
            "SELECT 'NaN'::float8",
            "NaN",
            "passed",
            "the value is \"NaN\"",
        ),
    ];
    let slow =
        "{type: sql, service: db, query: SELECT pg_sleep(1e9), equals: 1, limits: {time: 500ms}}";
    are_compared(&cases, slow, |checks| desk(&services(""), checks));
}

/// A query, what it is compared with, and the status and a part of the reason of the result.
pub(super) type Case = (&'static str, &'static str, &'static str, &'static str);

/// Compares what queries give. `slow`: a check that meets its limit. No query makes the file `made`.
pub(super) fn are_compared(cases: &[Case], slow: &str, desk: impl Fn(&[(&str, &str)]) -> Desk) {
    let names: Vec<String> = (0..cases.len()).map(|at| format!("c{at}")).collect();
    let texts = cases.iter().map(|(query, equals, ..)| sql(query, equals));
    let texts: Vec<String> = texts.collect();
    let names = names.iter().map(String::as_str);
    let mut checks: Vec<(&str, &str)> = names.zip(texts.iter().map(String::as_str)).collect();
    checks.push(("slow", slow));
    checks.push(("made", "{type: file_absent, path: made}"));
    let desk = desk(&checks);
    let Some(said) = run(&desk) else { return };
    let found = results(&desk, said.is(2));
    for ((query, _, status, words), (_, found, reason)) in cases.iter().zip(&found) {
        assert_eq!(found, status, "{query}: {reason}");
        assert!(reason.contains(words), "{query}: {reason}");
    }
    let [slow, made] = &found[cases.len()..] else {
        panic!("{found:?}")
    };
    assert!(slow.2.contains("it took longer than 500ms"), "{slow:?}");
    assert_eq!((&*slow.1, &*made.1), ("error", "passed"));
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn each_replica_has_a_database_of_its_own_that_its_programs_reach_by_a_reference() {
    let script = "import glob, json, subprocess, sys\n\
        place = json.load(sys.stdin)['services']['db']\n\
        psql = sorted(glob.glob('/usr/lib/postgresql/*/bin/psql'))[-1]\n\
        ran = subprocess.run([psql, '-XAt', '-h', place['host'], '-p', str(place['port']), '-U', 'postgres', \
        '-c', 'SELECT count(*) FROM notes'], capture_output=True, text=True)\n\
        print(json.dumps({'passed': ran.stdout == '1\\n', 'reason': ran.stdout + ran.stderr}))\n";
    let desk = desk(
        &format!("replicas: 3\n{}", services("")),
        &[
            (
                "one",
                "{type: sql, service: db, query: SELECT text FROM notes, equals: one}",
            ),
            (
                "alone",
                "{type: sql, service: db, query: SELECT count(*) FROM notes, equals: 1}",
            ),
            ("script", "{type: custom, script: one.py}"),
            (
                "said",
                "{type: output, expr: output.said, equals: same INSERT 0 1}",
            ),
        ],
    );
    desk.write_file("w/evals/one.py", script);
    let Some(said) = run(&desk) else { return };
    let report = said.is(0).json();
    assert_eq!(report["replicas"]["passed"], 3, "{report:#}");
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    for run in runs["runs"].as_array().unwrap() {
        let id = run["run_id"].as_str().unwrap();
        let frames = desk.ktsu(&["frames", id, "--json"]).is(0).out.clone();
        let first: Value = serde_json::from_str(frames.lines().next().unwrap()).unwrap();
        assert_eq!(
            first["data"]["references"],
            json!(["servers.disk", "services.db.url", "workspace"])
        );
        assert!(!frames.contains("postgresql:///"), "{frames}");
    }
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_database_that_dies_leaves_an_error_and_nothing_that_runs() {
    let count = "{type: sql, service: db, query: SELECT count(*) FROM amounts, equals: 2}";
    let kill = "{type: command_exit, command: \"$(ls /usr/lib/postgresql/*/bin/psql | tail -n 1) \
        -h /services/db -U postgres -c \\\"COPY (SELECT 1) TO PROGRAM 'kill -9 -1'\\\"\", exit_code: 2}";
    let desk = desk(
        &services(""),
        &[("before", count), ("kill", kill), ("after", count)],
    );
    let Some(said) = run(&desk) else { return };
    let found = results(&desk, said.is(2));
    let status: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(status, ["passed", "passed", "error"], "{found:?}");
    assert!(
        found[2]
            .2
            .contains("the database db ended with exit code 137"),
        "{found:?}"
    );
}

#[test]
fn a_database_that_cannot_be_prepared_ends_the_command_before_anything_runs() {
    let check = "{type: sql, service: db, query: SELECT 1, equals: 1}";
    for (text, limits, words) in [
        (
            "CREATE TABLE a (b absent);\n",
            "",
            "type \"absent\" does not exist",
        ),
        (
            "SELECT pg_sleep(1e9);\n",
            ", limits: {time: 5s}",
            "it was ended: it took longer than 5s",
        ),
        (
            "COPY (SELECT 1) TO PROGRAM 'rm -rf /services/db/* /work/data; ln -s / /services/db/root; exit 1';\n",
            "",
            "the database db is not prepared",
        ),
    ] {
        let desk = desk(&services(limits), &[("one", check)]);
        desk.write_file("w/evals/sql/schema.sql", text);
        let Some(said) = run(&desk) else { return };
        assert!(said.is(2).err.contains(words), "{words}: {}", said.err);
        let runs = desk.ktsu(&["runs", "--json"]);
        assert!(
            runs.code != 0 || runs.json()["runs"] == json!([]),
            "{}",
            runs.out
        );
    }
}

#[test]
fn queries_need_a_database_of_a_suite() {
    let check = "{type: sql, service: other, query: SELECT 1, equals: 1}";
    let desk = desk(&services(""), &[("one", check)]);
    let said = desk.ktsu(&["eval", "run", "w"]);
    let words = "the suite has no database \"other\"";
    assert!(said.is(2).err.contains(words), "{}", said.err);
    assert!(said.err.contains("w.eval.yaml:7:53"), "{}", said.err);
    let id = desk.hello();
    let spec = format!("invariants: {{one: {{description: d, check: {check}}}}}\n");
    desk.write_file("alone.eval.yaml", &spec);
    let said = desk.ktsu(&["check", &id, "--spec", "alone.eval.yaml"]);
    let words = "looks at a service, which only the runs of a suite have";
    assert!(said.is(2).err.contains(words), "{}", said.err);
    assert!(
        said.err.contains("needs a suite: ktsu eval run"),
        "{}",
        said.err
    );
}

#[test]
fn without_a_sandbox_a_database_is_refused_for_root_and_runs_for_others() {
    let check = "{type: sql, service: db, query: SELECT count(*) FROM amounts, equals: 2}";
    let desk = desk(
        "services: {db: {image: 'postgres:16', init: [sql/schema.sql]}}\n",
        &[("one", check)],
    );
    let said = desk.ktsu(&["eval", "run", "w", "--no-sandbox", "--json"]);
    if said.err.contains("there is no PostgreSQL") {
        return not_tested(&format!("databases without a sandbox: {}", said.err));
    }
    if rustix::process::geteuid().is_root() {
        let words = "PostgreSQL does not run as root, and without a sandbox it would";
        assert!(said.is(2).err.contains(words), "{}", said.err);
        return;
    }
    let found = results(&desk, &said);
    assert_eq!(found[0].1, "passed", "{found:?}");
}

/// What is recorded of the database of each run of an eval.
pub(super) fn recorded(desk: &Desk, id: &str) -> Vec<Value> {
    let frames = desk.ktsu(&["frames", id, "--type", "scenario.started", "--json"]);
    let frames = frames.is(0).out.clone();
    let of = |line: &str| {
        let frame: Value = serde_json::from_str(line).unwrap();
        frame["data"]["services"]["db"].clone()
    };
    frames.lines().map(of).collect()
}

/// What the runs of an eval are judged again with.
pub(super) fn again(desk: &Desk, command: &str, report: &Value, options: &[&str]) -> Said {
    let id = report["eval_id"].as_str().unwrap();
    let arguments = ["eval", command, id, "--kit", "w", "--json"];
    said(&mut desk.command(&[&arguments, options].concat()))
}

#[test]
fn what_runs_left_in_a_database_is_judged_again_by_another_spec() {
    let noted = "{type: sql, service: db, query: SELECT text FROM notes, equals: one}";
    let suite = format!("replicas: 2\n{}", services(""));
    let desk = desk(&suite, &[("noted", noted)]);
    let Some(said) = run(&desk) else { return };
    let first = said.is(0).json();
    let kept = recorded(&desk, first["eval_id"].as_str().unwrap());
    let [one, two] = kept.as_slice() else {
        panic!("{kept:?}")
    };
    assert_eq!(one, two, "equal data give equal dumps");
    assert_eq!(one["whole"], true);
    let dump = one["dump"].as_str().unwrap();
    assert!(dump.starts_with("SET "), "{dump}");
    assert!(
        dump.contains("COPY public.notes (text) FROM stdin;\none\n\\.\n"),
        "{dump}"
    );

    // A spec without a workspace, whose database has nothing of its own.
    let other = "subject: {params: {at: '{{ services.db.url }}'}}\nreplicas: 2\n\
        services: {db: {type: postgres}}\ninvariants:\n  \
        amounts: {description: d, check: {type: sql, service: db, query: SELECT amount FROM amounts ORDER BY id, equals: 10.5}}\n  \
        notes: {description: d, check: {type: sql, service: db, query: SELECT count(*) FROM notes, equals: 2}}\n";
    desk.write_file("w/evals/other.eval.yaml", other);
    fs::remove_file(desk.path().join("w/evals/sql/schema.sql")).unwrap();
    let said = again(
        &desk,
        "score",
        &first,
        &["--spec", "w/evals/other.eval.yaml"],
    );
    let found = results(&desk, said.is(1));
    let status: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(
        status,
        ["passed", "failed", "passed", "failed"],
        "{found:?}"
    );
    assert!(
        found[1].2.contains("the value is 1, expected 2"),
        "{found:?}"
    );
    let scored = said.json();
    assert_eq!(recorded(&desk, scored["eval_id"].as_str().unwrap()), kept);
    desk.write_file("w/evals/sql/schema.sql", SCHEMA);
    let retried = again(&desk, "retry", &first, &[]).is(0).json();
    let run = |report: &Value| report["scenarios"][0]["replicas"][0]["run_id"].clone();
    assert_eq!(run(&retried), run(&first), "it does not run again");
    desk.ktsu(&["verify"]).is(0);
}

/// Has `pg_dump` write a command of a client, which would be run when the dump is restored.
const COMMANDS: &str = "CREATE VIEW other AS SELECT 1 AS a;\n\
    ALTER FUNCTION pg_catalog.pg_get_viewdef(oid) RENAME TO other;\n\
    CREATE FUNCTION pg_catalog.pg_get_viewdef(oid) RETURNS text LANGUAGE sql STABLE AS\n\
    $$ SELECT E' SELECT 1 AS a;\\n\\\\! psql -h /services/db -U postgres -c \"CREATE TABLE ran ()\"\\nSELECT 1;' $$;";

#[test]
fn what_is_not_kept_of_a_database_as_a_whole_is_never_guessed() {
    let large = "INSERT INTO amounts SELECT id + 10, 1, repeat('x', 1000) FROM generate_series(1, 5000) AS id;";
    let escaped = SECRET.replace('\'', "''");
    let hidden = format!(
        "INSERT INTO amounts VALUES (5, 1, '{escaped}'); COMMENT ON TABLE notes IS '{escaped}';\n\
         ALTER TABLE amounts ALTER note SET DEFAULT '{escaped}';"
    );
    for (text, whole) in [
        ("CREATE ROLE other;", false),
        (COMMANDS, false),
        (large, false),
        (&*hidden, true),
    ] {
        let check = "{type: sql, service: db, query: SELECT count(*) FROM notes, equals: 1}";
        let desk = desk(&services(""), &[("noted", check)]);
        desk.write_file("w/evals/sql/schema.sql", &format!("{SCHEMA}{text}\n"));
        let flow = format!("{}env: [{{name: TOK, secret: true}}]\n", KIT[0].1);
        desk.write_file(KIT[0].0, &flow);
        let Some(said) = run(&desk) else {
            return;
        };
        let first = said.is(0).json();
        let kept = recorded(&desk, first["eval_id"].as_str().unwrap());
        assert_eq!(kept[0]["whole"], whole, "{text}: {kept:?}");
        assert_eq!(kept[0]["bytes"].as_u64().is_some(), text == large);
        let dump = kept[0]["dump"].as_str().unwrap_or_default();
        assert!(!dump.contains("s3cret"), "{dump}");
        let redacted = dump.matches("[REDACTED]").count();
        assert_eq!(redacted, if text == hidden { 3 } else { 0 }, "{dump}");
        let scored = again(&desk, "score", &first, &[]).is(2).json();
        assert_eq!(scored["scenarios"][0]["error"], "not_kept", "{scored:#}");
        let retried = again(&desk, "retry", &first, &[]).is(0).json();
        let run = |report: &Value| report["scenarios"][0]["run_id"].clone();
        assert_ne!(run(&retried), run(&first), "it runs again");
    }
}
