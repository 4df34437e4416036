//! The steps of a run as a Mermaid flowchart.

use std::collections::BTreeMap;

use ktsu_projections::envelope::ShownStatus;
use ktsu_projections::run::StepStatus;

use crate::steps::RunTimeline;
use crate::tools::ToolCallTrace;

/// The most steps that are drawn.
const MAX_STEPS: usize = 500;
/// The most calls of tools that are drawn beside one step.
const MAX_TOOLS: usize = 24;

/// A flowchart that Mermaid accepts: ids are made here, labels are escaped. Calls of tools hang on
/// the step that made them, with people's decisions.
pub fn flowchart(run: &RunTimeline, uses: &[ToolCallTrace]) -> String {
    let mut chart = Chart {
        text: "flowchart TD\n".to_owned(),
        count: 0,
        tools: BTreeMap::new(),
    };
    for one in uses {
        // The id of a step has no dot, the name of an item has one.
        let step = one.step.split('.').next().unwrap_or(&one.step);
        let key = (one.scope.clone(), step.to_owned());
        chart.tools.entry(key).or_default().push(one);
    }
    let (workflow, status) = (label(&run.workflow), run.status.as_str());
    chart.line(format!("  run([\"{workflow} {status}\"])"));
    chart.steps(run, "run", 1);
    chart.line("  classDef failed stroke:#c00,stroke-width:2px".to_owned());
    chart.line("  classDef skipped stroke-dasharray:4".to_owned());
    chart.text
}

struct Chart<'a> {
    text: String,
    count: usize,
    /// By scope and step.
    tools: BTreeMap<(String, String), Vec<&'a ToolCallTrace>>,
}

impl Chart<'_> {
    fn line(&mut self, line: String) {
        self.text.push_str(&line);
        self.text.push('\n');
    }

    /// The calls of a step, below it.
    fn tools(&mut self, scope: &str, step: &str, name: &str, indent: &str) {
        let key = (scope.to_owned(), step.to_owned());
        let uses = self.tools.remove(&key).unwrap_or_default();
        for (at, one) in uses.iter().take(MAX_TOOLS).enumerate() {
            let item = match one.step == step {
                true => String::new(),
                false => format!("{} ", one.step),
            };
            let class = if one.failed { ":::failed" } else { "" };
            let what = label(&format!("{item}{}", one.summary()));
            let own = format!("{name}t{}", at + 1);
            self.line(format!("{indent}{own}{{{{\"{what}\"}}}}{class}"));
            self.line(format!("{indent}{name} -.-> {own}"));
        }
        if uses.len() > MAX_TOOLS {
            let more = uses.len() - MAX_TOOLS;
            self.line(format!(
                "{indent}{name} -.-> {name}more{{{{\"{more} more\"}}}}"
            ));
        }
    }

    fn steps(&mut self, run: &RunTimeline, root: &str, depth: usize) {
        let indent = "  ".repeat(depth);
        let mut names = BTreeMap::new();
        for step in &run.steps {
            if self.count == MAX_STEPS {
                return self.line(format!("{indent}more{depth}[\"…\"]"));
            }
            self.count += 1;
            let name = format!("s{}", self.count);
            let what = format!("{} ({}): {}", step.id, step.kind, step.status);
            let class = match step.status {
                ShownStatus::Own(StepStatus::Failed) => ":::failed",
                ShownStatus::Own(StepStatus::Skipped) => ":::skipped",
                ShownStatus::Own(_) | ShownStatus::PendingApproval => "",
            };
            self.line(format!("{indent}{name}[\"{}\"]{class}", label(&what)));
            names.insert(step.id.clone(), name.clone());
            let after = step.after.iter().filter_map(|id| names.get(id));
            let mut after: Vec<&str> = after.map(String::as_str).collect();
            if after.is_empty() {
                after.push(root);
            }
            for from in after {
                self.line(format!("{indent}{from} --> {name}"));
            }
            let scope = run.run_id.split_once('/').map_or("", |(_, scope)| scope);
            self.tools(scope, &step.id, &name, &indent);
            let children = step.child.as_deref().into_iter().chain(&step.invoked);
            for (at, child) in children.enumerate() {
                let workflow = label(&child.workflow);
                let group = match at {
                    0 => format!("g{name}"),
                    at => format!("g{name}_{at}"),
                };
                self.line(format!("{indent}subgraph {group}[\"{workflow}\"]"));
                self.steps(child, &name, depth + 1);
                self.line(format!("{indent}end"));
            }
        }
    }
}

/// Text as a label: characters with a meaning to Mermaid become entities, control characters spaces.
pub(super) fn label(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(120) {
        match c {
            c if c.is_alphanumeric() || " _-.,:()/…$+".contains(c) => out.push(c),
            c if c.is_control() => out.push(' '),
            c => out.push_str(&format!("#{};", u32::from(c))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn a_label_cannot_end_itself() {
        assert_eq!(label("a\"] --> b\n"), "a#34;#93; --#62; b ");
        assert_eq!(label("step (agent): failed"), "step (agent): failed");
    }
}
