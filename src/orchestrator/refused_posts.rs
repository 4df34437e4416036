//! Posts to runs that have failed or were cancelled are refused without reading the runs again and again.

use std::collections::HashMap;

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Reader, StoreError, Tail};
use ktsu_projections::run::RunStatus;
use ktsu_workflow::admit::post::PostError;
use parking_lot::Mutex;

/// Number of runs that are remembered. Those beyond are read once more.
const MAX_REMEMBERED: usize = 1_024;

/// The reasons why posts to runs were refused, by the run and the end of its frames: nothing else
/// decides it until the run has another frame.
#[derive(Default)]
pub(super) struct RefusedPosts(Mutex<HashMap<StreamId, (Tail, PostError)>>);

impl RefusedPosts {
    /// The reason why a post is refused without reading the run, if it is.
    pub(super) fn find(
        &self,
        reader: &dyn Reader,
        run: &StreamId,
    ) -> Result<Option<PostError>, StoreError> {
        let known = self.0.lock().get(run).cloned();
        let Some((tail, refused)) = known else {
            return Ok(None);
        };
        let unchanged = reader.tail(run)? == Some(tail);
        Ok(unchanged.then_some(refused))
    }

    /// Returns `true` if the run is known.
    pub(super) fn knows(&self, run: &StreamId) -> bool {
        self.0.lock().contains_key(run)
    }

    /// Remembers why a post was refused, if its run has ended badly. The end is read before and after
    /// the status, so that they belong together.
    pub(super) fn note(
        &self,
        reader: &dyn Reader,
        run: &StreamId,
        refused: PostError,
    ) -> Result<(), StoreError> {
        let Some(tail) = reader.tail(run)? else {
            return Ok(());
        };
        let row = reader.row(run)?;
        let ended_badly = row.is_some_and(|row| {
            let ends = [RunStatus::Failed, RunStatus::Cancelled];
            ends.iter().any(|status| row.status == status.as_str())
        });
        if ended_badly && reader.tail(run)? == Some(tail) {
            let mut all = self.0.lock();
            if all.len() >= MAX_REMEMBERED {
                all.clear();
            }
            all.insert(run.clone(), (tail, refused));
        }
        Ok(())
    }
}
