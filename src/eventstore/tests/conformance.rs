//! The store on EventStoreDB under the history that every store passes: on the double, and on the server
//! that `KTSU_TEST_EVENTSTORE` names (`esdb://…`), where one is named.

#![allow(clippy::unwrap_used)]

#[path = "../../../ledger/tests/support/conformance.rs"]
mod conformance;
mod double;
#[path = "support/place.rs"]
mod place;
#[path = "../../../ledger/tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use conformance::{
    Tried, deeds, keeps_a_key_for_one_stream, play, refuses_a_frame_without_its_blob,
};
use ktsu_ledger::Backend as _;
use ktsu_ledger::store::read_all;
use place::Places;
use proptest::prelude::*;
use support::{completed, entry, payload, run};

proptest! {
    #![proptest_config(ktsu_campaign::config(20))]

    #[test]
    fn the_store_answers_as_the_model_does(history in prop::collection::vec(deeds(), 1..14)) {
        let places = Places::new();
        let stores = places.all().into_iter().map(|place| Tried::kept_by(Arc::new(place)));
        play(stores.collect(), history);
    }
}

#[test]
fn a_frame_without_its_blob_is_refused() {
    let places = Places::new();
    let stores = places.all().into_iter().map(|place| place.store().unwrap());
    refuses_a_frame_without_its_blob(stores);
}

#[test]
fn index_rows_keep_a_key_for_one_stream_and_may_hand_it_on() {
    let places = Places::new();
    let stores = places.all().into_iter().map(|place| place.store().unwrap());
    keeps_a_key_for_one_stream(stores);
}

#[test]
fn an_entry_that_a_server_does_not_take_at_once_is_appended_in_parts() {
    let places = Places::new();
    let drafts = (0..60).map(|place| completed("a", payload(60_000, place)));
    let entry = entry(&run("a"), None, drafts.collect());
    for place in places.all() {
        let mut store = place.store().unwrap();
        let epoch = store.acquire().unwrap();
        let answers = store.append(epoch, std::slice::from_ref(&entry)).unwrap();
        assert_eq!(answers, [Ok(59)]);
        let again = places.elsewhere(&place);
        let all = read_all(again.reader().unwrap().as_ref(), &run("a"), 0).unwrap();
        assert_eq!(all, entry.records());
    }
}
