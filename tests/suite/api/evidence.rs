//! Evidence over HTTP: what is signed, and the archive of a run.

use std::time::{Duration, Instant};

use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, verify};
use ktsu_evidence::export::{ExportBound, ExportError, ExportSelection, export, export_within};
use ktsu_evidence::notes;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::describe::Described;
use super::pages::{is_harmless, lab};
use crate::golden::goldens;

/// What is signed once that is more than some number of frames.
async fn signed(api: &Described, more_than: u64) -> Value {
    let begun = Instant::now();
    loop {
        let signed = api.get("/evidence").await.json();
        if signed["checkpoint"]["frames"].as_u64() > Some(more_than) {
            return signed;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{signed:#}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_archive_that_was_downloaded_is_proven_by_the_note_and_the_key_of_the_page() {
    let (_kit, lab, api) = lab().await;
    let run = lab.client.run("parent", json!({"list": ["a"]})).await;
    let run = run["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await.len() as u64;
    let shown = signed(&api, frames).await;
    let key = &shown["keys"][0];
    assert_eq!(
        (&key["state"], &key["vouched"]),
        (&json!("in force"), &json!(true))
    );
    assert_eq!(key["id"], shown["checkpoint"]["key"]);
    assert_eq!(shown["witness"], "none");

    // An inline child is in the archive of its run.
    let of_child = api.get(&format!("/runs/{run}%2Fcall/evidence")).await;
    let archive = api.get(&format!("/runs/{run}/evidence")).await;
    assert_eq!((of_child.status, archive.status), (200, 200));
    assert_eq!(archive.headers["content-type"], "application/x-tar");
    let name = format!("attachment; filename=\"{run}.evidence.tar\"");
    assert_eq!(archive.headers["content-disposition"], name.as_str());
    let options = ArchiveVerifyOptions {
        held: notes(shown["checkpoint"]["note"].as_str().unwrap()).unwrap(),
        key: Some(key["public_key"].as_str().unwrap().parse().unwrap()),
        ..ArchiveVerifyOptions::default()
    };
    let report = verify(&archive.body, &options).unwrap();
    for wanted in ["chain", "inclusion", "signatures", "key", "held", "replay"] {
        let claim = report.claims.iter().find(|claim| claim.claim == wanted);
        assert_eq!(claim.unwrap().verdict, ClaimVerdict::Proven, "{wanted}");
    }
    assert!(report.is_sound());

    let page = api.get("/inspector/evidence").await;
    is_harmless(&page);
    for text in [&key["public_key"], &shown["origin"]] {
        let text = text.as_str().unwrap();
        assert!(page.text().contains(text), "{text}: {}", page.text());
    }
    let page = api.get(&format!("/inspector/runs/{run}")).await.text();
    let link = format!("href=\"../../runs/{run}/evidence\"");
    assert!(page.contains(&link), "{page}");
}

#[tokio::test]
async fn before_anything_is_recorded_the_page_of_evidence_says_so() {
    let (_kit, _lab, api) = lab().await;
    let shown = api.get("/evidence").await.json();
    assert_eq!(shown["checkpoint"], Value::Null);
    let page = api.get("/inspector/evidence").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("There is none yet"), "{}", page.text());
    assert_eq!(api.get("/runs/run_absent/evidence").await.status, 404);
}

#[test]
fn an_archive_is_made_within_its_bound_or_not_at_all() {
    let (_, recorded) = goldens().swap_remove(0);
    let mut store = MemoryStore::new();
    recorded.put(&mut store);
    let wanted = ExportSelection {
        streams: vec![recorded.stream.clone()],
        ..ExportSelection::default()
    };
    let whole = export(&store, &wanted).unwrap();
    let bound = |ledger_frames, bytes| ExportBound {
        ledger_frames,
        bytes,
    };
    let large = bound(u64::MAX, whole.bytes.len());
    assert_eq!(export_within(&store, &wanted, large), Ok(whole));
    for small in [
        bound(3, usize::MAX),
        bound(u64::MAX, 1_000),
        bound(u64::MAX, 0),
    ] {
        assert_eq!(
            export_within(&store, &wanted, small),
            Err(ExportError::TooLarge),
            "{small:?}"
        );
    }
}
