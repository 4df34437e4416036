//! Runs whose agent asks for a review of its outcome, and the people who decide.

use std::path::Path;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::StreamId;
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::super::ledgers::Recorded;
use super::super::model::{self, Call, KEY, Model, Said};
use super::super::{Client, KitDir, Lab};

const PEOPLE: [(&str, &str); 4] = [
    ("pia", "operator"),
    ("ann", "approver"),
    ("bob", "approver"),
    ("eva", "admin"),
];

const JUDGE: &str = "name: judge\nversion: 1.0.0\nmodel: std\nmax_turns: 6\n\
     prompt: {system: You judge., user: all of it}\n\
     commands: {emit: ['claim.*'], invoke: [verify], review: POLICY}\n\
     output: {schema: {type: object, required: [verdict], \
     properties: {verdict: {type: string}, sure: {type: integer}}}}\n";
const CHECKER: &str = "name: checker\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}\n\
     prompt: {system: You check., user: '{{ params.claim }}'}\n\
     output: {schema: {type: object, required: [said], properties: {said: {type: string}}}}\n";
const VERIFY: &str = "visibility: sub-workflow\nparams: {schema: {type: object, \
     required: [claim], properties: {claim: {type: string}}}}\n\
     pipeline: [{id: v, transform: {inputs: ['{{ params.claim }}']}}]\n";
/// One that uses the outcome in three ways.
const MAIN: &str = "
pipeline:
  - {id: a, agent: ./agents/judge.agent.yaml, may_invoke: {verify: ./verify.workflow.yaml}}
  - {id: b, depends_on: [a], agent: ./agents/checker.agent.yaml, params: {claim: '{{ step.a.verdict }}'}}
  - {id: c, depends_on: [b], transform: {inputs: ['{{ step.a }}']}}
output: {map: {verdict: '{{ step.a.verdict }}', said: '{{ step.b.said }}', all: '{{ step.c.result }}'}}
";
/// One whose output is that of the step.
const LAST: &str = "
pipeline:
  - {id: a, agent: ./agents/judge.agent.yaml, may_invoke: {verify: ./verify.workflow.yaml}}
";
const OUTER: &str = "pipeline: [{id: call, workflow: ./inner.workflow.yaml}]\n";

/// A run with a review.
#[derive(Clone)]
pub(crate) struct Reviewed {
    /// `main`, `last` or `outer`.
    pub(crate) workflow: &'static str,
    /// `review:` of the agent, as YAML.
    pub(crate) policy: &'static str,
    /// Whether the outcome has other commands.
    pub(crate) siblings: bool,
    /// Who decides what, and what they replace.
    pub(crate) words: Vec<(&'static str, &'static str, Value)>,
    /// Whether the run is cancelled instead.
    pub(crate) cancels: bool,
}

/// An engine with a ledger file, and everybody's way to it.
pub(crate) struct ReviewStage {
    pub(crate) lab: Lab,
    _model: Model,
}

fn token(who: &str) -> String {
    format!("token-of-{who}")
}

/// The judge commands and gives a verdict; the checker gives its claim in capitals.
fn says(siblings: bool, call: &Call) -> Said {
    let review = (
        "review",
        json!({"reason": "look at it", "payload": {"n": 1}}),
    );
    let calls = match siblings {
        false => vec![review],
        true => vec![
            (
                "emit",
                json!({"topic": "claim.judged", "payload": {"n": 1}}),
            ),
            review,
            ("invoke", json!({"step": "verify", "input": {"claim": "p"}})),
            ("emit", json!({"topic": "claim.seen", "payload": 2})),
        ],
    };
    match (call.user().as_str(), call.turn()) {
        ("all of it", 0) => Said::calls(&calls),
        ("all of it", _) => Said::json(&json!({"verdict": "yes", "sure": 3})),
        (claim, _) => Said::json(&json!({"said": claim.to_uppercase()})),
    }
}

impl ReviewStage {
    pub(crate) fn of(&self, who: &str) -> Client {
        Client::showing(&self.lab.engine.url, &token(who))
    }
}

impl Reviewed {
    /// A run of `main` with other commands, which one person approves.
    pub(crate) fn approved() -> Self {
        Self {
            workflow: "main",
            policy: "true",
            siblings: true,
            words: vec![("ann", "approved", json!({}))],
            cancels: false,
        }
    }

    /// As [`Self::approved`], with these words.
    pub(crate) fn with(words: &[(&'static str, &'static str, Value)]) -> Self {
        Self {
            words: words.to_vec(),
            ..Self::approved()
        }
    }

    /// Those of which there are golden ledgers.
    pub(crate) fn goldens() -> Vec<(&'static str, Self)> {
        let of = |policy, words: &[(&'static str, &'static str, Value)]| Self {
            policy,
            ..Self::with(words)
        };
        let quorum = "{quorum: 2, not_by_proposer: true, roles: [approver, admin], timeout: 2h}";
        let both = [
            ("ann", "approved", json!({"verdict": "no"})),
            ("bob", "approved", json!({})),
        ];
        vec![
            ("approved", of(quorum, &both)),
            ("rejected", of("true", &[("ann", "rejected", json!({}))])),
            ("late", of("{timeout: 1s}", &[])),
            ("soft", of("{timeout: 1s, timeout_behavior: reject}", &[])),
        ]
    }

    fn kit(&self, model: &Model) -> KitDir {
        let inner = format!("visibility: sub-workflow\n{MAIN}");
        let flows = [
            ("main", MAIN),
            ("last", LAST),
            ("outer", OUTER),
            ("inner", inner.as_str()),
            ("verify", VERIFY),
        ];
        model::kit(model, &flows)
            .with(
                "agents/judge.agent.yaml",
                &JUDGE.replace("POLICY", self.policy),
            )
            .with("agents/checker.agent.yaml", CHECKER)
    }

    /// An engine on a ledger file.
    async fn stage(&self, ledger: &Path) -> ReviewStage {
        let siblings = self.siblings;
        let model = Model::scripted(move |call| says(siblings, call)).await;
        let mut text = "egress: {allow: [127.0.0.1]}\nvariables:\n".to_owned();
        for (who, _) in PEOPLE {
            text.push_str(&format!("  T_{who}: {}\n", token(who)));
        }
        text.push_str("principals:\n");
        for (who, role) in PEOPLE {
            text.push_str(&format!(
                "  - {{name: {who}, token: {{env: T_{who}}}, roles: [{role}]}}\n"
            ));
        }
        let place = LedgerPlace::File(ledger.to_owned());
        let lab = Lab::in_environment(place, &self.kit(&model), &text, &[KEY]).await;
        ReviewStage { lab, _model: model }
    }

    /// Plays it to its end; the engine is left open.
    pub(crate) async fn play(&self, ledger: &Path) -> (ReviewStage, String) {
        let stage = self.stage(ledger).await;
        let run = stage.of("pia").invoke(self.workflow, json!({})).await;
        self.attend(&stage, &run).await;
        (stage, run)
    }

    /// Follows a run or a branch to its end, and decides on each review in it.
    pub(crate) async fn attend(&self, stage: &ReviewStage, run: &str) {
        let mut events = stage.of("eva").events(run, None).await;
        while let Some(event) = events.next().await {
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            let stream: StreamId = frame["stream"].as_str().unwrap().parse().unwrap();
            if frame["type"] != "review.requested" || stream.name() != run {
                continue;
            }
            if self.cancels {
                let answer = stage
                    .of("eva")
                    .post(&format!("/runs/{run}/cancel"), "{}")
                    .await;
                assert!(answer.status < 300, "{}", answer.text());
            }
            let scope = frame["scope"].as_str().unwrap();
            let inner = match scope {
                "" => run.to_owned(),
                scope => format!("{run}%2F{scope}"),
            };
            for (who, decision, overlay) in &self.words {
                let mut body = json!({"decision": decision, "reason": format!("{who} says so")});
                if *overlay != json!({}) {
                    body["overlay"] = overlay.clone();
                }
                let path = format!("/runs/{inner}/steps/a/review/decide");
                let answer = stage.of(who).post(&path, body.to_string()).await;
                assert_eq!(answer.status, 200, "{who}: {}", answer.text());
            }
        }
    }

    /// Plays it, and reads what was recorded.
    pub(crate) async fn record(&self) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        let (stage, run) = self.play(&ledger).await;
        stage.lab.close().await;
        Recorded::read(&SqliteReader::open(&ledger).unwrap(), &run)
    }
}
