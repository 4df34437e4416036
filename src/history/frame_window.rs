//! A window of the frames of a run, as people read them: what each says in a few words, what it
//! follows from, and what follows from it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use ktsu_ledger::StreamId;
use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::frame::External;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::Lineage;
use ktsu_projections::lineage::LineageNode;

use super::frame_page::is_within;
use super::frames_ahead::each_frame;
use super::run_cache::RunCache;
use super::trace::{FRAME_WORK, TraceFilter, mark_missing_causes};
use super::work_meter::{TooMuchWork, WorkMeter};
use ktsu_run_index::check_end;

/// The most frames in a window.
pub const MAX_ROWS: usize = 500;
/// The most causes, and the most effects, that a row names.
const MAX_LINKS: usize = 6;
/// The most of them that the frame names that is opened.
const MAX_OPENED_LINKS: usize = 200;
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

/// The reason why there is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameWindowError {
    /// The frames cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are too many.
    #[error(transparent)]
    TooLarge(#[from] TooMuchWork),
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
    let (lineage, damage) = cached_lineage(reader, stream, cache, meter)?;
    let mut window = match (choose(&lineage, scope, wanted), &damage) {
        (Some(window), _) => window,
        (None, None) => return Ok(None),
        (None, Some(damage)) => return Err(damage.clone().into()),
    };
    window.damage = damage.map(|damage| damage.to_string());
    if let Some(seq) = wanted.frame {
        window.opened = open(reader, stream, scope, &lineage, seq)?;
    }
    let opened = window.opened.iter_mut().map(|opened| &mut opened.row);
    let rows = window.rows.iter_mut().chain(opened);
    mark_missing_causes(reader, rows.map(|row| &mut row.node))?;
    Ok(Some(window))
}

/// The first frames of a run that is read, at most so many.
pub fn first_rows(lineage: &Lineage, most: usize) -> Vec<ShownFrame> {
    let nodes = lineage.nodes().iter().take(most);
    nodes
        .map(|node| row(lineage, "", node, MAX_LINKS))
        .collect()
}

/// What all frames say, as far as they can be read, from the page before if nothing was appended since.
fn cached_lineage(
    reader: &dyn Reader,
    stream: &StreamId,
    cache: &RunCache,
    meter: &mut WorkMeter,
) -> Result<(Arc<Lineage>, Option<StoreError>), FrameWindowError> {
    let mut damaged = None;
    let sound = cache.lineage(reader, stream, || {
        Ok::<_, FrameWindowError>(match lineage(reader, stream, meter)? {
            (lineage, None) => Some(lineage),
            (lineage, Some(damage)) => {
                damaged = Some((Arc::new(lineage), Some(damage)));
                None
            }
        })
    })?;
    let read = sound.map(|lineage| (lineage, None)).or(damaged);
    Ok(read.unwrap_or_default())
}

/// What all frames say, up to those that are read together with a damaged one. Of values that are kept
/// beside frames, only outcomes are read, since later frames name their parts.
fn lineage(
    reader: &dyn Reader,
    stream: &StreamId,
    meter: &mut WorkMeter,
) -> Result<(Lineage, Option<StoreError>), FrameWindowError> {
    let mut lineage = Lineage::default();
    let is_wanted = |external: &External| external.path == "/outcome";
    let read = each_frame(reader, stream, is_wanted, |frame| {
        meter.spend(FRAME_WORK)?;
        lineage.apply(&frame);
        Ok::<_, FrameWindowError>(())
    });
    let end = read.and_then(|()| Ok(check_end(reader, stream)?));
    match end {
        Ok(()) => Ok((lineage, None)),
        Err(FrameWindowError::Store(damage @ StoreError::Damaged(_))) => {
            Ok((lineage, Some(damage)))
        }
        Err(error) => Err(error),
    }
}

/// The window, without what has to be read for it.
fn choose(lineage: &Lineage, scope: &str, wanted: &FrameWanted) -> Option<FrameWindow> {
    let filter = wanted.filter();
    let (mut kinds, mut actors) = (HashSet::new(), HashSet::new());
    let (mut total, mut matching) = (0, Vec::new());
    for node in lineage.nodes() {
        if !is_within(&node.scope, scope) {
            continue;
        }
        total += 1;
        kinds.insert(node.kind.as_str());
        actors.insert(node.actor.as_str());
        if filter.matches(node) && (wanted.actor.is_empty() || wanted.actor == node.actor) {
            matching.push(node);
        }
    }
    let first = matching.partition_point(|node| {
        let from = wanted.from.or(wanted.frame).unwrap_or_default();
        node.seq < from
    });
    // Without a number to begin at, the window is the one that has the frame that is opened.
    let first = match wanted.from {
        Some(_) => first,
        None => first.min(matching.len().saturating_sub(1)) / MAX_ROWS * MAX_ROWS,
    };
    let begins = |at: usize| matching.get(at).map(|node| node.seq);
    let shown = matching.iter().skip(first).take(MAX_ROWS);
    (total > 0).then(|| FrameWindow {
        rows: shown
            .map(|node| row(lineage, scope, node, MAX_LINKS))
            .collect(),
        total,
        wanted: matching.len(),
        earlier: (first > 0)
            .then(|| begins(first.saturating_sub(MAX_ROWS)))
            .flatten(),
        later: begins(first.saturating_add(MAX_ROWS)),
        kinds: in_order(kinds),
        actors: in_order(actors),
        opened: None,
        damage: None,
    })
}

fn in_order(names: HashSet<&str>) -> Vec<String> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let names = names.into_iter().take(MAX_CHOICES);
    names.map(str::to_owned).collect()
}

fn row(lineage: &Lineage, scope: &str, node: &LineageNode, most: usize) -> ShownFrame {
    let links = |all: &[u64]| FrameLinks {
        shown: all
            .iter()
            .take(most)
            .map(|seq| link(lineage, scope, node, *seq))
            .collect(),
        left_out: all.len().saturating_sub(most),
    };
    ShownFrame {
        causes: links(&node.cause),
        effects: links(lineage.effects(node.seq)),
        node: node.clone(),
    }
}

fn link(lineage: &Lineage, scope: &str, node: &LineageNode, seq: u64) -> FrameLink {
    let there = lineage.node(seq);
    FrameLink {
        seq,
        is_within: there.is_some_and(|there| is_within(&there.scope, scope)),
        is_missing: there.is_none() || node.missing.contains(&seq.to_string()),
    }
}

/// A frame as it is stored, if there is one of this number in the scope.
fn open(
    reader: &dyn Reader,
    stream: &StreamId,
    scope: &str,
    lineage: &Lineage,
    seq: u64,
) -> Result<Option<OpenedFrame>, StoreError> {
    let node = lineage.node(seq);
    let Some(node) = node.filter(|node| is_within(&node.scope, scope)) else {
        return Ok(None);
    };
    let records = Ancestry::of(reader, stream)?.read(reader, seq, 1)?;
    let record = records.first().filter(|record| record.seq == seq);
    Ok(record.map(|record| OpenedFrame {
        row: row(lineage, scope, node, MAX_OPENED_LINKS),
        json: record.to_json(),
        hash: record.hash.to_string(),
        external: record.decode_bare().map_or_else(
            |_| Vec::new(),
            |frame| {
                let external = frame.ext.into_iter();
                external.map(|one| (one.path, one.bytes)).collect()
            },
        ),
    }))
}
