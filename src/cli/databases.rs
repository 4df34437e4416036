//! Databases of suites: servers in the sandbox, one for each run, with a copy of data that are prepared
//! once. Programs of the run reach them through sockets. What a run left in them is dumped, and a dump makes
//! them again.

mod engine;
mod kept;
mod mariadb;
mod postgres;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ktsu_eval::{DatabaseKind, DatabasePlace, DatabaseService, ProgramLimits, SqlCheck};
use ktsu_sandbox::{
    Ending, Execution, PrivateFolder, Program, ProgramEnd, ReachedService, Sandbox, SandboxError,
    SandboxLimits, ServingProgram,
};
use serde_json::{Map, Value};

use self::engine::{DatabaseEngine, EngineProgram, ServerPlace};
use self::kept::{Dumped, MAX_SERVICES_JSON};
use self::mariadb::MariaDb;
use self::postgres::Postgres;
use super::Failure;
use super::program_limits::{limits, service_limits};
use super::spec_files;

/// The most MiB of a file that prepares a database.
const MAX_INIT_MIB: u64 = 64;

/// The time that a server may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two checks of whether a server is ready.
const READY_INTERVAL: Duration = Duration::from_millis(10);

/// The time that a server that has closed its socket may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The databases of a suite, with data that each run gets a copy of.
pub(super) struct Databases {
    sandbox: Sandbox,
    prepared: BTreeMap<String, PreparedDatabase>,
}

struct PreparedDatabase {
    engine: Arc<dyn DatabaseEngine>,
    /// The data that each run begins with.
    data: PreparedData,
    /// The empty data that a dump is restored in, once one is.
    empty: OnceLock<Result<PreparedData, String>>,
    limits: ProgramLimits,
}

struct PreparedData {
    folder: PrivateFolder,
    /// A digest of what the server held, before files were run, that a dump leaves out.
    beside: String,
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
    engine: Arc<dyn DatabaseEngine>,
    name: String,
    /// The folder with its socket, as programs see it.
    socket: String,
    /// The limits on preparing the data, dumping them, and restoring them.
    limits: SandboxLimits,
    /// A digest of what a new server holds that a dump leaves out.
    beside: String,
    /// The dump it was restored from, which is what it holds until checks are made.
    restored: Option<String>,
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
        let mut prepared = BTreeMap::new();
        for (name, service) in services {
            let engine = found(service.kind, sandbox)?;
            let files = init_files(service, above);
            let data = files.and_then(|files| {
                prepare(name, (&*engine, &files), sandbox, limits(service.limits))
            });
            let data = data.map_err(|why| {
                let words = format!("the database {name} is not prepared: {why}");
                Failure::could_not_run(words)
                    .hint("files of init are run in the sandbox, without a network")
            })?;
            let database = PreparedDatabase {
                engine,
                data,
                empty: OnceLock::new(),
                limits: service.limits,
            };
            prepared.insert(name.clone(), database);
        }
        Ok(Some(Self {
            sandbox: sandbox.clone(),
            prepared,
        }))
    }

    /// Starts a server for each database, with a copy of its data, and waits until they are ready.
    pub(super) fn start(&self) -> Result<RunDatabases, Failure> {
        let all = self.prepared.iter().map(|(name, prepared)| {
            let started = self.start_one(name, prepared, &prepared.data);
            let started = started.map_err(|why| not_started(name, &why))?;
            Ok((name.clone(), started))
        });
        Ok(RunDatabases(all.collect::<Result<_, Failure>>()?))
    }

    /// Starts a server for each database with what a run left in it; none if that is not kept as a whole, or
    /// cannot be made again. Without a sandbox nothing is: a dump may have the server run programs.
    pub(super) fn restore(&self, recorded: &Value) -> Result<Option<RunDatabases>, Failure> {
        if self.sandbox.is_none() {
            return Ok(None);
        }
        let mut all = BTreeMap::new();
        for (name, prepared) in &self.prepared {
            let Some(dump) = kept::dump_of(recorded, name) else {
                return Ok(None);
            };
            let empty = prepared.empty.get_or_init(|| {
                let limits = limits(prepared.limits);
                prepare(name, (&*prepared.engine, &[]), &self.sandbox, limits)
            });
            let empty = empty.as_ref().map_err(|why| not_started(name, why))?;
            let started = self.start_one(name, prepared, empty);
            let mut database = started.map_err(|why| not_started(name, &why))?;
            if !database.restore(dump)? {
                return Ok(None);
            }
            all.insert(name.clone(), database);
        }
        Ok(Some(RunDatabases(all)))
    }

    fn start_one(
        &self,
        name: &str,
        prepared: &PreparedDatabase,
        data: &PreparedData,
    ) -> Result<RunDatabase, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let folder = self.sandbox.copy_of(&data.folder.workspace());
        let folder = folder.map_err(|error| words(&error))?;
        let place = place_of(&self.sandbox, name, &folder);
        let server = prepared.engine.serve(&place);
        let server: Vec<&str> = server.iter().map(String::as_str).collect();
        let server = Program::new(&server, service_limits(prepared.limits)).offers(name);
        let server = self.sandbox.serve(&folder, &server);
        let mut server = server.map_err(|error| words(&error))?;
        // It logs to its standard error.
        drop(server.output.take());
        let database = RunDatabase {
            server,
            folder,
            sandbox: self.sandbox.clone(),
            engine: Arc::clone(&prepared.engine),
            name: name.to_owned(),
            socket: place.socket,
            limits: limits(prepared.limits),
            beside: data.beside.clone(),
            restored: None,
        };
        database.wait_until_ready()?;
        Ok(database)
    }
}

impl RunDatabase {
    fn wait_until_ready(&self) -> Result<(), String> {
        let ready = self.engine.ready(&self.socket);
        let limits = limits(ProgramLimits::default());
        let (began, ending) = (Instant::now(), self.server.ending());
        while began.elapsed() < READY_TIMEOUT {
            if let Some(end) = ending.wait(READY_INTERVAL) {
                return Err(ended(&end));
            }
            let ran = self.run(&ready, limits, &self.folder);
            let ran = ran.map_err(|error| error.to_string())?;
            if ran.end() == ProgramEnd::Exited(0) {
                return Ok(());
            }
        }
        Err(format!("it is not ready after {READY_TIMEOUT:?}"))
    }

    /// Runs a client of it, which can only read a folder.
    fn run(
        &self,
        program: &EngineProgram,
        limits: SandboxLimits,
        folder: &PrivateFolder,
    ) -> Result<Execution, SandboxError> {
        let arguments: Vec<&str> = program.arguments.iter().map(String::as_str).collect();
        let client = Program::new(&arguments, limits).with_input(&program.input);
        let client = client.read_only().reaches(vec![self.reached()]);
        self.sandbox.run(folder, &client)
    }

    /// The execution of a client, if it ended as it should.
    fn finished(
        &self,
        program: &EngineProgram,
        limits: SandboxLimits,
    ) -> Result<Option<Execution>, Failure> {
        match self.run(program, limits, &self.folder) {
            Ok(ran) => Ok((ran.end() == ProgramEnd::Exited(0)).then_some(ran)),
            Err(SandboxError::Interrupted) => Err(Failure::of(SandboxError::Interrupted)),
            Err(_) => Ok(None),
        }
    }

    fn reached(&self) -> ReachedService<'_> {
        ReachedService {
            name: &self.name,
            folder: &self.folder,
        }
    }

    /// A dump of what it holds.
    fn dump(&self) -> Result<Dumped, Failure> {
        if let Some(restored) = &self.restored {
            return Ok(Dumped::Whole(restored.clone()));
        }
        if self.server.ending().wait(Duration::ZERO).is_some() {
            return Ok(Dumped::Nothing);
        }
        let limits = SandboxLimits {
            output: usize::try_from(MAX_SERVICES_JSON).unwrap_or(usize::MAX),
            ..self.limits
        };
        let dump = self.engine.dump(&self.socket, &self.beside);
        let Some(ran) = self.finished(&dump, limits)? else {
            return Ok(Dumped::Nothing);
        };
        if ran.output.total > ran.output.kept.len() as u64 {
            return Ok(Dumped::TooLarge(ran.output.total));
        }
        Ok(match String::from_utf8(ran.output.kept) {
            Ok(dump) => Dumped::Whole(self.engine.stable(&dump)),
            Err(_) => Dumped::Nothing,
        })
    }

    /// Makes a dump again, in a database without data; false if something else came of it.
    fn restore(&mut self, dump: &str) -> Result<bool, Failure> {
        let program = self.engine.restore(&self.socket, dump);
        if self.finished(&program, self.limits)?.is_none() {
            return Ok(false);
        }
        let is_same = self.dump()? == Dumped::Whole(dump.to_owned());
        self.restored = is_same.then(|| dump.to_owned());
        Ok(is_same)
    }
}

impl RunDatabases {
    /// The services that programs of the run reach.
    pub(super) fn reached(&self) -> Vec<ReachedService<'_>> {
        self.0.values().map(RunDatabase::reached).collect()
    }

    /// Their places, as programs of the run see them.
    pub(super) fn places(&self) -> BTreeMap<String, DatabasePlace> {
        let all = self.0.iter().map(|(name, database)| {
            let place = database.engine.place(&database.socket);
            (name.clone(), place)
        });
        all.collect()
    }

    /// Their URLs by the name of the reference: for programs of the run, or else for this process.
    pub(super) fn urls(&self, is_within: bool) -> BTreeMap<String, String> {
        let all = self.0.iter().map(|(name, database)| {
            let shared = database.folder.shared().display().to_string();
            let socket = if is_within { &database.socket } else { &shared };
            (format!("services.{name}.url"), database.engine.url(socket))
        });
        all.collect()
    }

    /// The record of what they hold before checks are made; none if there are none.
    pub(super) fn recorded(&self) -> Result<Option<Map<String, Value>>, Failure> {
        let dumps = self.0.iter();
        let dumps = dumps.map(|(name, database)| Ok((name.clone(), database.dump()?)));
        let dumps = dumps.collect::<Result<BTreeMap<_, _>, Failure>>()?;
        Ok((!dumps.is_empty()).then(|| kept::recorded(&dumps)))
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
        // What the client leaves ends soon after it.
        let most = limits.time + Duration::from_secs(1);
        let engine = &database.engine;
        let program = engine.query(&database.socket, &check.query, most);
        let ran = database.run(&program, limits, folder);
        let ran = ran.map_err(|error| error.to_string())?;
        match ran.end() {
            ProgramEnd::Exited(0) | ProgramEnd::Stopped(_) => Ok(ran),
            ProgramEnd::Exited(code) => {
                let errors = String::from_utf8_lossy(&ran.errors.kept);
                match end_after(&ending, engine.has_lost_server(code, &errors)) {
                    Some(end) => Err(format!("the database {} {end}", check.service)),
                    None => Ok(ran),
                }
            }
        }
    }
}

/// The end of a server in words, if it has ended; where a query has lost it, it gets time to end.
fn end_after(ending: &Ending, is_lost: bool) -> Option<String> {
    let patience = if is_lost { END_TIMEOUT } else { Duration::ZERO };
    ending.wait(patience).map(|end| ended(&end))
}

fn ended((end, last): &(ProgramEnd, String)) -> String {
    match end {
        ProgramEnd::Stopped(limit) => format!("was ended: {limit}"),
        ProgramEnd::Exited(code) if last.is_empty() => format!("ended with exit code {code}"),
        ProgramEnd::Exited(code) => format!("ended with exit code {code}: {last}"),
    }
}

fn not_started(name: &str, why: &str) -> Failure {
    Failure::could_not_run(format!("the database {name} does not start: {why}"))
}

/// The engine that runs databases of a kind here.
fn found(kind: DatabaseKind, sandbox: &Sandbox) -> Result<Arc<dyn DatabaseEngine>, Failure> {
    let (engine, name, install) = match kind {
        DatabaseKind::Postgres => {
            let found = Postgres::find().map(shared);
            (found, postgres::NAME, postgres::INSTALL)
        }
        DatabaseKind::MariaDb => {
            let found = MariaDb::find().map(shared);
            (found, mariadb::NAME, mariadb::INSTALL)
        }
    };
    if sandbox.runs_as_root() {
        let words = format!("{name} does not run as root, and without a sandbox it would");
        return Err(Failure::could_not_run(words)
            .hint("leave out --no-sandbox, or run ktsu as another user"));
    }
    engine.ok_or_else(|| {
        let words = format!("there is no {name} for the databases of the suite");
        Failure::could_not_run(words).hint(install)
    })
}

fn shared(engine: impl DatabaseEngine + 'static) -> Arc<dyn DatabaseEngine> {
    Arc::new(engine)
}

/// The files that prepare a database: what they are called, and their bytes.
fn init_files(service: &DatabaseService, above: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let files = service.init.iter().enumerate();
    let files = files.map(|(at, file)| {
        let bytes = spec_files::read(above, file, "file", MAX_INIT_MIB)?;
        let (_, short) = file.rsplit_once('/').unwrap_or(("", file));
        Ok((format!("{}-{short}", at + 1), bytes))
    });
    files.collect()
}

/// Makes the data of a database; why that failed, in words.
fn prepare(
    name: &str,
    (engine, files): (&dyn DatabaseEngine, &[(String, Vec<u8>)]),
    sandbox: &Sandbox,
    limits: SandboxLimits,
) -> Result<PreparedData, String> {
    let folder = sandbox.empty_folder().map_err(|error| error.to_string())?;
    let (_, made) = sandbox.places(&folder);
    let mut arguments = engine.prepare(&place_of(sandbox, name, &folder));
    for (short, bytes) in files {
        let put = folder.make(short, bytes);
        put.map_err(|error| error.to_string())?;
        arguments.push(made.join(short).display().to_string());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = Program::new(&arguments, limits).offers(name);
    let ran = sandbox.run(&folder, &program);
    let ran = ran.map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&ran.output.kept).trim().to_owned();
    match ran.end() {
        ProgramEnd::Exited(0) => {
            let beside = printed.lines().last().unwrap_or_default().to_owned();
            Ok(PreparedData { folder, beside })
        }
        ProgramEnd::Exited(_) => Err(printed),
        ProgramEnd::Stopped(limit) => Err(format!("it was ended: {limit}\n{printed}")),
    }
}

fn place_of(sandbox: &Sandbox, name: &str, folder: &PrivateFolder) -> ServerPlace {
    let (workspace, _) = sandbox.places(folder);
    ServerPlace {
        data: workspace.join("data").display().to_string(),
        socket: sandbox.place_of_service(name, folder).display().to_string(),
    }
}

/// Those of a run whose suite has some.
pub(super) fn started(databases: Option<&Databases>) -> Result<Arc<RunDatabases>, Failure> {
    match databases {
        None => Ok(Arc::default()),
        Some(databases) => databases.start().map(Arc::new),
    }
}

#[cfg(test)]
mod tests;
