//! Kits of worlds that ask a model of the test, and what their runs come to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::model::{Call, Model, Said};
use super::{Client, KitDir};

/// The folder of a kit of worlds of this repository.
fn shipped(name: &str) -> PathBuf {
    let kits = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits");
    kits.join(name)
}

/// A copy of a kit of worlds of this repository, whose group `fast` asks this model.
pub(crate) fn kando(name: &str, model: &Model) -> KitDir {
    let read = |path: &str| std::fs::read_to_string(shipped(name).join(path)).unwrap();
    let world = format!("worlds/{name}.world.yaml");
    KitDir::new(&[])
        .with("kit.yaml", &read("kit.yaml"))
        .with(&world, &read(&world))
        .with("gateway.yaml", &gateway(model))
}

/// The groups `std` and `fast` of a provider that is this model.
pub(crate) fn gateway(model: &Model) -> String {
    super::model::gateway(&model.url).replace("name: large", "name: fast")
}

/// A goal becomes a topic with two questions; that it was asked is written into it twice.
pub(crate) const TIDES: &str = r#"
kind: world
name: tides
version: 1.0.0
goal:
  - object: {type: Topic, data: {text: "{{ goal }}", state: open}}
objects:
  Topic: {schema: {type: object, required: [text], properties: {text: {type: string}}}}
  Question: {schema: {type: object, properties: {text: {type: string}, topic_id: {type: string}}}}
relations:
  about: {from: Question, to: Topic}
responders:
  - name: questions
    "on": object.created
    type: Topic
    for_each: {items: ["What is {{ object.data.text }}?", "Why {{ object.data.text }}?"]}
    emit:
      - object: {type: Question, data: {text: "{{ item }}", topic_id: "{{ object.id }}"}}
        as: question
      - relation: {type: about, from: "{{ question.id }}", to: "{{ object.id }}"}
  - name: close
    "on": relation.created
    type: about
    emit:
      - patch: {id: "{{ relation.target_id }}", data: {state: asked}}
"#;

/// A goal becomes a topic with three questions. Each question is answered by a model that has to fit
/// a schema, doubted twice by another that is asked one thing at a time, and dug into by a workflow
/// with an agent, a transform and a webhook. A careless responder fails, and nothing comes of it.
pub(crate) const SURVEY: &str = r#"
kind: world
name: survey
version: 1.0.0
env: [{name: HOOK}]
goal:
  - object: {type: Topic, data: {text: "{{ goal }}", status: open}}
objects:
  Topic: {schema: {type: object, required: [text], properties: {text: {type: string}, status: {type: string}}}}
  Question:
    schema:
      type: object
      required: [text]
      properties: {text: {type: string}, topic_id: {type: string}, answer: {type: string}, status: {type: string}}
  Doubt: {schema: {type: object, properties: {text: {type: string}, question_id: {type: string}}}}
  Finding: {schema: {type: object, required: [text], properties: {text: {type: string}, question_id: {type: string}}}}
relations:
  about: {from: Question, to: Topic}
  found_for: {from: Finding, to: Question}
edges:
  - name: count-findings
    type: found_for
    with: {found: {count: Finding, where: {question_id: "{{ relation.target_id }}"}}}
    emit:
      - patch: {id: "{{ relation.target_id }}", data: {found: "{{ found }}"}}
responders:
  - name: questions-of-topic
    "on": object.created
    type: Topic
    for_each: {items: ["who", "what", "why"]}
    emit:
      - object: {type: Question, data: {text: "{{ item }} {{ object.data.text }}", topic_id: "{{ object.id }}", status: open}}
        as: question
      - relation: {type: about, from: "{{ question.id }}", to: "{{ object.id }}"}
  - name: careless
    "on": object.created
    type: Topic
    ask:
      model: fast
      messages: [{role: user, content: "careless {{ object.data.text }}"}]
      output: {schema: {type: object, required: [never], properties: {never: {type: integer}}}}
    on_error: continue
    then:
      - patch: {id: "{{ object.id }}", data: {careless: true}}
  - name: answer
    "on": object.created
    type: Question
    ask:
      model: std
      messages:
        - {role: system, content: "Answer in one sentence."}
        - {role: user, content: "answer {{ object.data.text }}"}
      output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
    then:
      - patch: {id: "{{ object.id }}", data: {answer: "{{ reply.output.answer }}", status: answered}}
  - name: doubt
    "on": object.created
    type: Question
    for_each: {items: ["first", "second"]}
    concurrency: 1
    ask:
      model: fast
      messages: [{role: user, content: "doubt {{ item }} {{ object.data.text }}"}]
    then:
      - object: {type: Doubt, data: {text: "{{ reply.text }}", question_id: "{{ object.id }}"}}
  - name: dig
    "on": object.created
    type: Question
    run:
      workflow: workflows/dig.workflow.yaml
      params: {text: "{{ object.data.text }}", hook: "{{ env.HOOK }}"}
      webhooks: execute
    then:
      - object: {type: Finding, data: {text: "{{ result.text }}", question_id: "{{ object.id }}"}}
        as: finding
      - relation: {type: found_for, from: "{{ finding.id }}", to: "{{ object.id }}"}
  - name: close-topic
    "on": object.patched
    type: Question
    changed: [status]
    with:
      topic: {object: "{{ object.data.topic_id }}"}
      all: {objects: Question, where: {topic_id: "{{ object.data.topic_id }}"}}
      open: {count: Question, where: {topic_id: "{{ object.data.topic_id }}", status: open}}
    when: topic && open == `0`
    emit:
      - patch: {id: "{{ topic.id }}", data: {status: answered, answers: "{{ all[*].data.answer }}"}}
"#;

const DIG: &str = r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [text, hook], properties: {text: {type: string}, hook: {type: string}}}}
pipeline:
  - {id: look, agent: ./agents/echo.agent.yaml, params: {msg: "dig {{ params.text }}"}}
  - {id: shape, depends_on: [look], transform: {inputs: [{from: step.look}], ops: []}}
  - {id: tell, depends_on: [shape], webhook: {url: "{{ params.hook }}/told", body: {text: "{{ step.look.answer }}"}}}
output: {map: {text: "{{ step.look.answer }}"}}
"#;

/// Model calls of such a run: a careless one and its repair, and of each of three questions an
/// answer, two doubts and the call of the workflow.
pub(crate) const SURVEY_CALLS: usize = 3 * 4 + 1;

/// The kit of that world.
pub(crate) fn survey(model: &Model) -> KitDir {
    KitDir::new(&[("dig", DIG)])
        .with("agents/echo.agent.yaml", super::model::ECHO)
        .with("worlds/survey.world.yaml", SURVEY)
        .with("gateway.yaml", &gateway(model))
}

/// A model for all of them, which says the same whenever it is asked the same. Calls that are
/// [held](Answers::hold) wait for the gate of this name.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    held: Arc<Mutex<Option<String>>>,
}

/// The gate at which held calls wait.
pub(crate) const GATE: &str = "gate";

impl Answers {
    /// Calls whose user says something with this text wait from now on; all others do not.
    pub(crate) fn hold(&self, part: Option<&str>) {
        *self.held.lock().unwrap() = part.map(str::to_owned);
    }

    pub(crate) fn say(&self, call: &Call) -> Said {
        let held = self.held.lock().unwrap().clone();
        let said = said(call);
        match held.is_some_and(|held| call.user().contains(&held)) {
            true => said.when(GATE),
            false => said,
        }
    }

    pub(crate) async fn model(&self) -> Model {
        let answers = self.clone();
        Model::scripted(move |call| answers.say(call)).await
    }
}

/// What the model says.
pub(crate) fn said(call: &Call) -> Said {
    let user = call.user();
    let word = user.split(' ').next().unwrap_or_default();
    match word {
        "answer" | "dig" => Said::json(&json!({"answer": format!("{user}!")})),
        "careless" => Said::json(&json!({"else": 1})),
        _ => Said::Text(format!("{user}!")),
    }
}

/// What a run's world is, without the numbers of frames.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) hash: String,
    pub(crate) objects: Value,
    pub(crate) relations: Value,
}

impl Known {
    pub(crate) async fn of(client: &Client, run: &str) -> Self {
        let run = run.replace('/', "%2F");
        let answer = client.get(&format!("/runs/{run}/world")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut world = answer.json();
        for list in ["objects", "relations"] {
            let entries = world[list].as_array_mut().unwrap();
            for entry in entries.iter_mut() {
                let members = entry.as_object_mut().unwrap();
                members.retain(|name, _| name != "created" && name != "changed");
            }
            entries.sort_by_key(|entry| entry["id"].to_string());
        }
        Self {
            hash: world["world_hash"].as_str().unwrap().to_owned(),
            objects: world["objects"].take(),
            relations: world["relations"].take(),
        }
    }

    /// The data of the objects of a type.
    pub(crate) fn of_type(&self, kind: &str) -> Vec<&Value> {
        let objects = self.objects.as_array().unwrap().iter();
        let found = objects.filter(|one| one["type"] == kind);
        found.map(|one| &one["data"]).collect()
    }
}
