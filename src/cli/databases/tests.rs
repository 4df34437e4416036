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
        let started = databases.start().unwrap();
        let of_this = &started.0["db"];
        let program = of_this.engine.restore(&of_this.socket, &sql);
        assert!(
            of_this
                .finished(&program, of_this.limits)
                .unwrap()
                .is_some()
        );
        let Dumped::Whole(dump) = of_this.dump().unwrap() else {
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
