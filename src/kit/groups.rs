//! The model groups a kit names, and whether its gateway defines them (seed 000, invariant 17).

use std::path::Path;

use super::Kit;
use super::builtin;
use super::files::GATEWAY;
use super::loader::Loader;
use ktsu_codes::nearest;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{self, SourceSpan, YamlValue};

/// Every group that an agent, a step or a policy names must stand in `gateway.yaml`, if the kit
/// has one.
pub(super) fn check(loader: &mut Loader) {
    let Some(known) = declared(&loader.root) else {
        return;
    };
    let mut faults = Vec::new();
    let mut judge = |file: &str, group: &str, place: SourceSpan| {
        if known.iter().any(|one| one == group) {
            return;
        }
        let words = format!("{GATEWAY} has no model group {group:?}");
        let fault = Fault::new(FaultCode::UnknownGroup, place, words).in_file(Path::new(file));
        faults.push(match nearest(group, known.iter().map(String::as_str)) {
            Some(near) => fault.hint(format!("did you mean {near}?")),
            None if known.is_empty() => fault.hint("declare it under model_groups"),
            None => fault.hint(format!("its groups: {}", known.join(", "))),
        });
    };
    for (file, agent) in &loader.agents {
        if let Some(agent) = agent
            && !builtin::is_builtin(file)
        {
            judge(file, &agent.plan.group, agent.group);
        }
    }
    for (file, draft) in &loader.drafts {
        let Some(draft) = draft else { continue };
        for (group, place) in &draft.groups {
            judge(file, group, *place);
        }
        let calls = draft.steps.iter().filter_map(|step| step.agent.as_ref());
        for call in calls {
            match &call.group {
                Some((group, place)) => judge(file, group, *place),
                // A built-in agent names no group of the kit's own: its step does, or the policy.
                None if builtin::is_builtin(&call.name) => {
                    let policy = &draft.plan.policy;
                    judge(file, policy.group(builtin::GROUP), call.place);
                }
                None => {}
            }
        }
    }
    for (file, draft) in &loader.worlds {
        let responders = draft.iter().flat_map(|draft| &draft.responders);
        for (group, place) in responders.filter_map(|one| one.group.as_ref()) {
            judge(file, group, *place);
        }
    }
    faults
        .into_iter()
        .for_each(|fault| loader.faults.add(fault));
}

impl Kit {
    /// The names of the model groups of its gateway; none if it has no gateway of its own.
    pub fn model_groups(&self) -> Option<Vec<String>> {
        declared(&self.root)
    }
}

/// The names of `model_groups` in the gateway's file. Nothing if there is no such file, or none
/// that can be read; its faults are reported when the gateway opens it.
fn declared(root: &Path) -> Option<Vec<String>> {
    let path = root.join(GATEWAY);
    if !super::read::is_within(root, &path) {
        return None;
    }
    if std::fs::metadata(&path).ok()?.len() > yaml::MAX_FILE {
        return None;
    }
    let node = yaml::parse(&std::fs::read_to_string(path).ok()?).ok()?;
    if !matches!(node.data, YamlValue::Map(_)) {
        return None;
    }
    // One that declares no groups has none.
    let Some(groups) = super::read::member(Some(&node), "model_groups") else {
        return Some(Vec::new());
    };
    let YamlValue::List(groups) = &groups.data else {
        return None;
    };
    let names =
        groups.iter().filter_map(
            |group| match &super::read::member(Some(group), "name")?.data {
                YamlValue::Text(name) => Some(name.clone()),
                _ => None,
            },
        );
    Some(names.collect())
}
