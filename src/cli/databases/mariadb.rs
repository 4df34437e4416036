//! MariaDB, as Debian installs it; it is also what runs in place of MySQL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ktsu_eval::DatabasePlace;

use super::engine::{DatabaseEngine, EngineProgram, ServerPlace, encoded};

/// The command that installs what is needed.
pub(super) const INSTALL: &str =
    "apt-get install -y --no-install-recommends mariadb-server-core mariadb-client";

/// Its name.
pub(super) const NAME: &str = "MariaDB";

/// The folders of its programs, even if they are not on the path.
const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// The port of its clients, which nothing listens on.
const PORT: u16 = 3306;

/// The name of the socket in its folder.
const SOCKET: &str = "mysql.sock";

/// The most columns of a query.
const MAX_COLUMNS: u32 = 64;

/// Makes the data and runs files, once. Its arguments: three programs, the folder of the data, that of the
/// socket, a query for what is beside the database, and the files.
const PREPARE: &str = r#"install="$1"; server="$2"; client="$3"; data="$4"; socket="$5/mysql.sock"; query="$6"; shift 6
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
beside="$(ask --skip-column-names --execute="$query")" || { kill -9 $server; exit 1; }
for file; do
    ask --loose-skip-print-query-on-error main <"$file" || { kill -9 $server; exit 1; }
done
kill $server
wait $server || { cat "$log"; exit 1; }
rm "$log"
echo "$beside""#;

/// Prints a dump. Its arguments: two programs, the socket, a query for what is beside the database, and what
/// it gives for a new server.
const DUMP: &str = r#"client="$1"; dump="$2"; socket="$3"
beside="$("$client" --no-defaults --socket="$socket" --user=root --batch --skip-column-names \
    --default-character-set=utf8mb4 --execute="$4")" || exit 1
[ "$beside" = "$5" ] || exit 3
exec "$dump" --no-defaults --socket="$socket" --user=root --default-character-set=utf8mb4 --single-transaction \
    --routines --events --triggers --hex-blob --skip-comments --skip-dump-date main"#;

/// A digest of what a dump of one database leaves out: other databases and what else is in those of the
/// server, users and what they may do, loaded parts, settings of the server and of the database, earlier
/// versions of rows, and columns of the type `float`, whose last digits are not written.
const BESIDE: &str = "SELECT MD5(GROUP_CONCAT(what ORDER BY what)) FROM (
SELECT MD5(JSON_ARRAY(1, schema_name, default_character_set_name, default_collation_name)) AS what FROM information_schema.schemata
UNION ALL SELECT MD5(JSON_ARRAY(2, Host, User, Priv)) FROM mysql.global_priv
UNION ALL SELECT MD5(JSON_ARRAY(3, Host, Db, User, Table_name, Table_priv, Column_priv)) FROM mysql.tables_priv
UNION ALL SELECT MD5(JSON_ARRAY(4, Host, User, Proxied_host, Proxied_user, With_grant)) FROM mysql.proxies_priv
UNION ALL SELECT MD5(JSON_ARRAY(5, table_schema, table_name)) FROM information_schema.tables WHERE table_schema IN ('mysql', 'sys')
UNION ALL SELECT MD5(JSON_ARRAY(6, db, name, type, body, param_list)) FROM mysql.proc WHERE db <> 'main'
UNION ALL SELECT MD5(JSON_ARRAY(7, db, name)) FROM mysql.event WHERE db <> 'main'
UNION ALL SELECT MD5(JSON_ARRAY(8, variable, value)) FROM sys.sys_config
UNION ALL SELECT MD5(JSON_ARRAY(9, COUNT(*), MAX(help_topic_id))) FROM mysql.help_topic
UNION ALL SELECT MD5(JSON_ARRAY(10, Db, User)) FROM mysql.db
UNION ALL SELECT MD5(JSON_ARRAY(11, Db, User)) FROM mysql.columns_priv
UNION ALL SELECT MD5(JSON_ARRAY(12, Db, User)) FROM mysql.procs_priv
UNION ALL SELECT MD5(JSON_ARRAY(13, User, Role)) FROM mysql.roles_mapping
UNION ALL SELECT MD5(JSON_ARRAY(14, Name)) FROM mysql.time_zone_name
UNION ALL SELECT MD5(JSON_ARRAY(15, name)) FROM mysql.func
UNION ALL SELECT MD5(JSON_ARRAY(16, name)) FROM mysql.plugin
UNION ALL SELECT MD5(JSON_ARRAY(17, Server_name)) FROM mysql.servers
UNION ALL SELECT MD5(JSON_ARRAY(18, variable_name, global_value)) FROM information_schema.system_variables WHERE global_value_origin = 'SQL'
UNION ALL SELECT MD5(JSON_ARRAY(19, table_name)) FROM information_schema.tables WHERE table_schema = 'main' AND table_type = 'SYSTEM VERSIONED'
UNION ALL SELECT MD5(JSON_ARRAY(20, table_name)) FROM information_schema.columns WHERE table_schema = 'main' AND data_type = 'float'
) AS beside";

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

impl DatabaseEngine for MariaDb {
    fn prepare(&self, place: &ServerPlace) -> Vec<String> {
        let arguments = ["sh", "-c", PREPARE, "prepare"];
        let programs = [&*self.install, &self.server, &self.client];
        let rest = [&*place.data, &*place.socket, BESIDE];
        EngineProgram::new(&[&arguments[..], &programs, &rest].concat()).arguments
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

    fn dump(&self, socket: &str, beside: &str) -> EngineProgram {
        let socket = path_in(socket);
        let arguments = ["sh", "-c", DUMP, "dump", &self.client, &self.dump];
        EngineProgram::new(&[&arguments[..], &[&*socket, BESIDE, beside]].concat())
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

/// The path of a program, if it is installed.
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
