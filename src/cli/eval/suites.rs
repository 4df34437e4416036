//! The suites that `ktsu eval` is asked to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ktsu_api::checks::WITHOUT_SANDBOX;
use ktsu_eval::{EvalRecord, EvalSubject, Scenario, Suite};
use ktsu_kit::Kit;
use ktsu_schema::message_at;
use ktsu_workflow::params;
use ktsu_workflow::rules::DecisionRules;
use serde_json::Value;

use super::super::Failure;
use super::super::check::load;
use super::super::check_bench::folder_of;
use ktsu_opening::input::workflow_of;
use ktsu_opening::quoting::quoted_text;
use ktsu_project::eval_file::{self, EvalFile};

/// A spec that has a subject.
pub(super) struct SuiteFile {
    pub(super) file: EvalFile,
    pub(super) suite: Suite,
    /// The folder that paths of the spec begin at.
    pub(super) above: PathBuf,
    /// The scenarios that run, in order: their params may be large.
    pub(super) scenarios: Rc<[Scenario]>,
    /// The name of the only scenarios that run; all do if absent.
    pub(super) only: Option<String>,
}

/// The kit, and the suites that are meant by a file or by a kit.
pub(super) fn named(
    spec: &Path,
    kit: Option<PathBuf>,
    only: Option<&str>,
) -> Result<(PathBuf, Vec<SuiteFile>), Failure> {
    if !spec.is_dir() {
        let suite = SuiteFile::of(load(spec)?, folder_of(spec), only)?;
        let kit = kit.or_else(|| eval_file::kit_of(spec)).ok_or_else(|| {
            let words = format!("{} is in no kit's evals/", spec.display());
            Failure::could_not_run(words).hint("name the kit: --kit DIR")
        })?;
        return Ok((kit, vec![suite]));
    }
    let (mut suites, mut without) = (Vec::new(), None);
    for file in eval_file::files_of(spec) {
        let path = spec.join(file);
        let (file, above) = (load(&path)?, folder_of(&path));
        match (&file.spec.suite, only) {
            (None, _) => {}
            // One of them has to have the scenario.
            (Some(suite), Some(only)) if suite.scenarios(Some(only)).is_empty() => {
                without = without.or(Some((file, above)));
            }
            (Some(_), _) => suites.push(SuiteFile::of(file, above, only)?),
        }
    }
    match (suites.is_empty(), without) {
        (false, _) => Ok((spec.to_owned(), suites)),
        (true, Some((file, above))) => {
            Ok((spec.to_owned(), vec![SuiteFile::of(file, above, only)?]))
        }
        (true, None) => {
            let words = format!("no file in {}/evals has a subject", spec.display());
            Err(Failure::could_not_run(words).hint("subject: {workflow: NAME, params: {…}}"))
        }
    }
}

/// A suite of the scenarios and replicas that an eval has recorded, by a spec of its own.
pub(super) fn of_the_same_scenarios(
    spec: &Path,
    record: &EvalRecord,
) -> Result<SuiteFile, Failure> {
    let before = record.started.suite.as_ref();
    let only = before.and_then(|suite| suite.only.as_deref());
    let suite = SuiteFile::of(load(spec)?, folder_of(spec), only)?;
    let now = suite.suite.recorded(only);
    let is_same = before
        .is_some_and(|before| (before.scenarios, before.replicas) == (now.scenarios, now.replicas));
    match is_same {
        true => Ok(suite),
        false => Err(suite
            .refused("it does not have the scenarios and replicas of the eval")
            .hint("ktsu eval run SPEC runs others")),
    }
}

impl SuiteFile {
    pub(super) fn of(file: EvalFile, above: PathBuf, only: Option<&str>) -> Result<Self, Failure> {
        let refused = |words: &str| {
            let path = file.spec.path.display();
            Failure::could_not_run(format!("{path}: {words}"))
        };
        let Some(suite) = file.spec.suite.clone() else {
            return Err(refused("the spec has no subject, so there is nothing to run")
                .hint("subject: {workflow: NAME, params: {…}}; or check a run: ktsu check RUN --spec FILE"));
        };
        if file.spec.needs_workspace() && suite.workspace.is_none() {
            return Err(refused(
                "checks of files and programs need a workspace, and runs have none",
            )
            .hint("workspace: {from: FOLDER}; or check a run: ktsu check RUN --workspace DIR"));
        }
        if let Some((name, kind)) = &suite.services.later {
            let words =
                format!("the service {name} is of the type {kind:?}, which is not supported yet");
            return Err(refused(&words)
                .hint("services of the types mcp, postgres, mysql and http_mock are"));
        }
        let scenarios: Rc<[Scenario]> = Rc::from(suite.scenarios(only));
        if let (Some(only), []) = (only, &*scenarios) {
            let all = suite.scenarios(None);
            let first = all.first().map_or("scenario", |first| first.name());
            return Err(
                refused(&format!("there is no scenario {only:?}")).hint(format!(
                    "--scenario={}, as the report names it",
                    quoted_text(first)
                )),
            );
        }
        let only = only.map(str::to_owned);
        Ok(Self {
            file,
            suite,
            scenarios,
            above,
            only,
        })
    }

    /// Returns `true` if programs run beside its runs, or as their checks.
    pub(super) fn needs_sandbox(&self) -> bool {
        let workspace = self.suite.workspace.as_ref();
        workspace.is_some_and(|workspace| workspace.setup.is_some())
            || !self.suite.services.tools.is_empty()
            || !self.suite.services.databases.is_empty()
            || self.file.spec.runs_programs()
    }

    /// The word with which the eval says that its programs run without a sandbox.
    pub(super) fn sandbox_word(&self, without: bool) -> Option<&'static str> {
        (without && self.needs_sandbox()).then_some(WITHOUT_SANDBOX)
    }

    /// Refuses services in place of tool servers that the kit does not have.
    fn has_servers(&self, kit: &Kit) -> Result<(), Failure> {
        let known: BTreeSet<&str> = kit.servers.values().map(|one| one.name.as_str()).collect();
        for (name, service) in &self.suite.services.tools {
            let mut servers = service.servers.iter();
            if let Some(server) = servers.find(|server| !known.contains(server.as_str())) {
                let words = format!(
                    "the service {name} is used in place of the tool server {server}, which the kit does not have"
                );
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                return Err(self
                    .refused(&words)
                    .hint(format!("servers: [NAME]; its tool servers: {known}")));
            }
        }
        Ok(())
    }

    /// Refuses services in place of variables that the kit does not have, or that are secrets.
    fn has_variables(&self, kit: &Kit) -> Result<(), Failure> {
        let plans = kit.workflows.values();
        let plans = plans.filter_map(|one| one.definition.root_plan());
        let declared: BTreeMap<&str, bool> = plans
            .flat_map(|plan| &plan.env)
            .map(|variable| (variable.name.as_str(), variable.secret))
            .collect();
        for (name, _) in self.suite.services.variables() {
            match declared.get(name) {
                Some(false) => {}
                Some(true) => {
                    let words =
                        format!("the variable {name} is a secret, and has no service's URL");
                    return Err(self.refused(&words));
                }
                None => {
                    let words = format!("no workflow of the kit has the variable {name}");
                    let known = declared.into_keys().collect::<Vec<_>>().join(", ");
                    return Err(self.refused(&words).hint(format!("its variables: {known}")));
                }
            }
        }
        Ok(())
    }

    /// Refuses a workflow that the kit does not have, model groups that it does not use or have, and tool
    /// servers that it does not have.
    pub(super) fn can_run(&self, kit: &Kit) -> Result<(), Failure> {
        self.has_servers(kit)?;
        self.has_variables(kit)?;
        self.can_ask(kit)?;
        let EvalSubject::Workflow { name, .. } = &self.suite.subject else {
            return Ok(());
        };
        let workflow = workflow_of(kit, name.as_deref())?;
        let definition = kit.workflows.get(&workflow).map(|one| &one.definition);
        let root = definition.and_then(|definition| definition.root());
        let schema = root.and_then(|root| root.params.as_ref());
        for scenario in self.scenarios.iter() {
            let params = Value::Object(scenario.params.clone());
            let resolved = params::resolve_given(schema, params, DecisionRules::NEWEST);
            if let Err(found) = resolved {
                let found = found
                    .iter()
                    .map(|one| message_at(&one.message, &one.pointer));
                let words = found.collect::<Vec<_>>().join("; ");
                return Err(match scenario.label.as_str() {
                    "" => self.refused(&words),
                    label => self.refused(&format!("{label}: {words}")),
                });
            }
        }
        let used = definition.map(|definition| definition.groups());
        let (used, known) = (used.unwrap_or_default(), kit.model_groups());
        for (group, others) in self.suite.groups() {
            if !used.contains(group) {
                let words =
                    format!("model.{group}: {workflow} does not use the model group {group}");
                let used: Vec<String> = used.into_iter().collect();
                let hint = match used.is_empty() {
                    true => "it uses none".to_owned(),
                    false => format!("it uses {}", used.join(", ")),
                };
                return Err(self.refused(&words).hint(hint));
            }
            let known = known.as_deref().unwrap_or_default();
            let has = |other: &str| known.iter().any(|one| one == other);
            if let Some(other) = others.iter().find(|other| !known.is_empty() && !has(other)) {
                let words = format!("model.{group}: there is no model group {other}");
                return Err(self
                    .refused(&words)
                    .hint(format!("its groups: {}", known.join(", "))));
            }
        }
        Ok(())
    }

    /// Refuses checks that ask model groups that the kit does not have.
    fn can_ask(&self, kit: &Kit) -> Result<(), Failure> {
        let Some(known) = kit.model_groups() else {
            return Ok(());
        };
        let mut asked = self.file.spec.judges();
        let unknown = asked.find(|(_, check)| !known.contains(&check.group));
        let Some((invariant, check)) = unknown else {
            return Ok(());
        };
        let words = format!(
            "the invariant {} is judged by the model group {}, which the kit does not have",
            invariant.name, check.group
        );
        Err(self
            .refused(&words)
            .hint(format!("its groups: {}", known.join(", "))))
    }

    /// Refuses model groups that not only scripts answer.
    pub(super) fn is_scripted(
        &self,
        kit: &Kit,
        scripted: &BTreeSet<String>,
    ) -> Result<(), Failure> {
        let mut used = self.groups_of_runs(kit)?;
        let judges = self.file.spec.judge_groups().into_iter();
        used.extend(judges.map(str::to_owned));
        match used.iter().find(|group| !scripted.contains(*group)) {
            None => Ok(()),
            Some(group) => {
                let words = format!("the model group {group} is not answered by scripts alone");
                Err(self
                    .refused(&words)
                    .hint("a provider of type scripted, in an environment: --env FILE"))
            }
        }
    }

    /// Refuses a limit of cost where a model judges that has no known price, and would count as free.
    pub(super) fn has_prices(
        &self,
        cost_limit: Option<u64>,
        unpriced: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let limit = cost_limit.or(self.suite.limits.cost_micro_usd);
        let mut judges = self.file.spec.judge_groups().into_iter();
        let found = judges.find_map(|group| Some((group, unpriced.get(group)?)));
        let (Some(_), Some((group, model))) = (limit, found) else {
            return Ok(());
        };
        let words = format!(
            "a limit of cost cannot be kept: {model}, which judges in the model group {group}, has no price"
        );
        let hint = "pricing: [{model: ID, input_per_million_usd: …, output_per_million_usd: …}] of the group in \
                    gateway.yaml; or no limits.cost_usd";
        Err(self.refused(&words).hint(hint))
    }

    /// The model groups that its runs use.
    fn groups_of_runs(&self, kit: &Kit) -> Result<BTreeSet<String>, Failure> {
        let EvalSubject::Workflow { name, .. } = &self.suite.subject else {
            return Ok(BTreeSet::new());
        };
        let workflow = workflow_of(kit, name.as_deref())?;
        let definition = kit.workflows.get(&workflow).map(|one| &one.definition);
        let varied = self.suite.groups();
        let used = definition.map(|definition| definition.groups());
        let mut used = used.unwrap_or_default();
        used.retain(|group| !varied.contains_key(group.as_str()));
        used.extend(varied.values().flatten().map(|&group| group.to_owned()));
        Ok(used)
    }

    fn refused(&self, words: &str) -> Failure {
        let path = self.file.spec.path.display();
        Failure::could_not_run(format!("{path}: {words}"))
    }
}
