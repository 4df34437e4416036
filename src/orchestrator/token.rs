//! Tokens of attempts: the holder may report about that attempt, and about nothing else (decision
//! W1).
//!
//! A token is a keyed BLAKE3 hash over the run, the step, the item and the attempt, so tokens need
//! no storage and survive a restart. The key is in a file next to the ledger; neither it nor a
//! token ever appears in a frame or a log.

use ktsu_projections::lineage::item_name;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The key behind the tokens of a ledger.
pub struct TokenKey(Zeroizing<[u8; 32]>);

/// The task a token is about: `run_…` or `run_…/call`, and `STEP` or `STEP.INDEX`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskName {
    /// The run, with its scope.
    pub run: String,
    /// The step, with its item.
    pub step: String,
}

impl TaskName {
    /// The name of a task of a run, in one of its scopes.
    pub fn new(run: &str, scope: &str, step: &str, item: Option<u32>) -> Self {
        Self {
            run: match scope {
                "" => run.to_owned(),
                scope => format!("{run}/{scope}"),
            },
            step: item_name(step, item),
        }
    }

    /// The run without the path of an inline child.
    pub fn root(&self) -> &str {
        self.run.split('/').next().unwrap_or_default()
    }
}

impl TokenKey {
    /// A key from its bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The token of an attempt.
    pub fn token(&self, task: &TaskName, attempt: u32) -> String {
        format!("{attempt}.{}", self.mac(task, attempt).to_hex())
    }

    /// The attempt a token is for, if it is a token of this task.
    pub fn attempt(&self, task: &TaskName, token: &str) -> Option<u32> {
        checked(token, |attempt| self.mac(task, attempt))
    }

    /// The token of the data that a suspended attempt waits for (decision P3).
    pub fn resume_token(&self, task: &TaskName, attempt: u32) -> String {
        format!("{attempt}.{}", self.resume_mac(task, attempt).to_hex())
    }

    /// The attempt that a token lets its holder resume, if it is a token of this task.
    pub fn resumes(&self, task: &TaskName, token: &str) -> Option<u32> {
        checked(token, |attempt| self.resume_mac(task, attempt))
    }

    /// No run has an empty name, so that no token of an attempt is one of these.
    fn resume_mac(&self, task: &TaskName, attempt: u32) -> blake3::Hash {
        let text = format!("\nresume\n{}\n{}\n{attempt}", task.run, task.step);
        blake3::keyed_hash(&self.0, text.as_bytes())
    }

    fn mac(&self, task: &TaskName, attempt: u32) -> blake3::Hash {
        let text = format!("{}\n{}\n{attempt}", task.run, task.step);
        blake3::keyed_hash(&self.0, text.as_bytes())
    }
}

/// The attempt that a token names, if its code is the one of that attempt.
fn checked(token: &str, mac_of: impl Fn(u32) -> blake3::Hash) -> Option<u32> {
    let (attempt, mac) = token.split_once('.')?;
    let attempt = attempt.parse().ok()?;
    let expected = mac_of(attempt).to_hex();
    let same = expected.as_bytes().ct_eq(mac.as_bytes());
    bool::from(same).then_some(attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(run: &str, step: &str) -> TaskName {
        TaskName {
            run: run.to_owned(),
            step: step.to_owned(),
        }
    }

    #[test]
    fn a_link_resumes_one_attempt_of_one_task_and_reports_nothing() {
        let key = TokenKey::new([7; 32]);
        let task = name("run_1/call", "a");
        let token = key.resume_token(&task, 2);
        assert_eq!(key.resumes(&task, &token), Some(2));
        assert_eq!(key.attempt(&task, &token), None);
        assert_eq!(key.resumes(&task, &key.token(&task, 2)), None);
        for other in [
            name("branch_1/call", "a"),
            name("run_1", "a"),
            name("run_1/call", "b"),
        ] {
            assert_eq!(key.resumes(&other, &token), None, "{other:?}");
        }
        assert_eq!(key.resumes(&task, &token.replacen("2.", "3.", 1)), None);
    }

    #[test]
    fn a_token_is_good_for_one_attempt_of_one_task() {
        let key = TokenKey::new([7; 32]);
        let token = key.token(&name("run_1/call", "a.3"), 2);
        assert_eq!(key.attempt(&name("run_1/call", "a.3"), &token), Some(2));
        for other in [
            name("run_1", "a.3"),
            name("run_1/call", "a"),
            name("run_2/call", "a.3"),
        ] {
            assert_eq!(key.attempt(&other, &token), None, "{other:?}");
        }
        let raised = token.replacen("2.", "3.", 1);
        assert_eq!(key.attempt(&name("run_1/call", "a.3"), &raised), None);
        let elsewhere = TokenKey::new([8; 32]);
        assert_eq!(elsewhere.attempt(&name("run_1/call", "a.3"), &token), None);
        for text in ["", ".", "2.", "x.y", "2"] {
            assert_eq!(key.attempt(&name("run_1/call", "a.3"), text), None);
        }
    }
}
