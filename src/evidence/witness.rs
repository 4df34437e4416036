//! Witnesses keep checkpoints where the operator of the ledger cannot change them.
//!
//! A later checkpoint covers all earlier ones, so only the last one waits for a witness that does
//! not answer. Runs on the notary's thread, after the checkpoint is durable.

use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The time after a failure until the witness is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time that a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The place where checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessTarget {
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
pub struct ParseWitnessError;

impl FromStr for WitnessTarget {
    type Err = ParseWitnessError;

    fn from_str(text: &str) -> Result<Self, ParseWitnessError> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            Some(("command", command)) if !command.trim().is_empty() => {
                Ok(Self::Command(command.to_owned()))
            }
            Some(("http" | "https", _)) => Ok(Self::Url(text.to_owned())),
            _ => Err(ParseWitnessError),
        }
    }
}

impl fmt::Display for WitnessTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(command) => write!(f, "command:{command}"),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Posts a note to a URL, and waits for the answer.
pub type PostNote = Box<dyn Fn(&str, String) -> Result<(), String> + Send>;

/// A witness, and what it has not taken yet.
pub struct Witness {
    place: WitnessTarget,
    post: PostNote,
    waiting: Option<String>,
    failed: Option<Instant>,
    /// True if the last hand-over that failed took all the time that it may take.
    hung: bool,
}

impl Witness {
    /// A witness at a place.
    pub fn new(place: WitnessTarget, post: PostNote) -> Self {
        Self {
            place,
            post,
            waiting: None,
            failed: None,
            hung: false,
        }
    }

    /// Hands a signed note over.
    ///
    /// # Errors
    /// Why it was not taken; it is tried again.
    pub fn submit(&mut self, note: String) -> Result<(), String> {
        self.waiting = Some(note);
        match self.pause() {
            // It failed a moment ago: this note waits with the others.
            Some(pause) if pause > Duration::ZERO => {
                Err(format!("{} has not answered yet", self.place))
            }
            _ => self.flush(),
        }
    }

    /// The time to wait before trying again, if there is anything to try.
    pub fn pause(&self) -> Option<Duration> {
        let failed = self.failed.filter(|_| self.waiting.is_some())?;
        Some(RETRY_INTERVAL.saturating_sub(failed.elapsed()))
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
        let started = Instant::now();
        let outcome = self.give(note);
        self.hung = started.elapsed() >= COMMAND_TIMEOUT;
        self.failed = outcome.is_err().then(Instant::now);
        if outcome.is_ok() {
            self.waiting = None;
        }
        outcome.map_err(|why| format!("{}: {why}", self.place))
    }

    /// Hands over what waits before the engine ends, unless that has just taken all the time there
    /// is: the next start offers the newest checkpoint again.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn finish(&mut self) -> Result<(), String> {
        match self.failed {
            Some(failed) if self.hung && failed.elapsed() < RETRY_INTERVAL => {
                Err(format!("{} does not answer", self.place))
            }
            _ => self.flush(),
        }
    }

    fn give(&self, note: &str) -> Result<(), String> {
        match &self.place {
            WitnessTarget::File(path) => append(path, note).map_err(|error| error.to_string()),
            WitnessTarget::Command(command) => run_command(command, note),
            WitnessTarget::Url(url) => (self.post)(url, note.to_owned()),
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

fn run_command(command: &str, note: &str) -> Result<(), String> {
    use std::io::Write as _;
    let failed = |error: std::io::Error| error.to_string();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_remove(super::signing_key::VARIABLE)
        // A group of its own: what it starts ends with it.
        .process_group(0)
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
            None if started.elapsed() > COMMAND_TIMEOUT => {
                let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                let _ = child.kill();
                let _ = child.wait();
                return Err("it took more than ten seconds".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(place: &str) -> Witness {
        Witness::new(place.parse().unwrap(), Box::new(|_, _| Ok(())))
    }

    #[test]
    fn what_hangs_is_not_asked_again_when_the_engine_ends_and_what_failed_is() {
        let mut witness = witness("command:false");
        assert!(witness.submit("note".to_owned()).is_err());
        witness.place = WitnessTarget::Command("true".to_owned());
        witness.hung = true;
        assert!(witness.finish().unwrap_err().contains("does not answer"));
        witness.hung = false;
        assert_eq!(witness.finish(), Ok(()));
        assert!(witness.waiting.is_none());
    }

    #[test]
    fn notes_that_a_command_appends_to_a_file_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes");
        let mut witness = witness(&format!("command:cat >> '{}'", file.display()));
        let root = "A".repeat(43) + "=";
        for size in 1..3 {
            let note = format!("ktsu/ledger/x\n{size}\n{root}\n\n\u{2014} x AAAA\n");
            assert_eq!(witness.submit(note), Ok(()));
        }
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(crate::notes(&text).unwrap().len(), 2);
    }
}
