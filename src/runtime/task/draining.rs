//! Tasks while the runtime drains: calls in flight are recorded, and no new one begins.

use std::time::Duration;

use super::AgentTaskContext;
use crate::conversation::Action;
use ktsu_contract::report::ReportEvent;

/// The time that a report that asks to begin a call may take while the runtime drains. An
/// orchestrator may hold it for as long as it likes.
const HELD_REPORT_TIME: Duration = Duration::from_secs(2);

/// Returns `true` if calls begin once this is recorded.
pub(super) fn begins_calls(events: &[ReportEvent]) -> bool {
    let begins =
        |event: &ReportEvent| matches!(event, ReportEvent::Request(_) | ReportEvent::ToolCalled(_));
    events.iter().any(begins)
}

impl AgentTaskContext {
    /// Returns `true` if an action has to wait for another runtime. An orchestrator that takes no
    /// reports would have every call of the task made again, so such a task continues to its end.
    pub(super) fn is_held_back(&self, action: &Action) -> bool {
        let begins = match action {
            Action::Call(_) => true,
            Action::Report(events) => begins_calls(events),
            _ => false,
        };
        begins && self.draining.is_draining() && self.record.takes_reports()
    }

    /// Waits for the answer to a report that asks to begin a call, and parks the task if it is not
    /// there soon after the runtime began to drain.
    pub(super) async fn unless_held<T>(&self, report: impl Future<Output = T>) -> T {
        let held = async {
            self.draining.draining().await;
            tokio::time::sleep(HELD_REPORT_TIME).await;
        };
        tokio::select! {
            biased;
            answer = report => answer,
            () = held, if self.record.takes_reports() => self.park().await,
        }
    }

    /// Stays where it is. The task is still named in heartbeats, so that it is not lost before its
    /// runtime is.
    pub(super) async fn park<T>(&self) -> T {
        self.in_flight.lock().take();
        std::future::pending().await
    }
}
