//! Blobs, looked at one by one before the frames that name them.

use std::collections::HashMap;

use super::PAGE;
use super::report::{Kind, Report};
use crate::hash::Hash;
use crate::store::{RawBlob, Reader};
use crate::strict;

/// Every blob, by the hash it is kept under.
#[derive(Debug, Default)]
pub(super) struct Blobs(HashMap<Hash, Blob>);

#[derive(Debug)]
struct Blob {
    bytes: u64,
    wrong: Option<&'static str>,
    named: bool,
}

/// Reads all blobs.
pub(super) fn scan(reader: &dyn Reader, report: &mut Report) -> Blobs {
    let mut blobs = Blobs::default();
    let mut after = 0;
    loop {
        let page = match reader.scan_blobs(after, PAGE) {
            Ok(page) => page,
            Err(error) => {
                let message = format!("the blobs cannot be read: {error}");
                report.find(None, None, Kind::Blob, message);
                return blobs;
            }
        };
        match page.last() {
            Some(last) if last.position > after => after = last.position,
            Some(_) | None => return blobs,
        }
        for blob in page {
            report.blobs += 1;
            blobs.take(&blob, report);
        }
    }
}

impl Blobs {
    fn take(&mut self, blob: &RawBlob, report: &mut Report) {
        let Some(hash) = Hash::from_bytes(&blob.hash) else {
            let message = format!("the blob at {} is kept under no hash", blob.position);
            return report.find(None, None, Kind::Blob, message);
        };
        let text = std::str::from_utf8(&blob.body).ok();
        let wrong = if Hash::of(&blob.body) != hash {
            Some("is not what its hash says")
        } else if text.is_none_or(|text| strict::check_value(text).is_err()) {
            Some("is not canonical text")
        } else {
            None
        };
        let bytes = blob.body.len() as u64;
        let named = false;
        let seen = Blob {
            bytes,
            wrong,
            named,
        };
        if self.0.insert(hash, seen).is_some() {
            report.find(
                None,
                None,
                Kind::Blob,
                format!("the blob {hash} is kept twice"),
            );
        }
    }

    /// What is wrong with a blob that a frame names.
    pub(super) fn name(&mut self, hash: &Hash, bytes: u64) -> Result<(), String> {
        let blob = self.0.get_mut(hash);
        let blob = blob.ok_or_else(|| format!("the blob {hash} is missing"))?;
        blob.named = true;
        match blob.wrong {
            Some(wrong) => Err(format!("the blob {hash} {wrong}")),
            None if blob.bytes != bytes => Err(format!("the blob {hash} has another length")),
            None => Ok(()),
        }
    }

    /// Counts what no frame names, and tells what is wrong with it.
    pub(super) fn finish(&self, report: &mut Report) {
        for (hash, blob) in self.0.iter().filter(|(_, blob)| !blob.named) {
            report.unreferenced_blobs += 1;
            if let Some(wrong) = blob.wrong {
                let message = format!("the blob {hash}, which no frame names, {wrong}");
                report.find(None, None, Kind::Blob, message);
            }
        }
    }
}
