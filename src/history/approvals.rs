//! The requests to people across runs: pending calls and reviews, and decisions.

use std::fmt;
use std::str::FromStr;

use ktsu_ledger::StreamId;
use ktsu_ledger::branch::frames;
use ktsu_ledger::store::{Cursor, Filter, IndexRow, ParseCursorError, Reader, StoreError};
use ktsu_projections::approvals::{ApprovalRecord, ApprovalStatus};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::index::RunRow;
use ktsu_projections::person_requests::{self, PersonRequest};
use ktsu_projections::reviews::ReviewRecord;
use ktsu_projections::run::RunStatus;
use ktsu_projections::suspensions::SuspensionRecord;
use serde::{Deserialize, Serialize};
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

/// Everything that waits for people, in the order it was asked.
///
/// # Errors
/// [`StoreError`].
pub fn pending(
    reader: &dyn Reader,
    workflow: Option<&str>,
) -> Result<Vec<PersonRequest>, StoreError> {
    let filter = Filter {
        open: Some(true),
        ..runs_of(workflow)
    };
    let mut found = Vec::new();
    each_row(reader, &filter, None, usize::MAX, |row| {
        if read(row).is_some_and(|row| row.approvals > 0) {
            let records = requests_of_run(reader, &row.stream)?.into_iter();
            found.extend(records.filter(|record| record.status() == ApprovalStatus::Pending));
        }
        Ok(())
    })?;
    found.sort_by_cached_key(PendingCursor::of);
    Ok(found)
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
    let mut records = pending(reader, workflow)?;
    if let Some(after) = after {
        records.retain(|record| PendingCursor::of(record) > *after);
    }
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| more).map(PendingCursor::of);
    Ok((records, next))
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
