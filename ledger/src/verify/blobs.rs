//! Verifies blobs, after the frames that name them: a blob is never newer than its frame, so a
//! ledger in use cannot be caught halfway.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::PAGE;
use super::report::{ProblemKind, VerifyReport};
use crate::frame::External;
use crate::hash::Hash;
use crate::store::{RawBlob, Reader};
use crate::strict;

/// Every blob that a frame names, and the first frame that does.
#[derive(Debug, Default)]
pub(super) struct BlobReferences(HashMap<Hash, BlobReference>);

#[derive(Debug)]
struct BlobReference {
    stream: String,
    seq: u64,
    bytes: u64,
}

impl BlobReferences {
    /// Notes that a frame names a blob.
    pub(super) fn note(
        &mut self,
        stream: &str,
        seq: u64,
        external: &External,
    ) -> Result<(), String> {
        let naming = self
            .0
            .entry(external.hash)
            .or_insert_with(|| BlobReference {
                stream: stream.to_owned(),
                seq,
                bytes: external.bytes,
            });
        if naming.bytes == external.bytes {
            return Ok(());
        }
        let hash = external.hash;
        Err(format!("it gives the blob {hash} another length"))
    }

    /// Reads all blobs, and checks them against the frames.
    pub(super) fn check(&self, reader: &dyn Reader, report: &mut VerifyReport) {
        let mut seen = HashSet::new();
        let mut from = 0;
        loop {
            let page = match reader.scan_blobs(from, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    report.note_failure(&error);
                    let message = format!("the blobs cannot be read: {error}");
                    report.find(None, None, ProblemKind::Blob, message);
                    break;
                }
            };
            match page.last() {
                Some(last) if last.position >= from => from = last.position.saturating_add(1),
                Some(_) | None => break,
            }
            for blob in page {
                report.blobs += 1;
                self.take(&blob, &mut seen, report);
            }
        }
        let missing = self.0.iter().filter(|(hash, _)| !seen.contains(*hash));
        let missing: BTreeMap<_, _> = missing
            .map(|(hash, naming)| ((&naming.stream, naming.seq), hash))
            .collect();
        for ((stream, seq), hash) in missing {
            // With its stream, which was removed since the frame was read.
            let stream_id = stream.parse().ok();
            if stream_id.is_some_and(|id| reader.removed(&id).is_ok_and(|found| found.is_some())) {
                continue;
            }
            let message = format!("the blob {hash} is missing");
            report.find(Some(stream), Some(seq), ProblemKind::Blob, message);
        }
    }

    fn take(&self, blob: &RawBlob, seen: &mut HashSet<Hash>, report: &mut VerifyReport) {
        let Some(hash) = Hash::from_bytes(&blob.hash) else {
            let message = format!("the blob at {} is kept under no hash", blob.position);
            return report.find(None, None, ProblemKind::Blob, message);
        };
        let naming = self.0.get(&hash);
        if let Some(at) = &blob.misplaced {
            let message =
                format!("the position of the blob {hash} is {at}, but positions begin at 1");
            report.find(None, None, ProblemKind::Blob, message);
        }
        report.unreferenced_blobs += u64::from(naming.is_none());
        let text = std::str::from_utf8(&blob.body).ok();
        let wrong = if Hash::of(&blob.body) != hash {
            "is not what its hash says"
        } else if text.is_none_or(|text| strict::check_value(text).is_err()) {
            "is not canonical text"
        } else if naming.is_some_and(|naming| naming.bytes != blob.body.len() as u64) {
            "has another length than its frame says"
        } else if !seen.insert(hash) {
            "is kept twice"
        } else {
            return;
        };
        seen.insert(hash);
        let stream = naming.map(|naming| naming.stream.as_str());
        let message = format!("the blob {hash} {wrong}");
        report.find(
            stream,
            naming.map(|naming| naming.seq),
            ProblemKind::Blob,
            message,
        );
    }
}
