//! The values of the statement that stores a group.

use std::collections::HashMap;

use ktsu_ledger::store::columns::int;
use ktsu_ledger::store::{Entry, Epoch, IndexRow, StandIn};
use ktsu_ledger::{Hash, StreamId};
use tokio_postgres::types::Type;

use crate::connection::SqlParameter;
use crate::queries::StoredStream;
use crate::statements::{CommitPolicy, GroupParts};
use crate::values::{hashes, key_list, number, numbers, texts};

/// The frames, streams and blobs of a group, as columns.
#[derive(Default)]
struct GroupFrames {
    new_ids: Vec<i64>,
    new_names: Vec<String>,
    streams: Vec<i64>,
    seqs: Vec<i64>,
    hashes: Vec<Hash>,
    bodies: Vec<String>,
    blob_hashes: Vec<Hash>,
    blob_bodies: Vec<String>,
}

/// The statement that stores a group, its parameters, and the number of its frames.
pub(crate) struct GroupStatement {
    pub(crate) text: String,
    pub(crate) parameters: Vec<SqlParameter>,
    pub(crate) frames: u64,
}

/// The statement that stores entries. New streams get their numbers.
pub(crate) fn group_statement(
    policy: CommitPolicy,
    epoch: Epoch,
    head: u64,
    group: &[Entry],
    pending: &mut HashMap<StreamId, StoredStream>,
) -> GroupStatement {
    let mut frames = GroupFrames::default();
    let mut rows: HashMap<&StreamId, &IndexRow> = HashMap::new();
    for entry in group {
        let first = int(head) + int(frames.seqs.len() as u64) + 1;
        let known = pending
            .entry(entry.stream().clone())
            .or_insert(StoredStream {
                id: 0,
                tail: Some(entry.tail()),
            });
        if known.id == 0 {
            known.id = first;
            frames.new_ids.push(first);
            frames.new_names.push(entry.stream().to_string());
        }
        for record in entry.records() {
            frames.streams.push(known.id);
            frames.seqs.push(int(record.seq));
            frames.hashes.push(record.hash);
            frames.bodies.push(record.body.clone());
        }
        for blob in entry.blobs() {
            frames.blob_hashes.push(blob.hash);
            frames.blob_bodies.push(blob.text.as_str().to_owned());
        }
        if let Some(row) = entry.index() {
            rows.insert(&row.stream, row);
        }
    }
    statement_of(policy, epoch, head, frames, rows.into_values())
}

/// The statement that puts stand-ins, in streams whose numbers are known or follow from the head.
pub(crate) fn stand_ins_statement(
    policy: CommitPolicy,
    epoch: Epoch,
    head: u64,
    of: &[StandIn],
    mut ids: HashMap<StreamId, i64>,
) -> GroupStatement {
    let mut frames = GroupFrames::default();
    for (position, StandIn { stream, record }) in (int(head) + 1..).zip(of) {
        let id = ids.entry(stream.clone()).or_insert_with(|| {
            frames.new_ids.push(position);
            frames.new_names.push(stream.to_string());
            position
        });
        frames.streams.push(*id);
        frames.seqs.push(int(record.seq));
        frames.hashes.push(record.hash);
        frames.bodies.push(record.body.clone());
    }
    statement_of(policy, epoch, head, frames, std::iter::empty())
}

/// The statement that puts index rows.
pub(crate) fn rows_statement<'r>(
    policy: CommitPolicy,
    epoch: Epoch,
    head: u64,
    rows: impl ExactSizeIterator<Item = &'r IndexRow>,
) -> GroupStatement {
    statement_of(policy, epoch, head, GroupFrames::default(), rows)
}

fn statement_of<'r>(
    policy: CommitPolicy,
    Epoch(epoch): Epoch,
    head: u64,
    frames: GroupFrames,
    rows: impl ExactSizeIterator<Item = &'r IndexRow>,
) -> GroupStatement {
    let text = policy.append(GroupParts {
        streams: !frames.new_ids.is_empty(),
        frames: !frames.seqs.is_empty(),
        blobs: !frames.blob_hashes.is_empty(),
        rows: rows.len() > 0,
    });
    let count = frames.seqs.len() as u64;
    let mut parameters = vec![number(epoch), number(head)];
    parameters.extend(frame_parameters(frames));
    parameters.extend(row_parameters(rows));
    GroupStatement {
        text,
        parameters,
        frames: count,
    }
}

fn frame_parameters(frames: GroupFrames) -> Vec<SqlParameter> {
    vec![
        numbers(frames.new_ids),
        (Box::new(frames.new_names), Type::TEXT_ARRAY),
        numbers(frames.streams),
        numbers(frames.seqs),
        hashes(&frames.hashes),
        (Box::new(frames.bodies), Type::TEXT_ARRAY),
        hashes(&frames.blob_hashes),
        (Box::new(frames.blob_bodies), Type::TEXT_ARRAY),
    ]
}

fn row_parameters<'r>(rows: impl Iterator<Item = &'r IndexRow>) -> Vec<SqlParameter> {
    let rows: Vec<&IndexRow> = rows.collect();
    let open: Vec<bool> = rows.iter().map(|row| row.open).collect();
    let digests: Vec<Hash> = rows.iter().map(|row| row.digest()).collect();
    vec![
        texts(rows.iter().map(|row| row.stream.as_str())),
        texts(rows.iter().map(|row| row.workflow.as_str())),
        texts(rows.iter().map(|row| row.status.as_str())),
        (Box::new(open), Type::BOOL_ARRAY),
        numbers(rows.iter().map(|row| int(row.created_us)).collect()),
        key_list(rows.iter().map(|row| row.key.as_deref())),
        texts(rows.iter().map(|row| row.row.as_str())),
        hashes(&digests),
    ]
}
