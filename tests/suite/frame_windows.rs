//! The page of the frames of a run reads no more than it shows, and says of each what a reading of all of them says.

use ktsu_history::frame_window::{self, FrameWanted};
use ktsu_history::run_cache::RunCache;
use ktsu_history::work_meter::WorkMeter;
use ktsu_ledger::store::MemoryStore;
use ktsu_projections::Lineage;

use super::golden::goldens;

#[test]
fn a_window_of_the_frames_of_every_golden_run_says_what_their_lineage_says() {
    let mut links = [0; 3];
    for (name, golden) in goldens() {
        let mut store = MemoryStore::new();
        golden.put(&mut store);
        let lineage = Lineage::from_frames(&golden.frames());
        let mut rows = Vec::new();
        let mut wanted = FrameWanted::default();
        loop {
            let mut meter = WorkMeter::limited_to(u64::MAX);
            let cache = RunCache::default();
            let tools = (&cache, &mut meter);
            let window = frame_window::window(&store, &golden.stream, "", &wanted, tools);
            let window = window.unwrap().unwrap();
            assert_eq!(window.total, golden.records.len() as u64, "{name}");
            rows.extend(window.rows);
            wanted.from = window.later;
            if wanted.from.is_none() {
                break;
            }
        }
        let shown: Vec<_> = rows.iter().map(|row| &row.node).collect();
        assert_eq!(shown, lineage.nodes().iter().collect::<Vec<_>>(), "{name}");
        for row in &rows {
            let effects = row.effects.shown.iter().map(|link| link.seq);
            let all = lineage.effects(row.node.seq);
            assert!(effects.eq(all.iter().copied().take(row.effects.shown.len())));
            links[0] += row.effects.shown.len();
            links[1] += row.effects.left_out;
            links[2] += usize::from(row.node.kind == "command.deferred");
            assert_eq!(row.effects.shown.len() + row.effects.left_out, all.len());
        }
    }
    assert!(links.iter().all(|count| *count > 0), "{links:?}");
}
