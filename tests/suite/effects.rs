//! What should be under way is what was announced: for recorded runs, cut after every frame. A restart
//! and a run that goes on decide it alike.

use ktsu_ledger::Event;
use ktsu_ledger::event::{WebhookEvent, WorkerEvent};
use ktsu_workflow::effects::{Effect, EffectKind, effects_due, effects_due_in};

use crate::golden::goldens;

#[path = "../../src/workflow/effects/by_frames.rs"]
pub(crate) mod by_frames;

#[test]
fn recorded_runs_have_under_way_what_they_announced() {
    let mut begun = 0;
    for (name, golden) in goldens() {
        let frames = golden.frames();
        let is_announcement = |event: &Event| {
            matches!(
                event,
                Event::Webhook(WebhookEvent::Sent(_)) | Event::Worker(WorkerEvent::Dispatched(_))
            )
        };
        let announced = frames.iter().filter(|frame| is_announcement(&frame.event));
        let once = by_frames::hold_at_every_cut(&frames);
        assert_eq!(once, announced.count(), "{name}");
        begun += once;
    }
    assert!(begun > 100, "{begun}");
}
