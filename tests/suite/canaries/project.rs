//! A project that holds every canary, and its twin that nobody told what is secret.

use std::fmt::Write as _;

use super::needles::{CALLERS, KEYS, VARIABLES, canary, fits_a_url};
use crate::support::KitDir;

/// Whether the engine knows which values are secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// As a project should be.
    Secret,
    /// The same files without `secret: true`; where that cannot be left out, other values: redaction
    /// has nothing to look for, and whatever passes it can be found.
    Nothing,
}

const AGENT: &str = r#"
name: echo
version: 1.0.0
model: g0
params:
  schema:
    type: object
    required: [msg, token]
    properties: {msg: {type: string}, token: {type: string, secret: true}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
"#;

impl Told {
    /// The files.
    pub(super) fn kit(self, world: &str) -> KitDir {
        let declared = self.declared();
        let mut kit = KitDir::new(&[
            ("spill", &spill(&declared)),
            ("below", BELOW),
            ("asks", &asks(&declared)),
            ("held", &held(&declared)),
        ])
        .with("agents/echo.agent.yaml", &self.agent())
        .with("gateway.yaml", &gateway(world));
        for number in CALLERS {
            let text = format!(
                "kind: workflow\nname: locked{number}\nversion: 1.0.0\n\
                 env: [{{name: A{number}, secret: true}}]\n\
                 invoke: {{auth: {{secret: \"{{{{ env.A{number} }}}}\"}}}}\n\
                 params: {{schema: {{type: object, properties: {{note: {{type: string}}}}}}}}\n\
                 pipeline: [{{id: keep, transform: {{inputs: [{{from: params.note}}], ops: []}}}}]\n"
            );
            kit = kit.with(&format!("workflows/locked{number}.workflow.yaml"), &text);
        }
        kit
    }

    fn agent(self) -> String {
        match self {
            Self::Secret => AGENT.to_owned(),
            Self::Nothing => AGENT.replace(", secret: true", ""),
        }
    }

    fn declared(self) -> String {
        let secret = match self {
            Self::Secret => ", secret: true",
            Self::Nothing => "",
        };
        let names = (0..VARIABLES).map(|number| format!("  - {{name: C{number}{secret}}}\n"));
        format!("env:\n  - {{name: SINK}}\n{}", names.collect::<String>())
    }

    /// The process environment.
    pub(super) fn values(self, world: &str) -> Vec<(String, String)> {
        let mut values = vec![("SINK".to_owned(), world.to_owned())];
        for number in 0..VARIABLES {
            values.push((format!("C{number}"), canary(number)));
        }
        for number in CALLERS {
            values.push((format!("A{number}"), self.kept(number)));
        }
        for number in KEYS {
            values.push((format!("K{number}"), self.kept(number)));
        }
        values
    }

    /// A value that is a secret whatever the files say.
    pub(super) fn kept(self, number: usize) -> String {
        match self {
            Self::Secret => canary(number),
            Self::Nothing => format!("another-value-{number}"),
        }
    }
}

/// Every canary in the body of a webhook, those that fit in its URL, its own note handed to a child.
fn spill(declared: &str) -> String {
    let mut text = declared.to_owned();
    let fit = (0..VARIABLES).filter(|number| fits_a_url(*number));
    let path: String = fit
        .map(|number| format!("/{{{{ env.C{number} }}}}"))
        .collect();
    let body: Vec<String> = (0..VARIABLES)
        .map(|number| format!("\"{{{{ env.C{number} }}}}\""))
        .collect();
    let _ = write!(
        text,
        r#"params:
  schema:
    type: object
    required: [how]
    additionalProperties: false
    properties: {{how: {{type: string, maxLength: 20}}, note: {{default: 0}}}}
pipeline:
  - id: tell
    webhook:
      url: "{{{{ env.SINK }}}}/hear/{{{{ params.how }}}}{path}"
      body: {{all: [{}], note: "{{{{ params.note }}}}"}}
  - id: keep
    transform: {{inputs: [{{from: "{{note: params.note}}"}}], ops: []}}
  - id: call
    workflow: ./below.workflow.yaml
    webhooks: execute
    depends_on: [keep]
    params: {{note: "{{{{ params.note }}}}", sink: "{{{{ env.SINK }}}}", how: "{{{{ params.how }}}}"}}
output: {{map: {{kept: "{{{{ step.keep.result.note }}}}"}}}}
"#,
        body.join(", "),
    );
    text
}

const BELOW: &str = r#"
visibility: sub-workflow
webhooks: execute
params:
  schema:
    type: object
    required: [note, sink, how]
    properties: {note: {}, sink: {type: string}, how: {type: string}}
pipeline:
  - id: pass
    webhook: {url: "{{ params.sink }}/hear/{{ params.how }}/child", body: {note: "{{ params.note }}"}}
output: {map: {sent: "{{ step.pass.sent }}"}}
"#;

/// Ten models, each behind a key of its own, that say everything.
fn asks(declared: &str) -> String {
    let mut text = declared.to_owned();
    text.push_str(
        "params: {schema: {type: object, required: [how], properties: {how: {type: string}}}}\npipeline:\n",
    );
    for (n, _) in KEYS.enumerate() {
        let _ = writeln!(
            text,
            "  - {{id: a{n}, agent: agents/echo.agent.yaml, model: {{group: g{n}}}, \
             params: {{msg: \"{{{{ params.how }}}}\", token: \"{{{{ env.C{n} }}}}\"}}}}"
        );
    }
    text.push_str(
        "  - {id: last, depends_on: [a0], transform: {inputs: [{from: step.a0.answer}], ops: []}}\n\
         output: {map: {said: \"{{ step.a0.answer }}\"}}\n",
    );
    text
}

/// A run that is under way when its engine is killed.
fn held(declared: &str) -> String {
    format!(
        "{declared}pipeline:\n  - {{id: wait, webhook: {{url: \"{{{{ env.SINK }}}}/held\", \
         body: {{token: \"{{{{ env.C3 }}}}\"}}}}}}\n\
         \x20 - {{id: then, depends_on: [wait], webhook: {{url: \"{{{{ env.SINK }}}}/hear/raw/then\", \
         body: {{token: \"Bearer {{{{ env.C5 }}}}\"}}}}}}\n"
    )
}

fn gateway(world: &str) -> String {
    let mut text = String::from("env:\n");
    for number in KEYS {
        let _ = writeln!(text, "  - {{name: K{number}, secret: true}}");
    }
    text.push_str("providers:\n");
    for number in KEYS {
        let _ = writeln!(
            text,
            "  - {{name: p{number}, type: openai, config: {{base_url: \"{world}/{number}/v1\", \
             api_key: \"{{{{ env.K{number} }}}}\"}}}}"
        );
    }
    text.push_str("model_groups:\n");
    for (n, number) in KEYS.enumerate() {
        let _ = writeln!(text, "  - {{name: g{n}, models: [p{number}/m]}}");
    }
    text
}
