//! A PostgreSQL server to test with, shared by the tests of a process that run at the same time.
//!
//! It is started where Debian installs it. Where there is none, tests of it are skipped, and say so; with
//! `KTSU_TEST_POSTGRES=required` they fail.

#![allow(dead_code, clippy::unwrap_used)]

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ktsu_postgres::PostgresPlace;

/// The user that a server runs as where the tests run as root, which no server does.
const UNPRIVILEGED: &str = "65534";

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// A server at work; it is stopped once the last test is done with it.
#[derive(Debug)]
pub(crate) struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
    ledgers: AtomicU64,
}

impl Server {
    /// The server of this process, if it can have one.
    pub(crate) fn get() -> Option<Arc<Self>> {
        let Some(programs) = programs() else {
            let required = std::env::var("KTSU_TEST_POSTGRES").is_ok_and(|it| it == "required");
            assert!(!required, "PostgreSQL is not installed");
            let words = "skipped: PostgreSQL is not installed (apt-get install postgresql)";
            let mut errors = std::io::stderr();
            writeln!(errors, "{words}").unwrap();
            return None;
        };
        let mut shared = SHARED.lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start(programs));
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// A server for one test alone.
    pub(crate) fn alone() -> Option<Self> {
        Self::get()?;
        programs().map(Self::start)
    }

    fn start(programs: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Self {
            programs,
            folder,
            ledgers: AtomicU64::new(0),
        };
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(server.folder.path(), open).unwrap();
        let data = server.data();
        let initdb = ["-D", &data, "-U", "ktsu", "-A", "trust", "--no-sync"];
        server.run(
            "initdb",
            &[&initdb[..], &["-E", "UTF8", "--no-locale"]].concat(),
        );
        let socket = server.folder.path().display();
        let options = format!("-c listen_addresses= -c unix_socket_directories={socket}");
        let log = format!("{data}.log");
        server.run(
            "pg_ctl",
            &["-D", &data, "-s", "-w", "-l", &log, "-o", &options, "start"],
        );
        server
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program, arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {errors}");
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let program = self.programs.join(program);
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = match is_root {
            true => {
                let mut command = Command::new("setpriv");
                let user = ["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED];
                command.args(user).arg("--clear-groups").arg(&program);
                command
            }
            false => Command::new(&program),
        };
        command.args(arguments).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs SQL as the role that owns every ledger.
    pub(crate) fn sql(&self, text: &str) {
        let refused = self.refusal(text);
        assert_eq!(refused, None, "{text}");
    }

    /// What the server says of SQL that it refuses.
    pub(crate) fn refusal(&self, text: &str) -> Option<String> {
        let socket = self.folder.path().display().to_string();
        let database = ["-h", &socket, "-U", "ktsu", "-d", "postgres"];
        let how = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", text];
        let arguments = [&database[..], &how].concat();
        let output = self.command("psql", &arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(errors)
    }

    /// A new ledger, in a schema of its own, and the name of that.
    pub(crate) fn ledger(&self) -> (PostgresPlace, String) {
        let number = self.ledgers.fetch_add(1, Ordering::SeqCst);
        let schema = format!("ledger_{number}");
        self.sql(&format!("CREATE SCHEMA {schema}"));
        let place = self.place_with(&format!("-csearch_path%3D{schema}"));
        place.make().unwrap();
        (place, schema)
    }

    /// The place that an address with these options names.
    pub(crate) fn place_with(&self, options: &str) -> PostgresPlace {
        let socket = self.folder.path().display().to_string().replace('/', "%2F");
        let url = format!("postgres://ktsu@{socket}/postgres?options={options}");
        url.parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data();
        self.run(
            "pg_ctl",
            &["-D", &data, "-s", "-w", "-m", "immediate", "stop"],
        );
    }
}

/// The folder of the programs of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            Some((number, version.path().join("bin")))
        })
        .collect();
    versions.sort();
    let newest = versions.into_iter().rev().map(|(_, folder)| folder);
    newest
        .into_iter()
        .find(|folder: &PathBuf| Path::new(folder).join("initdb").is_file())
}
