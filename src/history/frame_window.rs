//! A window of the frames of a run, as people read them: what each says in a few words, what it
//! follows from, and what follows from it.

use std::sync::Arc;

use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Record, StreamId};
use ktsu_projections::Lineage;
use ktsu_projections::lineage::LineageNode;

use super::frame_index::FrameIndex;
pub use super::frame_index::FrameWindowError;
use super::frame_page::{end_of_task, is_within};
use super::run_cache::RunCache;
use super::trace::{TraceFilter, mark_missing_causes};
use super::work_meter::WorkMeter;

/// The most frames that are shown whole, so that the browser finds words in them.
pub const MAX_ROWS: usize = 500;
/// The frames of a window where there are more: as many as a browser paints at once.
const WINDOW: usize = 50;
/// The most causes, and the most effects, that a row names.
const MAX_LINKS: usize = 6;
/// The most of them that the frame names that is opened.
const MAX_OPENED_LINKS: usize = 200;
/// The most numbers between two frames that are read together, with all between them.
const MAX_GAP: u64 = 16;
/// The most types, and the most actors, that are offered to choose from.
const MAX_CHOICES: usize = 200;

/// The frames that are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameWanted {
    /// Whose type begins like this.
    pub kind: String,
    /// About this step or item, or inside it.
    pub step: String,
    /// Appended by this actor.
    pub actor: String,
    /// From this number on.
    pub from: Option<u64>,
    /// The one that is opened.
    pub frame: Option<u64>,
}

impl FrameWanted {
    /// Returns `true` if frames are left out.
    pub fn is_filtered(&self) -> bool {
        [&self.kind, &self.step, &self.actor]
            .iter()
            .any(|one| !one.is_empty())
    }

    fn filter(&self) -> TraceFilter {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        TraceFilter {
            step: given(&self.step),
            kinds: given(&self.kind).into_iter().collect(),
            ..TraceFilter::default()
        }
    }
}

/// Some frames of a run, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameWindow {
    /// The frames.
    pub rows: Vec<ShownFrame>,
    /// The number of frames that there are.
    pub total: u64,
    /// The number of those that are wanted.
    pub wanted: usize,
    /// Where the window before this one begins.
    pub earlier: Option<u64>,
    /// Where the window after this one begins.
    pub later: Option<u64>,
    /// The types that there are.
    pub kinds: Vec<String>,
    /// The actors that there are.
    pub actors: Vec<String>,
    /// The frame that is opened, if there is one of this number.
    pub opened: Option<OpenedFrame>,
    /// The damage because of which later frames are not read, or are missing.
    pub damage: Option<String>,
}

/// A frame among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFrame {
    /// What it says.
    pub node: LineageNode,
    /// The frames of the run that it follows from.
    pub causes: FrameLinks,
    /// The frames of the run that follow from it.
    pub effects: FrameLinks,
}

/// Frames that a frame is linked to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameLinks {
    /// The first of them.
    pub shown: Vec<FrameLink>,
    /// The number of those that are left out.
    pub left_out: usize,
}

/// A frame that another one is linked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameLink {
    /// Its number.
    pub seq: u64,
    /// True if it belongs to the child that is shown, or to one inside it.
    pub is_within: bool,
    /// True if there is no such frame.
    pub is_missing: bool,
}

/// A frame, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedFrame {
    /// What it says.
    pub row: ShownFrame,
    /// Its stored JSON, with its hash.
    pub json: String,
    /// Its hash.
    pub hash: String,
    /// The members of `data` that are kept beside it, with their lengths in bytes.
    pub external: Vec<(String, u64)>,
}

/// A window of the frames of a run, or with a `scope` of that inline child; none if there are none.
///
/// # Errors
/// [`FrameWindowError`]; damage is one where no frame can be read before it.
pub fn window(
    reader: &dyn Reader,
    stream: &StreamId,
    scope: &str,
    wanted: &FrameWanted,
    (cache, meter): (&RunCache, &mut WorkMeter),
) -> Result<Option<FrameWindow>, FrameWindowError> {
    let (index, mut damage) = cached_index(reader, stream, cache, meter)?;
    let Some((mut window, shown)) = choose(&index, scope, wanted) else {
        return damage.map_or(Ok(None), |damage| Err(damage.into()));
    };
    let read = WindowReader {
        reader,
        path: Ancestry::of(reader, stream)?,
        index: Some(&index),
        scope,
    };
    match read.rows(&shown, &mut window.rows) {
        Err(found @ StoreError::Damaged(_)) if !window.rows.is_empty() => damage = Some(found),
        read => read?,
    }
    if let Some(seq) = wanted.frame {
        match read.open(seq) {
            Err(found @ StoreError::Damaged(_)) => damage = Some(found),
            opened => window.opened = opened?,
        }
    }
    window.damage = damage.map(|damage| damage.to_string());
    let opened = window.opened.iter_mut().map(|opened| &mut opened.row);
    let rows = window.rows.iter_mut().chain(opened);
    mark_missing_causes(reader, rows.map(|row| &mut row.node))?;
    Ok(Some(window))
}

/// As [`window`], of a run with so many frames and before they are read: what follows from a frame is not known yet.
/// None where frames are chosen by more than their number, or where none has the number or a later one.
///
/// # Errors
/// [`StoreError`].
pub fn first_look(
    reader: &dyn Reader,
    stream: &StreamId,
    wanted: &FrameWanted,
    total: u64,
) -> Result<Option<FrameWindow>, StoreError> {
    if wanted.is_filtered() || wanted.frame.is_some() {
        return Ok(None);
    }
    let size = WINDOW as u64;
    let first = wanted.from.unwrap_or_default();
    if first >= total {
        return Ok(None);
    }
    let end = first.saturating_add(size).min(total);
    let mut window = FrameWindow {
        total,
        wanted: usize::try_from(total).unwrap_or(usize::MAX),
        earlier: (first > 0).then(|| first.saturating_sub(size)),
        later: (end < total).then_some(end),
        ..FrameWindow::default()
    };
    let read = WindowReader {
        reader,
        path: Ancestry::of(reader, stream)?,
        index: None,
        scope: "",
    };
    let numbers: Vec<u64> = (first..end).collect();
    read.rows(&numbers, &mut window.rows)?;
    mark_missing_causes(reader, window.rows.iter_mut().map(|row| &mut row.node))?;
    Ok(Some(window))
}

/// The first frames of a run that is read, at most so many.
pub fn first_rows(lineage: &Lineage, most: usize) -> Vec<ShownFrame> {
    let scope_of = |seq| lineage.node(seq).map(|node| node.scope.as_str());
    let nodes = lineage.nodes().iter().take(most);
    let rows = nodes.map(|node| {
        let effects = lineage.effects(node.seq);
        row(node.clone(), effects, ("", &scope_of), MAX_LINKS)
    });
    rows.collect()
}

/// What all frames are about, as far as they can be read, from the page before if nothing was appended since.
fn cached_index(
    reader: &dyn Reader,
    stream: &StreamId,
    cache: &RunCache,
    meter: &mut WorkMeter,
) -> Result<(Arc<FrameIndex>, Option<StoreError>), FrameWindowError> {
    let mut damaged = None;
    let sound = cache.index(reader, stream, || {
        if let Some(run) = cache.kept(reader, stream)? {
            return Ok(Some(FrameIndex::of(&run.frames, meter)?));
        }
        Ok::<_, FrameWindowError>(match FrameIndex::read(reader, stream, meter)? {
            (index, None) => Some(index),
            (index, damage) => {
                damaged = Some((Arc::new(index), damage));
                None
            }
        })
    })?;
    let read = sound.map(|index| (index, None)).or(damaged);
    Ok(read.unwrap_or_default())
}

/// The window without its rows, and the numbers of these.
fn choose(
    index: &FrameIndex,
    scope: &str,
    wanted: &FrameWanted,
) -> Option<(FrameWindow, Vec<u64>)> {
    let mut found = index.select(scope, &wanted.filter(), &wanted.actor);
    found.kinds.truncate(MAX_CHOICES);
    found.actors.truncate(MAX_CHOICES);
    let matching = found.numbers;
    let rows = match matching.len() <= MAX_ROWS {
        true => MAX_ROWS,
        false => WINDOW,
    };
    let first = matching.partition_point(|seq| {
        let from = wanted.from.or(wanted.frame).unwrap_or_default();
        *seq < from
    });
    // Without a number to begin at, the window is the one that has the frame that is opened.
    let first = match wanted.from {
        Some(_) => first,
        None => first.min(matching.len().saturating_sub(1)) / rows * rows,
    };
    let begins = |at: usize| matching.get(at).copied();
    let window = FrameWindow {
        total: found.total,
        wanted: matching.len(),
        earlier: (first > 0)
            .then(|| begins(first.saturating_sub(rows)))
            .flatten(),
        later: begins(first.saturating_add(rows)),
        kinds: found.kinds,
        actors: found.actors,
        ..FrameWindow::default()
    };
    let shown = matching.into_iter().skip(first).take(rows);
    (found.total > 0).then(|| (window, shown.collect()))
}

/// A frame as a row, at most so many of its links. `scope_of`: the child that a frame belongs to, if there is such
/// a frame.
fn row<'a>(
    node: LineageNode,
    effects: &[u64],
    (scope, scope_of): (&str, &dyn Fn(u64) -> Option<&'a str>),
    most: usize,
) -> ShownFrame {
    let link = |seq: &u64| {
        let there = scope_of(*seq);
        FrameLink {
            seq: *seq,
            is_within: there.is_some_and(|there| is_within(there, scope)),
            is_missing: there.is_none() || node.missing.contains(&seq.to_string()),
        }
    };
    let links = |all: &[u64]| FrameLinks {
        shown: all.iter().take(most).map(link).collect(),
        left_out: all.len().saturating_sub(most),
    };
    ShownFrame {
        causes: links(&node.cause),
        effects: links(effects),
        node,
    }
}

/// Frames of a run, or of an inline child, that are read for a window.
struct WindowReader<'a> {
    reader: &'a dyn Reader,
    path: Ancestry,
    /// What all frames are about; absent while only those are read that are shown.
    index: Option<&'a FrameIndex>,
    scope: &'a str,
}

impl WindowReader<'_> {
    /// Reads the frames of these numbers, in order, up to one that cannot be read.
    fn rows(&self, numbers: &[u64], rows: &mut Vec<ShownFrame>) -> Result<(), StoreError> {
        let near = |a: &u64, b: &u64| b - a <= MAX_GAP;
        for part in numbers.chunk_by(near) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else {
                continue;
            };
            let mut wanted = part.iter().peekable();
            let mut next = *first;
            while next <= *last {
                let count = usize::try_from(last - next + 1).unwrap_or(usize::MAX);
                let page = self.path.read(self.reader, next, count.min(MAX_ROWS))?;
                let Some(end) = page.last() else {
                    return Ok(());
                };
                next = end.seq.saturating_add(1);
                for record in &page {
                    if wanted.next_if_eq(&&record.seq).is_some() {
                        rows.push(self.row(record, MAX_LINKS)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn row(&self, record: &Record, most: usize) -> Result<ShownFrame, StoreError> {
        let frame = record.decode_bare().map_err(|error| {
            let owner = self.path.owner(record.seq).map_or("", StreamId::as_str);
            let why = format!("{owner}#{}: {error}", record.seq);
            self.reader.found_damage(&why);
            StoreError::Damaged(why)
        })?;
        let end = || end_of_task(self.reader, &self.path, &frame);
        let scope_of = |seq| self.scope_of(seq);
        Ok(row(
            LineageNode::of(&frame, end)?,
            self.index.map_or(&[], |index| index.effects(frame.seq)),
            (self.scope, &scope_of),
            most,
        ))
    }

    /// The inline child that a frame belongs to, if there is such a frame. As long as that is not known, the run.
    fn scope_of(&self, seq: u64) -> Option<&str> {
        self.index.map_or(Some(""), |index| index.scope_of(seq))
    }

    /// A frame as it is stored, if there is one of this number in the scope.
    fn open(&self, seq: u64) -> Result<Option<OpenedFrame>, StoreError> {
        let is_here = |scope| is_within(scope, self.scope);
        if !self.scope_of(seq).is_some_and(is_here) {
            return Ok(None);
        }
        let records = self.path.read(self.reader, seq, 1)?;
        let Some(record) = records.first().filter(|record| record.seq == seq) else {
            return Ok(None);
        };
        let external = record.decode_bare().map_or_else(
            |_| Vec::new(),
            |frame| {
                let external = frame.ext.into_iter();
                external.map(|one| (one.path, one.bytes)).collect()
            },
        );
        Ok(Some(OpenedFrame {
            row: self.row(record, MAX_OPENED_LINKS)?,
            json: record.to_json(),
            hash: record.hash.to_string(),
            external,
        }))
    }
}
