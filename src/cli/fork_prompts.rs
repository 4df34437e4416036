//! Prompts that `ktsu fork --prompt` edits.

use std::path::Path;

use serde_json::{Map, Value};

use super::Failure;
use ktsu_opening::input::read;

/// How an edit is written.
const FORM: &str = "--prompt STEP.system=TEXT, STEP.user=@FILE or STEP.reflect=@FILE";
/// The prompts of an agent.
const PROMPTS: [&str; 3] = ["system", "user", "reflect"];

/// The member `prompts` of a fork: by step or agent file, and by prompt. A text that begins with `@` names a file.
pub(super) fn prompts_of(edits: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut prompts = Map::new();
    for edit in edits {
        let wrong = |words: String| Failure::could_not_run(words).hint(FORM);
        let (path, text) = edit
            .split_once('=')
            .ok_or_else(|| wrong(format!("{edit:?} is not STEP.PROMPT=TEXT")))?;
        let (agent, prompt) = path
            .rsplit_once('.')
            .filter(|(agent, prompt)| !agent.is_empty() && PROMPTS.contains(prompt))
            .ok_or_else(|| wrong(format!("{path:?} is not a prompt of a step")))?;
        let text = match text.strip_prefix('@') {
            Some(file) => read(Path::new(file))?,
            None => text.to_owned(),
        };
        let texts = prompts.entry(agent);
        let texts = texts.or_insert_with(|| Value::Object(Map::new()));
        let texts = texts.as_object_mut();
        if texts.is_some_and(|texts| texts.insert(prompt.to_owned(), text.into()).is_some()) {
            return Err(wrong(format!("{path:?} is there twice")));
        }
    }
    Ok(prompts)
}
