//! The process that owns a ledger on a server, as the ledger names it.

use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// A process of some machine.
///
/// As text its parts are separated by spaces: machine, process, the boot of the machine, the process's
/// namespace, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    machine: String,
    pid: u32,
    boot: String,
    namespace: String,
    began: String,
}

/// The text names no process.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseHolderError;

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine,
            pid,
            boot,
            namespace,
            began,
        } = self;
        write!(f, "{machine} {pid} {boot} {namespace} {began}")
    }
}

impl FromStr for Holder {
    type Err = ParseHolderError;

    fn from_str(text: &str) -> Result<Self, ParseHolderError> {
        let mut parts = text.split(' ');
        let mut next = || parts.next().ok_or(ParseHolderError);
        Ok(Self {
            machine: next()?.to_owned(),
            pid: next()?.parse().map_err(|_| ParseHolderError)?,
            boot: next()?.to_owned(),
            namespace: next()?.to_owned(),
            began: next()?.to_owned(),
        })
    }
}

impl Holder {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        let uname = rustix::system::uname();
        Self {
            machine: word(&uname.nodename().to_string_lossy()),
            pid,
            boot: word(
                &std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            ),
            namespace: namespace(),
            began: match began(pid) {
                ShownProcess::Began(began) => began,
                ShownProcess::Over | ShownProcess::Hidden => word(""),
            },
        }
    }

    /// For people: its machine and its number there.
    pub fn name(&self) -> String {
        format!("process {} of {}", self.pid, self.machine)
    }

    /// Returns `true` if this machine knows that the process has ended.
    pub fn has_ended(&self) -> bool {
        let here = Self::this();
        let is_here = self.boot == here.boot && self.namespace == here.namespace;
        is_here && self.boot != word("") && !self.may_be_at_work()
    }
}

impl Holder {
    /// Returns `false` only if this machine is certain: it may not show the processes of other users.
    fn may_be_at_work(&self) -> bool {
        match began(self.pid) {
            ShownProcess::Began(began) => began == self.began,
            ShownProcess::Over => false,
            ShownProcess::Hidden => {
                let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
                pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
            }
        }
    }
}

/// What this machine shows of a process.
enum ShownProcess {
    /// When it began, in ticks since the machine did.
    Began(String),
    /// It has ended, and its parent has not looked at it.
    Over,
    /// Nothing: it has ended, or is not shown.
    Hidden,
}

/// A text as one part of a name.
fn word(text: &str) -> String {
    let text: String = text.split_whitespace().collect();
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}

/// The namespace in which process numbers of this process are counted.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid");
    word(&link.map_or_else(|_| String::new(), |link| link.display().to_string()))
}

/// What this machine shows of a process.
fn began(pid: u32) -> ShownProcess {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return ShownProcess::Hidden;
    };
    // The name of a program, in parentheses, may have any character.
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    if fields
        .next()
        .is_none_or(|state| ["Z", "X"].contains(&state))
    {
        return ShownProcess::Over;
    }
    fields.nth(18).map_or(ShownProcess::Hidden, |began| {
        ShownProcess::Began(word(began))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_text_and_to_have_ended_only_on_its_own_machine() {
        let this = Holder::this();
        assert_eq!(this.to_string().parse(), Ok(this.clone()));
        assert!(!this.has_ended());
        let earlier = Holder {
            began: "1".to_owned(),
            ..this.clone()
        };
        assert!(earlier.has_ended());
        let gone = Holder {
            pid: 4_000_000,
            ..this.clone()
        };
        assert!(gone.has_ended());
        for elsewhere in [
            Holder {
                boot: "other".to_owned(),
                ..earlier.clone()
            },
            Holder {
                namespace: "other".to_owned(),
                ..earlier
            },
        ] {
            assert!(!elsewhere.has_ended());
        }
        assert_eq!("a b".parse::<Holder>(), Err(ParseHolderError));
    }
}
