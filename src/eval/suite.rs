//! Suites: what is run to be checked, and how often.

use serde_json::{Map, Value};

/// The most scenarios of a suite.
pub const MAX_SCENARIOS: usize = 10_000;

/// The most checks of all scenarios together.
pub(crate) const MAX_CHECKS: usize = 100_000;

/// What `ktsu eval run` runs: a subject, once for each combination of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// What is run.
    pub subject: EvalSubject,
    /// Values of params, by name, in the order of the file.
    pub(crate) matrix: Vec<(String, Vec<Value>)>,
    /// Whether webhooks are sent, and what else reaches the outside world.
    pub executes_effects: bool,
    /// A key of the file that is read, and not supported yet.
    pub not_supported: Option<&'static str>,
}

/// What is run.
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

/// One combination of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// `tone=plain, length=2`; empty if there is only one.
    pub label: String,
    /// All of its params.
    pub params: Map<String, Value>,
}

impl Suite {
    /// How many scenarios there are; none if they are too many to be counted.
    pub(crate) fn count(&self) -> Option<usize> {
        let mut counts = self.matrix.iter().map(|(_, values)| values.len());
        counts.try_fold(1_usize, usize::checked_mul)
    }

    /// Every combination of the matrix, the last param varying first.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let params = match &self.subject {
            EvalSubject::Workflow { params, .. } => params.clone(),
            EvalSubject::Run(_) => Map::new(),
        };
        let mut all = vec![Scenario {
            label: String::new(),
            params,
        }];
        for (name, values) in &self.matrix {
            let with = |scenario: &Scenario, value: &Value| scenario.with(name, value);
            let next = all.iter();
            all = next
                .flat_map(|scenario| values.iter().map(move |value| with(scenario, value)))
                .collect();
        }
        all
    }
}

impl Scenario {
    /// The same, with another param.
    fn with(&self, name: &str, value: &Value) -> Self {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let before = match self.label.as_str() {
            "" => String::new(),
            label => format!("{label}, "),
        };
        let mut params = self.params.clone();
        params.insert(name.to_owned(), value.clone());
        Self {
            label: format!("{before}{name}={shown}"),
            params,
        }
    }
}
