//! Suites: what is run to be checked, and how often.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{EvalSuite, ReplicaAggregation};
use serde_json::{Map, Value};

use crate::answers::Answers;
use crate::surroundings::{SuiteServices, SuiteWorkspace, texts};

/// The most scenarios of a suite.
pub const MAX_SCENARIOS: usize = 10_000;

/// The most replicas of a scenario.
pub(crate) const MAX_REPLICAS: u32 = 1_000;

/// The most bytes of the params of all scenarios together, as JSON.
pub(crate) const MAX_PARAMS: usize = 64 << 20;

/// The most checks of all scenarios together.
pub(crate) const MAX_CHECKS: usize = 100_000;

/// The runs that `ktsu eval run` makes: a subject, once for each combination of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// The subject of the runs.
    pub subject: EvalSubject,
    /// The axes of the matrix, in the order of the file, each with its values.
    pub(crate) matrix: Vec<(Axis, Vec<Value>)>,
    /// The number of runs of each combination.
    pub replicas: u32,
    /// The aggregation of the verdicts of replicas.
    pub(crate) aggregation: ReplicaAggregation,
    /// Answers to what waits for people; none if nothing is answered.
    pub people: Option<Answers>,
    /// Limits on the time and the cost of runs.
    pub limits: SuiteLimits,
    /// True if webhooks are sent, and other effects reach the outside world.
    pub executes_effects: bool,
    /// The folder of each run, if runs have one.
    pub workspace: Option<SuiteWorkspace>,
    /// The programs beside each run.
    pub services: SuiteServices,
}

/// The limits of the runs of a suite; none of what is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SuiteLimits {
    /// The most milliseconds of a run.
    pub timeout_ms: Option<u64>,
    /// The cost, in millionths of a US dollar, from which on no further run begins.
    pub cost_micro_usd: Option<u64>,
}

/// The subject of a suite.
#[derive(Debug, Clone, PartialEq)]
pub enum EvalSubject {
    /// A workflow of the kit: its default one, if it is not named.
    Workflow {
        /// Its name.
        name: Option<String>,
        /// Its params, but for those of the matrix.
        params: Map<String, Value>,
    },
    /// A run that was recorded before.
    Run(String),
}

/// An axis of the matrix: something that varies from scenario to scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Axis {
    /// A param.
    Param(String),
    /// A model group that the values replace.
    Group(String),
}

/// One combination of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// `tone=plain, length=2`; empty if there is only one.
    pub label: String,
    /// All of its params.
    pub params: Map<String, Value>,
    /// Model groups, and what is used in place of each.
    pub groups: BTreeMap<String, String>,
}

impl Suite {
    /// The number of scenarios; none if they are too many to be counted.
    pub(crate) fn count(&self) -> Option<usize> {
        let mut counts = self.matrix.iter().map(|(_, values)| values.len());
        counts.try_fold(1_usize, usize::checked_mul)
    }

    /// The most bytes that the params of all scenarios have, as JSON.
    pub(crate) fn params_size(&self) -> usize {
        let given = match &self.subject {
            EvalSubject::Workflow { params, .. } => params.iter().map(|(_, it)| size(it)).sum(),
            EvalSubject::Run(_) => 0_usize,
        };
        let largest = self.matrix.iter().map(|(_, values)| {
            let sizes = values.iter().map(size);
            sizes.max().unwrap_or_default()
        });
        let each = largest.fold(given, usize::saturating_add);
        each.saturating_mul(self.count().unwrap_or(usize::MAX))
    }

    /// The texts of its params, those that vary among them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let given = match &self.subject {
            EvalSubject::Workflow { params, .. } => Some(params.values()),
            EvalSubject::Run(_) => None,
        };
        let varied = self.matrix.iter().flat_map(|(_, values)| values);
        given.into_iter().flatten().chain(varied).flat_map(texts)
    }

    /// The names of its params, those that vary among them.
    pub(crate) fn param_names(&self) -> impl Iterator<Item = &str> {
        let given = match &self.subject {
            EvalSubject::Workflow { params, .. } => Some(params.keys().map(String::as_str)),
            EvalSubject::Run(_) => None,
        };
        let varied = self.matrix.iter().filter_map(|(axis, _)| match axis {
            Axis::Param(name) => Some(name.as_str()),
            Axis::Group(_) => None,
        });
        given.into_iter().flatten().chain(varied)
    }

    /// The model groups that vary, and all that are used in place of each.
    pub fn groups(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let groups = self.matrix.iter().filter_map(|(axis, values)| match axis {
            Axis::Group(group) => {
                let values = values.iter().filter_map(Value::as_str);
                Some((group.as_str(), values.collect()))
            }
            Axis::Param(_) => None,
        });
        groups.collect()
    }

    /// The number of runs, those of replicas among them; none if they are too many to be counted.
    pub(crate) fn runs(&self) -> Option<usize> {
        self.count()?.checked_mul(self.replicas as usize)
    }

    /// The extent of the suite, as an eval records it: all scenarios, or those of one name only.
    pub fn recorded(&self, only: Option<&str>) -> EvalSuite {
        let scenarios = match only {
            None => self.count(),
            Some(_) => Some(self.scenarios(only).len()),
        };
        let scenarios = scenarios.and_then(|count| u32::try_from(count).ok());
        EvalSuite {
            aggregation: self.aggregation,
            only: only.map(str::to_owned),
            replicas: self.replicas,
            scenarios: scenarios.unwrap_or(u32::MAX),
        }
    }

    /// The scenarios, or those of one name only.
    pub fn scenarios(&self, only: Option<&str>) -> Vec<Scenario> {
        let mut all = self.combinations();
        all.retain(|scenario| only.is_none_or(|only| scenario.name() == only));
        all
    }

    /// Every combination of the matrix, the last param varying first.
    fn combinations(&self) -> Vec<Scenario> {
        let params = match &self.subject {
            EvalSubject::Workflow { params, .. } => params.clone(),
            EvalSubject::Run(_) => Map::new(),
        };
        let mut all = vec![Scenario {
            label: String::new(),
            params,
            groups: BTreeMap::new(),
        }];
        for (axis, values) in &self.matrix {
            let with = |scenario: &Scenario, value: &Value| scenario.with(axis, value);
            let next = all.iter();
            all = next
                .flat_map(|scenario| values.iter().map(move |value| with(scenario, value)))
                .collect();
        }
        all
    }
}

impl Scenario {
    /// Its name in reports.
    pub fn name(&self) -> &str {
        match self.label.as_str() {
            "" => "scenario",
            label => label,
        }
    }

    /// The same, with another value of what varies.
    fn with(&self, axis: &Axis, value: &Value) -> Self {
        let shown = label(value);
        let mut next = self.clone();
        let name = match axis {
            Axis::Param(name) => {
                next.params.insert(name.clone(), value.clone());
                name.clone()
            }
            Axis::Group(group) => {
                let other = value.as_str().unwrap_or_default().to_owned();
                next.groups.insert(group.clone(), other);
                format!("model.{group}")
            }
        };
        if !next.label.is_empty() {
            next.label.push_str(", ");
        }
        next.label.push_str(&format!("{name}={shown}"));
        next
    }
}

/// A value in the name of a scenario: a text that could be read as something else is quoted.
pub(crate) fn label(value: &Value) -> String {
    match value {
        Value::String(text) if !is_ambiguous(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_ambiguous(text: &str) -> bool {
    let is_json = || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    text.is_empty() || text.contains(", ") || text.starts_with('"') || is_json()
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}
