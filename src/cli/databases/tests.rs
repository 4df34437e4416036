//! Dumps that were written in order to have a client run commands, as a ledger may have them.

use serde_json::json;

use super::*;

/// A database without data, and a command that a client of it would run: it makes the table `ran`.
fn database(kind: DatabaseKind) -> Option<(Databases, String)> {
    let sandbox = Sandbox::find().ok()?;
    let service = DatabaseService {
        kind,
        init: Vec::new(),
        limits: ProgramLimits::default(),
    };
    let services = BTreeMap::from([("db".to_owned(), service)]);
    let databases = Databases::prepare(&services, &sandbox, Path::new("/")).ok()??;
    let command = match kind {
        DatabaseKind::Postgres => "psql -h /services/db -U postgres -c 'CREATE TABLE ran ()'",
        DatabaseKind::MariaDb => {
            "mariadb --no-defaults -S /services/db/mysql.sock -u root main -e 'CREATE TABLE ran (a int)'"
        }
    };
    Some((databases, format!("\\! {command}")))
}

/// Kinds whose databases run here; MariaDB in a full campaign.
fn kinds() -> Vec<DatabaseKind> {
    let all = [DatabaseKind::Postgres, DatabaseKind::MariaDb];
    let all = all.into_iter();
    all.filter(|kind| *kind == DatabaseKind::Postgres || ktsu_campaign::is_full())
        .collect()
}

fn record(dump: &str) -> Value {
    let digest = ktsu_ledger::Hash::of(dump.as_bytes());
    json!({"db": {"digest": digest, "dump": dump, "whole": true}})
}

/// Whether the command of a dump was run.
fn has_run(databases: &RunDatabases) -> bool {
    let dump = databases.0["db"].dump().unwrap();
    matches!(dump, Dumped::Whole(dump) if [" public.ran ", "`ran`"].iter().any(|table| dump.contains(table)))
}

/// What is kept of a database once statements were run in it.
fn left_by(databases: &Databases, sql: &str) -> Dumped {
    let started = databases.start().unwrap();
    let of_this = &started.0["db"];
    let program = of_this.engine.restore(&of_this.socket, sql);
    let ran = of_this.finished(&program, of_this.limits).unwrap();
    assert!(ran.is_some(), "{sql}");
    of_this.dump().unwrap()
}

#[test]
fn a_dump_runs_no_command_of_a_client_when_it_is_restored() {
    for kind in kinds() {
        let Some((databases, command)) = database(kind) else {
            return;
        };
        for before in ["", "CREATE TABLE kept (a int); ", "/* a */\n"] {
            let mut started = databases.start().unwrap();
            let dump = format!("{before}{command}\nSELECT 1;\n");
            let of_this = started.0.get_mut("db").unwrap();
            assert!(!of_this.restore(&dump).unwrap(), "{kind:?}");
            assert!(!has_run(&started), "{kind:?}: {before}");
            assert!(databases.restore(&record(&dump)).unwrap().is_none());
        }
    }
}

#[test]
fn names_and_data_that_look_like_commands_are_restored_as_they_are() {
    for kind in kinds() {
        let Some((databases, command)) = database(kind) else {
            return;
        };
        let sql = match kind {
            DatabaseKind::Postgres => format!(
                "CREATE TABLE \"a\n{command}\n\" (\"b\n{command}\" text);\n\
                 INSERT INTO \"a\n{command}\n\" VALUES ($$\n{command}\n$$), ('\\.');\n\
                 COMMENT ON TABLE \"a\n{command}\n\" IS $$\n{command}\n$$;\n"
            ),
            DatabaseKind::MariaDb => {
                "CREATE TABLE `a\n\\! id` (`b\n\\! id` text COMMENT '\n\\\\! id\n')\n\
                COMMENT '\n\\\\! id\n';\nINSERT INTO `a\n\\! id` VALUES ('\n\\\\! id\n');\n\
                DELIMITER //\nCREATE PROCEDURE p() BEGIN /* \n\\! id\n */ SELECT 1; END//\n"
                    .to_owned()
            }
        };
        let Dumped::Whole(dump) = left_by(&databases, &sql) else {
            panic!("{kind:?}")
        };
        assert!(dump.contains("\\! "), "{dump}");
        assert!(databases.restore(&record(&dump)).unwrap().is_some());
    }
}

#[test]
fn nothing_is_restored_without_a_sandbox() {
    let Some((mut databases, _)) = database(DatabaseKind::Postgres) else {
        return;
    };
    let Dumped::Whole(dump) = databases.start().unwrap().0["db"].dump().unwrap() else {
        panic!()
    };
    assert!(databases.restore(&record(&dump)).unwrap().is_some());
    databases.sandbox = Sandbox::none();
    assert!(databases.restore(&record(&dump)).unwrap().is_none());
}

const BESIDE_POSTGRES: [&str; 19] = [
    "CREATE ROLE other",
    "CREATE DATABASE other",
    "ALTER ROLE postgres CONNECTION LIMIT 50",
    "ALTER ROLE postgres SET work_mem = '8MB'",
    "ALTER SYSTEM SET work_mem = '8MB'",
    "GRANT pg_monitor TO pg_read_all_data",
    "COMMENT ON ROLE postgres IS 'x'",
    "COMMENT ON DATABASE postgres IS 'x'",
    "COMMENT ON FUNCTION pg_sleep IS 'x'",
    "ALTER DATABASE postgres CONNECTION LIMIT 7",
    "REVOKE ALL ON DATABASE postgres FROM public",
    "DROP SCHEMA public",
    "DROP EXTENSION plpgsql",
    "CREATE TABLE information_schema.other (a int)",
    "CREATE TYPE pg_catalog.other AS ENUM ('a')",
    "CREATE FUNCTION pg_catalog.other() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OPERATOR pg_catalog.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
    "ALTER FUNCTION pg_catalog.pg_get_viewdef(oid) RENAME TO other",
    "CREATE OR REPLACE FUNCTION pg_catalog.int4um(int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT 5'",
];

const WITHIN_POSTGRES: &str = "CREATE TYPE e AS ENUM ('a'); CREATE TABLE a (e e, f real, g float);\n\
    INSERT INTO a VALUES ('a', 16777217, 0.1);\n\
    CREATE FUNCTION f(e) RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE CAST (e AS int) WITH FUNCTION f(e);\n\
    CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);\n\
    CREATE SCHEMA other; GRANT USAGE ON SCHEMA public TO pg_monitor; COMMENT ON SCHEMA public IS 'x';\n\
    REVOKE EXECUTE ON FUNCTION pg_sleep(float8) FROM public; ANALYZE;";

const BESIDE_MARIADB: [&str; 11] = [
    "CREATE USER other",
    "CREATE DATABASE other",
    "ALTER DATABASE main COLLATE latin1_bin",
    "SET GLOBAL sql_mode = ''",
    "GRANT SELECT ON mysql.* TO root@localhost",
    "ALTER USER root@localhost WITH MAX_USER_CONNECTIONS 77",
    "CREATE TABLE sys.other (a int)",
    "CREATE FUNCTION mysql.other() RETURNS int RETURN 1",
    "DELETE FROM mysql.help_topic",
    "CREATE TABLE a (b float)",
    "CREATE TABLE a (b int) WITH SYSTEM VERSIONING",
];

const WITHIN_MARIADB: &str = "CREATE TABLE a (b double, c decimal(20, 3)); INSERT INTO a VALUES (0.1, 0.1);\n\
    CREATE FUNCTION f() RETURNS int RETURN 1; CREATE VIEW v AS SELECT * FROM a;\n\
    CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM a; CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET @x = 1;";

#[test]
fn what_a_dump_leaves_out_is_never_kept() {
    for kind in kinds() {
        let (beside, within) = match kind {
            DatabaseKind::Postgres => (&BESIDE_POSTGRES[..], WITHIN_POSTGRES),
            DatabaseKind::MariaDb => (&BESIDE_MARIADB[..], WITHIN_MARIADB),
        };
        let Some((databases, _)) = database(kind) else {
            return;
        };
        for sql in beside {
            let left = left_by(&databases, &format!("{sql};\n"));
            assert_eq!(left, Dumped::Nothing, "{sql}");
        }
        let Dumped::Whole(dump) = left_by(&databases, within) else {
            panic!("{kind:?}")
        };
        assert!(databases.restore(&record(&dump)).unwrap().is_some());
    }
}
