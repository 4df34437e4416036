//! Runtime, gateway and orchestrator killed at random moments of runs, and started again: every run
//! completes, and nothing that was answered is asked again.
//!
//! `KTSU_KILLS` says how often (6 without it), `KTSU_TEST_SEED` which moments.

use std::collections::BTreeSet;

use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{verify, verify_file};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use super::{of_type, step};
use crate::evidence;
use crate::support::client::Events;
use crate::support::ledgers::frames;
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::random::RandomNumbers;
use crate::support::services::{Service, Services};
use crate::support::{Client, KitDir};

const WORKFLOWS: [(&str, &str); 2] = [
    (
        "all",
        r#"
params: {schema: {type: object, required: [token, list], properties: {token: {type: string}, list: {type: array}}}}
pipeline:
  - {id: plain, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.token }} plain"}}
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 2, max_failures: -1}, params: {msg: "{{ item }}"}}
  - {id: again, depends_on: [plain], agent: ./agents/reflects.agent.yaml, params: {msg: "{{ step.plain.answer }} again"}}
  - {id: call, depends_on: [each], workflow: ./part.workflow.yaml, params: {msg: "{{ params.token }} part"}}
output: {map: {again: "{{ step.again.answer }}", each: "{{ step.each.results[*].answer }}", call: "{{ step.call.answer }}"}}
"#,
    ),
    (
        "part",
        r#"
visibility: sub-workflow
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: inner, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
output: {map: {answer: "{{ step.inner.answer }}"}}
"#,
    ),
];
/// Frames of such a run that nobody disturbs, about.
const FRAMES: u64 = 60;
/// Model calls of a run: plain, three items, a draft and its reflection, the child's.
const CALLS: u64 = 7;

fn kills() -> u64 {
    let wanted = std::env::var("KTSU_KILLS").ok();
    wanted.map_or(6, |wanted| wanted.parse().unwrap())
}

/// Says back what it is told; the call that is chosen waits at the gate of its token.
async fn model() -> Model {
    Model::scripted(|call| {
        let user = call.user();
        let said = Said::answer(&format!("{user}!"));
        let token = user.split(' ').next().unwrap().to_owned();
        match is_chosen(call) {
            true => said.when(&token),
            false => said,
        }
    })
    .await
}

/// Whether this is the call that its run's token chooses (`TOKEN-CHOICE`); none with `x`.
fn is_chosen(call: &Call) -> bool {
    let user = call.user();
    let (token, rest) = user.split_once(' ').unwrap();
    let choice = token.rsplit_once('-').unwrap().1;
    let reflecting = call.messages()[0].1.starts_with("Look");
    let name = match reflecting {
        true => "reflection",
        false => rest,
    };
    choice == name.replace(['!', ' '], "")
}

const CHOICES: [&str; 6] = [
    "plain",
    "item1",
    "item2",
    "plainagain",
    "reflection",
    "part",
];

/// When to kill.
enum Moment {
    /// Once a frame of this number is recorded.
    Frame(u64),
    /// While this call is under way.
    Call(&'static str),
}

fn moment(random: &mut RandomNumbers) -> Moment {
    match random.next(2) {
        0 => Moment::Frame(1 + random.next(FRAMES)),
        _ => Moment::Call(CHOICES[random.next(CHOICES.len() as u64) as usize]),
    }
}

/// A run under way, up to its moment.
struct Round {
    run: String,
    token: String,
    /// What had been answered on record just before the kill, by messages.
    answered: BTreeSet<String>,
}

async fn up_to(client: &Client, model: &Model, number: u64, moment: &Moment) -> Round {
    let choice = match moment {
        Moment::Frame(_) => "x",
        Moment::Call(choice) => choice,
    };
    let token = format!("t{number}-{choice}");
    let list: Vec<String> = (0..3).map(|item| format!("{token} item {item}")).collect();
    let run = client
        .invoke("all", json!({"token": token, "list": list}))
        .await;
    match moment {
        Moment::Frame(frame) => {
            let mut events: Events = client.events(&run, None).await;
            while let Some(event) = events.next().await {
                if event.id >= *frame {
                    break;
                }
            }
        }
        Moment::Call(_) => {
            let own = |call: &Call| call.user().starts_with(&token) && is_chosen(call);
            model.until(|calls| calls.iter().any(own)).await;
        }
    }
    let answered = answered(&client.frames(&run).await);
    Round {
        run,
        token,
        answered,
    }
}

/// The messages of every call whose answer is recorded.
fn answered(frames: &[Value]) -> BTreeSet<String> {
    let requests = of_type(frames, "llm.request");
    let answers = of_type(frames, "llm.response");
    let request = |answer: &Value| {
        let found = requests
            .iter()
            .find(|one| one["seq"] == answer["data"]["request"]);
        found.unwrap()["data"]["messages"].to_string()
    };
    answers.iter().map(request).collect()
}

impl Round {
    /// It ends as if nothing had happened; `twice` says whether a call under way may be made again.
    async fn ended_well(&self, client: &Client, model: &Model, twice: bool, told: &str) {
        model.open(&self.token);
        let envelope = client.ended(&self.run).await;
        let told = format!("{told}, {} {}", self.token, self.run);
        assert_eq!(envelope["status"], "complete", "{told}: {envelope:#}");
        let t = &self.token;
        let each: Vec<String> = (0..3).map(|item| format!("{t} item {item}!")).collect();
        assert_eq!(
            envelope["output"],
            json!({"again": format!("{t} plain! again!"), "each": each, "call": format!("{t} part!")}),
            "{told}"
        );
        assert_eq!(step(&envelope, "again")["reflected"], true);
        let mut asked = 0;
        for (content, times) in model.counts() {
            if !content.contains(&format!("{t} ")) {
                continue;
            }
            asked += 1;
            let most = match twice && !self.answered.contains(&content) {
                true => 2,
                false => 1,
            };
            assert!(times <= most, "{told}: asked {times} times: {content}");
        }
        assert_eq!(asked, CALLS, "{told}");
        assert_eq!(envelope["totals"]["llm_calls"], CALLS, "{told}");
    }
}

/// Every frame of a ledger follows from those before it.
fn is_sound(ledger: &std::path::Path, runs: &[String]) {
    let report = verify_file(ledger, &verify::VerifyOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let reader = SqliteReader::open(ledger).unwrap();
    for run in runs {
        let frames = frames(&reader, run);
        if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
            panic!("{run}: {diverged}");
        }
    }
    evidence::holds(&reader, "killed and started again");
}

fn kit(model: &Model) -> KitDir {
    model::kit(model, &WORKFLOWS)
}

#[tokio::test]
async fn a_run_outlives_the_death_of_every_service() {
    let mut random = RandomNumbers::seeded();
    let model = model().await;
    let kit = kit(&model);
    let mut services = Services::start(&kit, &[KEY]);
    let mut runs = Vec::new();
    for number in 0..kills() {
        let victim = Service::ALL[(number % 3) as usize];
        let moment = moment(&mut random);
        let round = up_to(&services.client(), &model, number, &moment).await;
        services.kill(victim);
        services.restart(victim);
        let twice = victim == Service::Gateway;
        let told = format!("{number}: {victim:?} killed");
        round
            .ended_well(&services.client(), &model, twice, &told)
            .await;
        runs.push(round.run);
    }
    let ledger = services.ledger();
    is_sound(&ledger, &runs);
}

/// All three, one after the other, while the same call is under way.
#[tokio::test]
async fn a_run_outlives_the_death_of_all_services_in_turn() {
    let model = model().await;
    let kit = kit(&model);
    let mut services = Services::start(&kit, &[KEY]);
    let moment = Moment::Call("reflection");
    let round = up_to(&services.client(), &model, 0, &moment).await;
    for victim in Service::ALL {
        services.kill(victim);
        services.restart(victim);
    }
    round
        .ended_well(&services.client(), &model, true, "all killed")
        .await;
    is_sound(&services.ledger(), &[round.run]);
}

#[tokio::test]
async fn a_run_outlives_the_death_of_the_one_process_that_does_everything() {
    let mut random = RandomNumbers::seeded();
    let model = model().await;
    let kit = kit(&model);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let mut runs = Vec::new();
    let mut process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    for number in 0..kills().div_ceil(2) {
        let moment = moment(&mut random);
        let round = up_to(&process.client(), &model, number, &moment).await;
        process.kill();
        process = Process::start(kit.dir.path(), &ledger, &[KEY]);
        let told = format!("{number}: killed");
        round
            .ended_well(&process.client(), &model, true, &told)
            .await;
        runs.push(round.run);
    }
    process.stop();
    is_sound(&ledger, &runs);
}
