//! Witnesses: who keeps checkpoints where the operator of the ledger cannot change them.
//!
//! A later checkpoint stands for all before it, so only the last one waits for a witness that does
//! not answer. It runs on the notary's thread, after the checkpoint is durable.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long after a failure the witness is asked again.
const AGAIN: Duration = Duration::from_secs(30);
/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `file:PATH`: appended to.
    File(PathBuf),
    /// `command:…`: started with the note on its standard input.
    Command(String),
    /// `https://…`: posted to, by the one way out.
    Url(String),
}

/// The text names no witness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a witness is file:PATH, command:COMMAND, or a URL")]
pub struct NotAWitness;

impl FromStr for Place {
    type Err = NotAWitness;

    fn from_str(text: &str) -> Result<Self, NotAWitness> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            Some(("command", command)) if !command.trim().is_empty() => {
                Ok(Self::Command(command.to_owned()))
            }
            Some(("http" | "https", _)) => Ok(Self::Url(text.to_owned())),
            _ => Err(NotAWitness),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(command) => write!(f, "command:{command}"),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Posts a note to a URL, and waits for the answer.
pub type Post = Box<dyn Fn(&str, String) -> Result<(), String> + Send>;

/// A witness, and what it has not taken yet.
pub struct Witness {
    place: Place,
    post: Post,
    waiting: Option<String>,
    failed: Option<Instant>,
}

impl Witness {
    /// A witness at a place.
    pub fn new(place: Place, post: Post) -> Self {
        Self {
            place,
            post,
            waiting: None,
            failed: None,
        }
    }

    /// Hands a signed note over.
    ///
    /// # Errors
    /// Why it was not taken; it is tried again.
    pub fn hand_over(&mut self, note: String) -> Result<(), String> {
        self.waiting = Some(note);
        match self.pause() {
            // It failed a moment ago: this note waits with the others.
            Some(pause) if pause > Duration::ZERO => {
                Err(format!("{} has not answered yet", self.place))
            }
            _ => self.flush(),
        }
    }

    /// How long to wait before trying again, if there is anything to try.
    pub fn pause(&self) -> Option<Duration> {
        let failed = self.failed.filter(|_| self.waiting.is_some())?;
        Some(AGAIN.saturating_sub(failed.elapsed()))
    }

    /// Tries again if it is time.
    pub fn retry(&mut self) -> Option<Result<(), String>> {
        (self.pause()? == Duration::ZERO).then(|| self.flush())
    }

    /// Hands over what waits.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn flush(&mut self) -> Result<(), String> {
        let Some(note) = &self.waiting else {
            return Ok(());
        };
        let outcome = self.give(note);
        self.failed = outcome.is_err().then(Instant::now);
        if outcome.is_ok() {
            self.waiting = None;
        }
        outcome.map_err(|why| format!("{}: {why}", self.place))
    }

    fn give(&self, note: &str) -> Result<(), String> {
        match &self.place {
            Place::File(path) => append(path, note).map_err(|error| error.to_string()),
            Place::Command(command) => start(command, note),
            Place::Url(url) => (self.post)(url, note.to_owned()),
        }
    }
}

fn append(path: &PathBuf, note: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    // A blank line ends each: a note ends with its signatures.
    file.write_all(format!("{note}\n").as_bytes())?;
    file.sync_all()
}

fn start(command: &str, note: &str) -> Result<(), String> {
    use std::io::Write as _;
    let failed = |error: std::io::Error| error.to_string();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_remove(super::signing_key::VARIABLE)
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A note fits into a pipe; whoever does not read it says so with its status.
        let _ = input.write_all(format!("{note}\n").as_bytes());
    }
    let started = Instant::now();
    loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("it ended with {status}")),
            None if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it took more than ten seconds".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
