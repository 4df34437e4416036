//! `ktsu validate`: everything that is wrong with a kit, at its place.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::event::plan::{Plan, Visibility, WorkflowPlan};
use ktsu_projections::envelope::kind_of;
use serde_json::{Value, json};

use super::engine::{must_be_file, no_kit, process_environment};
use super::output::{BAD, GOOD, is_coloured, line, painted};
use super::{Common, Failure, json as shape, text};
use crate::assemble::values;
use crate::egress;
use crate::environment::{Environment, Principals};
use crate::error::EXIT_VERDICT;
use crate::gateway::{self, Gateway};
use crate::kit::fault::{Faults, Severity};
use crate::kit::{self, Kit, render};

/// What `validate` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The kit's folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Judges this environment file as well, and whether every variable has a value
    #[arg(long, value_name = "FILE")]
    env: Option<PathBuf>,
    /// Prints the steps of every workflow as a Mermaid graph
    #[arg(long)]
    graph: bool,
}

/// Judges a kit.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !arguments.dir.is_dir() {
        return Err(no_kit(&arguments.dir));
    }
    if let Some(path) = &arguments.env {
        must_be_file(path)?;
    }
    let (kit, kit_faults) = match kit::load(&arguments.dir) {
        Ok(kit) => {
            let warnings = kit.warnings.clone();
            (Some(kit), warnings)
        }
        Err(faults) => (None, faults),
    };
    let environment = arguments
        .env
        .as_deref()
        .map(|path| judge(path, kit.as_ref()));
    let (environment_faults, unset) = environment.unwrap_or_default();
    let errors = |faults: &Faults| {
        let errors = faults.faults.iter();
        errors
            .filter(|fault| fault.severity == Severity::Error)
            .count()
    };
    let gateway_faults = judge_gateway(&arguments.dir, arguments.env.as_deref());
    let groups = [&kit_faults, &gateway_faults, &environment_faults];
    let error_count = groups.map(errors).iter().sum::<usize>() + unset.len();
    let all = groups.map(|one| one.faults.len()).iter().sum::<usize>() + unset.len();
    let sound = error_count == 0 && kit.is_some();
    if common.json {
        let faults = groups.map(render::json);
        let faults: Vec<Value> = faults.into_iter().flat_map(members).collect();
        let workflows = kit.iter().flat_map(|kit| &kit.workflows);
        let body = json!({
            "valid": sound,
            "kit": kit.as_ref().map(|kit| kit.name.clone()),
            "workflows": workflows.map(|(name, one)| json!({
                "name": name,
                "path": one.path,
                "sub_workflow": one.visibility == Visibility::SubWorkflow,
                "graph": arguments.graph.then(|| mermaid(&one.definition.plan)),
            })).collect::<Vec<_>>(),
            "faults": faults,
            "environment": unset,
        });
        line(&shape::pretty(&body.to_string()));
    } else if arguments.graph && sound {
        graphs(kit.as_ref());
    } else {
        for faults in groups {
            let shown = render::text(faults, is_coloured());
            for one in text::clean_coloured(&shown).lines() {
                line(one);
            }
        }
        for words in &unset {
            line(&format!(
                "{}: {}\n",
                painted(BAD, "error"),
                text::line(words)
            ));
        }
        line(&summary(
            &arguments.dir,
            kit.as_ref(),
            error_count,
            all - error_count,
        ));
    }
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_VERDICT)
    })
}

/// What is wrong with an environment file, and which variables of the kit have no value in it.
fn judge(path: &Path, kit: Option<&Kit>) -> (Faults, Vec<String>) {
    let environment = match Environment::load(path) {
        Ok(environment) => environment,
        Err(faults) => return (faults, Vec::new()),
    };
    let mut process = process_environment();
    // `run` and `start` give this one a value themselves.
    if let Some(variable) = &environment.receiver {
        process
            .entry(variable.clone())
            .or_insert_with(|| "http://127.0.0.1:9".to_owned());
    }
    let mut faults = environment.warnings.clone();
    let principals = match Principals::resolve(Some(&environment), &process) {
        Ok(principals) => principals,
        Err(found) => {
            faults.faults.extend(found.faults);
            faults.sources.extend(found.sources);
            return (faults, Vec::new());
        }
    };
    let file = Some(&environment);
    let resolved = kit.map(|kit| values::resolve(kit, &principals, file, &process));
    let unset = resolved
        .into_iter()
        .flatten()
        .filter_map(|(name, resolved)| {
            let error = resolved.err()?;
            Some(format!("workflow {name}: {error}"))
        });
    (faults, unset.collect())
}

/// What is wrong with the kit's `gateway.yaml`, as this environment would use it.
fn judge_gateway(dir: &Path, environment: Option<&Path>) -> Faults {
    let file = Path::new("gateway.yaml");
    if !dir.join(file).is_file() {
        return Faults::default();
    }
    // An environment that cannot be read is told apart.
    let environment = environment.and_then(|path| Environment::load(path).ok());
    let config = match gateway::Config::load_in(dir, file, environment.as_ref()) {
        Ok(config) => config,
        Err(faults) => return faults,
    };
    // Keys and addresses have values only where they are used.
    let client = egress::Client::new(&egress::Policy::default());
    match (&environment, client) {
        (Some(_), Ok(client)) => {
            let process = process_environment();
            let built = Gateway::new(&config, environment.as_ref(), &process, &client);
            built.err().unwrap_or_default()
        }
        _ => Faults::default(),
    }
}

fn members(value: Value) -> Vec<Value> {
    match value {
        Value::Array(members) => members,
        other => vec![other],
    }
}

fn summary(dir: &Path, kit: Option<&Kit>, errors: usize, warnings: usize) -> String {
    let count = |count: usize, word: &str| match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    };
    let what = match kit {
        Some(kit) => format!(
            "kit {}: {}",
            kit.name,
            count(kit.workflows.len(), "workflow")
        ),
        None => format!("{}", dir.display()),
    };
    let verdict = match (kit, errors) {
        (Some(_), 0) => painted(GOOD, "valid"),
        _ => painted(BAD, "not valid"),
    };
    let found = match (errors, warnings) {
        (0, 0) => String::new(),
        (0, _) => format!(" ({})", count(warnings, "warning")),
        (_, 0) => format!(" ({})", count(errors, "error")),
        _ => format!(
            " ({}, {})",
            count(errors, "error"),
            count(warnings, "warning")
        ),
    };
    format!("{}, {verdict}{found}", text::line(&what))
}

fn graphs(kit: Option<&Kit>) {
    for (_, workflow) in kit.iter().flat_map(|kit| &kit.workflows) {
        line(&format!("%% {}", text::line(&workflow.path)));
        for one in text::clean(&mermaid(&workflow.definition.plan)).lines() {
            line(one);
        }
        line("");
    }
}

/// The steps of a workflow and the edges between them.
fn mermaid(plan: &Plan) -> String {
    let mut out = "graph TD\n".to_owned();
    let root: Option<&WorkflowPlan> = plan.workflows.get(&plan.root);
    let steps = root.map(|root| root.steps.as_slice()).unwrap_or_default();
    for step in steps {
        let kind = kind_of(&step.work);
        out.push_str(&format!("    {0}[\"{0} [{kind}]\"]\n", step.id));
    }
    for step in steps {
        let needed = step.needs.iter();
        let needed = needed.filter_map(|place| steps.get(usize::try_from(*place).ok()?));
        for before in needed {
            out.push_str(&format!("    {} --> {}\n", before.id, step.id));
        }
    }
    out
}
