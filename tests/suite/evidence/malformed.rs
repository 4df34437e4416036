//! Frames that no engine writes, put into an archive by hand with every hash made whole: what is no
//! frame to ktsu proves nothing about calls and people to the independent verifier either.

use std::collections::BTreeMap;

use ktsu_evidence::archive::{FRAMES, MANIFEST, Manifest, PLACES};
use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, verify};
use ktsu_evidence::tar;
use ktsu_ledger::Hash;

use super::book::{Book, repacked};
use super::browser::Browser;
use super::forgeries::claim;
use super::{Python, put, verdict};
use crate::golden::goldens;

/// The archive with other frames, every chain, head and digest made whole.
fn rewritten(archive: &[u8], change: impl Fn(&str, u64, &str) -> String) -> Vec<u8> {
    repacked(archive, |files| {
        let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
        let (old_places, old_bodies) = (text(PLACES), text(FRAMES));
        let mut rows = old_places.lines();
        let (mut places, mut bodies) = (format!("{}\n", rows.next().unwrap()), String::new());
        // What a hash was, and what it is now.
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        let mut heads: BTreeMap<String, Hash> = BTreeMap::new();
        for (row, body) in rows.zip(old_bodies.lines()) {
            let [position, stream, seq, hash]: [&str; 4] =
                row.split(',').collect::<Vec<_>>().try_into().unwrap();
            let mut body = change(stream, seq.parse().unwrap(), body);
            for (was, is) in &now {
                body = body.replace(was, is);
            }
            let fresh = Hash::of(body.as_bytes());
            now.insert(hash.to_owned(), fresh.to_string());
            heads.insert(stream.to_owned(), fresh);
            places += &format!("{position},{stream},{seq},{fresh}\n");
            bodies += &format!("{body}\n");
        }
        let mut manifest: Manifest = serde_json::from_slice(&files[MANIFEST]).unwrap();
        for (stream, range) in &mut manifest.streams {
            range.head = heads[stream];
        }
        files.insert(
            MANIFEST.to_owned(),
            serde_json::to_vec_pretty(&manifest).unwrap(),
        );
        files.insert(PLACES.to_owned(), places.into_bytes());
        files.insert(FRAMES.to_owned(), bodies.into_bytes());
    })
}

#[test]
fn what_is_no_frame_about_calls_proves_nothing_about_them() {
    let runs = goldens();
    let folder = tempfile::tempdir().unwrap();
    let archive = |name: &str| {
        let golden = format!("v1-tool-{name}");
        let (_, run) = runs.iter().find(|(one, _)| *one == golden).unwrap();
        (run.stream.to_string(), Book::unsigned(run).export_all())
    };
    let (_, honest) = archive("quorum");
    assert!(
        verify(
            &rewritten(&honest, |_, _, body| body.to_owned()),
            &ArchiveVerifyOptions::default()
        )
        .unwrap()
        .is_sound()
    );
    for (told, name, at, from, to) in [
        ("no attempt", "quorum", 11, "\"attempt\":2,", ""),
        ("no report", "quorum", 12, "\"report\":", "\"repost\":"),
        (
            "a report without a number",
            "quorum",
            11,
            "\"n\":1}",
            "\"m\":1}",
        ),
        (
            "a policy that is true",
            "quorum",
            7,
            "\"quorum\":2",
            "\"quorum\":true",
        ),
        (
            "a policy in fractions",
            "quorum",
            7,
            "\"quorum\":2",
            "\"quorum\":2.0",
        ),
        (
            "a call before the first",
            "quorum",
            11,
            "\"call\":0",
            "\"call\":-1",
        ),
        (
            "a call that is a fraction",
            "quorum",
            11,
            "\"call\":0",
            "\"call\":0.0",
        ),
        ("another word", "quorum", 8, "\"approved\"", "\"Approved\""),
        ("nobody", "quorum", 8, "\"auth\":\"token\",", ""),
        (
            "a reason nobody knows",
            "recovers",
            10,
            "\"rejected\"",
            "\"forbidden\"",
        ),
        (
            "a doubt nobody knows",
            "doubt-ends",
            10,
            "\"worker_lost\"",
            "\"lost\"",
        ),
        (
            "a step that is a number",
            "calls",
            7,
            "\"step\":\"act\"",
            "\"step\":1",
        ),
    ] {
        let (stream, good) = archive(name);
        let bent = rewritten(&good, |of, seq, body| match (of == stream, seq) {
            (true, seq) if seq == at => {
                assert!(body.contains(from), "{told}: {body}");
                body.replacen(from, to, 1)
            }
            _ => body.to_owned(),
        });
        let outcome = verify(&bent, &ArchiveVerifyOptions::default()).unwrap();
        assert_eq!(
            claim(&outcome, "chain"),
            ClaimVerdict::Failed,
            "{told}: {outcome:?}"
        );
        let Some(python) = Python::find() else {
            continue;
        };
        let said = python
            .verify(&[put(folder.path(), "bent", &bent)], &[])
            .remove(0);
        assert_eq!(verdict(&said, "manifest"), "proven", "{told}: {said}");
        assert_ne!(verdict(&said, "chain"), "failed", "{told}: {said}");
        let failed = ["approvals", "tools"].map(|one| verdict(&said, one));
        assert!(failed.iter().any(|one| one == "failed"), "{told}: {said}");
    }
}

/// Changes one table of an archive, and nothing of what the manifest says of it.
fn damaged(archive: &[u8], name: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut files = tar::read(archive).unwrap();
    change(files.get_mut(name).unwrap());
    tar::write(&files).unwrap()
}

#[test]
fn a_damaged_table_of_frames_is_disproved_and_not_without_a_verdict() {
    let run = goldens().swap_remove(0).1;
    let whole = Book::unsigned(&run).export_all();
    let folder = tempfile::tempdir().unwrap();
    let row = format!("999,store,999,{}\n", "0".repeat(64));
    let without = |name: &str| {
        let mut files = tar::read(&whole).unwrap();
        files.remove(name);
        tar::write(&files).unwrap()
    };
    for (told, bent) in [
        (
            "a row too many",
            damaged(&whole, PLACES, |rows| rows.extend(row.as_bytes())),
        ),
        ("no bodies", damaged(&whole, FRAMES, Vec::clear)),
        ("no rows", damaged(&whole, PLACES, Vec::clear)),
        (
            "a body too many",
            damaged(&whole, FRAMES, |bodies| bodies.extend(b"{}\n")),
        ),
        (
            "no row at all",
            damaged(&whole, PLACES, |rows| rows.extend(b"what?\n")),
        ),
        (
            "half a row",
            damaged(&whole, PLACES, |rows| rows.truncate(rows.len() - 1)),
        ),
        ("no places", without(PLACES)),
        ("no frames", without(FRAMES)),
    ] {
        let outcome = verify(&bent, &ArchiveVerifyOptions::default()).unwrap();
        for one in ["manifest", "chain"] {
            let found = claim(&outcome, one);
            assert_eq!(found, ClaimVerdict::Failed, "{told}, {one}: {outcome:?}");
        }
        let bent = [put(folder.path(), "bent", &bent)];
        if let Some(browser) = Browser::find() {
            let said = browser.verify(&bent, &[]);
            browser.agrees(&Ok(outcome), &said[0], told);
        }
        let Some(python) = Python::find() else {
            continue;
        };
        let said = python.verify(&bent, &[]).remove(0);
        for one in ["manifest", "chain"] {
            assert_eq!(verdict(&said, one), "failed", "{told}, {one}: {said}");
        }
    }
}

#[test]
fn an_archive_with_more_frames_than_may_be_read_is_refused() {
    let runs = goldens();
    let (_, run) = runs.first().unwrap();
    let bytes = Book::unsigned(run).export_all();
    let within = |frames: u64| {
        let against = ArchiveVerifyOptions {
            frames,
            ..ArchiveVerifyOptions::default()
        };
        verify(&bytes, &against)
    };
    let frames = within(u64::MAX).unwrap().frames;
    assert_eq!(within(frames).unwrap().frames, frames);
    let refused = within(frames - 1).unwrap_err();
    assert_eq!(refused, format!("it has more than {} frames", frames - 1));
}
