//! Databases of suites, and checks that query them.

use ktsu_ledger::event::EvalStatus::{Error, Failed, Passed};

use super::program_tests::Ends;
use super::support::{faults, one_in, spec};
use crate::DatabaseKind;

const CHECK: &str =
    "invariants: {a: {description: d, check: {type: sql, service: db, query: q, equals: null}}}\n";

#[test]
fn a_database_is_named_by_its_type_or_its_image() {
    for (named, kind) in [
        ("type: postgres", DatabaseKind::Postgres),
        ("image: 'postgres:16'", DatabaseKind::Postgres),
        ("type: mysql", DatabaseKind::MariaDb),
        ("type: mariadb", DatabaseKind::MariaDb),
        ("image: 'mysql:8'", DatabaseKind::MariaDb),
        ("type: mysql, image: 'mariadb:11'", DatabaseKind::MariaDb),
    ] {
        let service = format!("{{{named}, init: [a.sql, sql/b.sql], limits: {{memory_mb: 64}}}}");
        let text = format!("subject: {{}}\nservices: {{db: {service}}}\n{CHECK}");
        let read = spec(&text);
        assert!(read.runs_programs() && !read.needs_workspace());
        assert_eq!(read.needs_suite().map(|one| &*one.name), Some("a"));
        let services = read.suite.unwrap().services;
        assert!(services.later.is_none() && !services.is_empty());
        let database = &services.databases["db"];
        assert_eq!(database.kind, kind, "{named}");
        assert_eq!(database.init, ["a.sql", "sql/b.sql"]);
        assert_eq!(database.limits.memory, Some(64 << 20));
    }
    let text = format!("subject: {{}}\nservices: {{db: {{image: 'redis:8'}}}}\n{CHECK}");
    assert!(spec(&text).suite.unwrap().services.later.is_some());
}

#[test]
fn slips_in_databases_are_reported_at_their_places() {
    for (service, words) in [
        ("{type: postgres, init: [../a.sql]}", "stay within it"),
        ("{type: postgres, init: [/a.sql]}", "stay within it"),
        ("{type: postgres, init: []}", "init"),
        ("{type: postgres, image: 'mysql:8'}", "image is postgres"),
        (
            "{type: mysql, image: 'postgres:16'}",
            "image is mysql or mariadb",
        ),
        ("{type: postgres, files: [a.sql]}", "unknown key \"files\""),
        ("{type: postgres, limits: {time: 2h}}", "time is from"),
    ] {
        let text = format!("subject: {{}}\nservices: {{db: {service}}}\n{CHECK}");
        let found = faults(&text);
        assert!(
            found
                .iter()
                .any(|(line, _, it)| *line == 2 && it.contains(words)),
            "{service}: {found:?}"
        );
    }
    let text = format!("subject: {{}}\nservices: {{other: {{type: postgres}}}}\n{CHECK}");
    let found = faults(&text);
    assert_eq!(
        (found.len(), found[0].0, found[0].1),
        (1, 3, 62),
        "{found:?}"
    );
    assert!(
        found[0].2.contains("the suite has no database \"db\""),
        "{found:?}"
    );
}

#[test]
fn what_a_query_prints_is_compared_as_json() {
    for (output, equals, status, words) in [
        ("2\n", "2", Passed, "the value is 2"),
        ("2.00\n", "2", Passed, "the value is 2.00"),
        ("3\n", "2", Failed, "the value is 3, expected 2"),
        ("\"2\"\n", "2", Failed, "the value is \"2\", expected 2"),
        ("null\n", "null", Passed, "the value is null"),
        ("", "null", Failed, "the query gives no row, expected null"),
        ("{\"a\":\n [1.0]}\n", "{a: [1]}", Passed, ""),
        (
            "not json\n",
            "1",
            Error,
            "the value cannot be read: not json",
        ),
    ] {
        let check = format!("{{type: sql, service: db, query: q, equals: {equals}}}");
        let found = one_in(&check, Some(&Ends::with(Ok(0), output, "")));
        assert_eq!(found.status, status, "{output}: {}", found.reason);
        assert!(found.reason.contains(words), "{output}: {}", found.reason);
    }
}

#[test]
fn a_query_that_fails_is_an_error_with_its_message() {
    let check = "{type: sql, service: db, query: q, equals: 1}";
    let found = one_in(check, Some(&Ends::with(Ok(1), "", "ERROR: no \u{1b}[1m")));
    assert_eq!(found.status, Error);
    assert!(
        found
            .reason
            .contains("exit code 1; it printed:\nERROR: no \\u{1b}"),
        "{}",
        found.reason
    );
    let found = one_in(
        check,
        Some(&Ends::with(Err("it took longer than 1s"), "", "")),
    );
    assert!(
        found.reason.contains("it took longer than 1s"),
        "{}",
        found.reason
    );
    let found = one_in(check, None);
    assert_eq!(found.status, Error);
    assert!(found.reason.contains("ktsu eval run"), "{}", found.reason);
}

#[test]
fn the_digest_covers_the_query_and_its_value() {
    let digest = |query: &str, output: &str| {
        let check = format!("{{type: sql, service: db, query: {query}, equals: 1}}");
        one_in(&check, Some(&Ends::with(Ok(0), output, "")))
            .looked_at
            .digest
    };
    assert_eq!(digest("q", "1\n"), digest("q", "1\n"));
    assert_ne!(digest("q", "1\n"), digest("r", "1\n"));
    assert_ne!(digest("q", "1\n"), digest("q", "2\n"));
    assert_ne!(digest("q", "null\n"), digest("q", ""));
}
