//! The family of a run: what it was forked from, and the branches of any of them, as a tree.

use std::collections::BTreeMap;

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Filter, Reader, StoreError};
use ktsu_projections::index::RunRow;

use super::approvals::each_row;

/// The most forks of forks that are followed to the run at the top.
const MAX_DEPTH: usize = 32;
/// The most branches, from the newest on, among which those of the family are looked for.
const MAX_LOOKED_AT: usize = 5_000;
/// The number of branches that are read at once.
const PAGE: usize = 500;
/// The most runs and branches of a family that are listed.
const MAX_LISTED: usize = 40;

/// A run and the branches that belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFamily {
    /// The run at the top and its branches, each behind what it was forked from; none if there are no branches.
    pub members: Vec<FamilyMember>,
    /// The number of those that are left out.
    pub left_out: usize,
    /// True if there are more branches in the ledger than were looked at.
    pub is_partial: bool,
}

/// A run or a branch in its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyMember {
    /// Its row in the list of runs.
    pub row: RunRow,
    /// Of each branch on the path from the top to it, the last one its own: whether later branches were forked
    /// from the same.
    pub is_followed: Vec<bool>,
}

/// The family of a run, from the list of runs.
///
/// # Errors
/// [`StoreError`].
pub fn family(reader: &dyn Reader, stream: &StreamId) -> Result<RunFamily, StoreError> {
    let mut path: Vec<RunRow> = Vec::new();
    let mut above = Some(stream.clone());
    while let Some(stream) = above.take().filter(|_| path.len() < MAX_DEPTH) {
        let row = reader.row(&stream)?;
        let row = row.and_then(|row| serde_json::from_str::<RunRow>(row.row.as_str()).ok());
        let Some(row) = row else { break };
        let parent = row.parent_run_id.as_deref();
        above = parent.and_then(|parent| StreamId::run(parent).ok());
        path.push(row);
    }
    let Some(top) = path.last().cloned() else {
        return Ok(RunFamily::default());
    };
    let (branches, is_partial) = branches_since(reader, &top)?;
    if branches.is_empty() {
        return Ok(RunFamily::default());
    }
    let (mut members, mut left_out) = descend(&top, &branches, |_| true);
    let is_listed = |member: &FamilyMember| member.row.run_id == stream.name();
    if !members.iter().any(is_listed) {
        // Of a large family, the path to the run, and what was forked from it.
        let on_path = |row: &RunRow| {
            let is_on = |one: &RunRow| one.run_id == row.run_id;
            path.iter().any(is_on) || row.parent_run_id.as_deref() == Some(stream.name())
        };
        let all = members.len() + left_out;
        members = descend(&top, &branches, on_path).0;
        left_out = all.saturating_sub(members.len());
    }
    if members.len() < 2 && left_out == 0 {
        members.clear();
    }
    Ok(RunFamily {
        members,
        left_out,
        is_partial,
    })
}

/// Branches by what they were forked from, the oldest first.
type BranchesByParent = BTreeMap<String, Vec<RunRow>>;

/// The branches that were made since a run began, and whether some of them were not looked at.
fn branches_since(
    reader: &dyn Reader,
    top: &RunRow,
) -> Result<(BranchesByParent, bool), StoreError> {
    let filter = Filter {
        kinds: vec!["branch".to_owned()],
        ..Filter::default()
    };
    let mut by_parent = BranchesByParent::new();
    let (mut from, mut looked_at) = (None, 0);
    loop {
        let mut is_older = false;
        let next = each_row(reader, &filter, from.as_ref(), PAGE, |row| {
            looked_at += 1;
            is_older |= row.created_us < top.created_at.as_micros();
            let read = serde_json::from_str::<RunRow>(row.row.as_str()).ok();
            if let Some((parent, row)) =
                read.and_then(|row| Some((row.parent_run_id.clone()?, row)))
            {
                by_parent.entry(parent).or_default().push(row);
            }
            Ok(())
        })?;
        let is_partial = looked_at >= MAX_LOOKED_AT && next.is_some() && !is_older;
        if is_older || is_partial || next.is_none() {
            by_parent.values_mut().for_each(|rows| rows.reverse());
            return Ok((by_parent, is_partial));
        }
        from = next;
    }
}

/// The run at the top and what was forked from it, as far as it is wanted, and how many are left out.
fn descend(
    top: &RunRow,
    branches: &BranchesByParent,
    wanted: impl Fn(&RunRow) -> bool,
) -> (Vec<FamilyMember>, usize) {
    let (mut members, mut left_out) = (Vec::new(), 0);
    let mut open = vec![(top, Vec::new())];
    while let Some((row, is_followed)) = open.pop() {
        let below = branches.get(&row.run_id).map_or(&[][..], Vec::as_slice);
        let below: Vec<&RunRow> = below.iter().filter(|row| wanted(row)).collect();
        for (place, branch) in below.iter().rev().enumerate() {
            let mut lines: Vec<bool> = is_followed.clone();
            // The rest of a chain that is deeper is at the place where it is cut.
            if lines.len() < MAX_DEPTH {
                lines.push(place > 0);
            }
            open.push((*branch, lines));
        }
        match members.len() < MAX_LISTED {
            true => members.push(FamilyMember {
                row: row.clone(),
                is_followed,
            }),
            false => left_out += 1,
        }
    }
    (members, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, parent: Option<&str>) -> RunRow {
        let mut row: RunRow = serde_json::from_value(serde_json::json!({
            "run_id": name, "created_at": "2027-01-15T08:00:00.000000Z", "status": "complete",
            "version": "1", "workflow": "w",
        }))
        .unwrap();
        row.parent_run_id = parent.map(str::to_owned);
        row
    }

    fn branches(pairs: &[(&str, &str)]) -> BranchesByParent {
        let mut branches = BranchesByParent::new();
        for (name, parent) in pairs {
            let of = branches.entry((*parent).to_owned()).or_default();
            of.push(row(name, Some(parent)));
        }
        branches
    }

    #[test]
    fn branches_follow_what_they_were_forked_from() {
        let all = branches(&[
            ("a", "top"),
            ("b", "top"),
            ("a1", "a"),
            ("a2", "a"),
            ("x", "y"),
        ]);
        let (members, left_out) = descend(&row("top", None), &all, |_| true);
        let shown: Vec<(&str, &[bool])> = members
            .iter()
            .map(|one| (one.row.run_id.as_str(), one.is_followed.as_slice()))
            .collect();
        let expected: [(&str, &[bool]); 5] = [
            ("top", &[]),
            ("a", &[true]),
            ("a1", &[true, true]),
            ("a2", &[true, false]),
            ("b", &[false]),
        ];
        assert_eq!((shown.as_slice(), left_out), (&expected[..], 0));
    }

    #[test]
    fn of_a_large_family_the_rest_is_counted_and_a_chain_is_as_deep_as_it_is_drawn() {
        let names: Vec<String> = (0..=100).map(|n| n.to_string()).collect();
        let pairs: Vec<(&str, &str)> = names.windows(2).map(|two| (&*two[1], &*two[0])).collect();
        let (members, left_out) = descend(&row("0", None), &branches(&pairs), |_| true);
        assert_eq!((members.len(), left_out), (MAX_LISTED, 101 - MAX_LISTED));
        let deepest = members.iter().map(|one| one.is_followed.len()).max();
        assert_eq!(deepest, Some(MAX_DEPTH));
    }
}
