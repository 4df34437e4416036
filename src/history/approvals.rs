//! The requests to people across runs: pending calls and reviews, and decisions.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use ktsu_ledger::StreamId;
use ktsu_ledger::branch::frames;
use ktsu_ledger::store::{Cursor, Filter, IndexRow, ParseCursorError, Reader, StoreError};
use ktsu_projections::approvals::{ApprovalKind, ApprovalRecord, ApprovalStatus};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::index::RunRow;
use ktsu_projections::person_requests::{self, PersonRequest};
use ktsu_projections::reviews::ReviewRecord;
use ktsu_projections::run::RunStatus;
use ktsu_projections::suspensions::SuspensionRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use ktsu_codes::ErrorCode;
use ktsu_run_index::listed_kinds;

/// Rows on a page of the index.
const PAGE: usize = 1000;

/// A run that failed because its agent wants a person to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename = "Review")]
#[schema(as = Review)]
pub struct RunReview {
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// When it began.
    pub created_at: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

/// The records of a run about calls, in the order they were asked.
///
/// # Errors
/// [`StoreError`].
pub fn of_run(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<ApprovalRecord>, StoreError> {
    Ok(CallHistory::fold(&frames(reader, stream)?).into_approvals())
}

/// The reviews of outcomes of a run, in the order they were asked for.
///
/// # Errors
/// [`StoreError`].
pub fn reviews_of_run(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Vec<ReviewRecord>, StoreError> {
    Ok(person_requests::reviews(&frames(reader, stream)?))
}

/// The suspensions of a run's steps, in the order they were asked for.
///
/// # Errors
/// [`StoreError`].
pub fn suspensions_of_run(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Vec<SuspensionRecord>, StoreError> {
    Ok(person_requests::suspensions(&frames(reader, stream)?))
}

/// The requests to people in a run, open and closed, in order.
///
/// # Errors
/// [`StoreError`].
pub fn requests_of_run(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Vec<PersonRequest>, StoreError> {
    Ok(person_requests::requests(&frames(reader, stream)?))
}

/// A request that waits for people, and for a call what was approved like it before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// The request.
    pub request: PersonRequest,
    /// The latest call of the same tool by the same step that was approved before.
    pub approved_before: Option<ApprovedCall>,
}

/// A call that was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCall {
    /// The frame that asked for it.
    pub frame: u64,
    /// The step; for an item `STEP.INDEX`.
    pub step_id: String,
    /// Its arguments; absent if they are those that are asked for now.
    pub arguments: Option<Value>,
}

/// A tool of a step: the scope, the step, the server and the name.
type StepTool<'r> = (&'r str, &'r str, &'r str, &'r str);

fn step_tool<'r>(of: &'r PersonRequest, call: &'r ApprovalRecord) -> StepTool<'r> {
    (
        of.scope(),
        step_of(of.step_id()),
        &call.server,
        &call.tool_name,
    )
}

/// The calls of a run that were approved, by tool, in the order in which they were asked for.
#[derive(Debug)]
pub struct ApprovedCalls<'r>(HashMap<StepTool<'r>, Vec<&'r ApprovalRecord>>);

impl<'r> ApprovedCalls<'r> {
    /// Those among the records of a run.
    pub fn of(records: &'r [PersonRequest]) -> Self {
        let mut calls: HashMap<StepTool<'r>, Vec<&'r ApprovalRecord>> = HashMap::new();
        for record in records {
            if let PersonRequest::Approval(call) = record
                && (call.status, call.kind) == (ApprovalStatus::Approved, ApprovalKind::Approval)
            {
                calls.entry(step_tool(record, call)).or_default().push(call);
            }
        }
        calls
            .values_mut()
            .for_each(|calls| calls.sort_by_key(|call| call.request));
        Self(calls)
    }

    /// The latest call of the same tool by the same step that was approved before a request: in another turn or
    /// attempt, for another item, or in the frames that a branch shares.
    pub fn before(&self, request: &PersonRequest) -> Option<ApprovedCall> {
        let PersonRequest::Approval(asked) = request else {
            return None;
        };
        let alike = self.0.get(&step_tool(request, asked))?;
        let earlier = alike.partition_point(|call| call.request < asked.request);
        let before = alike.get(earlier.checked_sub(1)?)?;
        Some(ApprovedCall {
            frame: before.request,
            step_id: before.step_id.clone(),
            arguments: (before.digest != asked.digest).then(|| before.arguments.clone()),
        })
    }
}

/// The step of a step or an item, without the number of the item.
fn step_of(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

/// Everything that waits for people, in the order it was asked.
///
/// # Errors
/// [`StoreError`].
pub fn pending(
    reader: &dyn Reader,
    workflow: Option<&str>,
) -> Result<Vec<PersonRequest>, StoreError> {
    let found = pending_requests(reader, workflow, |_, request| request.clone())?;
    Ok(found)
}

/// What is made of each request that waits for people and what was approved in its run, in the order they were asked.
fn pending_requests<T>(
    reader: &dyn Reader,
    workflow: Option<&str>,
    made: impl Fn(&ApprovedCalls<'_>, &PersonRequest) -> T,
) -> Result<Vec<T>, StoreError> {
    let filter = Filter {
        open: Some(true),
        ..runs_of(workflow)
    };
    let mut found = Vec::new();
    each_row(reader, &filter, None, usize::MAX, |row| {
        if read(row).is_some_and(|row| row.approvals > 0) {
            let records = requests_of_run(reader, &row.stream)?;
            let approved = ApprovedCalls::of(&records);
            let pending = { records.iter() }.filter(|one| one.status() == ApprovalStatus::Pending);
            found.extend(pending.map(|one| (PendingCursor::of(one), made(&approved, one))));
        }
        Ok(())
    })?;
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found.into_iter().map(|(_, made)| made).collect())
}

/// A place in the list of what waits: behind this record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingCursor {
    asked_us: u64,
    run: String,
    request: u64,
}

impl PendingCursor {
    /// Behind a record.
    pub fn of(record: &PersonRequest) -> Self {
        Self {
            asked_us: record.created_at().as_micros(),
            run: record.run_id().split('/').take(1).collect(),
            request: record.request(),
        }
    }
}

impl fmt::Display for PendingCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~run:{}#{}", self.asked_us, self.run, self.request)
    }
}

impl FromStr for PendingCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let number = |text: &str| text.parse().map_err(|_| ParseCursorError);
        let (asked_us, place) = text.split_once('~').ok_or(ParseCursorError)?;
        let (stream, request) = place.split_once('#').unwrap_or((place, "0"));
        let (_, run) = stream.split_once(':').ok_or(ParseCursorError)?;
        Ok(Self {
            asked_us: number(asked_us)?,
            run: run.to_owned(),
            request: number(request)?,
        })
    }
}

/// A page of [`pending`], and where the next one begins.
///
/// # Errors
/// [`StoreError`].
pub fn pending_page(
    reader: &dyn Reader,
    workflow: Option<&str>,
    after: Option<&PendingCursor>,
    limit: usize,
) -> Result<(Vec<PersonRequest>, Option<PendingCursor>), StoreError> {
    let all = pending(reader, workflow)?;
    Ok(page_of(all, after, limit, PendingCursor::of))
}

/// The same, with what was approved before.
///
/// # Errors
/// [`StoreError`].
pub fn inbox_page(
    reader: &dyn Reader,
    after: Option<&PendingCursor>,
    limit: usize,
) -> Result<(Vec<PendingRequest>, Option<PendingCursor>), StoreError> {
    let all = pending_requests(reader, None, |approved, request| PendingRequest {
        request: request.clone(),
        approved_before: approved.before(request),
    })?;
    let place = |one: &PendingRequest| PendingCursor::of(&one.request);
    Ok(page_of(all, after, limit, place))
}

fn page_of<T>(
    mut records: Vec<T>,
    after: Option<&PendingCursor>,
    limit: usize,
    place: impl Fn(&T) -> PendingCursor,
) -> (Vec<T>, Option<PendingCursor>) {
    if let Some(after) = after {
        records.retain(|record| place(record) > *after);
    }
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| more).map(place);
    (records, next)
}

/// The records of the `limit` newest runs, whatever became of them, the newest run first; and where
/// the next runs begin.
///
/// # Errors
/// [`StoreError`].
pub fn all_page(
    reader: &dyn Reader,
    workflow: Option<&str>,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<(Vec<PersonRequest>, Option<Cursor>), StoreError> {
    let mut found = Vec::new();
    let next = each_row(reader, &runs_of(workflow), from, limit, |row| {
        // Records that a branch shares with its run are listed with the run.
        let own =
            |record: &PersonRequest| record.run_id().split('/').next() == Some(row.stream.name());
        found.extend(
            requests_of_run(reader, &row.stream)?
                .into_iter()
                .filter(own),
        );
        Ok(())
    })?;
    Ok((found, next))
}

/// The runs that wait for a review among the `limit` newest failed ones, the newest first; and where
/// the next ones begin.
///
/// # Errors
/// [`StoreError`].
pub fn reviews_page(
    reader: &dyn Reader,
    workflow: Option<&str>,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<(Vec<RunReview>, Option<Cursor>), StoreError> {
    let filter = Filter {
        status: Some(RunStatus::Failed.as_str().to_owned()),
        ..runs_of(workflow)
    };
    let mut found = Vec::new();
    let next = each_row(reader, &filter, from, limit, |row| {
        let wanted =
            |row: &RunRow| row.error.as_deref() == Some(ErrorCode::NeedsHumanReview.as_str());
        found.extend(read(row).filter(wanted).map(|row| RunReview {
            run_id: row.run_id,
            workflow: row.workflow,
            created_at: row.created_at.to_string(),
            ended_at: row.ended_at.map(|at| at.to_string()),
        }));
        Ok(())
    })?;
    Ok((found, next))
}

/// Runs and their branches, of one workflow or of all.
fn runs_of(workflow: Option<&str>) -> Filter {
    Filter {
        kinds: listed_kinds(),
        workflow: workflow.map(str::to_owned),
        ..Filter::default()
    }
}

fn read(row: &IndexRow) -> Option<RunRow> {
    serde_json::from_value(row.row.to_value()).ok()
}

/// Looks at the newest rows, a page at a time; gives where those begin that it did not come to.
pub(super) fn each_row(
    reader: &dyn Reader,
    filter: &Filter,
    from: Option<&Cursor>,
    mut left: usize,
    mut look: impl FnMut(&IndexRow) -> Result<(), StoreError>,
) -> Result<Option<Cursor>, StoreError> {
    let mut cursor = from.cloned();
    while left > 0 {
        let page = reader.list(filter, cursor.as_ref(), PAGE.min(left))?;
        left -= page.rows.len().min(left);
        for row in &page.rows {
            look(row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(cursor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A call that is asked for by a frame.
    fn call(request: u64, step: &str, status: &str, value: u64) -> PersonRequest {
        let (run_id, step_id) = match step.rsplit_once('/') {
            Some((scope, step)) => (format!("run_1/{scope}"), step),
            None => ("run_1".to_owned(), step),
        };
        let arguments = json!({"value": value});
        let record = json!({
            "approval_id": format!("apr_{request}"), "kind": "approval", "run_id": run_id,
            "step_id": step_id, "server": "kv", "tool_name": "set", "tool_use_id": "c",
            "arguments": arguments, "digest": arguments.to_string(), "on_reject": "fail",
            "timeout_ms": 0, "quorum": 1, "not_by_proposer": false, "status": status,
            "created_at": "2026-01-01T00:00:00.000000Z", "proposer": "p", "request": request,
        });
        PersonRequest::Approval(serde_json::from_value(record).unwrap())
    }

    fn before(records: &[PersonRequest], request: &PersonRequest) -> Option<(u64, Option<u64>)> {
        let found = ApprovedCalls::of(records).before(request)?;
        let value = found.arguments.map(|of| of["value"].as_u64().unwrap());
        Some((found.frame, value))
    }

    #[test]
    fn the_latest_approved_call_of_the_same_tool_and_step_is_what_a_call_is_compared_with() {
        let records = [
            call(3, "keep", "approved", 1),
            call(5, "keep", "approved", 2),
            call(7, "keep", "rejected", 3),
            call(9, "other", "approved", 4),
            call(11, "call/keep", "approved", 5),
            call(20, "keep", "approved", 6),
        ];
        assert_eq!(
            before(&records, &call(15, "keep", "pending", 9)),
            Some((5, Some(2)))
        );
        assert_eq!(
            before(&records, &call(15, "keep", "pending", 2)),
            Some((5, None))
        );
        assert_eq!(
            before(&records, &call(4, "keep", "pending", 2)),
            Some((3, Some(1)))
        );
        assert_eq!(before(&records, &call(3, "keep", "pending", 2)), None);
        assert_eq!(
            before(&records, &call(15, "call/keep", "pending", 5)),
            Some((11, None))
        );
        // Another item of a fan-out is the same step; a step whose name begins alike is not.
        assert_eq!(
            before(&records, &call(15, "keep.3", "pending", 2)),
            Some((5, None))
        );
        assert_eq!(before(&records, &call(15, "kee", "pending", 2)), None);
        let mut other = call(15, "keep", "pending", 2);
        if let PersonRequest::Approval(asked) = &mut other {
            asked.tool_name = "delete".to_owned();
        }
        assert_eq!(before(&records, &other), None);
    }
}
