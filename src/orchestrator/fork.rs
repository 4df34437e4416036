//! Forks: branches of recorded runs, which store only their own frames (seed 002).
//!
//! ```text
//! nothing changes ─▶ the last shared frame ─▶ branch.created ─▶ appender ─durable▶ reply
//! something does  ─▶ read, fold, admit ─▶ a task of the branch ─▶ appender ─durable▶ reply
//! ```
//!
//! The first path costs the same wherever a run is forked.

use std::sync::Arc;

use ktsu_ledger::branch::{Ancestry, frames};
use ktsu_ledger::event::{BranchCreated, RunEvent};
use ktsu_ledger::frame::Link;
use ktsu_ledger::store::{Entry, IndexRow, Reader, StoreError};
use ktsu_ledger::{Actor, Cause, Draft, Event, Frame, StreamId};
use ktsu_projections::index::RunRow;
use ktsu_projections::life::run_end;
use ktsu_projections::run::RunStatus;
use serde_json::Value;
use tokio::sync::oneshot;

use super::clock::ClockReading;
use super::human_commands::{CommandError, redact_overlay};
use super::registry::{NewRun, RunRegistry};
use super::{InvokeError, Orchestrator, ReadKind, Shared, startup};
use ktsu_secret::Redactor;
use ktsu_workflow::admit::ENGINE;
use ktsu_workflow::admit::intervention::{
    self, ForkCommand, ForkPosition, ForkRequest, InterventionError,
};
use ktsu_workflow::admit::prompt_edits::{
    ChangedPrompts, PromptEditError, PromptEdits, PromptFault, edited_definition,
};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::rules::{DecisionRules, recorded_rules};

/// A branch that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkReceipt {
    /// `branch_…`.
    pub branch_id: String,
    /// The run it was forked from.
    pub parent_run_id: String,
    /// Number of frames it shares.
    pub fork_position: u64,
    /// The status of the branch.
    pub status: RunStatus,
}

/// A fork that could be made.
#[derive(Debug)]
pub struct CheckedFork {
    /// The frames of the run.
    pub recorded: Vec<Frame>,
    /// Number of frames that the branch would share.
    pub position: u64,
    /// True if the branch would do something else than the run did.
    pub changes: bool,
    /// True if no more than prompts would be changed.
    pub keeps_values: bool,
    /// The prompts that the branch would have otherwise than the run.
    pub prompts: ChangedPrompts,
}

/// A fork that can be appended, with the frames it is of.
struct AdmittedFork {
    recorded: Vec<Frame>,
    branch: ForkReceipt,
    changes: bool,
    keeps_values: bool,
    prompts: ChangedPrompts,
    new: NewRun,
}

impl Orchestrator {
    /// Forks a run, and returns once the branch is durable.
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn fork(
        &self,
        run: &StreamId,
        mut request: ForkRequest,
    ) -> Result<ForkReceipt, CommandError> {
        self.shared.has_room()?;
        intervention::reject_recompute(run)?;
        // Redacted before validation, because errors quote the request.
        redact(&self.shared.secrets.redactor(), &mut request);
        let forked = self.fork_recorded(run, request).await;
        match forked {
            // Retention was faster.
            Err(_) if self.is_removed(run).await => Err(CommandError::Removed),
            forked => forked,
        }
    }

    /// Returns `true` if a run is not there any more.
    async fn is_removed(&self, run: &StreamId) -> bool {
        let stream = run.clone();
        let removed = move |reader: &dyn Reader| -> Result<bool, StoreError> {
            Ok(reader.auditor()?.removal(&stream)?.is_some())
        };
        matches!(self.shared.readers.with(removed).await, Ok(true))
    }

    async fn fork_recorded(
        &self,
        run: &StreamId,
        request: ForkRequest,
    ) -> Result<ForkReceipt, CommandError> {
        if let Some(point) = shared_prefix(&request) {
            let stream = run.clone();
            let read = move |reader: &dyn Reader| read_fork_base(reader, &stream, point);
            let found = self.shared.readers.with(read).await;
            let found = found.map_err(|error| CommandError::Unreadable(error.to_string()))??;
            if let Some(status) = found.status() {
                return self.fork_shared_prefix(run, &request, &found, status).await;
            }
        }
        self.fork_changed(run, request).await
    }

    /// Refuses a definition that contains a secret. Unlike other text it is not redacted, because a
    /// redacted definition would behave differently.
    ///
    /// # Errors
    /// [`CommandError::HoldsSecret`].
    pub fn without_secrets(&self, definition: &Value) -> Result<(), CommandError> {
        without_secrets(&self.shared.secrets.redactor(), definition)
    }

    async fn fork_changed(
        &self,
        run: &StreamId,
        request: ForkRequest,
    ) -> Result<ForkReceipt, CommandError> {
        let admitted = self.admit_fork(run, request).await?;
        RunRegistry::begin(&self.shared, admitted.new).await?;
        Ok(admitted.branch)
    }

    /// Checks a fork as [`Orchestrator::fork`] does. Nothing is recorded.
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn check_fork(
        &self,
        run: &StreamId,
        mut request: ForkRequest,
    ) -> Result<CheckedFork, CommandError> {
        self.shared.has_room()?;
        intervention::reject_recompute(run)?;
        redact(&self.shared.secrets.redactor(), &mut request);
        match self.admit_fork(run, request).await {
            // Retention was faster.
            Err(_) if self.is_removed(run).await => Err(CommandError::Removed),
            admitted => admitted.map(|admitted| CheckedFork {
                recorded: admitted.recorded,
                position: admitted.branch.fork_position,
                changes: admitted.changes,
                keeps_values: admitted.keeps_values,
                prompts: admitted.prompts,
            }),
        }
    }

    /// Reads a run and admits a fork of it, on a thread that may take its time.
    async fn admit_fork(
        &self,
        run: &StreamId,
        request: ForkRequest,
    ) -> Result<AdmittedFork, CommandError> {
        let (shared, stream) = (self.shared.clone(), run.clone());
        let admitted = self
            .shared
            .readers
            .with_kind(ReadKind::Run, move |reader| {
                Ok::<_, StoreError>(admit_fork(&shared, reader, &stream, request))
            })
            .await
            .map_err(|error| CommandError::Unreadable(error.to_string()))??;
        if !admitted.new.state.is_parked() {
            self.shared.can_run(&admitted.new.definition)?;
        }
        Ok(admitted)
    }

    /// Forks without changes: only the last shared frame is read.
    async fn fork_shared_prefix(
        &self,
        run: &StreamId,
        request: &ForkRequest,
        found: &ForkBase,
        status: RunStatus,
    ) -> Result<ForkReceipt, CommandError> {
        let branch = ForkReceipt {
            branch_id: branch_id(),
            parent_run_id: run.name().to_owned(),
            fork_position: found.last.seq + 1,
            status,
        };
        let entry = self.branch_entry(&branch, request, found);
        let entry = entry.map_err(|error| InvokeError::Internal(error.to_string()))?;
        let (done, committed) = oneshot::channel();
        let tell = move |outcome: Result<_, _>| drop(done.send(outcome.map(|_| ())));
        self.shared.appender.submit(entry, Box::new(tell));
        let committed = match committed.await {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(_) => Err("it was closed".to_owned()),
        };
        committed.map_err(InvokeError::LedgerStopped)?;
        let (telemetry, workflow) = (&self.shared.telemetry, &found.row.workflow);
        telemetry.branched(&branch.branch_id, workflow, &request.by, status);
        Ok(branch)
    }

    fn branch_entry(
        &self,
        branch: &ForkReceipt,
        request: &ForkRequest,
        found: &ForkBase,
    ) -> Result<Entry, Box<dyn std::error::Error>> {
        let stream = StreamId::run(&branch.branch_id)?;
        let at = (self.shared.clock)().max(found.last.at);
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Principal(request.by.id.clone()),
            cause: vec![Cause::Here(found.last.seq)],
            event: Event::Run(RunEvent::Branched(Box::new(BranchCreated {
                branch_id: branch.branch_id.clone(),
                by: request.by.clone(),
                definition: None,
                digest: None,
                effects: request.effects,
                engine: ENGINE.to_owned(),
                env: None,
                fork_position: branch.fork_position,
                limits: None,
                params: None,
                parent_run_id: branch.parent_run_id.clone(),
                reason: request.reason.clone(),
                references: Vec::new(),
                restarts: false,
                rules: found.rules,
                version: None,
                workflow: None,
            }))),
        };
        let link = Link {
            stream: stream.clone(),
            seq: branch.fork_position,
            prev: found.last.hash,
        };
        let (entry, _) = Entry::from_sealed(vec![draft.seal(link, at)?])?;
        let waits = branch.status == RunStatus::Waiting;
        let row = RunRow {
            created_at: at,
            cost_micro_usd: found
                .row
                .cost_micro_usd
                .filter(|_| found.is_whole() && !waits),
            ended_at: (!waits).then_some(at),
            fork_position: Some(branch.fork_position),
            idempotency_digest: None,
            parent_run_id: Some(branch.parent_run_id.clone()),
            principal: Some(request.by.id.clone()),
            run_id: branch.branch_id.clone(),
            status: branch.status.as_str().to_owned(),
            error: found.row.error.clone().filter(|_| !waits),
            ..found.row.clone()
        };
        Ok(entry.with_index(IndexRow {
            stream,
            workflow: row.workflow.clone(),
            status: row.status.clone(),
            open: false,
            created_us: at.as_micros(),
            key: None,
            row: row.to_json(),
        })?)
    }
}

fn admit_fork(
    shared: &Shared,
    reader: &dyn Reader,
    run: &StreamId,
    mut request: ForkRequest,
) -> Result<AdmittedFork, CommandError> {
    let recorded = frames(reader, run);
    let recorded = recorded.map_err(|error| CommandError::Unreadable(error.to_string()))?;
    let position = intervention::fork_position(&recorded, &request.point)?;
    // What holds at the fork position, not what holds at the end.
    let shown = usize::try_from(position.max(1)).unwrap_or(usize::MAX);
    let until = recorded.get(..shown).unwrap_or(&recorded);
    let definition = startup::definition_in(shared, until)?;
    let redactor = shared.secrets.redactor_for(&definition);
    let prompts = edit_prompts(&redactor, &definition, &mut request)?;
    if let Some(brought) = &request.definition {
        let json = brought.json.to_value();
        without_secrets(&redactor, &json)?;
        without_secrets(&shared.secrets.redactor_for(brought), &json)?;
    }
    redact(&redactor, &mut request);
    let changes = request.changes();
    let is_edited = request.definition.is_none() || !prompts.is_empty();
    let keeps_values = is_edited && request.params.is_empty() && request.overlays.is_empty();
    let observed = ClockReading::now(&shared.clock);
    let fork = ForkCommand {
        branch_id: branch_id(),
        parent_run_id: run.name().to_owned(),
        position,
        request,
    };
    let forked = intervention::fork(&recorded, &definition, fork, observed.clock)?;
    let branch = ForkReceipt {
        branch_id: forked.state.stream().name().to_owned(),
        parent_run_id: run.name().to_owned(),
        fork_position: position,
        status: forked.state.status(),
    };
    Ok(AdmittedFork {
        recorded,
        branch,
        changes,
        keeps_values,
        prompts,
        new: NewRun {
            definition: forked.definition,
            state: forked.state,
            turn: forked.turn,
            memo: Memo::default(),
            observed,
        },
    })
}

/// Makes the edits of prompts a definition that the request brings; prompts that stay as they are
/// make none. A secret is looked for first, because other faults quote the text.
fn edit_prompts(
    redactor: &Redactor,
    definition: &Definition,
    request: &mut ForkRequest,
) -> Result<ChangedPrompts, CommandError> {
    let edits = std::mem::take(&mut request.prompts);
    let edits: PromptEdits = edits
        .into_iter()
        .map(|(agent, prompts)| (redactor.redact_text(&agent), prompts))
        .collect();
    let mut secrets = Vec::new();
    for (agent, prompts) in &edits {
        let holds = prompts
            .iter()
            .filter(|(_, text)| redactor.redact_text(text) != **text);
        secrets.extend(holds.map(|(prompt, _)| PromptFault::of_secret(agent, *prompt)));
    }
    if !secrets.is_empty() {
        return Err(InterventionError::from(PromptEditError(secrets)).into());
    }
    let edited = edited_definition(definition, &edits).map_err(InterventionError::from)?;
    let Some((edited, changed)) = edited else {
        return Ok(ChangedPrompts::new());
    };
    request.definition = Some(Arc::new(edited));
    Ok(changed)
}

fn without_secrets(redactor: &Redactor, definition: &Value) -> Result<(), CommandError> {
    let mut plain = definition.clone();
    redactor.redact_value(&mut plain);
    match plain != *definition {
        true => Err(CommandError::HoldsSecret),
        false => Ok(()),
    }
}

/// Redacts the text of a request before validation (decision K3). Names are user input as much as
/// values are.
fn redact(redactor: &Redactor, request: &mut ForkRequest) {
    if let ForkPosition::Before(step) = &mut request.point {
        *step = redactor.redact_text(step);
    }
    for (path, value) in &mut request.params {
        for name in path {
            *name = redactor.redact_text(name);
        }
        redactor.redact_value(value);
    }
    for overlay in &mut request.overlays {
        redact_overlay(overlay, redactor);
    }
    let reason = request.reason.take();
    request.reason = reason.map(|reason| redactor.redact_text(&reason));
}

/// A fork position that is found without reading what comes before it.
#[derive(Debug, Clone, Copy)]
enum SharedPrefix {
    At(u64),
    End,
}

/// The fork position, if everything before it is shared unchanged and the branch does not continue.
fn shared_prefix(request: &ForkRequest) -> Option<SharedPrefix> {
    // Only the definition shows what a reason must not contain.
    if request.changes() || request.reason.is_some() || request.go {
        return None;
    }
    match request.point {
        ForkPosition::At(0) | ForkPosition::Before(_) => None,
        ForkPosition::At(position) => Some(SharedPrefix::At(position)),
        ForkPosition::AtFrame(frame) => Some(SharedPrefix::At(frame.saturating_add(1))),
        ForkPosition::End => Some(SharedPrefix::End),
    }
}

fn branch_id() -> String {
    format!("branch_{}", uuid::Uuid::now_v7().simple())
}

/// The shared part of a branch, and the run it was forked from.
struct ForkBase {
    /// The last frame that it shares.
    last: Frame,
    /// Number of frames of the run it was forked from.
    frames: u64,
    /// The decision rules that hold after the last shared frame.
    rules: u32,
    /// The row of what it was forked from.
    row: RunRow,
}

impl ForkBase {
    /// Returns `true` if the branch shares all frames.
    fn is_whole(&self) -> bool {
        self.last.seq + 1 == self.frames
    }

    /// The status of the branch, if the last frame and the row are sufficient to know it.
    fn status(&self) -> Option<RunStatus> {
        let whole = self.is_whole();
        let fork_position = self.row.fork_position;
        let before = fork_position.is_some_and(|fork| self.last.seq < fork);
        // What ends a run that a person ended is the end of its last step.
        let stopped = self.row.status == RunStatus::Cancelled.as_str();
        if before || stopped || (self.row.error.is_some() && !whole) {
            return None;
        }
        // A person's word, or another branch, may come after the end of the run.
        let last = &self.last.event;
        let may_follow_end = matches!(last, Event::Person(_)) || last.branched().is_some();
        match run_end(&self.last) {
            Some(status) => Some(status),
            None => (!may_follow_end).then_some(RunStatus::Waiting),
        }
    }
}

fn read_fork_base(
    reader: &dyn Reader,
    run: &StreamId,
    point: SharedPrefix,
) -> Result<Result<ForkBase, InterventionError>, StoreError> {
    let tail = reader.tail(run)?;
    let frames = tail.map_or(0, |tail| tail.seq + 1);
    let position = match point {
        SharedPrefix::At(position) => position,
        SharedPrefix::End => frames,
    };
    let outside = InterventionError::Position { position, frames };
    let Some(seq) = position.checked_sub(1).filter(|_| position <= frames) else {
        return Ok(Err(outside));
    };
    let path = Ancestry::of(reader, run)?;
    let found = path.read(reader, seq, 1)?;
    let Some(record) = found.first().filter(|record| record.seq == seq) else {
        return Ok(Err(outside));
    };
    let last = record.decode_bare();
    let last = last.map_err(|error| StoreError::Damaged(format!("{run}#{seq}: {error}")))?;
    let mut rules = None;
    for begins in path.beginnings().filter(|begins| *begins <= seq) {
        let first = path.read(reader, begins, 1)?;
        let first = first.first().and_then(|first| first.decode_bare().ok());
        let named = first.and_then(|first| recorded_rules(&first.event));
        let missing = || StoreError::Damaged(format!("{run}#{begins} names no decision rules"));
        let named = named.ok_or_else(missing)?;
        if let Err(unknown) = DecisionRules::from_recorded(named) {
            return Ok(Err(unknown.into()));
        }
        rules = Some(named);
    }
    let rules = rules.ok_or_else(|| StoreError::Damaged(format!("{run}#0 is missing")))?;
    let row = match reader.row(run)? {
        Some(row) => row,
        None => ktsu_run_index::derive_row(reader, run)?.row,
    };
    let row = serde_json::from_str(row.row.as_str());
    let row = row.map_err(|error| StoreError::Damaged(format!("the row of {run}: {error}")))?;
    Ok(Ok(ForkBase {
        last,
        frames,
        rules,
        row,
    }))
}
