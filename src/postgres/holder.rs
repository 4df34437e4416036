//! The process that owns a ledger, as its row names it.

use std::fmt;
use std::str::FromStr;

/// A process of some machine.
///
/// As text its parts are separated by spaces: machine, process, the boot of the machine, the process's
/// namespace, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    machine: String,
    pid: u32,
    boot: String,
    namespace: String,
    began: String,
}

/// The text names no process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParseHolderError;

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
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        let uname = rustix::system::uname();
        Self {
            machine: word(&uname.nodename().to_string_lossy()),
            pid,
            boot: word(
                &std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            ),
            namespace: namespace(),
            began: began(pid).unwrap_or_else(|| word("")),
        }
    }

    /// For people: its machine and its number there.
    pub(crate) fn name(&self) -> String {
        format!("process {} of {}", self.pid, self.machine)
    }

    /// Returns `true` if this machine knows that the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let here = Self::this();
        let is_here = self.boot == here.boot && self.namespace == here.namespace;
        is_here && self.boot != word("") && began(self.pid).as_ref() != Some(&self.began)
    }
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

/// When a process of this machine began, in ticks since the machine did; `None` if there is none.
fn began(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of a program, in parentheses, may have any character.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    // One that has ended stays until its parent has looked at it.
    let is_over = fields
        .next()
        .is_none_or(|state| ["Z", "X"].contains(&state));
    fields.nth(18).filter(|_| !is_over).map(word)
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
