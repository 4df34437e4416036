//! A PostgreSQL server to test with, shared by the tests of a process that run at the same time.
//!
//! It is started where Debian installs it. Where there is none, tests of it are skipped, and say so; with
//! `KTSU_TEST_POSTGRES=required` they fail.

#![allow(dead_code, clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ktsu_ledger::Backend as _;
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
    /// A command around each of its programs.
    around: Vec<String>,
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
        let server = Arc::new(Self::start(programs, Vec::new(), |_| String::new()));
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// A server for one test alone.
    pub(crate) fn alone() -> Option<Self> {
        Self::get()?;
        programs().map(|programs| Self::start(programs, Vec::new(), |_| String::new()))
    }

    /// A server for one test alone on another machine, as a command around its programs makes it, where
    /// it listens at an address and trusts its network.
    pub(crate) fn elsewhere(around: Vec<String>, address: &str) -> Option<Self> {
        let server = Self::start(programs()?, around, |server| {
            let file = format!("{}/pg_hba.conf", server.data());
            let mut file = OpenOptions::new().append(true).open(file).unwrap();
            for who in ["all", "replication"] {
                writeln!(file, "host {who} all all trust").unwrap();
            }
            format!("-c listen_addresses={address}")
        });
        Some(server)
    }

    /// A server for one test alone that encrypts connections to 127.0.0.1, and its port there. `ca.pem`
    /// of its folder is the authority that vouches for it.
    pub(crate) fn encrypted() -> Option<(Self, u16)> {
        Self::get()?;
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let server = Self::start(programs()?, Vec::new(), |server| {
            server.certify("ca", "server");
            let folder = server.folder.path().display();
            // Settings of the file can be changed later, others not.
            let settings = format!(
                "ssl = on\nssl_cert_file = '{folder}/server.pem'\nssl_key_file = '{folder}/server.key'\n"
            );
            let file = format!("{}/postgresql.conf", server.data());
            let mut file = OpenOptions::new().append(true).open(file).unwrap();
            file.write_all(settings.as_bytes()).unwrap();
            format!("-c listen_addresses=127.0.0.1 -p {port}")
        });
        Some((server, port))
    }

    /// Makes an authority and a key that it vouches for at 127.0.0.1, as files of the folder.
    pub(crate) fn certify(&self, authority: &str, name: &str) {
        let script = format!(
            "umask 077 && new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes' &&
             openssl req -x509 $new -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem &&
             openssl req $new -subj /CN={name} -keyout {name}.key -out {name}.csr &&
             echo subjectAltName=IP:127.0.0.1 > {name}.ext &&
             openssl x509 -req -days 2 -in {name}.csr -CA {authority}.pem -CAkey {authority}.key \
               -CAcreateserial -extfile {name}.ext -out {name}.pem && chmod 644 {authority}.pem"
        );
        let made = self.command_at(PathBuf::from("/bin/sh"), &["-c", &script]);
        let output = { made }.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl: {errors}");
    }

    /// A file of the server's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(programs: PathBuf, around: Vec<String>, more: impl FnOnce(&Self) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Self {
            programs,
            folder,
            ledgers: AtomicU64::new(0),
            around,
        };
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(server.folder.path(), open).unwrap();
        let data = server.data();
        let initdb = ["-D", &data, "-U", "ktsu", "-A", "trust", "--no-sync"];
        server.run(
            "initdb",
            &[&initdb[..], &["-E", "UTF8", "--no-locale"]].concat(),
        );
        let more = more(&server);
        server.begin(&more);
        server
    }

    /// Starts the server with more options.
    fn begin(&self, more: &str) {
        let (data, log) = (self.data(), format!("{}.log", self.data()));
        let socket = self.folder.path().display();
        let options = format!("-c listen_addresses= -c unix_socket_directories={socket} {more}");
        self.run(
            "pg_ctl",
            &["-D", &data, "-s", "-w", "-l", &log, "-o", &options, "start"],
        );
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
        self.command_at(self.programs.join(program), arguments)
    }

    fn command_at(&self, program: PathBuf, arguments: &[&str]) -> Command {
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut words = self.around.clone();
        if is_root {
            let user = ["setpriv", "--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED];
            words.extend(user.map(str::to_owned));
            words.push("--clear-groups".to_owned());
        }
        words.push(program.display().to_string());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(arguments)
            .current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Stops the server as a crash of its machine would, and starts it again.
    pub(crate) fn crash(&self) {
        let (data, log) = (self.data(), format!("{}.log", self.data()));
        self.run(
            "pg_ctl",
            &[
                "-D",
                &data,
                "-s",
                "-w",
                "-l",
                &log,
                "-m",
                "immediate",
                "restart",
            ],
        );
    }

    /// Stops the server as a loss of its machine would.
    pub(crate) fn stop_at_once(&self) {
        let data = self.data();
        self.run(
            "pg_ctl",
            &["-D", &data, "-s", "-w", "-m", "immediate", "stop"],
        );
    }

    /// Starts it again after that.
    pub(crate) fn start_again(&self) {
        self.begin("");
    }

    /// Makes a server that follows another one write.
    pub(crate) fn promote(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-s", "-w", "promote"]);
    }

    /// A server that follows this one, which waits for it from then on before it acknowledges anything.
    pub(crate) fn standby(&self) -> Self {
        let socket = self.folder.path().display().to_string();
        self.followed(Vec::new(), &socket, "")
    }

    /// The same on another machine, where it listens at an address; this one is at an address, too.
    pub(crate) fn standby_elsewhere(&self, around: Vec<String>, [own, address]: [&str; 2]) -> Self {
        self.followed(around, own, &format!("-c listen_addresses={address}"))
    }

    fn followed(&self, around: Vec<String>, host: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let standby = Self {
            programs: self.programs.clone(),
            folder,
            ledgers: AtomicU64::new(0),
            around,
        };
        let data = standby.data();
        let copy = ["-h", host, "-U", "ktsu", "-D", &data, "-R", "-X", "stream"];
        standby.run(
            "pg_basebackup",
            &[&copy[..], &["--no-sync", "-c", "fast"]].concat(),
        );
        standby.begin(more);
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        let waits = "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while self.refusal(waits).is_some() {}
        standby
    }

    /// Runs SQL as the role that owns every ledger.
    pub(crate) fn sql(&self, text: &str) {
        let refused = self.refusal(text);
        assert_eq!(refused, None, "{text}");
    }

    /// As [`Server::sql`], of a server at a port of its own.
    pub(crate) fn sql_at(&self, port: u16, text: &str) {
        assert_eq!(self.refusal_at(port, text), None, "{text}");
    }

    /// What the server says of SQL that it refuses.
    pub(crate) fn refusal(&self, text: &str) -> Option<String> {
        self.refusal_at(5432, text)
    }

    fn refusal_at(&self, port: u16, text: &str) -> Option<String> {
        let (socket, port) = (self.folder.path().display().to_string(), port.to_string());
        let database = ["-h", &socket, "-p", &port, "-U", "ktsu", "-d", "postgres"];
        let how = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", text];
        let arguments = [&database[..], &how].concat();
        let output = self.command("psql", &arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(errors)
    }

    /// A new ledger, in a schema of its own, and the name of that.
    pub(crate) fn ledger(&self) -> (PostgresPlace, String) {
        let schema = self.schema();
        let place = self.place_with(&format!("-csearch_path%3D{schema}"));
        place.make().unwrap();
        (place, schema)
    }

    /// A new ledger with which everything is prepared.
    pub(crate) fn prepared(&self) -> PostgresPlace {
        let (_, schema) = self.ledger();
        self.place_with(&format!("-csearch_path%3D{schema}&statements=prepared"))
    }

    /// A new ledger as a role sees it that has the rights of an engine alone, and the name of its schema.
    pub(crate) fn restricted(&self) -> (PostgresPlace, String) {
        let (place, schema) = self.ledger();
        let role = format!("Engine of {schema}");
        self.sql(&format!("CREATE ROLE \"{role}\" LOGIN"));
        place.grant(&role).unwrap();
        let address = self.address(&schema);
        let role = role.replace(' ', "%20");
        let address = address.replace("ktsu@", &format!("{role}@"));
        (address.parse().unwrap(), schema)
    }

    /// The name of a new schema, in which there is nothing.
    pub(crate) fn schema(&self) -> String {
        let number = self.ledgers.fetch_add(1, Ordering::SeqCst);
        let schema = format!("ledger_{number}");
        self.sql(&format!("CREATE SCHEMA {schema}"));
        schema
    }

    /// The place that an address with these options names.
    pub(crate) fn place_with(&self, options: &str) -> PostgresPlace {
        self.address_with(options).parse().unwrap()
    }

    /// The address of a ledger in a schema.
    pub(crate) fn address(&self, schema: &str) -> String {
        self.address_with(&format!("-csearch_path%3D{schema}"))
    }

    /// The same behind a server that follows this one.
    pub(crate) fn address_behind(&self, standby: &Self, schema: &str) -> String {
        let hosts = format!("{},{}", standby.host(), self.host());
        format!("postgres://ktsu@{hosts}/postgres?options=-csearch_path%3D{schema}")
    }

    fn address_with(&self, options: &str) -> String {
        format!("postgres://ktsu@{}/postgres?options={options}", self.host())
    }

    fn host(&self) -> String {
        self.folder.path().display().to_string().replace('/', "%2F")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let is_running = self.folder.path().join("data/postmaster.pid").exists();
        if is_running {
            self.stop_at_once();
        }
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
