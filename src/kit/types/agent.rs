//! The templates of an agent file: its prompts, and the params of its servers.

use std::collections::BTreeMap;
use std::path::Path;

use super::expressions::Expressions;
use crate::read::{KitReader, items, member, members};
use ktsu_config::fault::Fault;
use ktsu_config::yaml::YamlNode;
use ktsu_workflow::expression::Vocabulary;
use ktsu_workflow::types::ValueType;
use ktsu_workflow::types::infer::{InferenceBudget, NameTypes};

pub(super) fn check(
    path: &str,
    text: &str,
    root: &YamlNode,
    params: &ValueType,
    params_judged: bool,
    effort: &InferenceBudget,
) -> Vec<Fault> {
    let mut expressions = Expressions {
        reader: KitReader::new(Path::new(path), text),
        names: NameTypes {
            params: params.clone(),
            params_judged,
            item: ValueType::any(),
            resume_data: ValueType::any(),
            steps: BTreeMap::new(),
        },
        effort,
        vocabulary: Vocabulary::Workflow,
    };
    let prompt = member(Some(root), "prompt");
    for name in ["user", "reflect"] {
        if let Some(node) = member(prompt, name) {
            expressions.template(node);
        }
    }
    for server in items(member(Some(root), "servers")) {
        for (_, node) in members(member(Some(server), "params")) {
            expressions.template(node);
        }
    }
    expressions.reader.into_faults()
}
