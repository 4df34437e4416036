//! Checks that a model makes, with a scripted provider: `ktsu check`, `ktsu eval run`, and what is
//! recorded of them.

use serde_json::{Value, json};

use super::{Desk, Said};

/// An agent that writes a mail, and a judge of another group.
const FILES: [(&str, &str); 4] = [
    (
        "mail/workflows/mail.workflow.yaml",
        "kind: workflow\nname: mail\nversion: 1.0.0\nparams: {schema: {type: object, properties: {tone: {type: string, default: kind}}}}\n\
         pipeline: [{id: a, agent: ./agents/writer.agent.yaml, params: {tone: '{{ params.tone }}'}}]\n",
    ),
    (
        "mail/agents/writer.agent.yaml",
        "name: writer\nversion: 1.0.0\nmodel: writers\nprompt: {system: You write., user: 'Be {{ params.tone }}'}\n\
         output: {schema: {type: object, required: [text], properties: {text: {type: string}}}}\n",
    ),
    (
        "mail/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups:\n  - {name: writers, models: [desk/w]}\n  - {name: judges, models: [desk/j], pricing: [{model: j, input_per_million_usd: 1, output_per_million_usd: 2}]}\n",
    ),
    (
        "mail/rules.yaml",
        "rules:\n  - when: {system: '\\AYou judge the work', any: 'rude'}\n    reply: {score: 0.2, passed: false, reason: it is rude}\n  \
         - when: {system: '\\AYou judge the work', any: 'almost'}\n    reply: {score: 0.69, passed: true, reason: nearly}\n  \
         - when: {system: '\\AYou judge the work', any: 'refuse'}\n    text: I will not judge that.\n  \
         - when: {system: '\\AYou judge the work', any: 'mended', turn: 1}\n    text: Well!\n  \
         - when: {system: '\\AYou judge the work'}\n    reply: {score: 0.9, passed: true, reason: it is kind}\n  \
         - when: {user: 'Be (?P<tone>.*)'}\n    reply: {text: 'a {{ tone }} mail'}\n",
    ),
];

/// A desk with the kit.
struct Bench(Desk);

impl Bench {
    fn new() -> Self {
        let desk = Desk::new();
        for (path, text) in FILES {
            desk.write_file(path, text);
        }
        Self(desk)
    }

    fn run(&self, tone: &str) -> String {
        let input = json!({"tone": tone}).to_string();
        let ran = self.0.ktsu(&["run", "mail", "--input", &input, "--json"]);
        ran.is(0).json()["run_id"].as_str().unwrap().to_owned()
    }

    fn check(&self, run: &str, check: &str, options: &[&str]) -> Said {
        self.0.write_file("spec.eval.yaml", &spec(check));
        let arguments = ["check", run, "--spec", "spec.eval.yaml"];
        self.0.ktsu(&[&arguments, options].concat())
    }

    fn frames(&self, eval: &str) -> Vec<Value> {
        let said = self.0.ktsu(&["frames", eval, "--json", "--expand"]);
        let lines = said.is(0).out.lines().map(str::to_owned);
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }
}

fn spec(more: &str) -> String {
    format!(
        "invariants:\n  kind: {{description: d, check: {{type: llm_as_judge, model: judges, criteria: Is it kind?{more}}}}}\n\
         scoring: {{pass_threshold: 0.5}}\n"
    )
}

#[test]
fn a_model_judges_a_run_and_its_calls_are_frames_of_the_eval_alone() {
    let bench = Bench::new();
    let run = bench.run("kind");
    let before = bench.0.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    let passed = bench.check(&run, "", &["--kit", "mail"]);
    passed
        .is(0)
        .says("0.9 reaches 0.5: it is kind")
        .says("judges: 1 model call, $0.00");
    let verdict = bench
        .check(&run, ", pass_threshold: 0.95", &["--kit", "mail", "--json"])
        .is(0)
        .json();
    let result = &verdict["results"][0];
    assert_eq!(
        (&result["status"], &result["score"]),
        (&json!("failed"), &json!(0.9))
    );
    assert_eq!(
        (&verdict["status"], &verdict["composite"]),
        (&json!("passed"), &json!(0.9))
    );
    assert_eq!(verdict["judges"]["llm_calls"], 1);
    assert!(verdict["judges"]["cost_micro_usd"].as_u64().unwrap() > 0);
    let eval = verdict["eval_id"].as_str().unwrap();
    let frames = bench.frames(eval);
    let kinds: Vec<&str> = frames
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    let expected = [
        "eval.started",
        "llm.request",
        "llm.response",
        "scenario.started",
        "check.result",
        "scenario.finished",
        "eval.finished",
    ];
    assert_eq!(kinds, expected);
    let (request, reply) = (&frames[1]["data"], &frames[2]["data"]);
    assert_eq!(
        (&request["group"], &request["step"]),
        (&json!("judges"), &json!("kind"))
    );
    assert_eq!(request["temperature_millionths"], 0);
    assert_eq!(
        (&reply["model"], &reply["request"]),
        (&json!("j"), &json!(1))
    );
    assert_eq!(reply["input_hash"], request["digest"]);
    assert_eq!(result["looked_at"]["frames"], json!([2]));
    let after = bench.0.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    assert_eq!(before, after);
    bench.0.ktsu(&["verify"]).is(0);
    bench
        .0
        .ktsu(&["evals", eval])
        .is(0)
        .says("judges: 1 model call");
    bench.0.ktsu(&["trace", eval, "4"]).is(0);
}

#[test]
fn hostile_and_useless_replies_end_in_a_failure_or_an_error() {
    let bench = Bench::new();
    let judge = ["--kit", "mail", "--json"];
    for (tone, check, status, words) in [
        ("rude", "", "failed", "0.2 is below 0.5: it is rude"),
        (
            "almost",
            ", pass_threshold: 0.7",
            "failed",
            "0.69 is below 0.7: nearly (the model itself says that it passes)",
        ),
        (
            "refuse",
            "",
            "error",
            "the model's replies cannot be used: it is not JSON",
        ),
        (
            "mended",
            "",
            "passed",
            "asked again for a reply that can be used: 1",
        ),
        (
            "kind",
            ", samples: 3",
            "passed",
            "the median of 0.9, 0.9, 0.9",
        ),
    ] {
        let run = bench.run(tone);
        let said = bench.check(&run, check, &judge);
        let result = &said.json()["results"][0];
        assert_eq!(result["status"], status, "{tone}: {result}");
        let reason = result["reason"].as_str().unwrap();
        assert!(reason.contains(words), "{reason}");
    }
    let run = bench.run("kind");
    bench
        .0
        .write_file("spec.eval.yaml", &spec("").replace("judges", "jury"));
    let said = bench
        .0
        .ktsu(&["check", &run, "--spec", "spec.eval.yaml", "--kit", "mail"]);
    said.is(2)
        .says("unknown_group: there is no model group \"jury\"");
    let said = bench.0.ktsu(&["verify"]);
    assert!(!said.out.contains("problem"), "{}", said.out);
}

#[test]
fn what_cannot_be_judged_is_refused_with_what_to_type() {
    let bench = Bench::new();
    let run = bench.run("kind");
    bench.check(&run, "", &[]).is(2).warns("--kit DIR");
    bench
        .check(&run, "", &["--kit", "mail", "--no-record"])
        .is(2)
        .warns("recorded before it is sent");
    bench
        .check(
            &run,
            ", input_from: mail.last_request.body",
            &["--kit", "mail"],
        )
        .is(2)
        .warns("only the runs of a suite have");
    bench
        .check(&run, ", input_from: workspace", &["--kit", "mail"])
        .is(2)
        .says("there is no workspace to look at: give it with --workspace DIR");
}

#[test]
fn the_files_of_a_workspace_are_judged_and_verification_says_that_it_does_not_have_them() {
    let bench = Bench::new();
    let run = bench.run("kind");
    bench.0.write_file("left/notes.txt", "a rude note");
    let judge = ["--kit", "mail", "--workspace", "left", "--json"];
    let verdict = bench
        .check(&run, ", input_from: workspace", &judge)
        .is(1)
        .json();
    let eval = verdict["eval_id"].as_str().unwrap();
    let asked = bench.frames(eval)[1]["data"]["messages"][1]["content"].clone();
    let asked = asked.as_str().unwrap();
    assert!(
        asked.contains("notes.txt (11 bytes)\n\n=== notes.txt\na rude note\n"),
        "{asked}"
    );
    let verified = bench.0.ktsu(&["verify", eval]);
    verified.is(0);
    let all = format!("{}{}", verified.out, verified.err);
    assert!(all.contains("what is not in the run"), "{all}");
}

#[test]
fn a_suite_counts_what_its_judges_cost_apart_and_keeps_to_its_limit() {
    let bench = Bench::new();
    let suite = |more: &str| {
        let text = format!(
            "subject: {{}}\nmatrix: {{params.tone: [kind, rude, mended]}}\n{more}{}",
            spec("")
        );
        bench.0.write_file("mail/evals/mail.eval.yaml", &text);
    };
    suite("");
    let report = bench
        .0
        .ktsu(&["eval", "run", "mail", "--json", "--offline"])
        .is(1)
        .json();
    let statuses: Vec<&Value> = report["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["status"])
        .collect();
    assert_eq!(statuses, ["passed", "failed", "passed"]);
    assert_eq!(report["judges"]["llm_calls"], 4);
    let cost = &report["judges"]["cost_micro_usd"];
    assert!(cost.as_u64().unwrap() > 0);
    assert_eq!(&report["metrics"]["total_cost_micro_usd"], cost);
    assert_eq!(report["metrics"]["mean_cost_per_run_usd"], json!(0.0));
    bench.0.ktsu(&["verify"]).is(0);
    bench
        .0
        .ktsu(&["eval", "run", "mail"])
        .is(1)
        .says("judges: 4 model calls");
    suite("limits: {cost_usd: 0.000001}\n");
    let limited = bench.0.ktsu(&["eval", "run", "mail", "--parallel", "1"]);
    limited.is(2).warns("because the limit of cost is reached");
}

#[test]
fn offline_a_judge_that_is_no_script_is_refused_and_so_is_an_unknown_one() {
    let bench = Bench::new();
    let text = format!("subject: {{}}\n{}", spec(""));
    bench.0.write_file("mail/evals/mail.eval.yaml", &text);
    let cloud = "{name: judges, models: [cloud/j]}";
    bench.0.write_file(
        "mail/gateway.yaml",
        &format!(
            "providers: [{{name: desk, type: scripted, config: {{rules: rules.yaml}}}}, {{name: cloud, type: openai, config: {{base_url: 'http://127.0.0.1:9/v1', api_key: none-at-all}}}}]\n\
             model_groups: [{{name: writers, models: [desk/w]}}, {cloud}]\n"
        ),
    );
    bench
        .0
        .ktsu(&["eval", "run", "mail", "--offline"])
        .is(2)
        .warns("the model group judges is not answered by scripts alone");
    bench
        .0
        .write_file("mail/evals/mail.eval.yaml", &text.replace("judges", "jury"));
    bench
        .0
        .ktsu(&["eval", "run", "mail"])
        .is(2)
        .warns("judged by the model group jury, which the kit does not have")
        .warns("its groups: writers, judges");
}

#[test]
fn a_judge_without_a_price_and_a_limit_of_cost_do_not_go_together() {
    let bench = Bench::new();
    let gateway = |pricing: &str| {
        let text = format!(
            "providers: [{{name: desk, type: scripted, config: {{rules: rules.yaml}}}}, {{name: cloud, type: openai, config: {{base_url: 'http://127.0.0.1:9/v1', api_key: none-at-all}}}}]\n\
             model_groups: [{{name: writers, models: [desk/w]}}, {{name: judges, models: [desk/j, cloud/x]{pricing}}}]\n"
        );
        bench.0.write_file("mail/gateway.yaml", &text);
    };
    let suite = |limits: &str| {
        let text = format!("subject: {{}}\n{limits}{}", spec(""));
        bench.0.write_file("mail/evals/mail.eval.yaml", &text);
    };
    gateway("");
    suite("limits: {cost_usd: 1}\n");
    let run = ["eval", "run", "mail"];
    let words = "cloud/x, which judges in the model group judges, has no price";
    let refused = bench.0.ktsu(&run);
    refused.is(2).warns(words).warns("pricing: [{model: ID");
    suite("");
    let limit = ["--cost-limit", "1"];
    bench
        .0
        .ktsu(&[&run[..], &limit].concat())
        .is(2)
        .warns(words);
    assert_eq!(
        bench.0.ktsu(&["evals", "--json"]).json()["evals"],
        json!([])
    );
    bench.0.ktsu(&run).is(0);
    gateway(", pricing: [{model: x, input_per_million_usd: 1, output_per_million_usd: 2}]");
    suite("limits: {cost_usd: 1}\n");
    bench.0.ktsu(&run).is(0);
}

#[test]
fn a_check_that_is_killed_is_shown_as_interrupted_and_made_anew() {
    let bench = Bench::new();
    let run = bench.run("kind");
    let slow = FILES[3].1.replace(
        "reply: {score: 0.9, passed: true, reason: it is kind}",
        "delay_ms: 60000\n    reply: {score: 0.9, passed: true, reason: it is kind}",
    );
    bench.0.write_file("mail/rules.yaml", &slow);
    bench.0.write_file("spec.eval.yaml", &spec(""));
    let arguments = ["check", &run, "--spec", "spec.eval.yaml", "--kit", "mail"];
    let mut killed = bench.0.command(&arguments).spawn().unwrap();
    let listed = || bench.0.ktsu(&["evals"]).out;
    let began = std::time::Instant::now();
    while !listed().contains("running") {
        assert!(began.elapsed().as_secs() < 60, "the check does not begin");
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(listed().contains("interrupted"), "{}", listed());
    let evals = bench.0.ktsu(&["evals", "--json"]).json();
    let eval = evals["evals"][0]["eval_id"].as_str().unwrap();
    bench.0.ktsu(&["evals", eval]).is(2).says("interrupted");
    let resumed = ["eval", "resume", eval, "--kit", "mail"];
    bench
        .0
        .ktsu(&resumed)
        .is(2)
        .warns("checks a run that was there before")
        .warns("ktsu check RUN --spec FILE");
    bench.0.write_file("mail/rules.yaml", FILES[3].1);
    bench.0.ktsu(&arguments).is(0);
}

#[test]
fn an_archive_has_the_calls_of_judges_and_they_give_the_verdict_again() {
    let bench = Bench::new();
    let run = bench.run("mended");
    bench.check(&run, ", samples: 2", &["--kit", "mail"]).is(0);
    let export = ["evidence", "export", &run, "--evals", "--output", "a.tar"];
    bench.0.ktsu(&export).is(0);
    let verified = bench
        .0
        .ktsu(&["evidence", "verify", "a.tar", "--json"])
        .is(0)
        .json();
    let claims = verified["outcome"]["claims"].as_array().unwrap();
    let failed = claims.iter().find(|claim| claim["verdict"] == "failed");
    assert_eq!(failed, None);
    let evals = claims
        .iter()
        .find(|claim| claim["claim"] == "evals")
        .unwrap();
    assert_eq!(evals["verdict"], "proven", "{evals}");
    assert_eq!(evals["reason"], "1 verdict follows from 1 check made again");
}

#[test]
fn the_owner_of_the_ledger_asks_the_models_of_its_own_kit() {
    let bench = Bench::new();
    let run = bench.run("rude");
    let engine = bench.0.start(&["--kit", "mail"]);
    let verdict = bench.check(&run, "", &["--json"]).is(1).json();
    assert_eq!(
        verdict["results"][0]["reason"],
        "0.2 is below 0.5: it is rude"
    );
    assert_eq!(verdict["judges"]["llm_calls"], 1);
    bench
        .check(&run, ", input_from: workspace", &["--workspace", "."])
        .is(2)
        .warns("another process owns");
    drop(engine);
    // What was recorded goes wherever the ledger goes.
    let eval = verdict["eval_id"].as_str().unwrap();
    bench
        .0
        .ktsu(&["export", &run, "--evals", "-o", "all.jsonl"])
        .is(0);
    let import = ["import", "all.jsonl", "--ledger", "other.db"];
    bench.0.ktsu(&import).is(0);
    bench.0.ktsu(&["verify", "--ledger", "other.db"]).is(0);
    let moved = bench.0.ktsu(&["evals", eval, "--ledger", "other.db"]);
    moved.is(1).says("judges: 1 model call");
}

#[test]
fn replicas_that_are_judged_at_once_do_not_wait_for_each_other() {
    let bench = Bench::new();
    let text = format!("subject: {{}}\nreplicas: 12\n{}", spec(", samples: 2"));
    bench.0.write_file("mail/evals/mail.eval.yaml", &text);
    let run = ["eval", "run", "mail", "--json", "--parallel", "6"];
    let report = bench.0.ktsu(&run).is(0).json();
    assert_eq!(report["judges"]["llm_calls"], 24);
    let eval = report["eval_id"].as_str().unwrap();
    let frames = bench.frames(eval);
    let asked = frames.iter().filter(|it| it["type"] == "llm.request");
    let scopes: std::collections::BTreeSet<&str> =
        asked.map(|it| it["scope"].as_str().unwrap()).collect();
    assert_eq!(scopes.len(), 12);
    bench.0.ktsu(&["verify"]).is(0);
}
