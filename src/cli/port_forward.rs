//! Ports within a sandbox that lead to sockets of services: `ktsu port-forward PORT=SOCKET … -- PROGRAM …`
//! runs a program that reaches them, and ends as it ends.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The name of this program within a sandbox.
pub(super) const PROGRAM: &str = "ktsu";

/// The number of processes and threads that it adds to those of the program.
pub(super) const PROCESSES: u64 = 2;

/// The command, which only ktsu itself uses.
const COMMAND: &str = "port-forward";

/// The argument that the program follows.
const PROGRAM_FOLLOWS: &str = "--";

/// The most connections at a time; others wait.
const MAX_CONNECTIONS: usize = 64;

/// The pause after a connection that could not be accepted.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(10);

/// The exit code of what was not run.
const NOT_RUN: u8 = 127;

/// The arguments in front of a program that let it reach sockets by ports.
pub(super) fn arguments(this: &Path, ports: impl Iterator<Item = (u16, PathBuf)>) -> Vec<String> {
    let front = [this.display().to_string(), COMMAND.to_owned()];
    let ports = ports.map(|(port, socket)| format!("{port}={}", socket.display()));
    let all = front.into_iter().chain(ports);
    all.chain([PROGRAM_FOLLOWS.to_owned()]).collect()
}

/// The exit code, if this process is to forward ports.
pub(super) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()?.to_str() != Some(COMMAND) {
        return None;
    }
    let mut ports = Vec::new();
    for argument in arguments.by_ref() {
        match argument.to_str() {
            Some(PROGRAM_FOLLOWS) => break,
            Some(text) => ports.push(text.to_owned()),
            None => return Some(ExitCode::from(NOT_RUN)),
        }
    }
    Some(match run(&ports, arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            super::output::print_failure(&format!("cannot start: {error}"));
            ExitCode::from(NOT_RUN)
        }
    })
}

fn run(ports: &[String], mut program: impl Iterator<Item = OsString>) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for text in ports {
            let (port, socket) = text.split_once('=').ok_or(io::ErrorKind::InvalidInput)?;
            let port: u16 = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            tokio::spawn(forward(listener, socket.into(), Arc::clone(&places)));
        }
        let name = program.next().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(name).args(program).spawn()?;
        let (sender, ended) = oneshot::channel();
        thread::spawn(move || sender.send(child.wait()));
        let ended = ended.await.map_err(io::Error::other)??;
        Ok(code_of(ended))
    })
}

/// As a shell has it: 128 and the number of the signal that ended it.
fn code_of(ended: ExitStatus) -> u8 {
    let by_signal = || 128 + ended.signal().unwrap_or_default();
    let code = ended.code().unwrap_or_else(by_signal);
    u8::try_from(code).unwrap_or(u8::MAX)
}

async fn forward(listener: TcpListener, socket: PathBuf, places: Arc<Semaphore>) {
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(both(stream, socket.clone(), place))),
            // Without descriptors there is none until another connection ends.
            Err(_) => tokio::time::sleep(ACCEPT_INTERVAL).await,
        }
    }
}

async fn both(mut stream: TcpStream, socket: PathBuf, _place: OwnedSemaphorePermit) {
    if let Ok(mut service) = UnixStream::connect(socket).await {
        let _ = copy_bidirectional(&mut stream, &mut service).await;
    }
}
