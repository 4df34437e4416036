//! PostgreSQL, as Debian installs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ktsu_eval::DatabasePlace;

use super::engine::{DatabaseEngine, EngineProgram, ServerPlace, encoded};

/// The command that installs what is needed.
pub(super) const INSTALL: &str = "apt-get install -y --no-install-recommends postgresql";

/// Its name.
pub(super) const NAME: &str = "PostgreSQL";

/// The folder in which Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The programs that are needed of it.
const PROGRAMS: [&str; 6] = [
    "initdb",
    "pg_ctl",
    "pg_dump",
    "pg_isready",
    "postgres",
    "psql",
];

/// The port, which is a part of the name of the socket.
const PORT: u16 = 5432;

/// Makes the data and runs files, once. Its arguments: the folder of the programs, that of the data, that
/// of the socket, a query for what is beside the database, and the files.
const PREPARE: &str = r#"bin="$1"; data="$2"; socket="$3"; query="$4"; shift 4
log="$data.log"
stop() { "$bin/pg_ctl" -D "$data" -s -w -m "$1" stop >>"$log" 2>&1; }
ask() { "$bin/psql" -X -A -t -q -w -v ON_ERROR_STOP=1 -h "$socket" -U postgres -d postgres "$@" </dev/null; }
"$bin/initdb" -D "$data" -U postgres -A trust --no-sync --no-locale -E UTF8 --wal-segsize=1 >"$log" 2>&1 ||
    { cat "$log"; exit 1; }
"$bin/pg_ctl" -D "$data" -s -w -l "$log" -o "-c listen_addresses= -c fsync=off -k '$socket'" start ||
    { cat "$log"; exit 1; }
beside="$(PGOPTIONS="-c search_path=pg_catalog" ask -c "$query")" || { stop immediate; exit 1; }
for file; do
    ask -f "$file" || { stop immediate; exit 1; }
done
stop fast || { cat "$log"; exit 1; }
rm "$log"
echo "$beside""#;

/// Prints a dump. Its arguments: the folder of the programs, that of the socket, a query for what is beside
/// the database, and what it gives for a new server.
const DUMP: &str = r#"bin="$1"; socket="$2"
beside="$(PGOPTIONS="-c search_path=pg_catalog" \
    "$bin/psql" -X -A -t -q -w -h "$socket" -U postgres -d postgres -c "$3")" || exit 1
[ "$beside" = "$4" ] || exit 3
exec "$bin/pg_dump" -w -h "$socket" -U postgres -d postgres --no-owner --lock-wait-timeout=10s"#;

/// A digest of what pg_dump leaves out. For all databases: their rights and limits, roles and their members,
/// places of data, settings of a database, a role or the server, comments, and slots. In the database: what
/// every database has, without rights, and whatever else is in its schemas, unless an extension made it.
const BESIDE: &str = r#"WITH own AS (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema')),
part AS (SELECT objid FROM pg_depend WHERE deptype = 'e' AND objid >= 16384),
beside(what) AS (
    SELECT (d.oid, datname, datdba, encoding, datistemplate, datallowconn, datconnlimit, dattablespace, datacl)::text FROM pg_database AS d
    UNION ALL SELECT a::text FROM pg_authid AS a
    UNION ALL SELECT a::text FROM pg_auth_members AS a
    UNION ALL SELECT a::text FROM pg_tablespace AS a
    UNION ALL SELECT a::text FROM pg_db_role_setting AS a
    UNION ALL SELECT a::text FROM pg_shdescription AS a
    UNION ALL SELECT slot_name FROM pg_replication_slots
    UNION ALL SELECT name FROM pg_file_settings WHERE sourcefile LIKE '%/postgresql.auto.conf'
    UNION ALL SELECT (oid, extname, extnamespace)::text FROM pg_extension WHERE oid < 16384
    UNION ALL SELECT (oid, nspname)::text FROM pg_namespace WHERE oid < 16384
    UNION ALL SELECT a::text FROM pg_description AS a WHERE objoid < 16384 AND objoid <> 'public'::regnamespace
    UNION ALL SELECT a::text FROM pg_cast AS a WHERE oid < 16384
    UNION ALL SELECT a.ev_action::text FROM pg_rewrite AS a WHERE ev_class < 16384
    UNION ALL SELECT (to_jsonb(a) - 'proacl')::text FROM pg_proc AS a
        WHERE oid < 16384 OR pronamespace IN (TABLE own) AND oid NOT IN (TABLE part)
    UNION ALL SELECT (oid, relname, relnamespace, relkind)::text FROM pg_class
        WHERE relkind IN ('r', 'v', 'm', 'S', 'p', 'f', 'c') AND (oid < 16384 OR relnamespace IN (TABLE own) AND oid NOT IN (TABLE part))
    UNION ALL SELECT (oid, typname, typnamespace)::text FROM pg_type
        WHERE typcategory <> 'A' AND (oid < 16384 OR typnamespace IN (TABLE own) AND oid NOT IN (TABLE part))
    UNION ALL SELECT (oid, oprname, oprnamespace, oprcode)::text FROM pg_operator
        WHERE oid < 16384 OR oprnamespace IN (TABLE own) AND oid NOT IN (TABLE part)
)
SELECT md5(string_agg(md5(what), '' ORDER BY what COLLATE "C")) FROM beside"#;

/// The programs of the newest version.
#[derive(Debug)]
pub(super) struct Postgres {
    /// The folder that they are in.
    programs: PathBuf,
}

impl Postgres {
    /// That of this machine: of the newest version of Debian's, or on the path.
    pub(super) fn find() -> Option<Self> {
        let has_all = |folder: &PathBuf| PROGRAMS.iter().all(|name| folder.join(name).is_file());
        let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let mut versions: Vec<(u32, PathBuf)> = versions
            .filter_map(|version| {
                let number = version.file_name().to_str()?.parse().ok()?;
                Some((number, version.path().join("bin")))
            })
            .collect();
        versions.sort();
        let debian = versions.into_iter().rev().map(|(_, folder)| folder);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_the_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let on_the_path: Vec<PathBuf> = on_the_path.collect();
        let programs = debian.chain(on_the_path).find(has_all)?;
        Some(Self { programs })
    }

    fn program(&self, name: &str) -> String {
        path(&self.programs.join(name))
    }
}

impl DatabaseEngine for Postgres {
    fn prepare(&self, place: &ServerPlace) -> Vec<String> {
        let programs = path(&self.programs);
        let arguments = ["sh", "-c", PREPARE, "prepare", &programs];
        let rest = [&*place.data, &*place.socket, BESIDE];
        EngineProgram::new(&[&arguments[..], &rest[..]].concat()).arguments
    }

    fn serve(&self, place: &ServerPlace) -> Vec<String> {
        let server = self.program("postgres");
        EngineProgram::new(&[
            &server,
            "-D",
            &place.data,
            "-k",
            &place.socket,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ])
        .arguments
    }

    fn ready(&self, socket: &str) -> EngineProgram {
        let ready = self.program("pg_isready");
        EngineProgram::new(&[&ready, "-q", "-h", socket, "-t", "5"])
    }

    fn url(&self, socket: &str) -> String {
        url(socket)
    }

    fn place(&self, socket: &str) -> DatabasePlace {
        DatabasePlace {
            host: socket.to_owned(),
            port: PORT,
            socket: None,
        }
    }

    fn query(&self, socket: &str, query: &str, most: Duration) -> EngineProgram {
        let url = format!(
            "{}&connect_timeout=10&options=-c%20default_transaction_read_only%3Don\
             %20-c%20statement_timeout%3D{}",
            url(socket),
            most.as_millis()
        );
        let (psql, statement) = (self.program("psql"), statement(query));
        EngineProgram::new(&[
            &psql,
            "-X",
            "-q",
            "-A",
            "-t",
            "-w",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            &url,
            "-c",
            &statement,
        ])
    }

    fn has_lost_server(&self, exit_code: i32, _: &str) -> bool {
        exit_code == 2
    }

    fn dump(&self, socket: &str, beside: &str) -> EngineProgram {
        let programs = path(&self.programs);
        let arguments = ["sh", "-c", DUMP, "dump", &programs, socket, BESIDE, beside];
        EngineProgram::new(&arguments)
    }

    fn stable(&self, dump: &str) -> String {
        stable(dump)
    }

    fn restore(&self, socket: &str, dump: &str) -> EngineProgram {
        let psql = self.program("psql");
        let program = EngineProgram::new(&[
            &psql,
            "-X",
            "-q",
            "-w",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            socket,
            "-U",
            "postgres",
            "-d",
            "postgres",
        ]);
        program.with_input(&without_commands(dump))
    }
}

/// A dump that psql reads without commands of its own, which it would run wherever a line of the dump has
/// one: what a run left in a database may be written in order to have some. An older psql does not know
/// the first line and ends there. The key is made anew, so that the dump cannot have it.
fn without_commands(dump: &str) -> String {
    let key = uuid::Uuid::new_v4().simple();
    format!("\\restrict {key}\n{dump}\n\\unrestrict {key}\n")
}

/// A single statement that gives the first column of the first row as JSON. Only a server reads it: psql
/// takes a text that begins with a backslash for a command of its own.
fn statement(query: &str) -> String {
    let query = query.trim().trim_end_matches(';');
    format!(
        "SELECT coalesce(to_json(ktsu_value)::text, 'null') FROM (\n{query}\n) AS ktsu_row(ktsu_value) LIMIT 1"
    )
}

/// A dump without what is before its first statement and after its last one: comments with versions, and a
/// key of chance that newer versions of pg_dump have there. No data are there: they end with `\.`.
fn stable(dump: &str) -> String {
    let is_around = |line: &&str| {
        line.is_empty()
            || line.starts_with("--")
            || line.starts_with("\\restrict ")
            || line.starts_with("\\unrestrict ")
    };
    let mut lines: Vec<&str> = dump.split('\n').skip_while(is_around).collect();
    while lines.last().is_some_and(is_around) {
        lines.pop();
    }
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

/// The URL of a database, as libpq reads it.
fn url(host: &str) -> String {
    let host = encoded(host);
    format!("postgresql:///postgres?host={host}&user=postgres")
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::{stable, statement, url, without_commands};

    #[test]
    fn a_url_has_the_folder_of_the_socket_encoded() {
        assert_eq!(
            url("/tmp/a b&c/é"),
            "postgresql:///postgres?host=/tmp/a%20b%26c/%C3%A9&user=postgres"
        );
    }

    #[test]
    fn a_query_is_one_statement_and_never_a_command_of_psql() {
        assert!(statement("\\! id").starts_with("SELECT "));
        assert!(statement("SELECT 1; -- one\n;").contains("SELECT 1; -- one\n\n)"));
    }

    #[test]
    fn a_dump_is_restored_behind_a_key_that_no_other_has() {
        let restored = without_commands("SELECT 1;\n\\! id\n");
        let (first, rest) = restored.split_once('\n').unwrap();
        let key = first.strip_prefix("\\restrict ").unwrap();
        let last = format!("SELECT 1;\n\\! id\n\n\\unrestrict {key}\n");
        assert_eq!((key.len(), rest), (32, &*last));
        assert_ne!(restored, without_commands("SELECT 1;\n\\! id\n"));
    }

    #[test]
    fn a_dump_has_no_versions_and_no_chance_around_its_statements() {
        let dump = |version: &str, key: &str| {
            format!(
                "--\n-- PostgreSQL database dump\n--\n\n\\restrict {key}\n\n-- Dumped by pg_dump \
                 version {version}\n\nSET a = 0;\nCOPY b FROM stdin;\n-- Dumped by us\n\\\\restrict c\n\
                 \\.\n\n\n--\n-- PostgreSQL database dump complete\n--\n\n\\unrestrict {key}\n\n"
            )
        };
        let first = stable(&dump("15.1", "x"));
        assert_eq!(first, stable(&dump("15.2", "y")));
        let kept = "SET a = 0;\nCOPY b FROM stdin;\n-- Dumped by us\n\\\\restrict c\n\\.\n";
        assert_eq!(first, kept);
    }
}
