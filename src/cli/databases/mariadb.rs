//! MariaDB, as Debian installs it; it is also what runs in place of MySQL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ktsu_eval::DatabasePlace;

use super::engine::{Engine, EngineProgram, ServerPlace, encoded};

/// How to install what is needed.
pub(super) const INSTALL: &str =
    "apt-get install -y --no-install-recommends mariadb-server-core mariadb-client";

/// What it is called.
pub(super) const NAME: &str = "MariaDB";

/// Where its programs are, even if they are not on the path.
const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// The port of its clients, which nothing listens on.
const PORT: u16 = 3306;

/// The name of the socket in its folder.
const SOCKET: &str = "mysql.sock";

/// The most columns of a query.
const MAX_COLUMNS: u32 = 64;

/// Makes the data and runs files, once. Its arguments: three programs, the folder of the data, that of the
/// socket, and the files.
const PREPARE: &str = r#"install="$1"; server="$2"; client="$3"; data="$4"; socket="$5/mysql.sock"; shift 5
log="$data.log"
"$install" --no-defaults --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \
    --skip-name-resolve --force --innodb-log-file-size=16M >"$log" 2>&1 || { cat "$log"; exit 1; }
"$server" --no-defaults --datadir="$data" --socket="$socket" --pid-file="$data.pid" --skip-networking \
    --skip-log-bin --innodb-log-file-size=16M --character-set-server=utf8mb4 >"$log" 2>&1 &
server=$!
ask() { "$client" --no-defaults --socket="$socket" --user=root --batch --default-character-set=utf8mb4 "$@"; }
until ask --execute="SELECT 1" >>"$log" 2>&1; do
    kill -0 $server 2>/dev/null || { cat "$log"; exit 1; }
    sleep 0.05
done
ask --execute="CREATE DATABASE main" || exit 1
for file; do
    ask --loose-skip-print-query-on-error main <"$file" || { kill -9 $server; exit 1; }
done
kill $server
wait $server || { cat "$log"; exit 1; }
rm "$log""#;

/// Prints a dump. Its arguments: two programs, the socket, and a query that says whether a dump has
/// everything.
const DUMP: &str = r#"client="$1"; dump="$2"; socket="$3"
whole="$("$client" --no-defaults --socket="$socket" --user=root --batch --skip-column-names --execute="$4")" || exit 1
[ "$whole" = 1 ] || exit 3
exec "$dump" --no-defaults --socket="$socket" --user=root --default-character-set=utf8mb4 --single-transaction \
    --routines --events --triggers --hex-blob --skip-comments --skip-dump-date main"#;

/// Whether there is nothing that a dump of one database leaves out: other databases, users and what they
/// may do, loaded parts, settings of the server and of the database, and earlier versions of rows.
const IS_WHOLE: &str = "SELECT (SELECT COUNT(*) = 5 FROM information_schema.schemata)
AND (SELECT default_collation_name = @@GLOBAL.collation_server FROM information_schema.schemata
    WHERE schema_name = 'main')
AND NOT EXISTS (SELECT 1 FROM mysql.global_priv WHERE User NOT IN ('root', 'mariadb.sys'))
AND NOT EXISTS (SELECT 1 FROM mysql.tables_priv WHERE User <> 'mariadb.sys')
AND NOT EXISTS (SELECT 1 FROM mysql.db)
AND NOT EXISTS (SELECT 1 FROM mysql.columns_priv)
AND NOT EXISTS (SELECT 1 FROM mysql.procs_priv)
AND NOT EXISTS (SELECT 1 FROM mysql.roles_mapping)
AND NOT EXISTS (SELECT 1 FROM mysql.time_zone_name)
AND NOT EXISTS (SELECT 1 FROM mysql.func)
AND NOT EXISTS (SELECT 1 FROM mysql.plugin)
AND NOT EXISTS (SELECT 1 FROM mysql.servers)
AND NOT EXISTS (SELECT 1 FROM information_schema.system_variables WHERE global_value_origin = 'SQL')
AND NOT EXISTS (SELECT 1 FROM information_schema.tables
    WHERE table_schema = 'main' AND table_type = 'SYSTEM VERSIONED')";

/// The first line of a dump, with which a client runs no command of its own from then on. Those that do not
/// know it read a comment, and no commands either: their input is binary.
const NO_COMMANDS: &str = "/*M!999999\\- enable the sandbox mode */ ";

/// Its programs.
#[derive(Debug)]
pub(super) struct MariaDb {
    client: String,
    dump: String,
    install: String,
    server: String,
}

impl MariaDb {
    /// That of this machine.
    pub(super) fn find() -> Option<Self> {
        Some(Self {
            client: found("mariadb")?,
            dump: found("mariadb-dump")?,
            install: found("mariadb-install-db")?,
            server: found("mariadbd")?,
        })
    }

    /// A client that uses the database, and sends what it reads.
    fn client(&self, socket: &str, options: &[&str]) -> EngineProgram {
        let socket = format!("--socket={}", path_in(socket));
        let usual = [
            &*self.client,
            "--no-defaults",
            &socket,
            "--user=root",
            "--batch",
            "--binary-mode",
            "--connect-timeout=10",
            "--default-character-set=utf8mb4",
            "--loose-skip-print-query-on-error",
        ];
        EngineProgram::new(&[&usual[..], options, &["main"]].concat())
    }
}

impl Engine for MariaDb {
    fn prepare(&self, place: &ServerPlace) -> Vec<String> {
        let arguments = ["sh", "-c", PREPARE, "prepare"];
        let programs = [&*self.install, &self.server, &self.client];
        let places = [&*place.data, &*place.socket];
        EngineProgram::new(&[&arguments[..], &programs, &places].concat()).arguments
    }

    fn serve(&self, place: &ServerPlace) -> Vec<String> {
        EngineProgram::new(&[
            &self.server,
            "--no-defaults",
            &format!("--datadir={}", place.data),
            &format!("--socket={}", path_in(&place.socket)),
            &format!("--pid-file={}.pid", place.data),
            "--skip-networking",
            "--skip-log-bin",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--character-set-server=utf8mb4",
        ])
        .arguments
    }

    fn ready(&self, socket: &str) -> EngineProgram {
        self.client(socket, &["--execute=SELECT 1"])
    }

    fn url(&self, socket: &str) -> String {
        let socket = path_in(socket);
        format!("mysql://root@localhost/main?socket={}", encoded(&socket))
    }

    fn place(&self, socket: &str) -> DatabasePlace {
        DatabasePlace {
            host: "localhost".to_owned(),
            port: PORT,
            socket: Some(path_in(socket)),
        }
    }

    fn query(&self, socket: &str, query: &str, most: Duration) -> EngineProgram {
        let program = self.client(socket, &["--skip-column-names", "--raw"]);
        program.with_input(&statement(query, most))
    }

    fn has_lost_server(&self, _: i32, errors: &str) -> bool {
        const LOST: [&str; 3] = ["ERROR 2002", "ERROR 2006", "ERROR 2013"];
        LOST.iter().any(|number| errors.contains(number))
    }

    fn dump(&self, socket: &str) -> EngineProgram {
        let socket = path_in(socket);
        let arguments = ["sh", "-c", DUMP, "dump", &self.client, &self.dump];
        EngineProgram::new(&[&arguments[..], &[&*socket, IS_WHOLE]].concat())
    }

    fn stable(&self, dump: &str) -> String {
        stable(dump)
    }

    fn restore(&self, socket: &str, dump: &str) -> EngineProgram {
        let program = self.client(socket, &["--loose-sandbox"]);
        program.with_input(&format!("{NO_COMMANDS}\n{dump}"))
    }
}

/// Statements that give the first column of the first row as JSON. A common table needs the names of all
/// columns, whose number is found by trying. The server reads the query as a single statement, which the
/// client never sees as text: it has commands of its own.
fn statement(query: &str, most: Duration) -> String {
    let query = query.trim().trim_end_matches(';');
    // An order counts in parentheses with a limit, where no common tables may be.
    let first = query.split_whitespace().next().unwrap_or_default();
    let (before, after) = match first.eq_ignore_ascii_case("with") {
        true => ("", ""),
        false => ("(", ") LIMIT 1"),
    };
    let hex: String = query.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "SET SESSION TRANSACTION READ ONLY;
SET SESSION max_statement_time = {};
DELIMITER //
BEGIN NOT ATOMIC
DECLARE ktsu_names TEXT DEFAULT 'ktsu_value';
DECLARE ktsu_columns, ktsu_again INT DEFAULT 1;
WHILE ktsu_again DO
  SET ktsu_again = 0;
  BEGIN
    DECLARE EXIT HANDLER FOR 4002 BEGIN
      IF ktsu_columns >= {MAX_COLUMNS} THEN RESIGNAL; END IF;
      SET ktsu_columns = ktsu_columns + 1, ktsu_again = 1;
      SET ktsu_names = CONCAT(ktsu_names, ', ktsu_', ktsu_columns);
    END;
    EXECUTE IMMEDIATE CONCAT('WITH ktsu_row(', ktsu_names, ') AS ({before}\\n',
      CONVERT(x'{hex}' USING utf8mb4), '\\n{after}) SELECT SUBSTR(ktsu_json, 2, CHAR_LENGTH(ktsu_json) - 2)
      FROM (SELECT JSON_ARRAY(ktsu_value) AS ktsu_json FROM ktsu_row LIMIT 1) AS ktsu_found');
  END;
END WHILE;
END//
",
        most.as_secs_f64()
    )
}

/// A dump without its first line, if that only says how newer clients read it.
fn stable(dump: &str) -> String {
    let rest = dump
        .split_once('\n')
        .filter(|(first, _)| first.starts_with("/*M!999999"));
    let rest = rest.map_or(dump, |(_, rest)| rest);
    format!("{}\n", rest.trim_matches('\n'))
}

fn path_in(folder: &str) -> String {
    Path::new(folder).join(SOCKET).display().to_string()
}

/// Where a program is.
fn found(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_the_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut all = on_the_path.chain(FOLDERS.map(PathBuf::from));
    let file = all.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))?;
    Some(file.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{stable, statement};

    #[test]
    fn a_query_is_a_text_that_only_the_server_reads() {
        let text = statement("\\! id;", Duration::from_millis(1_500));
        assert!(!text.contains("\\!"), "{text}");
        assert!(text.contains("x'5c21206964'"), "{text}");
        assert!(text.contains("max_statement_time = 1.5;"), "{text}");
        let with = statement("WITH a AS (SELECT 1) SELECT * FROM a", Duration::ZERO);
        assert!(!with.contains(") LIMIT 1)"), "{with}");
    }

    #[test]
    fn a_dump_has_no_line_about_its_client() {
        let dump = "SET a = 0;\nINSERT INTO b VALUES ('/*M!999999');\n";
        let newer = format!("/*M!999999\\- enable the sandbox mode */ \n\n{dump}\n\n");
        assert_eq!(stable(&newer), dump);
        assert_eq!(stable(dump), dump);
    }
}
