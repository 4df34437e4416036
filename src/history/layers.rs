//! The layers of a run's state: what its steps computed, what people laid over it, and what counts
//! (seed 004).

use std::collections::BTreeMap;

use ktsu_ledger::event::Violation;
use ktsu_ledger::store::Reader;
use ktsu_ledger::{CanonicalJson, StreamId};
use ktsu_projections::run::{Effective, RunState, Step, StepKey};
use ktsu_projections::step_name::scoped_run;
use ktsu_workflow::admit::intervention::overlay_conflicts;
use ktsu_workflow::definition::Definition;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RunReadError;
use ktsu_workflow::newest_definition::newest_definition;

/// The state of a run or an inline child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateLayers {
    /// `run_…` or `branch_…`; with the path of an inline child behind it.
    pub run_id: String,
    /// The number of the last frame: what `If-Match` of an overlay names.
    pub last: u64,
    /// Every step that has an output or an overlay, by its id.
    pub steps: BTreeMap<String, StepLayers>,
}

/// The layers of one step's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepLayers {
    /// What it gave. Neither people nor a recompute change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub computed: Option<CanonicalJson>,
    /// The top-level fields that people replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub overlay: BTreeMap<String, CanonicalJson>,
    /// The computed output with the overlay over it: what every later step sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub effective: Option<CanonicalJson>,
    /// What the schemas of the step, as they are now, say against the effective output. An overlay is
    /// kept nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<LayerConflict>,
}

/// A place where an overlay does not fit a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayerConflict {
    /// JSON pointer into the effective output.
    pub path: String,
    /// The schema keyword.
    pub rule: String,
    /// For people.
    pub message: String,
}

impl From<Violation> for LayerConflict {
    fn from(found: Violation) -> Self {
        Self {
            path: found.path,
            rule: found.rule,
            message: found.message,
        }
    }
}

/// The layers of a run, or of an inline child; nothing if there is no such run.
///
/// # Errors
/// [`RunReadError`].
pub fn layers(
    reader: &dyn Reader,
    stream: &StreamId,
    scope: &str,
) -> Result<Option<StateLayers>, RunReadError> {
    let Some((fold, frames)) = crate::envelope_and_frames(reader, stream)? else {
        return Ok(None);
    };
    let definition = newest_definition(&frames);
    Ok(of_state(fold.state(), definition.as_deref(), scope))
}

fn of_state(state: &RunState, definition: Option<&Definition>, scope: &str) -> Option<StateLayers> {
    let at = state.scope_at(scope)?;
    let held = state.scope(at)?;
    let has_any = |(_, step): &(u32, &Step)| step.output.is_some() || !step.overlay.is_empty();
    let steps = (0u32..).zip(&held.steps).filter(has_any);
    let layers = steps.filter_map(|(position, step)| {
        let id = held.shape.step(position)?.id.clone();
        let effective = match state.effective(StepKey::of(at, position)) {
            Effective::Output(held) => Some(held.json.clone()),
            Effective::Skipped(_) | Effective::Suppressed(_) | Effective::Absent => None,
        };
        let conflicts = definition
            .filter(|_| !step.overlay.is_empty())
            .map(|definition| overlay_conflicts(definition, state, StepKey::of(at, position)));
        let overlay = step.overlay.iter();
        let layers = StepLayers {
            computed: step.output.as_ref().map(|held| held.json.clone()),
            overlay: overlay
                .map(|(field, over)| (field.clone(), over.value.clone()))
                .collect(),
            effective,
            conflicts: conflicts
                .into_iter()
                .flatten()
                .map(LayerConflict::from)
                .collect(),
        };
        Some((id, layers))
    });
    Some(StateLayers {
        run_id: scoped_run(state.stream().name(), scope),
        last: state.next_seq().saturating_sub(1),
        steps: layers.collect(),
    })
}
