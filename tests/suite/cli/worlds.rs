//! The kits with worlds, as they are shipped, and the kit that docs/worlds.md builds.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Desk, kit, repository};

/// What happened in a run, a document a frame.
fn frames(desk: &Desk, run: &str) -> Vec<Value> {
    let said = desk.ktsu(&["frames", run, "--json"]);
    let lines = said.is(0).out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The types of a run's world frames: what is made, and what responders ask models.
fn world_frames(desk: &Desk, run: &str) -> Vec<String> {
    let all = frames(desk, run).into_iter();
    let kinds = all.map(|frame| frame["type"].as_str().unwrap().to_owned());
    let of_worlds = ["object.", "relation.", "llm."];
    let kinds: Vec<String> = kinds
        .filter(|kind| of_worlds.iter().any(|group| kind.starts_with(group)))
        .collect();
    let listed = desk.ktsu(&["frames", run, "--world"]);
    assert_eq!(listed.is(0).out.lines().count(), kinds.len(), "{listed:?}");
    kinds
}

/// A run of a kit for a goal: its envelope.
fn run(desk: &Desk, kit: &str, goal: &str) -> Value {
    let said = desk.ktsu(&["run", kit, "--goal", goal, "--json"]);
    let envelope = said.is(0).json();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    envelope
}

fn id(envelope: &Value) -> &str {
    envelope["run_id"].as_str().unwrap()
}

/// The kit below the desk, without the file that says which models there are.
pub(super) fn without_gateway(desk: &Desk, name: &str) -> String {
    for file in ["kit.yaml", &format!("worlds/{name}.world.yaml")] {
        let text = std::fs::read_to_string(Path::new(&kit(name)).join(file)).unwrap();
        desk.write_file(&format!("{name}/{file}"), &text);
    }
    name.to_owned()
}

/// Objects and relations without the frames that made them, and the hash.
fn world(desk: &Desk, run: &str) -> (Vec<Value>, String) {
    let world = desk.ktsu(&["world", run, "--json"]).is(0).json();
    let lists = ["objects", "relations"].map(|list| world[list].as_array().unwrap().clone());
    let mut all = lists.concat();
    for one in &mut all {
        let members = one.as_object_mut().unwrap();
        members.remove("created");
        members.remove("changed");
    }
    (all, world["world_hash"].as_str().unwrap().to_owned())
}

/// Every frame of a run, decided again with nobody to ask.
#[track_caller]
fn is_decided_again(desk: &Desk, run: &str) {
    desk.ktsu(&["replay", run, "--strict"]).is(0);
}

#[test]
fn every_kit_with_a_world_is_sound_and_nothing_in_it_looks_unintended() {
    let desk = Desk::new();
    for name in ["diligence", "research", "incidents"] {
        let said = desk.ktsu(&["validate", &kit(name), "--json"]);
        let found = said.is(0).json();
        assert_eq!(found["faults"], json!([]), "{name}: {found:#}");
    }
}

#[test]
fn diligence_makes_three_world_frames_and_five_where_a_model_answers() {
    let desk = Desk::new();
    let silent = without_gateway(&desk, "diligence");
    let envelope = run(&desk, &silent, "Evaluate Acme");
    assert_eq!(
        world_frames(&desk, id(&envelope)),
        ["object.created", "object.created", "llm.request"]
    );
    assert_eq!(
        envelope["world"]["objects"],
        json!({"Claim": 1, "Company": 1})
    );
    is_decided_again(&desk, id(&envelope));

    let envelope = run(&desk, &kit("diligence"), "Evaluate Acme");
    assert_eq!(
        world_frames(&desk, id(&envelope)),
        [
            "object.created",
            "object.created",
            "llm.request",
            "llm.response",
            "object.patched"
        ]
    );
    assert_eq!(envelope["world"]["relations"], json!({}));
    let (all, _) = world(&desk, id(&envelope));
    assert_eq!(all[0]["data"], json!({"name": "Evaluate Acme"}));
    let claim = &all[1]["data"];
    assert_eq!(
        (&claim["company_id"], &claim["status"]),
        (&all[0]["id"], &json!("complete"))
    );
    assert!(claim["text"].as_str().unwrap().contains("Evaluate Acme"));
}

#[test]
fn research_makes_eighteen_world_frames_and_twenty_five_where_a_model_answers() {
    let desk = Desk::new();
    let silent = without_gateway(&desk, "research");
    let envelope = run(&desk, &silent, "Tidal power");
    assert_eq!(world_frames(&desk, id(&envelope)).len(), 18);
    is_decided_again(&desk, id(&envelope));

    let envelope = run(&desk, &kit("research"), "Tidal power");
    let kinds = world_frames(&desk, id(&envelope));
    let count = |kind: &str| kinds.iter().filter(|one| *one == kind).count();
    assert_eq!(kinds.len(), 25);
    assert_eq!((count("llm.response"), count("object.patched")), (3, 4));
    let world_of = &envelope["world"];
    assert_eq!(
        world_of["objects"],
        json!({"Finding": 3, "Goal": 1, "Question": 3, "Synthesis": 1})
    );
    assert_eq!(
        world_of["relations"],
        json!({"answers": 3, "decomposes_into": 3, "synthesizes": 1})
    );
    let (all, hash) = world(&desk, id(&envelope));
    assert_eq!(world_of["world_hash"], hash);
    let synthesis = all.iter().find(|one| one["type"] == "Synthesis").unwrap();
    let summary = synthesis["data"]["summary"].as_str().unwrap();
    let parts: Vec<&str> = summary.split("\n\n").collect();
    assert_eq!(parts.len(), 3);
    for (part, begins) in parts.iter().zip(["Facts: ", "Risks: ", "Evidence: "]) {
        assert!(
            part.starts_with(begins) && part.contains("Tidal power"),
            "{summary}"
        );
    }
}

#[test]
fn two_runs_for_one_goal_have_the_same_ids_and_the_same_world_and_are_decided_again_offline() {
    for name in ["diligence", "research"] {
        let desk = Desk::new();
        let first = run(&desk, &kit(name), "Evaluate Acme");
        let again = run(&desk, &kit(name), "Evaluate Acme");
        let other = run(&desk, &kit(name), "Evaluate Bolt");
        let first_world = world(&desk, id(&first));
        assert_eq!(first_world, world(&desk, id(&again)), "{name}");
        assert_ne!(first_world.1, world(&desk, id(&other)).1, "{name}");
        assert_ne!(id(&first), id(&again));
        for envelope in [&first, &again, &other] {
            is_decided_again(&desk, id(envelope));
        }
        desk.ktsu(&["verify"]).is(0);
    }
}

#[test]
fn a_question_that_no_gateway_can_answer_is_a_warning_of_a_complete_run() {
    let desk = Desk::new();
    let silent = without_gateway(&desk, "research");
    let said = desk.ktsu(&["run", &silent, "--goal", "Tidal power"]);
    let words = "of responder write-finding: unknown_group: 3 questions have no reply: no gateway \
                 knows the model group";
    said.is(0)
        .says(&format!("warning {words}"))
        .says("objects    3 Finding, 1 Goal, 3 Question, 1 Synthesis\n")
        .says("relations  3 answers, 3 decomposes_into, 1 synthesizes\n")
        .says("world      sha256:")
        .warns("objects and relations");
    assert!(!said.out.contains("STEP"), "{said:#?}");
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let envelope = desk.ktsu(&["runs", "get", runs["runs"][0]["run_id"].as_str().unwrap()]);
    let envelope = envelope.is(0).json();
    let warnings = envelope["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{envelope:#}");
    assert_eq!(warnings[0]["code"], "unknown_group");
    assert_eq!(warnings[0]["responder"], "write-finding");

    // They are asked once a gateway has the group.
    let again = envelope["run_id"].as_str().unwrap();
    desk.ktsu(&["trace", again, "--why-not", "write-finding"])
        .is(0)
        .says(&format!("to repeat it: ktsu resume {again}"));
    desk.ktsu(&["resume", again, "--kit", &silent])
        .is(2)
        .warns("the gateway has no model group \"fast\"");
    desk.ktsu(&["resume", again, "--kit", &kit("research")])
        .is(0);
    let resumed = desk.ktsu(&["runs", "get", again]).is(0).json();
    assert!(resumed.get("warnings").is_none(), "{resumed:#}");
    is_decided_again(&desk, again);
    desk.ktsu(&["resume", again, "--kit", &kit("research")])
        .is(2)
        .warns("no question or workflow of its responders is left to repeat");

    let answered = run(&desk, &kit("research"), "Tidal power");
    assert!(answered.get("warnings").is_none(), "{answered:#}");
    assert_eq!(world(&desk, again), world(&desk, id(&answered)));
    let steps = desk.ktsu(&["run", &kit("hello"), "--json"]).is(0).json();
    assert!(steps.get("world").is_none() && steps.get("warnings").is_none());
}

/// Runs the kit incidents and decides on the call that it stops at: its envelope.
pub(super) fn incidents(desk: &Desk, decision: &str) -> Value {
    let mut child = desk
        .command(&["run", &kit("incidents")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let asked = lines.find_map(|line| {
        let line = line.unwrap();
        let at = line.find("apr_")?;
        let id = line[at..].split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
        id.into_iter().next().map(str::to_owned)
    });
    let asked = asked.expect("an approval is asked for");
    desk.ktsu(&[decision, &asked]).is(0);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:#?}");
    assert!(
        rest.iter()
            .any(|line| line.contains("1 webhook sent to the receiver of this command")),
        "{rest:#?}"
    );
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["runs", "get", &run]).is(0).json()
}

/// The data of the objects of a type.
fn of_type(desk: &Desk, run: &str, kind: &str) -> Vec<Value> {
    let said = desk.ktsu(&["world", run, "--type", kind, "--json"]);
    let found = said.is(0).json();
    let objects = found["objects"].as_array().unwrap().iter();
    objects.map(|object| object["data"].clone()).collect()
}

#[test]
fn incidents_deduplicates_investigates_behind_an_approval_and_escalates_what_contradicts() {
    let desk = Desk::new();
    for (decision, frozen) in [("approve", true), ("reject", false)] {
        let envelope = incidents(&desk, decision);
        let run = id(&envelope);
        assert_eq!(
            envelope["world"]["objects"],
            json!({"Alert": 3, "Escalation": 1, "Finding": 3, "Incident": 2, "Watch": 1}),
            "four alerts came, one of them twice"
        );
        assert_eq!(
            envelope["world"]["relations"],
            json!({"about": 3, "contradicts": 1, "escalates": 1, "part_of": 3})
        );
        let found = of_type(&desk, run, "Finding");
        let agent = found.iter().find(|one| one["by"] == "agent").unwrap();
        assert_eq!(
            (&agent["cause"], &agent["frozen"]),
            (&json!("release"), &json!(frozen))
        );
        let escalation = &of_type(&desk, run, "Escalation")[0];
        assert_eq!(
            escalation["reason"],
            "model says capacity, agent says release"
        );
        assert_eq!(escalation["paged"], true);
        let statuses = of_type(&desk, run, "Incident");
        let status = |service: &str| {
            let found = statuses.iter().find(|one| one["service"] == service);
            found.unwrap()["status"].clone()
        };
        assert_eq!(
            (status("checkout"), status("search")),
            (json!("disputed"), Value::Null)
        );
        is_decided_again(&desk, run);
    }
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn incidents_pages_no_one_where_the_agent_finds_what_the_model_guessed() {
    let desk = Desk::new();
    let input = format!("@{}/examples/agreed.json", kit("incidents"));
    let said = desk.ktsu(&["run", &kit("incidents"), "--input", &input, "--json"]);
    let envelope = said.is(0).json();
    let world = &envelope["world"];
    assert_eq!(
        world["objects"],
        json!({"Alert": 2, "Finding": 2, "Incident": 1, "Watch": 1})
    );
    let incident = &of_type(&desk, id(&envelope), "Incident")[0];
    assert_eq!(incident["status"], "explained");
    // Its first turn ends early, within what a responder runs, while a model is asked already.
    is_decided_again(&desk, id(&envelope));
}

/// With nobody there the command ends by itself: an approval that nobody gives is a rejection.
#[test]
fn incidents_ends_by_itself_where_no_one_decides() {
    let desk = Desk::new();
    for file in [
        "kit.yaml",
        "gateway.yaml",
        "worlds/incidents.world.yaml",
        "workflows/investigate.workflow.yaml",
        "workflows/page.workflow.yaml",
        "agents/investigator.agent.yaml",
        "scripted/duty.yaml",
        "examples/default.json",
    ] {
        let text = std::fs::read_to_string(Path::new(&kit("incidents")).join(file)).unwrap();
        let text = text.replace("timeout: 30s", "timeout: 100ms");
        desk.write_file(&format!("incidents/{file}"), &text);
    }
    desk.write_file(
        "environments/local.env.yaml",
        "name: local\nreceiver: {variable: RECEIVER_URL}\n",
    );
    let said = desk.ktsu(&["run", "incidents", "--json"]);
    let envelope = said.is(0).json();
    let found = of_type(&desk, id(&envelope), "Finding");
    let agent = found.iter().find(|one| one["by"] == "agent").unwrap();
    assert_eq!(agent["frozen"], false);
}

/// An alert that comes after the end: the second of its service, so that the agent looks into it.
#[test]
fn incidents_continues_with_an_alert_that_is_posted_after_its_end() {
    let desk = Desk::new();
    let envelope = incidents(&desk, "approve");
    let run = id(&envelope);
    let alert = json!({"type": "object.created", "data": {"type": "Alert",
        "data": {"service": "search", "at": "03:05", "says": "queries are slow"}}});
    let alert = alert.to_string();
    desk.ktsu(&["post", run, &alert, "--kit", &kit("incidents")])
        .is(0);
    let after = desk.ktsu(&["runs", "get", run]).is(0).json();
    assert_eq!(after["status"], "complete", "{after:#}");
    assert_eq!(after["world"]["objects"]["Finding"], 4);
    assert_ne!(
        after["world"]["world_hash"],
        envelope["world"]["world_hash"]
    );
    let incidents = of_type(&desk, run, "Incident");
    let search = incidents.iter().find(|one| one["service"] == "search");
    assert_eq!(search.unwrap()["status"], "explained");
    is_decided_again(&desk, run);
}

#[test]
fn what_is_posted_to_a_finished_diligence_is_connected_with_what_it_is_about() {
    let desk = Desk::new();
    let envelope = run(&desk, &kit("diligence"), "Evaluate Acme");
    let run = id(&envelope);
    let (all, _) = world(&desk, run);
    let (company, claim) = (&all[0]["id"], &all[1]["id"]);
    let made = |kind: &str, data: Value| json!({"type": "object.created", "data": {"type": kind, "data": data}});
    let mut other = made(
        "Claim",
        json!({"text": "Acme makes no profit", "company_id": company, "status": "complete"}),
    );
    other["data"]["id"] = json!("Claim-other");
    let events = json!([
        other,
        made(
            "Evidence",
            json!({"text": "the report of the year", "claim_id": claim})
        ),
        made(
            "Contradiction",
            json!({"claim_a_id": claim, "claim_b_id": "Claim-other"})
        ),
        made(
            "Report",
            json!({"company_id": company, "summary": "undecided"})
        ),
    ]);
    desk.ktsu(&["post", run, &events.to_string(), "--kit", &kit("diligence")])
        .is(0);
    let after = desk.ktsu(&["runs", "get", run]).is(0).json();
    assert_eq!(after["status"], "complete", "{after:#}");
    assert_eq!(
        after["world"]["relations"],
        json!({"contradicts": 1, "depends_on": 1, "sourced_from": 1})
    );
    is_decided_again(&desk, run);
}

/// The page, and the files of the kit that it builds: blocks whose first line is `# PATH`.
fn page() -> (String, Vec<(String, String)>) {
    let page = std::fs::read_to_string(repository().join("docs/worlds.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1);
    let files = blocks.filter_map(|block| {
        let text = block.split("```").next()?;
        let path = text.lines().next()?.strip_prefix("# reviews/")?;
        Some((format!("reviews/{path}"), text.to_owned()))
    });
    let files = files.collect();
    (page, files)
}

fn built() -> (Desk, String) {
    let desk = Desk::new();
    let (page, files) = page();
    assert_eq!(files.len(), 4);
    for (path, text) in files {
        desk.write_file(&path, &text);
    }
    (desk, page)
}

#[test]
fn the_kit_that_the_page_on_worlds_builds_runs_as_the_page_says() {
    let (desk, page) = built();
    let found = desk.ktsu(&["validate", "reviews", "--json"]).is(0).json();
    assert_eq!(found["faults"], json!([]), "{found:#}");
    let said = desk.ktsu(&["run", "reviews", "--goal", "Blue kettle"]);
    let all = format!("{}{}", said.is(0).out, said.err);
    let console = page.split("```console\n$ ktsu run reviews").nth(1).unwrap();
    let console = console.split("```").next().unwrap();
    let lasting = console.lines().skip(1).filter(|line| {
        let changes = ["run_", "ms", "sha256:"];
        !line.is_empty() && !changes.iter().any(|word| line.contains(word))
    });
    let lasting: Vec<&str> = lasting.collect();
    assert!(lasting.len() >= 2, "{console}");
    for line in lasting {
        assert!(all.contains(line), "no {line:?} in {all}");
    }
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap();
    is_decided_again(&desk, run);

    // The worked example: three ratings, three firings, and one verdict, of the last.
    let fired = frames(&desk, run).into_iter().filter(|frame| {
        let of_rating = |one: &Value| one["responder"] == "verdict-of-last-rating";
        let candidates = frame["data"]["candidates"].as_array();
        frame["type"] == "responder.fired"
            && candidates.is_some_and(|all| all.iter().any(of_rating))
    });
    assert_eq!(fired.count(), 3);
    let verdicts = of_type(&desk, run, "Verdict");
    assert_eq!(verdicts.len(), 1);
    let text = verdicts[0]["text"].as_str().unwrap();
    assert!(page.contains(text), "the page does not say {text:?}");
}

#[test]
fn responders_that_wait_on_the_page_are_sound_and_their_run_says_what_it_waits_for() {
    let (desk, page) = built();
    let world = desk.path().join("reviews/worlds/reviews.world.yaml");
    let mut text = std::fs::read_to_string(&world).unwrap();
    let waiting: Vec<&str> = page
        .split("```yaml\n# Also in responders of the kit above\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect();
    assert_eq!(waiting.len(), 2);
    for line in waiting.iter().flat_map(|responder| responder.lines()) {
        text.push_str(&format!(
            "  {}\n",
            line.replace("15m", "40ms").replace("5m", "20ms")
        ));
    }
    std::fs::write(&world, text).unwrap();
    let found = desk.ktsu(&["validate", "reviews", "--json"]).is(0).json();
    assert_eq!(found["faults"], json!([]), "{found:#}");
    let said = desk.ktsu(&["run", "reviews", "--goal", "Blue kettle"]);
    let all = said.is(0).err.clone();
    for line in [
        "responder remind-of-unrated waits 40 ms",
        "responder remind-of-unrated has waited",
    ] {
        assert_eq!(all.matches(line).count(), 3, "{line}: {all}");
    }
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap();
    is_decided_again(&desk, run);
    let why = desk.ktsu(&["trace", run, "--why-not", "remind-of-unrated"]);
    let why = &why.is(0).out;
    let words = "it set a timer of 40 ms";
    assert_eq!(why.matches(words).count(), 3, "{why}");
    let world = &desk.ktsu(&["world", run, "--json"]).is(0).json();
    assert_eq!(
        world["timeline"]["tree"]
            .to_string()
            .matches("waits")
            .count(),
        0,
        "{world:#}"
    );
}

#[test]
fn each_mistake_on_the_page_gives_the_error_that_the_page_names() {
    let (desk, page) = built();
    let world = desk.path().join("reviews/worlds/reviews.world.yaml");
    let sound = std::fs::read_to_string(&world).unwrap();
    let mut tried = 0;
    for block in page.split("```yaml\n# instead: ").skip(1) {
        let (code, rest) = block.split_once('\n').unwrap();
        let responder = rest.split("```").next().unwrap();
        let (before, _) = sound.split_once("responders:\n").unwrap();
        let indented: String = responder
            .lines()
            .map(|line| format!("  {line}\n"))
            .collect();
        // The responders of the page stay, so that types have somebody who makes them.
        let after = sound.split_once("responders:\n").unwrap().1;
        std::fs::write(&world, format!("{before}responders:\n{indented}{after}")).unwrap();
        let said = desk.ktsu(&["validate", "reviews"]);
        let all = format!("{}{}", said.out, said.err);
        assert!(all.contains(code), "no {code} of\n{responder}\n{all}");
        tried += 1;
    }
    assert!(tried >= 6, "{tried}");
    std::fs::write(&world, sound).unwrap();
    desk.ktsu(&["validate", "reviews"]).is(0);
}

/// The kit below the desk, with the rules of its provider changed.
fn with_rules(desk: &Desk, name: &str, from: &str, to: &str) -> String {
    let rules = format!("scripted/{name}.yaml");
    let world = format!("worlds/{name}.world.yaml");
    for file in ["kit.yaml", "gateway.yaml", &world, &rules] {
        let text = std::fs::read_to_string(Path::new(&kit(name)).join(file)).unwrap();
        let text = match file == rules {
            true => {
                assert!(text.contains(from), "{text}");
                text.replace(from, to)
            }
            false => text,
        };
        desk.write_file(&format!("{name}/{file}"), &text);
    }
    name.to_owned()
}

#[test]
fn a_recompute_asks_every_question_again_and_says_which_objects_would_differ() {
    let desk = Desk::new();
    let envelopes = [
        ("research", run(&desk, &kit("research"), "Tidal power")),
        ("incidents", incidents(&desk, "approve")),
    ];
    for (name, envelope) in &envelopes {
        let again = desk.ktsu(&["recompute", id(envelope), "--kit", &kit(name)]);
        again.is(0).says("world\n  no changes\nverdict clean");
        is_decided_again(&desk, id(envelope));
    }
    let envelope = run(&desk, &kit("diligence"), "Evaluate Acme");
    let (all, hash) = world(&desk, id(&envelope));
    let claim = all[1]["id"].as_str().unwrap();
    let changed = with_rules(&desk, "diligence", "sells subscriptions", "sells nothing");
    let recompute = ["recompute", id(&envelope), "--kit", &changed];
    let said = desk.ktsu(&recompute);
    said.is(1)
        .says("@write-claim.")
        .says("value_changed")
        .says("~1 objects patched")
        .says(&format!("~ {claim}"))
        .says("/data/text: ");
    let markdown = desk.ktsu(&[&recompute[..], &["--markdown"]].concat());
    markdown.is(1).says("### World").says(&format!("~ {claim}"));
    let verdict = desk.ktsu(&[&recompute[..], &["--json"]].concat());
    let verdict = verdict.is(1).json();
    let patched = &verdict["world"]["diff"]["patched_objects"];
    assert_eq!(patched[0]["id"], claim, "{verdict:#}");
    assert_eq!(patched[0]["changes"][0]["path"], "/data/text");
    assert_eq!(world(&desk, id(&envelope)).1, hash, "the run has changed");
    // One question alone, and the recompute as a stream of its own.
    let address = verdict["tasks"][0]["step"].as_str().unwrap();
    let one = desk.ktsu(&[&recompute[..], &["--step", address]].concat());
    one.is(1).says(address);
    let own = verdict["recompute_id"].as_str().unwrap();
    is_decided_again(&desk, own);
    is_decided_again(&desk, id(&envelope));
    desk.ktsu(&["verify"]).is(0);
}
