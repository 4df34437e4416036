//! What pages offer to each role in each state of a run, and what the server then does: both follow from the table of
//! policies, which this test reads from the description of the API.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::LedgerPlace;
use serde_json::{Value, json};

use super::access::{ROLES, environment, token};
use super::signed_in::{Browser, Form, forms_of};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, campaign};

const APPROVE: &str = "/runs/{id}/steps/{step}/approval/decide";
const REVIEW: &str = "/runs/{id}/steps/{step}/review/decide";
const DATA: &str = "/runs/{id}/steps/{step}/resume";
const FORK: &str = "/runs/{id}/fork";
const PAUSE: &str = "/runs/{id}/pause";
const RESUME: &str = "/runs/{id}/resume";
const CANCEL: &str = "/runs/{id}/cancel";
const ROUTES: [&str; 7] = [APPROVE, REVIEW, DATA, FORK, PAUSE, RESUME, CANCEL];

/// A state that a run can be in, and how the admin brings one there.
struct State {
    name: &'static str,
    workflow: &'static str,
    /// Requests of the admin once the run waits, below the run.
    then: &'static [(&'static str, &'static str)],
    /// The routes of which the state has a form.
    offers: &'static [&'static str],
    /// The roles that its question asks for, if it does not leave that to the table.
    asks: &'static [&'static str],
    /// True if the admin may only reject.
    admin_rejects: bool,
}

const fn state(
    name: &'static str,
    workflow: &'static str,
    offers: &'static [&'static str],
) -> State {
    State {
        name,
        workflow,
        then: &[],
        offers,
        asks: &["approver"],
        admin_rejects: false,
    }
}

const STATES: [State; 12] = [
    state("running", "stuck", &[FORK, PAUSE, CANCEL]),
    state("complete", "hello", &[FORK]),
    state("failed", "breaks", &[FORK]),
    state("asks to approve", "gates", &[APPROVE, FORK, PAUSE, CANCEL]),
    state("asks to review", "reviews", &[REVIEW, FORK, PAUSE, CANCEL]),
    State {
        asks: &["operator"],
        ..state(
            "asks operators",
            "operators",
            &[REVIEW, FORK, PAUSE, CANCEL],
        )
    },
    state("asks for data", "suspends", &[DATA, FORK, PAUSE, CANCEL]),
    State {
        then: &[("pause", "{}")],
        ..state("paused", "reviews", &[REVIEW, FORK, RESUME, CANCEL])
    },
    State {
        then: &[("cancel", "{}")],
        ..state("cancelled", "reviews", &[FORK])
    },
    State {
        admin_rejects: true,
        ..state("of its own", "others", &[APPROVE, FORK, PAUSE, CANCEL])
    },
    State {
        then: &[("steps/a/approval/decide", r#"{"decision": "approved"}"#)],
        admin_rejects: true,
        ..state("half approved", "doubles", &[APPROVE, FORK, PAUSE, CANCEL])
    },
    State {
        then: &[("steps/a/review/decide", r#"{"decision": "approved"}"#)],
        admin_rejects: true,
        ..state("half reviewed", "seconds", &[REVIEW, FORK, PAUSE, CANCEL])
    },
];

/// An agent that does what the first word of its prompt says, and what else its file has.
fn agent(mode: &str, rest: &str) -> String {
    format!(
        "name: one\nversion: 1.0.0\nmodel: std\nparams: {{schema: {{type: object}}}}\n\
         prompt: {{system: s, user: '{mode} {{{{ params.text }}}}'}}\noutput: {{schema: {{type: object}}}}\n{rest}\n"
    )
}

fn kit() -> KitDir {
    let gate = |policy: &str| {
        format!(
            "servers: [{{name: ktsu/kv, access: {{allowlist: [{{name: kv-set, require_approval: {policy}}}]}}}}]"
        )
    };
    let agents = [
        ("gates", "calls", gate("{on_reject: recover}")),
        (
            "others",
            "calls",
            gate("{on_reject: recover, not_by_proposer: true}"),
        ),
        ("doubles", "calls", gate("{on_reject: recover, quorum: 2}")),
        ("reviews", "reviews", "commands: {review: true}".to_owned()),
        (
            "operators",
            "reviews",
            "commands: {review: {roles: [operator]}}".to_owned(),
        ),
        (
            "seconds",
            "reviews",
            "commands: {review: {quorum: 2}}".to_owned(),
        ),
        (
            "suspends",
            "suspends",
            "commands: {suspend: true}".to_owned(),
        ),
        ("breaks", "breaks", String::new()),
    ];
    let flow = |name: &str| {
        let rest = match name {
            "suspends" => {
                ", params: {text: \"{{ resume.data.text }}\"}, resume: {schema: {type: object}}"
            }
            _ => "",
        };
        format!("pipeline: [{{id: a, agent: ./agents/{name}.agent.yaml{rest}}}]\n")
    };
    let mut workflows = vec![
        (
            "hello",
            "pipeline: [{id: a, transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}}]\n"
                .to_owned(),
        ),
        (
            "stuck",
            "env: [{name: SINK}]\npipeline: [{id: a, webhook: {url: \"{{ env.SINK }}/x\"}}]\n"
                .to_owned(),
        ),
    ];
    workflows.extend(agents.iter().map(|(name, _, _)| (*name, flow(name))));
    let workflows: Vec<(&str, &str)> = workflows
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let rules = r#"
values: {mode: {from: user, pattern: '\A([a-z]+)'}, text: {from: user, pattern: ' (clause)'}}
rules:
  - {when: {text: '.'}, reply: {done: true}}
  - {when: {mode: calls, turn: 1}, tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]}
  - {when: {mode: reviews, turn: 1}, tool_calls: [{name: review, arguments: {reason: it matters}}]}
  - {when: {mode: suspends, turn: 1}, tool_calls: [{name: suspend, arguments: {reason: missing, checkpoint: 1}}]}
  - {when: {mode: breaks}, error: {status: 400, message: no}}
default: {reply: {done: true}}
"#;
    let mut kit = KitDir::new(&workflows).with("rules.yaml", rules).with(
        "gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
             model_groups: [{name: std, models: [desk/m]}]\n",
    );
    for (name, mode, rest) in agents {
        kit = kit.with(&format!("agents/{name}.agent.yaml"), &agent(mode, &rest));
    }
    kit
}

/// An engine, and what its description says of roles.
struct Desk {
    lab: Lab,
    admin: Client,
    policies: BTreeMap<String, BTreeSet<String>>,
}

impl Desk {
    async fn new(kit: &KitDir, sink: &Sink) -> Self {
        let pairs = [("SINK", sink.url.as_str())];
        let lab = Lab::in_environment(LedgerPlace::Memory, kit, &environment(), &pairs).await;
        let document = lab.client.get("/openapi.json").await.json();
        let policies = ROUTES.map(|route| {
            let roles = &document["paths"][route]["post"]["security"][0]["principal"];
            let roles = roles.as_array().unwrap().iter();
            let roles = roles.map(|role| role.as_str().unwrap().to_owned());
            (route.to_owned(), roles.collect())
        });
        let admin = Client::showing(&lab.engine.url, &token("admin"));
        Self {
            admin,
            policies: policies.into(),
            lab,
        }
    }

    /// A run that the admin has started, and that is now in a state.
    async fn run(&self, state: &State) -> String {
        let run = self.admin.invoke(state.workflow, json!({})).await;
        match state.workflow {
            "hello" | "breaks" => drop(self.admin.ended(&run).await),
            "stuck" => {}
            _ => {
                let mut events = self.admin.events(&run, None).await;
                while !events.next().await.unwrap().data.contains(".requested\"") {}
            }
        }
        for (path, body) in state.then {
            let done = self.admin.post(&format!("/runs/{run}/{path}"), *body).await;
            assert!(done.status < 300, "{}: {}", state.name, done.text());
            if *path == "cancel" {
                self.admin.ended(&run).await;
            }
        }
        run
    }

    fn permits(&self, route: &str, role: &str) -> bool {
        // Everyone who may read may cancel what it started, which here is the admin; others need the role of `pause`.
        let route = if route == CANCEL { PAUSE } else { route };
        self.policies[route].contains(role)
    }

    /// Whether a role may send what a form of a state is for: by the table, and by what the question asks for.
    fn lets(&self, state: &State, route: &str, role: &str) -> bool {
        let is_asked = role == "admin" || state.asks.contains(&role);
        self.permits(route, role) && (is_asked || ![REVIEW, DATA].contains(&route))
    }

    /// The decisions that a role is to be offered in a state, by route.
    fn expected(&self, state: &State, role: &str) -> BTreeMap<String, Vec<String>> {
        let offers = state.offers.iter();
        let offers = offers.filter(|route| self.lets(state, route, role));
        let decisions = |route: &str| match route {
            APPROVE | REVIEW if role == "admin" && state.admin_rejects => vec!["rejected"],
            APPROVE | REVIEW => vec!["approved", "rejected"],
            _ => vec![""],
        };
        let owned = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
        offers
            .map(|route| ((*route).to_owned(), owned(decisions(route))))
            .collect()
    }
}

/// The pages about a run; of those behind the first four, none has a form.
fn pages(run: &str) -> Vec<String> {
    let below = [
        "",
        "/frames?frame=1",
        "/steps/a",
        "?step=a",
        "/graph?step=a",
        "/why?not=a",
    ];
    let of_run = below.map(|below| format!("/inspector/runs/{run}{below}"));
    let others = [
        "inbox".to_owned(),
        format!("diff?a={run}&b={run}"),
        "runs".to_owned(),
    ];
    let others = others.map(|page| format!("/inspector/{page}"));
    let mut all = vec![others[0].clone()];
    all.extend(of_run);
    all.extend(others.into_iter().skip(1));
    all
}

/// The route of the API that a form of a page is for, if it is about a run.
fn route_of(page: &str, form: &Form, run: &str) -> Option<String> {
    let base = url::Url::parse(&format!("http://ktsu.test{page}")).unwrap();
    let url = base.join(&form.action).unwrap();
    let path = url.path().strip_prefix("/inspector/do")?;
    let path = path.strip_prefix(&format!("/runs/{run}/"))?;
    Some(format!(
        "/runs/{{id}}/{}",
        path.replacen("steps/a/", "steps/{step}/", 1)
    ))
}

/// The decisions that the pages about a run offer to a browser, by route, and where each is offered.
async fn offered(
    browser: &Browser<'_>,
    run: &str,
    count: usize,
) -> BTreeMap<String, (String, Vec<String>)> {
    let mut found = BTreeMap::new();
    for page in pages(run).into_iter().take(count) {
        let shown = browser.get(&page).await;
        assert_eq!(shown.status, 200, "{page}: {}", shown.text());
        let forms = forms_of(&shown.text());
        let outs = forms
            .iter()
            .filter(|form| form.action.ends_with("sign-out"));
        assert_eq!(outs.count(), 1, "{page}");
        for form in forms {
            let Some(route) = route_of(&page, &form, run) else {
                let is_other = form.action.contains("do/runs/run_");
                assert!(
                    is_other || form.action.ends_with("sign-out"),
                    "{}",
                    form.action
                );
                continue;
            };
            let known = found.insert(route, (page.clone(), form.decisions));
            // The panel of a step is beside the same forms as the run without it.
            assert!(
                known.is_none() || page.contains("?step=a"),
                "{page} offers it twice"
            );
        }
    }
    found
}

#[tokio::test]
async fn what_pages_offer_is_what_the_table_permits_and_what_a_form_sends_is_done() {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let kit = kit();
    let desk = Desk::new(&kit, &sink).await;
    let mut runs = Vec::new();
    for state in &STATES {
        runs.push(desk.run(state).await);
    }
    let every = campaign(0, 1) > 0;
    let mut sent = BTreeSet::new();
    for role in ROLES.iter().filter(|role| **role != "runtime") {
        let browser = Browser::signed_in(&desk.lab, role).await;
        for (state, run) in STATES.iter().zip(&runs) {
            let count = if *role == "admin" { usize::MAX } else { 4 };
            let found = offered(&browser, run, count).await;
            let decisions = found
                .iter()
                .map(|(route, (_, all))| (route.clone(), all.clone()));
            let decisions: BTreeMap<_, _> = decisions.collect();
            assert_eq!(
                decisions,
                desk.expected(state, role),
                "{role}, {}",
                state.name
            );
            for (route, (_, decisions)) in found {
                for decision in decisions {
                    let is_new = sent.insert((
                        *role,
                        route.clone(),
                        decision.clone(),
                        state.asks,
                        state.admin_rejects,
                    ));
                    if is_new || every {
                        send(&desk, &browser, state, &route, &decision).await;
                    }
                }
            }
        }
        // What the table does not permit is refused, whatever the state.
        for route in ROUTES {
            let (state, run) = STATES
                .iter()
                .zip(&runs)
                .find(|(state, _)| state.offers.contains(&route))
                .unwrap();
            let path = route.replace("{id}", run).replace("{step}", "a");
            let is_refused = !desk.lets(state, route, role);
            // Whether the run is one's own is asked after what one sends.
            let form = if route == CANCEL && is_refused {
                ""
            } else {
                "colour=red"
            };
            let tried = browser.post(&format!("/inspector/do{path}"), form).await;
            assert_eq!(
                tried.status == 403,
                is_refused,
                "{role} {route}: {}",
                tried.text()
            );
        }
    }
    let none = Client::showing(&desk.lab.engine.url, &token("runtime"));
    for page in pages(&runs[0]) {
        let shown = none.get(&page).await;
        assert_eq!(shown.status, 403, "{page}");
        assert!(forms_of(&shown.text()).is_empty(), "{}", shown.text());
    }
    nothing_is_missing(&desk, &runs).await;
}

/// Fills in and sends a form of a run of its own.
async fn send(desk: &Desk, browser: &Browser<'_>, state: &State, route: &str, decision: &str) {
    let run = desk.run(state).await;
    let found = offered(browser, &run, 4).await;
    let (page, _) = &found[route];
    let ending = route.rsplit_once('}').unwrap().1;
    let reason = [("reason", "seen"), ("decision", decision)];
    let fill = match route {
        DATA => vec![("data:json", r#"{"text": "clause"}"#)],
        APPROVE | REVIEW => reason.to_vec(),
        _ => reason[..1].to_vec(),
    };
    // The first form of the inbox may be that of another run.
    let text = browser.get(page).await.text();
    let forms = forms_of(&text).into_iter();
    let mut own =
        forms.filter(|form| route_of(page, form, &run).is_some_and(|of| of.ends_with(ending)));
    let done = browser.send_form(page, own.next().unwrap(), &fill).await;
    let what = format!("{}: {route} {decision}", state.name);
    assert_eq!(done.status, 303, "{what}: {}", done.text());
}

/// What a state does not offer, it does not allow the admin either.
async fn nothing_is_missing(desk: &Desk, runs: &[String]) {
    for (state, run) in STATES.iter().zip(runs) {
        for route in [PAUSE, RESUME, CANCEL, REVIEW, APPROVE] {
            if state.offers.contains(&route) {
                continue;
            }
            let path = route.replace("{id}", run).replace("{step}", "a");
            let body = match route {
                REVIEW | APPROVE => json!({"decision": "rejected"}),
                _ => Value::Object(serde_json::Map::new()),
            };
            let tried = desk.admin.post(&path, body.to_string()).await;
            let is_refused = [404, 409, 422].contains(&tried.status);
            assert!(
                is_refused,
                "{}: {route}: {} {}",
                state.name,
                tried.status,
                tried.text()
            );
        }
    }
}
