//! Lists of runs by what their rows say, and figures over time. Rows are looked at from the newest on, so many at a time.

use std::collections::BTreeSet;

use ktsu_ledger::store::{Cursor, Filter, IndexRow, Reader, StoreError};
use ktsu_ledger::{StreamId, Timestamp};
use ktsu_projections::index::RunRow;
use ktsu_projections::life::changes;
use ktsu_projections::run::RunStatus;
use serde::Serialize;
use utoipa::ToSchema;

use crate::approvals::each_row;
use ktsu_run_index::listed_kinds;

/// The most rows that one answer looks at.
pub const MAX_LOOKED_AT: usize = 20_000;
/// Rows that are read at a time.
const PAGE: usize = 1_000;

/// A condition that runs may be in beside their status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFlag {
    /// It waits for people.
    Asks,
    /// It is paused.
    Paused,
    /// It is a branch.
    Branch,
}

impl RunFlag {
    /// Their names.
    pub const NAMES: [&str; 3] = ["asks", "paused", "branch"];

    /// The flag of a name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "asks" => Some(Self::Asks),
            "paused" => Some(Self::Paused),
            "branch" => Some(Self::Branch),
            _ => None,
        }
    }

    fn is_of(self, row: &RunRow) -> bool {
        match self {
            Self::Asks => row.approvals > 0,
            Self::Paused => row.paused_at.is_some(),
            Self::Branch => row.parent_run_id.is_some(),
        }
    }
}

/// The runs that are asked for; an absent member admits all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunQuery {
    /// What the index answers by itself.
    pub filter: Filter,
    /// Started or forked by this principal.
    pub principal: Option<String>,
    /// With this text in an id, in the name or version of the workflow, or in the error code; any letters' case.
    pub text: Option<String>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
    /// That cost this much at least, in millionths of a US dollar. A run without a recorded cost did not.
    pub min_cost_micro_usd: Option<u64>,
    /// In this condition.
    pub flag: Option<RunFlag>,
}

/// Some runs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunList {
    /// Their rows.
    pub rows: Vec<RunRow>,
    /// Where to look further. There may be none behind it: one answer looks at 20,000 rows at most.
    pub next: Option<Cursor>,
}

impl RunQuery {
    /// Returns `true` if the index alone answers it.
    pub fn is_plain(&self) -> bool {
        let plain = Self {
            filter: self.filter.clone(),
            until: self.until,
            ..Self::default()
        };
        *self == plain
    }

    /// Where rows begin that are not too new.
    fn begin(&self, cursor: Option<&Cursor>) -> Option<Cursor> {
        let until = self.until.and_then(|until| {
            // No id of a run comes before this one.
            Some(Cursor {
                created_us: until.as_micros(),
                stream: "branch:0".parse().ok()?,
            })
        });
        match (cursor, until) {
            (Some(cursor), Some(until)) => Some(until.min(cursor.clone())),
            (cursor, until) => cursor.cloned().or(until),
        }
    }

    /// `text` is the text of the query in lower case.
    fn admits(&self, row: &RunRow, text: Option<&str>) -> bool {
        self.since.is_none_or(|since| row.created_at >= since)
            && self.until.is_none_or(|until| row.created_at < until)
            && self.flag.is_none_or(|flag| flag.is_of(row))
            && self
                .min_cost_micro_usd
                .is_none_or(|least| row.cost_micro_usd.is_some_and(|cost| cost >= least))
            && self.principal.is_none() | (row.principal == self.principal)
            && text.is_none_or(|text| contains(row, text))
    }
}

/// Returns `true` if a row has a text, which is in lower case.
fn contains(row: &RunRow, wanted: &str) -> bool {
    let members = [
        Some(&row.run_id),
        row.parent_run_id.as_ref(),
        Some(&row.workflow),
        Some(&row.version),
        row.error.as_ref(),
        row.principal.as_ref(),
    ];
    let mut members = members.into_iter().flatten();
    members.any(|member| member.to_lowercase().contains(wanted))
}

/// The runs that are asked for, from a place on.
///
/// # Errors
/// [`StoreError`].
pub fn list(
    reader: &dyn Reader,
    query: &RunQuery,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Result<RunList, StoreError> {
    let mut cursor = query.begin(cursor);
    let text = query.text.as_deref().map(str::to_lowercase);
    let mut found = RunList::default();
    let mut looked_at = 0;
    loop {
        let size = match query.is_plain() {
            true => limit,
            false => PAGE,
        };
        let page = reader.list(&query.filter, cursor.as_ref(), size)?;
        for row in &page.rows {
            let place = row.cursor();
            if query
                .since
                .is_some_and(|since| place.created_us < since.as_micros())
            {
                return Ok(found);
            }
            let Some(row) = read(reader, row)? else {
                continue;
            };
            if !query.admits(&row, text.as_deref()) {
                continue;
            }
            if found.rows.len() == limit {
                found.next = cursor;
                return Ok(found);
            }
            found.rows.push(row);
            cursor = Some(place);
        }
        looked_at += page.rows.len();
        if page.next.is_none() {
            return Ok(found);
        }
        if found.rows.len() == limit || looked_at >= MAX_LOOKED_AT {
            found.next = page.next;
            return Ok(found);
        }
        cursor = page.next;
    }
}

/// A row as it is shown; `None` of one that is not a run's.
fn read(reader: &dyn Reader, row: &IndexRow) -> Result<Option<RunRow>, StoreError> {
    let Ok(mut shown) = serde_json::from_str::<RunRow>(row.row.as_str()) else {
        return Ok(None);
    };
    if shown.principal.is_none() {
        // Rows of earlier versions do not say it; the first frame does.
        let first = reader.read(&row.stream, 0, 1).unwrap_or_default();
        let first = first.first().and_then(|record| record.decode_bare().ok());
        let by = first.and_then(|frame| {
            let mut changes = changes(&frame);
            changes.find_map(|change| change.proposer().map(|by| by.id.clone()))
        });
        shown.principal = by;
    }
    Ok(Some(shown))
}

/// Runs that changed, as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunChanges {
    /// Their rows.
    pub rows: Vec<RunRow>,
    /// Runs that are not there any more.
    pub removed: Vec<String>,
}

/// Runs that changed, as they are now.
///
/// # Errors
/// [`StoreError`].
pub fn changes_of(
    reader: &dyn Reader,
    runs: &BTreeSet<StreamId>,
) -> Result<RunChanges, StoreError> {
    let mut changes = RunChanges::default();
    for run in runs {
        match reader.row(run)? {
            Some(row) => changes.rows.extend(read(reader, &row)?),
            None => changes.removed.push(run.name().to_owned()),
        }
    }
    Ok(changes)
}

/// How many questions to people are open in all runs.
///
/// # Errors
/// [`StoreError`].
pub fn count_asks(reader: &dyn Reader) -> Result<u64, StoreError> {
    let filter = Filter {
        kinds: listed_kinds(),
        open: Some(true),
        ..Filter::default()
    };
    let mut asks = 0;
    each_row(reader, &filter, None, MAX_LOOKED_AT, |row| {
        // Most rows ask nothing, and need not be parsed.
        if row.row.as_str().contains("\"approvals\":") {
            let row = serde_json::from_str::<RunRow>(row.row.as_str());
            asks += row.map_or(0, |row| u64::from(row.approvals));
        }
        Ok(())
    })?;
    Ok(asks)
}

/// Figures of runs that were accepted within a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// Number of runs.
    pub runs: u64,
    /// Of these, complete.
    pub complete: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Of these, neither ended nor unreadable.
    pub open: u64,
    /// Their recorded cost, in millionths of a US dollar; of runs that ended.
    pub cost_micro_usd: u64,
    /// The time that half of those that ended took at most, in milliseconds.
    pub p50_ms: Option<u64>,
    /// The time that 95 of 100 of those that ended took at most, in milliseconds.
    pub p95_ms: Option<u64>,
}

/// Figures of runs over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunStatistics {
    /// Where the first interval begins.
    pub since: String,
    /// Where the last one ends.
    pub until: String,
    /// The length of an interval, in milliseconds.
    pub interval_ms: u64,
    /// False if there are more runs than one answer looks at: those before `since` are not counted.
    pub is_whole: bool,
    /// All of them together.
    pub all: RunFigures,
    /// One interval after the other, without gaps.
    pub intervals: Vec<RunFigures>,
}

/// A run, as far as figures need it.
struct Counted {
    at: u64,
    took_ms: Option<u64>,
    status: Option<RunStatus>,
    cost: u64,
}

/// Figures over time, in so many intervals. Without `since`, they begin with the oldest run that was looked at.
///
/// # Errors
/// [`StoreError`].
pub fn statistics(
    reader: &dyn Reader,
    query: &RunQuery,
    intervals: usize,
    most: usize,
) -> Result<RunStatistics, StoreError> {
    let mut counted: Vec<Counted> = Vec::new();
    let begin = query.begin(None);
    let text = query.text.as_deref().map(str::to_lowercase);
    let mut is_before = false;
    let next = each_row(reader, &query.filter, begin.as_ref(), most, |row| {
        is_before |= query
            .since
            .is_some_and(|since| row.created_us < since.as_micros());
        if is_before {
            return Ok(());
        }
        let shown = read(reader, row)?.filter(|shown| query.admits(shown, text.as_deref()));
        counted.extend(shown.map(|shown| {
            Counted {
                at: shown.created_at.as_micros(),
                took_ms: shown
                    .ended_at
                    .map(|ended| ended.millis_since(shown.created_at)),
                status: RunStatus::named(&shown.status),
                cost: shown.cost_micro_usd.unwrap_or_default(),
            }
        }));
        Ok(())
    })?;
    let oldest = counted.last().map_or(0, |one| one.at);
    let newest = counted.first().map_or(0, |one| one.at);
    let since = match (query.since, next.is_some() && !is_before) {
        (Some(since), false) => since.as_micros(),
        _ => oldest,
    };
    let until = query
        .until
        .map_or(newest.saturating_add(1), Timestamp::as_micros);
    let intervals = intervals.max(1);
    let span = until.saturating_sub(since).max(1);
    // Whole milliseconds, so that the length can be named.
    let length = span.div_ceil(intervals as u64).div_ceil(1_000).max(1) * 1_000;
    let mut parts: Vec<Vec<&Counted>> = Vec::new();
    parts.resize_with(intervals, Vec::new);
    for one in &counted {
        let place = one.at.saturating_sub(since) / length;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(part) = parts.get_mut(place) {
            part.push(one);
        }
    }
    let end = since.saturating_add(length.saturating_mul(intervals as u64));
    Ok(RunStatistics {
        since: Timestamp::from_micros(since).to_string(),
        until: Timestamp::from_micros(end).to_string(),
        interval_ms: length / 1_000,
        is_whole: next.is_none() || is_before,
        all: figures(&counted.iter().collect::<Vec<_>>()),
        intervals: parts.iter().map(|part| figures(part)).collect(),
    })
}

fn figures(runs: &[&Counted]) -> RunFigures {
    let with =
        |status: RunStatus| runs.iter().filter(|one| one.status == Some(status)).count() as u64;
    let mut took: Vec<u64> = runs.iter().filter_map(|one| one.took_ms).collect();
    took.sort_unstable();
    RunFigures {
        runs: runs.len() as u64,
        complete: with(RunStatus::Complete),
        failed: with(RunStatus::Failed),
        open: runs
            .iter()
            .filter(|one| one.status.is_some_and(|status| !status.is_terminal()))
            .count() as u64,
        cost_micro_usd: runs.iter().map(|one| one.cost).fold(0, u64::saturating_add),
        p50_ms: percentile(&took, 50),
        p95_ms: percentile(&took, 95),
    }
}

/// The least of the values that so many percent of them do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}
