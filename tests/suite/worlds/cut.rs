//! The log of a run with worlds, cut after every frame, inside firings too: the engine goes on, and
//! the world is the one of the run that nobody cut.

use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::verify::{self, verify};

use super::{answered, engine, goal, replays};
use crate::effects::by_frames::hold_at_every_cut;
use crate::support::ledgers::Recorded;
use crate::support::worlds::{self, Answers, Known};
use crate::support::{KitDir, Sink};

async fn cut_everywhere(name: &str, kit: &KitDir, model: &crate::support::model::Model) {
    let sink = Sink::new().await;
    let store = MemoryStore::new();
    let within = engine(kit, &store, &sink).await;
    let envelope = within.client.run(name, goal()).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let known = Known::of(&within.client, &run).await;
    let original = Recorded::read(&store, &run);
    let frames = original.frames();
    hold_at_every_cut(&frames);
    replays(&frames, name);
    for cut in 1..=frames.len() {
        let told = format!("{name} cut after {cut} of {} frames", frames.len());
        model.forget();
        let mut store = MemoryStore::new();
        original.cut(cut).put(&mut store);
        let within = engine(kit, &store, &sink).await;
        let unfinished = u64::from(cut < frames.len());
        assert_eq!(within.recovered.unfinished, unfinished, "{told}");
        let again = within.client.ended(&run).await;
        assert_eq!(again["status"], "complete", "{told}: {again:#}");
        assert_eq!(Known::of(&within.client, &run).await, known, "{told}");
        let got = Recorded::read(&store, &run);
        assert_eq!(got.records[..cut], original.records[..cut], "{told}");
        let got = got.frames();
        replays(&got, &told);
        let counts = model.counts();
        for messages in answered(&frames[..cut]) {
            assert_eq!(
                counts.get(&messages),
                None,
                "{told}: {messages} asked again"
            );
        }
        for (messages, times) in counts {
            assert_eq!(times, 1, "{told}: {messages}");
        }
        let report = verify(&store, &verify::VerifyOptions::default(), &mut |_| {});
        assert_eq!(report.problems, [], "{told}");
    }
}

#[tokio::test]
async fn a_claim_that_a_model_writes_ends_the_same() {
    let model = Answers::default().model().await;
    cut_everywhere("diligence", &worlds::kando("diligence", &model), &model).await;
}

#[tokio::test]
async fn findings_and_their_synthesis_end_the_same() {
    let model = Answers::default().model().await;
    cut_everywhere("research", &worlds::kando("research", &model), &model).await;
}

#[tokio::test]
async fn questions_with_schemas_workflows_and_limits_end_the_same() {
    let model = Answers::default().model().await;
    cut_everywhere("survey", &worlds::survey(&model), &model).await;
}
