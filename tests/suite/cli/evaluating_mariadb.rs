//! Suites with databases of the type `mysql`: MariaDB, in a full campaign, where it is installed.

use std::path::Path;

use serde_json::json;

use super::Desk;
use super::evaluating_databases::{again, are_compared, desk, noting, recorded, results, run, sql};
use crate::support::not_tested;

const SCHEMA: &str = "CREATE TABLE notes (text text);\n\
    CREATE TABLE amounts (id bigint PRIMARY KEY, amount decimal(20, 3), note text, more json);\n\
    INSERT INTO amounts VALUES (1, 10.5, 'first', '{\"b\": [1.0, null]}'), (9007199254740993, 0.1, NULL, NULL);\n\
    CREATE SEQUENCE numbers;\n";

/// The services of a suite: the database, and a tool server that uses it.
const SERVICES: &str = "services:\n  db: {type: mysql, init: [sql/schema.sql]}\n  \
    disk: {type: mcp, from: ../program, command: [python3, '{{ program }}/server.py', \
    '{{ services.db.url }}']}\n";

/// A desk with a kit whose suite has a database.
fn mysql_desk(services: &str, checks: &[(&str, &str)]) -> Desk {
    let desk = desk(services, checks);
    let client = r#"["mariadb", "--no-defaults", "--socket=/services/db/mysql.sock", "--user=root", "main", "-e"]"#;
    desk.write_file("w/program/server.py", &noting(client));
    desk.write_file("w/evals/sql/schema.sql", SCHEMA);
    desk
}

#[test]
fn what_a_query_of_mariadb_gives_is_compared_with_its_type() {
    if !ktsu_campaign::is_full() {
        return;
    }
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
            "SELECT amount FROM amounts ORDER BY id DESC",
            "0.1",
            "passed",
            "",
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
        ("SELECT 'NULL'", "null", "failed", "the value is \"NULL\""),
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
        ("WITH a AS (SELECT 5, 6) SELECT * FROM a", "5", "passed", ""),
        (
            "SELECT count(*) > 1 FROM amounts",
            "1",
            "passed",
            "the value is 1",
        ),
        (
            "SELECT more FROM amounts ORDER BY id",
            "{b: [1, null]}",
            "passed",
            "",
        ),
        (
            "SELECT '\\! touch /work/made'",
            "'! touch /work/made'",
            "passed",
            "",
        ),
        (
            "\\! touch /work/made",
            "1",
            "error",
            "You have an error in your SQL syntax",
        ),
        (
            "SELECT nextval(numbers)",
            "1",
            "error",
            "READ ONLY transaction",
        ),
        (
            "SELECT 1) LIMIT 1) SELECT 2; DROP TABLE amounts; -- ",
            "1",
            "error",
            "SQL syntax",
        ),
        (
            "DROP TABLE amounts",
            "1",
            "error",
            "You have an error in your SQL syntax",
        ),
        (
            "SELECT * FROM absent",
            "1",
            "error",
            "Table 'main.absent' doesn't exist",
        ),
        (
            "SELECT repeat('x', 1000000)",
            "1",
            "error",
            "the value has more than 65536 bytes",
        ),
        ("SELECT x'ff'", "1", "error", "the value is not text"),
    ];
    let slow =
        "{type: sql, service: db, query: SELECT sleep(1000), equals: 1, limits: {time: 500ms}}";
    are_compared(&cases, slow, |checks| mysql_desk(SERVICES, checks));
}

#[test]
fn runs_with_mariadb_have_data_of_their_own_that_are_judged_again() {
    if !ktsu_campaign::is_full() {
        return;
    }
    let script = "import json, subprocess, sys\n\
        place = json.load(sys.stdin)['services']['db']\n\
        ran = subprocess.run(['mariadb', '--no-defaults', '--socket', place['socket'], '--user=root', '-BN', \
        '-e', 'SELECT count(*) FROM main.notes'], capture_output=True, text=True)\n\
        print(json.dumps({'passed': ran.stdout == '1\\n', 'reason': ran.stdout + ran.stderr}))\n";
    let desk = mysql_desk(
        &format!("replicas: 2\n{SERVICES}"),
        &[
            ("one", &sql("SELECT text FROM notes", "one")),
            ("alone", &sql("SELECT count(*) FROM notes", "1")),
            ("script", "{type: custom, script: one.py}"),
        ],
    );
    desk.write_file("w/evals/one.py", script);
    let Some(said) = run(&desk) else { return };
    let first = said.is(0).json();
    let kept = recorded(&desk, first["eval_id"].as_str().unwrap());
    assert_eq!(kept[0], kept[1], "equal data give equal dumps");
    assert_eq!(kept[0]["whole"], true, "{kept:?}");
    let other = "subject: {params: {at: '{{ services.db.url }}'}}\nreplicas: 2\n\
        services: {db: {image: 'mariadb:11'}}\ninvariants:\n  \
        amounts: {description: d, check: {type: sql, service: db, query: SELECT amount FROM amounts ORDER BY id, equals: 10.5}}\n  \
        notes: {description: d, check: {type: sql, service: db, query: SELECT count(*) FROM notes, equals: 2}}\n";
    desk.write_file("w/evals/other.eval.yaml", other);
    let options = ["--spec", "w/evals/other.eval.yaml"];
    let said = again(&desk, "score", &first, &options);
    let found = results(&desk, said.is(1));
    let status: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(
        status,
        ["passed", "failed", "passed", "failed"],
        "{found:?}"
    );
    // A dump of one kind of database is nothing to another.
    desk.write_file(
        "w/evals/other.eval.yaml",
        &other.replace("mariadb:11", "postgres:16"),
    );
    let scored = again(&desk, "score", &first, &options).is(2).json();
    let replica = &scored["scenarios"][0]["replicas"][0];
    assert_eq!(replica["error"], "not_kept", "{scored:#}");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn what_mariadb_holds_beside_its_database_is_not_kept() {
    if !ktsu_campaign::is_full() {
        return;
    }
    for text in ["CREATE USER other;", "CREATE DATABASE other;"] {
        let check = sql("SELECT count(*) FROM notes", "1");
        let desk = mysql_desk(SERVICES, &[("noted", &check)]);
        desk.write_file("w/evals/sql/schema.sql", &format!("{SCHEMA}{text}\n"));
        let Some(said) = run(&desk) else { return };
        let first = said.is(0).json();
        let kept = recorded(&desk, first["eval_id"].as_str().unwrap());
        assert_eq!(kept, [json!({"whole": false})], "{text}");
    }
}

#[test]
fn a_mariadb_that_dies_or_cannot_be_prepared_is_an_error() {
    if !ktsu_campaign::is_full() {
        return;
    }
    let count = sql("SELECT count(*) FROM amounts", "2");
    let kill = "{type: command_exit, command: 'mariadb --no-defaults --socket=/services/db/mysql.sock \
        --user=root --execute=SHUTDOWN'}";
    let desk = mysql_desk(
        SERVICES,
        &[("before", &count), ("kill", kill), ("after", &count)],
    );
    let Some(said) = run(&desk) else { return };
    let found = results(&desk, said.is(2));
    let status: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(status, ["passed", "passed", "error"], "{found:?}");
    desk.write_file("w/evals/sql/schema.sql", "CREATE TABLE a (b absent);\n");
    let Some(said) = run(&desk) else { return };
    let words = "Unknown data type: 'absent'";
    assert!(said.is(2).err.contains(words), "{}", said.err);
}

#[test]
fn without_mariadb_a_suite_that_needs_it_is_refused_with_what_to_install() {
    let programs = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let mut folders = programs.iter().map(Path::new);
    if folders.any(|folder| folder.join("mariadbd").exists()) {
        return;
    }
    let desk = mysql_desk(SERVICES, &[("one", &sql("SELECT 1", "1"))]);
    let said = desk.ktsu(&["eval", "run", "w", "--json"]);
    let err = &said.is(2).err;
    if err.contains("there is no sandbox") || err.contains("sandbox does not work") {
        return not_tested(&format!("databases of suites: {err}"));
    }
    let words = "there is no MariaDB for the databases of the suite";
    assert!(err.contains(words), "{err}");
    assert!(err.contains("mariadb-server-core mariadb-client"), "{err}");
}
