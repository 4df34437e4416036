//! Databases of suites: PostgreSQL servers in the sandbox, one for each run, with a copy of data that are
//! prepared once. Programs of the run reach them through sockets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu_eval::{DatabasePlace, DatabaseService, ProgramLimits, SqlCheck};
use ktsu_sandbox::{
    Ending, Execution, PrivateFolder, Program, ProgramEnd, ReachedService, Sandbox, ServingProgram,
};

use super::Failure;
use super::program_limits::{limits, service_limits};
use super::spec_files;

/// How to install what is needed.
const INSTALL: &str = "apt-get install -y --no-install-recommends postgresql";

/// Where Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// What is needed of PostgreSQL.
const PROGRAMS: [&str; 5] = ["initdb", "pg_ctl", "pg_isready", "postgres", "psql"];

/// The port, which is a part of the name of the socket.
const PORT: u16 = 5432;

/// The most MiB of a file that prepares a database.
const MAX_INIT_MIB: u64 = 64;

/// How long a server may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long it is waited between two looks whether a server is ready.
const READY_INTERVAL: Duration = Duration::from_millis(10);

/// How long a server that has closed its socket may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes the data and runs files, once. Its arguments: the folder of the programs, that of the data, that
/// of the socket, and the files.
const PREPARE: &str = r#"bin="$1"; data="$2"; socket="$3"; shift 3
log="$data.log"
stop() { "$bin/pg_ctl" -D "$data" -s -w -m "$1" stop >>"$log" 2>&1; }
"$bin/initdb" -D "$data" -U postgres -A trust --no-sync --no-locale -E UTF8 --wal-segsize=1 >"$log" 2>&1 ||
    { cat "$log"; exit 1; }
"$bin/pg_ctl" -D "$data" -s -w -l "$log" -o "-c listen_addresses= -c fsync=off -k '$socket'" start ||
    { cat "$log"; exit 1; }
for file; do
    "$bin/psql" -X -q -w -v ON_ERROR_STOP=1 -h "$socket" -U postgres -d postgres -f "$file" </dev/null ||
        { stop immediate; exit 1; }
done
stop fast || { cat "$log"; exit 1; }
rm "$log""#;

/// The databases of a suite, with data that each run gets a copy of.
pub(super) struct Databases {
    sandbox: Sandbox,
    /// Where the programs are.
    programs: PathBuf,
    prepared: BTreeMap<String, PreparedDatabase>,
}

struct PreparedDatabase {
    folder: PrivateFolder,
    limits: ProgramLimits,
}

/// The databases of one run. Once they are dropped, nothing of them runs, and their data are gone.
#[derive(Debug, Default)]
pub(super) struct RunDatabases(BTreeMap<String, RunDatabase>);

#[derive(Debug)]
struct RunDatabase {
    // Ends before its folder is removed.
    server: ServingProgram,
    folder: PrivateFolder,
    sandbox: Sandbox,
    programs: PathBuf,
    /// The folder with its socket, as programs see it.
    host: String,
}

impl Databases {
    /// Makes the data of all databases, in the order of their names.
    pub(super) fn prepare(
        services: &BTreeMap<String, DatabaseService>,
        sandbox: &Sandbox,
        above: &Path,
    ) -> Result<Option<Self>, Failure> {
        if services.is_empty() {
            return Ok(None);
        }
        if sandbox.runs_as_root() {
            let words = "PostgreSQL does not run as root, and without a sandbox it would";
            return Err(Failure::could_not_run(words)
                .hint("leave out --no-sandbox, or run ktsu as another user"));
        }
        let programs = programs().ok_or_else(|| {
            Failure::could_not_run("there is no PostgreSQL for the databases of the suite")
                .hint(INSTALL)
        })?;
        let mut prepared = BTreeMap::new();
        for (name, service) in services {
            let folder = prepare(name, service, (sandbox, &programs, above));
            let folder = folder.map_err(|why| {
                Failure::could_not_run(format!("the database {name} is not prepared: {why}"))
                    .hint("files of init are run by psql, in the sandbox, without a network")
            })?;
            let limits = service.limits;
            prepared.insert(name.clone(), PreparedDatabase { folder, limits });
        }
        Ok(Some(Self {
            sandbox: sandbox.clone(),
            programs,
            prepared,
        }))
    }

    /// Starts a server for each database, with a copy of its data, and waits until they are ready.
    pub(super) fn start(&self) -> Result<RunDatabases, Failure> {
        let all = self.prepared.iter().map(|(name, prepared)| {
            let started = self.start_one(name, prepared).map_err(|why| {
                Failure::could_not_run(format!("the database {name} does not start: {why}"))
            })?;
            Ok((name.clone(), started))
        });
        Ok(RunDatabases(all.collect::<Result<_, Failure>>()?))
    }

    fn start_one(&self, name: &str, prepared: &PreparedDatabase) -> Result<RunDatabase, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let folder = self.sandbox.copy_of(&prepared.folder.workspace());
        let folder = folder.map_err(|error| words(&error))?;
        let data = data_of(&self.sandbox, &folder);
        let host = host_of(&self.sandbox, name, &folder);
        let server = program(&self.programs, "postgres");
        let arguments = [
            &server,
            "-D",
            &data,
            "-k",
            &host,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ];
        let server = Program::new(&arguments, service_limits(prepared.limits)).offers(name);
        let server = self.sandbox.serve(&folder, &server);
        let mut server = server.map_err(|error| words(&error))?;
        // It logs to its standard error.
        drop(server.output.take());
        let database = RunDatabase {
            server,
            folder,
            sandbox: self.sandbox.clone(),
            programs: self.programs.clone(),
            host,
        };
        database.wait_until_ready(name)?;
        Ok(database)
    }
}

impl RunDatabase {
    fn wait_until_ready(&self, name: &str) -> Result<(), String> {
        let ready = program(&self.programs, "pg_isready");
        let arguments = [&ready, "-q", "-h", &self.host, "-t", "5"];
        let limits = limits(ProgramLimits::default());
        let (began, ending) = (Instant::now(), self.server.ending());
        while began.elapsed() < READY_TIMEOUT {
            if let Some(end) = ending.wait(READY_INTERVAL) {
                return Err(ended(&end));
            }
            let asked = Program::new(&arguments, limits).reaches(vec![self.reached(name)]);
            let asked = asked.read_only();
            let ran = self.sandbox.run(&self.folder, &asked);
            let ran = ran.map_err(|error| error.to_string())?;
            if ran.end() == ProgramEnd::Exited(0) {
                return Ok(());
            }
        }
        Err(format!("it is not ready after {READY_TIMEOUT:?}"))
    }

    fn reached<'r>(&'r self, name: &'r str) -> ReachedService<'r> {
        let folder = &self.folder;
        ReachedService { name, folder }
    }
}

impl RunDatabases {
    /// What programs of the run reach.
    pub(super) fn reached(&self) -> Vec<ReachedService<'_>> {
        let all = self.0.iter();
        all.map(|(name, database)| database.reached(name)).collect()
    }

    /// Where they are, as programs of the run see it.
    pub(super) fn places(&self) -> BTreeMap<String, DatabasePlace> {
        let all = self.0.iter().map(|(name, database)| {
            let host = database.host.clone();
            (name.clone(), DatabasePlace { host, port: PORT })
        });
        all.collect()
    }

    /// Their URLs by the name of the reference: for programs of the run, or else for this process.
    pub(super) fn urls(&self, is_within: bool) -> BTreeMap<String, String> {
        let all = self.0.iter().map(|(name, database)| {
            let url = match is_within {
                true => url(&database.host),
                false => url(&database.folder.shared().display().to_string()),
            };
            (format!("services.{name}.url"), url)
        });
        all.collect()
    }

    /// Runs a query in a transaction that only reads. What it gives is printed as JSON.
    ///
    /// # Errors
    /// Why it was not run, in words.
    pub(super) fn query(
        &self,
        check: &SqlCheck,
        folder: &PrivateFolder,
    ) -> Result<Execution, String> {
        let database = self.0.get(&check.service);
        let database =
            database.ok_or("queries need the database of a suite: ktsu eval run".to_owned())?;
        let ending = database.server.ending();
        if let Some(end) = ending.wait(Duration::ZERO) {
            return Err(format!("the database {} {}", check.service, ended(&end)));
        }
        let limits = limits(check.limits);
        // What psql leaves ends soon after it.
        let most = (limits.time + Duration::from_secs(1)).as_millis();
        let url = format!(
            "{}&connect_timeout=10&options=-c%20default_transaction_read_only%3Don\
             %20-c%20statement_timeout%3D{most}",
            url(&database.host)
        );
        let (psql, statement) = (program(&database.programs, "psql"), statement(&check.query));
        let arguments = [
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
        ];
        let asked = Program::new(&arguments, limits).with_input(b"").read_only();
        let asked = asked.reaches(vec![database.reached(&check.service)]);
        let ran = database.sandbox.run(folder, &asked);
        let ran = ran.map_err(|error| error.to_string())?;
        match ran.end() {
            ProgramEnd::Exited(0) | ProgramEnd::Stopped(_) => Ok(ran),
            ProgramEnd::Exited(_) => match end_after(&ending, &ran) {
                Some(end) => Err(format!("the database {} {end}", check.service)),
                None => Ok(ran),
            },
        }
    }
}

/// How a server ended, if a query failed because it has lost it.
fn end_after(ending: &Ending, ran: &Execution) -> Option<String> {
    const LOST: i32 = 2;
    let patience = match ran.end() {
        ProgramEnd::Exited(LOST) => END_TIMEOUT,
        ProgramEnd::Exited(_) | ProgramEnd::Stopped(_) => Duration::ZERO,
    };
    ending.wait(patience).map(|end| ended(&end))
}

fn ended((end, last): &(ProgramEnd, String)) -> String {
    match end {
        ProgramEnd::Stopped(limit) => format!("was ended: {limit}"),
        ProgramEnd::Exited(code) if last.is_empty() => format!("ended with exit code {code}"),
        ProgramEnd::Exited(code) => format!("ended with exit code {code}: {last}"),
    }
}

/// A single statement that gives the first column of the first row as JSON. Only a server reads it: psql
/// takes a text that begins with a backslash for a command of its own.
fn statement(query: &str) -> String {
    let query = query.trim().trim_end_matches(';');
    format!(
        "SELECT coalesce(to_json(ktsu_value)::text, 'null') FROM (\n{query}\n) AS ktsu_row(ktsu_value) LIMIT 1"
    )
}

/// Makes the data of a database; why that failed, in words.
fn prepare(
    name: &str,
    service: &DatabaseService,
    (sandbox, programs, above): (&Sandbox, &Path, &Path),
) -> Result<PrivateFolder, String> {
    let folder = sandbox.empty_folder().map_err(|error| error.to_string())?;
    let (_, made) = sandbox.places(&folder);
    let mut arguments = vec![
        "sh".to_owned(),
        "-c".to_owned(),
        PREPARE.to_owned(),
        "prepare".to_owned(),
        programs.display().to_string(),
        data_of(sandbox, &folder),
        host_of(sandbox, name, &folder),
    ];
    for (at, file) in service.init.iter().enumerate() {
        let bytes = spec_files::read(above, file, "file", MAX_INIT_MIB)?;
        let (_, short) = file.rsplit_once('/').unwrap_or(("", file));
        let short = format!("{}-{short}", at + 1);
        let put = folder.make(&short, &bytes);
        put.map_err(|error| error.to_string())?;
        arguments.push(made.join(short).display().to_string());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = Program::new(&arguments, limits(service.limits)).offers(name);
    let ran = sandbox.run(&folder, &program);
    let ran = ran.map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&ran.output.kept).trim().to_owned();
    match ran.end() {
        ProgramEnd::Exited(0) => Ok(folder),
        ProgramEnd::Exited(_) => Err(printed),
        ProgramEnd::Stopped(limit) => Err(format!("it was ended: {limit}\n{printed}")),
    }
}

fn data_of(sandbox: &Sandbox, folder: &PrivateFolder) -> String {
    let (workspace, _) = sandbox.places(folder);
    workspace.join("data").display().to_string()
}

fn host_of(sandbox: &Sandbox, name: &str, folder: &PrivateFolder) -> String {
    let place = sandbox.place_of_service(name, folder);
    place.display().to_string()
}

/// The URL of a database, as libpq reads it.
fn url(host: &str) -> String {
    let mut encoded = String::with_capacity(host.len());
    for byte in host.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    format!("postgresql:///postgres?host={encoded}&user=postgres")
}

fn program(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// The folder with the programs of PostgreSQL: of the newest version of Debian's, or on the path.
fn programs() -> Option<PathBuf> {
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
    debian.chain(on_the_path).find(has_all)
}

/// Those of a run whose suite has some.
pub(super) fn started(databases: Option<&Databases>) -> Result<Arc<RunDatabases>, Failure> {
    match databases {
        None => Ok(Arc::default()),
        Some(databases) => databases.start().map(Arc::new),
    }
}

#[cfg(test)]
mod tests {
    use super::{statement, url};

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
}
