//! What the file of a workflow has that its plan does not: for people.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ktsu_config::yaml::{self, YamlNode, YamlValue};

use super::kit::Kit;

/// What the file of a workflow has besides its plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkflowSource {
    /// Its `description`.
    pub description: Option<String>,
    /// The line of each step, by id, counted from 1.
    pub steps: BTreeMap<String, usize>,
}

/// The beginning of an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExampleText {
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// As much as was wanted; none if it cannot be read as text.
    pub text: Option<String>,
}

impl Kit {
    /// What the file at a path, relative to the kit, has of its workflow. It is empty of a path without a file.
    pub fn workflow_source(&self, path: &str) -> WorkflowSource {
        let text = self.warnings.sources.get(Path::new(path));
        let Some(Ok(root)) = text.map(|text| yaml::parse(text)) else {
            return WorkflowSource::default();
        };
        let steps = match member(&root, "pipeline").map(|steps| &steps.data) {
            Some(YamlValue::List(steps)) => steps.as_slice(),
            Some(_) | None => &[],
        };
        let line = |step: &YamlNode| Some((text_of(member(step, "id")?)?, step.place.line));
        WorkflowSource {
            description: member(&root, "description").and_then(text_of),
            steps: steps.iter().filter_map(line).collect(),
        }
    }

    /// The first bytes of an example, up to so many; none if there is no such example, or not any more.
    pub fn example(&self, name: &str, most: u64) -> Option<ExampleText> {
        let file = File::open(self.examples.get(name)?).ok()?;
        let bytes = file.metadata().ok()?.len();
        let mut read = Vec::new();
        file.take(most).read_to_end(&mut read).ok()?;
        let text = match String::from_utf8(read) {
            Ok(text) => Some(text),
            // The end may be in the middle of a character.
            Err(error) if bytes > most && error.utf8_error().error_len().is_none() => {
                let whole = error.utf8_error().valid_up_to();
                let mut read = error.into_bytes();
                read.truncate(whole);
                String::from_utf8(read).ok()
            }
            Err(_) => None,
        };
        Some(ExampleText { bytes, text })
    }
}

fn member<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    match &node.data {
        YamlValue::Map(members) => {
            let mut members = members.iter();
            let found = members.find(|(key, _)| key.text == name);
            found.map(|(_, node)| node)
        }
        _ => None,
    }
}

fn text_of(node: &YamlNode) -> Option<String> {
    match &node.data {
        YamlValue::Text(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kit;

    const SMALL: &str = "kind: workflow
name: small
version: 1.0.0
description: A small one.
pipeline:
  - id: one
    transform: {inputs: [], ops: []}

  - depends_on: [one]
    id: two
    transform: {inputs: [], ops: []}
";

    #[test]
    fn a_workflow_has_its_description_and_the_line_of_each_step() {
        let dir = kit(&[
            ("workflows/small.workflow.yaml", SMALL),
            ("examples/default.json", "{\"n\": \"é\"}"),
        ]);
        let kit = crate::load(dir.path()).unwrap();
        let source = kit.workflow_source("workflows/small.workflow.yaml");
        assert_eq!(source.description.as_deref(), Some("A small one."));
        let lines: Vec<(&str, usize)> = (source.steps.iter())
            .map(|(id, line)| (id.as_str(), *line))
            .collect();
        assert_eq!(lines, [("one", 6), ("two", 9)]);
        let absent = kit.workflow_source("workflows/absent.workflow.yaml");
        assert_eq!(absent, WorkflowSource::default());
        let read = |most| kit.example("default", most).unwrap();
        assert_eq!(read(100).text.as_deref(), Some("{\"n\": \"é\"}"));
        // In the middle of a character.
        let cut = read(8);
        assert_eq!((cut.text.as_deref(), cut.bytes), (Some("{\"n\": \""), 11));
        assert_eq!(kit.example("absent", 1), None);
    }
}
