//! A log cut after any frame and opened again gives the same statuses, codes, outputs, delivery
//! ids and bodies (DESIGN 1, "Restart").

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Frame;
use ktsu_ledger::appender::Options;
use ktsu_ledger::event::{AgentEvent, WebhookEvent};
use ktsu_ledger::store::{MemoryStore, SqliteReader, SqliteStore};
use ktsu_ledger::verify::{self, verify};
use ktsu_ledger::{Event, StreamId};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::Value;

use crate::effects::by_frames::hold_at_every_cut;
use crate::support::ledgers::Recorded;
use crate::support::scenarios::{
    self, Played, Scenario, TOKEN, agents, answer_recorded, envelopes,
};
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, Lab, Sink, Within, stopped};

/// What history answered after a cut, in order: delivery id and status.
fn answers(frames: &[Frame], after: usize) -> Vec<(String, u16)> {
    let mut ids: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut answers = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        match &frame.event {
            Event::Webhook(WebhookEvent::Sent(sent)) => {
                ids.insert(
                    (frame.scope.clone(), sent.step.clone()),
                    sent.delivery_id.clone(),
                );
            }
            Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer))
                if number >= after =>
            {
                let id = &ids[&(frame.scope.clone(), answer.step.clone())];
                answers.push((id.clone(), answer.status.unwrap()));
            }
            _ => {}
        }
    }
    answers
}

/// Makes a sink answer as history has it: in its order, each once the one before is recorded.
/// Models say to the same what they said before.
fn repeat_history(sink: &Sink, answers: &[(String, u16)]) {
    let mut queues: BTreeMap<String, VecDeque<(usize, u16)>> = BTreeMap::new();
    for (number, (id, status)) in answers.iter().enumerate() {
        queues
            .entry(id.clone())
            .or_default()
            .push_back((number, *status));
    }
    let queues = Mutex::new(queues);
    sink.forget();
    sink.follow(move |heard| {
        if agents::asks_a_model(heard) {
            return match agents::model(heard) {
                Reply::After(_, status, text) => Reply::Now(status, text),
                reply => reply,
            };
        }
        let next = queues
            .lock()
            .unwrap()
            .get_mut(&heard.id)
            .and_then(VecDeque::pop_front);
        match next {
            Some((number, status)) => Reply::When(number.to_string(), status),
            None => Reply::Never,
        }
    });
}

async fn to_the_end(client: &Client, sink: &Sink, run: &str, cut: usize, answers: usize) {
    let mut events = client.events(run, Some(cut as u64 - 1)).await;
    for number in 0..answers {
        sink.open(&number.to_string());
        answer_recorded(&mut events).await;
    }
    events.drain().await;
    assert!(!events.broken);
}

/// Envelopes without the attempts of agents: work that was cut off is begun again.
fn whoever_worked(mut envelopes: Vec<(String, Value)>) -> Vec<(String, Value)> {
    for (_, envelope) in &mut envelopes {
        for step in envelope["steps"].as_array_mut().unwrap() {
            if step["type"] == "agent" {
                step.as_object_mut().unwrap().remove("attempt");
            }
            let items = step.get_mut("items").and_then(Value::as_array_mut);
            for item in items.into_iter().flatten() {
                item.as_object_mut().unwrap().remove("attempt");
            }
        }
    }
    envelopes
}

/// A model whose answer is on record at the cut was not asked the same again.
fn asked_once(frames: &[Frame], cut: usize, heard: &[Heard], told: &str) {
    let answered = |request: u64| {
        frames[..cut].iter().any(|frame| {
            matches!(&frame.event, Event::Agent(AgentEvent::Response(answer)) if answer.request == request)
        })
    };
    for frame in &frames[..cut] {
        let Event::Agent(AgentEvent::Request(request)) = &frame.event else {
            continue;
        };
        let messages = request.messages.to_value();
        let same = |one: &&Heard| agents::asks_a_model(one) && one.json()["messages"] == messages;
        let times = heard.iter().filter(same).count();
        assert!(
            !answered(frame.seq) || times == 0,
            "{told}: {messages} was asked again"
        );
    }
}

/// Held against the run as it was.
async fn same(original: &Played, client: &Client, got: &Recorded, heard: &[Heard], told: &str) {
    let ended = envelopes(client, got).await;
    assert_eq!(
        whoever_worked(ended),
        whoever_worked(original.envelopes.clone()),
        "{told}"
    );
    let body_of: BTreeMap<&str, &Heard> = original
        .heard
        .iter()
        .map(|one| (one.id.as_str(), one))
        .collect();
    for one in heard.iter().filter(|one| !agents::asks_a_model(one)) {
        assert_eq!(
            Some(&one),
            body_of.get(one.id.as_str()),
            "{told}: another delivery"
        );
    }
    // Decisions of the second life follow from its inputs, too.
    let frames = got.frames();
    hold_at_every_cut(&frames);
    if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
        panic!("{told}: {diverged}");
    }
}

/// Every delivery without an answer at the cut was made again, and none that had one.
fn sent_again(frames: &[Frame], cut: usize, heard: &[Heard], told: &str) {
    let heard: BTreeSet<&str> = heard.iter().map(|one| one.id.as_str()).collect();
    let later: BTreeSet<String> = answers(frames, cut).into_iter().map(|(id, _)| id).collect();
    let before: BTreeSet<String> = answers(&frames[..cut], 0)
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    for id in &later {
        assert!(
            heard.contains(id.as_str()),
            "{told}: {id} was not sent again"
        );
    }
    for id in before.difference(&later) {
        assert!(
            !heard.contains(id.as_str()),
            "{told}: {id} was answered, and sent again"
        );
    }
}

async fn cut_everywhere(scenario: &Scenario, cuts: impl Fn(usize) -> Vec<usize>) {
    let sink = Sink::new().await;
    let original = scenario.play(&sink).await;
    let frames = original.recorded.frames();
    hold_at_every_cut(&frames);
    let kit = scenario.kit();
    let kit = kit.load();
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
    let run = original.recorded.stream.name().to_owned();
    for cut in cuts(frames.len()) {
        let told = format!(
            "{} cut after {cut} of {} frames",
            scenario.name,
            frames.len()
        );
        let answers = answers(&frames, cut);
        repeat_history(&sink, &answers);
        let mut store = MemoryStore::new();
        original.recorded.cut(cut).put(&mut store);
        let clock = stopped(frames[cut - 1].at);
        let options = Options::default();
        let within = Within::new(kit.clone(), store.clone(), options, &pairs, Some(clock)).await;
        assert_eq!(
            within.recovered.unfinished,
            u64::from(cut < frames.len()),
            "{told}"
        );
        assert_eq!(within.recovered.unreadable, 0, "{told}");
        to_the_end(&within.client, &sink, &run, cut, answers.len()).await;
        let got = Recorded::read(&store, &run);
        assert_eq!(
            got.records[..cut],
            original.recorded.records[..cut],
            "{told}"
        );
        let heard = sink.heard();
        same(&original, &within.client, &got, &heard, &told).await;
        sent_again(&frames, cut, &heard, &told);
        asked_once(&frames, cut, &heard, &told);
        let report = verify(&store, &verify::VerifyOptions::default(), &mut |_| {});
        assert_eq!(report.problems, [], "{told}");
    }
}

fn everywhere(frames: usize) -> Vec<usize> {
    (1..=frames).collect()
}

/// The long run is cut around its bounds and here and there between them.
fn around_the_bounds(frames: usize) -> Vec<usize> {
    let near = |cut: &usize| cut.abs_diff(256) < 4 || cut.abs_diff(512) < 4;
    let cuts = (1..=frames).filter(|cut| near(cut) || cut % 61 == 1 || *cut + 2 > frames);
    cuts.collect()
}

macro_rules! cut {
    ($($test:ident: $name:literal, $cuts:expr;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                let all = scenarios::all();
                let named = all.iter().filter(|one| one.name.starts_with($name));
                let mut done = 0;
                for scenario in named {
                    cut_everywhere(scenario, $cuts).await;
                    done += 1;
                }
                assert!(done > 0);
            }
        )*

        /// Every scenario stands above.
        #[test]
        fn no_scenario_is_left_out() {
            for scenario in scenarios::all() {
                assert!([$($name),*].iter().any(|name| scenario.name.starts_with(name)));
            }
        }
    };
}

cut! {
    a_chain_of_transforms_ends_the_same: "transforms", everywhere;
    skips_end_the_same: "conditions", everywhere;
    a_failure_ends_the_same: "failure", everywhere;
    a_dead_webhook_ends_the_same: "dead", everywhere;
    nested_children_end_the_same: "children", everywhere;
    what_is_handed_down_ends_the_same: "handed-down", everywhere;
    a_child_that_fails_ends_the_same: "failing-child", everywhere;
    a_violation_ends_the_same: "violation", everywhere;
    a_timeout_ends_the_same: "timeout", everywhere;
    a_run_with_secrets_ends_the_same: "secrets", everywhere;
    webhooks_answered_in_any_order_end_the_same: "concurrent", everywhere;
    agents_end_the_same: "agent-", everywhere;
    a_turn_bound_by_bytes_ends_the_same: "bound-by-bytes", everywhere;
    a_turn_bound_by_frames_ends_the_same: "bound-by-frames", around_the_bounds;
}

/// The same on a ledger file, opened by its owner like any other.
#[tokio::test]
async fn a_ledger_file_that_is_cut_ends_the_same() {
    let all = scenarios::all();
    let chosen = ["children-execute", "failure", "agent-child"];
    for scenario in all.iter().filter(|one| chosen.contains(&one.name.as_str())) {
        let sink = Sink::new().await;
        let original = scenario.play(&sink).await;
        let frames = original.recorded.frames();
        let kit = scenario.kit();
        let kit = kit.load();
        let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
        let run = original.recorded.stream.name().to_owned();
        for cut in (1..=frames.len()).step_by(3) {
            let told = format!(
                "{} cut after {cut} of {} frames",
                scenario.name,
                frames.len()
            );
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("ledger.db");
            let mut store = SqliteStore::open(&path).unwrap();
            original.recorded.cut(cut).put(&mut store);
            drop(store);
            let answers = answers(&frames, cut);
            repeat_history(&sink, &answers);
            let clock = stopped(frames[cut - 1].at);
            let place = LedgerPlace::File(path.clone());
            let lab = Lab::on(place, kit.clone(), &pairs, Some(clock)).await;
            to_the_end(&lab.client, &sink, &run, cut, answers.len()).await;
            let reader = SqliteReader::open(&path).unwrap();
            let got = Recorded::read(&reader, &run);
            same(&original, &lab.client, &got, &sink.heard(), &told).await;
            sent_again(&frames, cut, &sink.heard(), &told);
            let facts = ktsu_history::frames(&reader, &StreamId::store()).unwrap();
            let of = |wanted: &str| {
                facts
                    .iter()
                    .filter(|one| one.event.kind() == wanted)
                    .count()
            };
            let taken_up = usize::from(cut < frames.len());
            assert_eq!((of("store.opened"), of("store.recovered")), (1, taken_up));
            lab.close().await;
            let report =
                ktsu_ledger::verify_file(&path, &verify::VerifyOptions::default(), &mut |_| {});
            assert_eq!(report.unwrap().problems, [], "{told}");
        }
    }
}
