//! `ktsu trace`, beside what `reading` asks of it: chains, filters, diagrams and pages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use sha2::Digest as _;

use super::replay::{forge, golden_desk, run_of};
use super::{Desk, Said};
use crate::api::TAGS;

/// The numbers of the frames of an answer.
fn numbers(said: &Said, name: &str) -> Vec<u64> {
    let body = said.is(0).json();
    let frames = body[name].as_array().unwrap().iter();
    frames.map(|frame| frame["seq"].as_u64().unwrap()).collect()
}

fn frames(desk: &Desk, run: &str) -> Vec<Value> {
    let said = desk.ktsu(&["frames", run, "--json"]);
    let lines = said.is(0).out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_chain_goes_both_ways_and_each_frame_is_in_it_once() {
    let desk = golden_desk();
    let run = run_of("v1-children-execute");
    let all = frames(&desk, &run);
    let causes = |seq: u64| -> Vec<u64> {
        let frame = all.iter().find(|frame| frame["seq"] == seq).unwrap();
        let causes = frame["cause"].as_array().unwrap().iter();
        causes.map(|cause| cause.as_u64().unwrap()).collect()
    };
    let every: Vec<u64> = (0..all.len() as u64).collect();
    let from_root = desk.ktsu(&["trace", &run, "0", "--descendants", "--json"]);
    assert_eq!(numbers(&from_root, "chain"), every);
    for seq in [1, 5, all.len() as u64 - 1] {
        // Both ways, worked out from the causes alone.
        let mut up = vec![seq];
        let mut at = 0;
        while let Some(next) = up.get(at).copied() {
            at += 1;
            for cause in causes(next) {
                if !up.contains(&cause) {
                    up.push(cause);
                }
            }
        }
        up.sort_by_key(|one| std::cmp::Reverse(*one));
        let mut down = vec![seq];
        for later in seq + 1..all.len() as u64 {
            if causes(later).iter().any(|cause| down.contains(cause)) {
                down.push(later);
            }
        }
        let number = seq.to_string();
        let told = desk.ktsu(&["trace", &run, &number, "--json"]);
        assert_eq!(numbers(&told, "chain"), up, "{seq}");
        let told = desk.ktsu(&["trace", &run, &number, "--descendants", "--json"]);
        assert_eq!(numbers(&told, "chain"), down, "{seq}");
        let name = format!("run:{run}#{seq}");
        let named = desk.ktsu(&["trace", &name, "--json"]);
        assert_eq!(numbers(&named, "chain"), up, "{name}");
    }
    desk.ktsu(&["trace", &run, "--descendants"])
        .is(2)
        .warns("--descendants needs a frame");
}

#[test]
fn filters_leave_what_fits_all_of_them() {
    let desk = golden_desk();
    let run = run_of("v1-failing-child");
    let all = frames(&desk, &run);
    let kept = |keeps: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        let kept = all.iter().filter(|frame| keeps(frame));
        kept.map(|frame| frame["seq"].as_u64().unwrap()).collect()
    };
    let kind = |frame: &Value| frame["type"].as_str().unwrap().to_owned();
    let of_step = |frame: &Value, scope: &str, step: &str| {
        let about = frame["scope"] == scope && frame["data"]["step"] == step;
        about && !kind(frame).starts_with("run.")
    };
    let inside = |frame: &Value| of_step(frame, "", "a") || frame["scope"] == "a";
    let cases: [(&[&str], Vec<u64>); 7] = [
        (
            &["--type", "webhook."],
            kept(&|one| kind(one).starts_with("webhook.")),
        ),
        (
            &["--type", "step.failed", "--type", "run.failed"],
            kept(&|one| ["step.failed", "run.failed"].contains(&kind(one).as_str())),
        ),
        (&["--failed"], kept(&|one| kind(one).ends_with(".failed"))),
        (&["--since", "3", "--until", "6"], vec![3, 4, 5, 6]),
        (
            &["--step", "a/call"],
            kept(&|one| of_step(one, "a", "call")),
        ),
        (&["--step", "a"], kept(&inside)),
        (
            &["--step", "a", "--failed", "--type", "step."],
            kept(&|one| inside(one) && kind(one) == "step.failed"),
        ),
    ];
    for (filters, wanted) in cases {
        assert!(!wanted.is_empty(), "{filters:?}");
        let arguments = [&["trace", &run, "--json"], filters].concat();
        assert_eq!(
            numbers(&desk.ktsu(&arguments), "frames"),
            wanted,
            "{filters:?}"
        );
    }
    let arguments = ["trace", &run, "--type", "llm.", "--json"];
    assert_eq!(numbers(&desk.ktsu(&arguments), "frames"), Vec::<u64>::new());
}

#[test]
fn a_request_that_is_not_the_recorded_one_says_so() {
    let desk = golden_desk();
    let run = run_of("v2-secrets");
    desk.ktsu(&["trace", &run])
        .is(0)
        .says("/call?token={{ env.TOKEN }}: {\"note\":\"not [REDACTED]\"");
    forge(&desk, &run, |seq, body| {
        Some(match seq {
            0 => body.replace("not [REDACTED]", "something else"),
            _ => body,
        })
    });
    desk.ktsu(&["trace", &run])
        .is(0)
        .says("not the one that was sent");
    desk.ktsu(&["trace", &run, "3"])
        .is(0)
        .says("not the one that was sent: its hash differs")
        .says("something else");
}

#[test]
fn a_frame_that_is_not_there_is_reported_with_those_that_are_near() {
    let desk = golden_desk();
    let run = run_of("v1-failure");
    let all = frames(&desk, &run);
    let last = all.last().unwrap();
    let near = format!("{} ({})", last["seq"], last["type"].as_str().unwrap());
    for frame in ["4711", &all.len().to_string(), "18446744073709551615"] {
        let said = desk.ktsu(&["trace", &run, frame]);
        said.is(2)
            .warns(&format!("has no frame {frame}"))
            .warns(&near);
        assert_eq!(said.out, "");
    }
    desk.ktsu(&["trace", &run, "first"])
        .is(2)
        .warns("first is not a frame")
        .warns(&near);
    desk.ktsu(&["trace", &run, "run:run_other#3"])
        .is(2)
        .warns("is not a frame of");
}

#[test]
fn why_not_and_of_answer_in_words_and_as_json_and_name_what_there_is() {
    let desk = golden_desk();
    let run = run_of("v1-conditions");
    desk.ktsu(&["trace", &run, "--why-not", "no"])
        .is(0)
        .says("no is skipped")
        .says("its condition params.go is false")
        .says("params.go = false");
    let why = desk
        .ktsu(&["trace", &run, "--why-not", "no", "--json"])
        .is(0)
        .json();
    assert_eq!(why["status"], "skipped");
    assert_eq!(why["because"][0]["values"][0]["name"], "params.go");
    desk.ktsu(&["trace", &run, "--why-not", "nobody"])
        .is(2)
        .warns("there is no step \"nobody\"")
        .warns("the run has no, broken, yes");
    let of = desk.ktsu(&["trace", &run, "--of", "step.yes.status_code", "--json"]);
    let of = of.is(0).json();
    assert_eq!(
        (&of["value"], &of["origins"][0]["at"]),
        (&json!(200), &json!("/status"))
    );
    desk.ktsu(&["trace", &run, "--of", "step.yes.colour"])
        .is(2)
        .warns("colour");
    desk.ktsu(&["trace", &run, "--of", "status", "--why-not", "no"])
        .is(2);
}

#[test]
fn the_diagram_draws_every_step_below_what_it_waits_for() {
    let desk = golden_desk();
    let run = run_of("v1-children-execute");
    let said = desk.ktsu(&["trace", &run, "--mermaid"]);
    said.is(0)
        .says("flowchart TD\n")
        .says("before (transform): complete")
        .says("call (webhook): complete")
        .says("subgraph ");
    let opened = said.out.matches("subgraph ").count();
    let closed = said.out.lines().filter(|line| line.trim() == "end").count();
    assert_eq!(opened, closed);
    let named = |label: &str| {
        let line = said.out.lines().find(|line| line.contains(label)).unwrap();
        line.trim().split('[').next().unwrap().to_owned()
    };
    let arrow = format!("{} --> {}", named("\"before ("), named("\"a (workflow"));
    said.says(&arrow);
    let failed = desk.ktsu(&["trace", &run_of("v1-failure"), "--mermaid"]);
    failed.is(0).says("\"]:::failed").says("\"]:::skipped");
    desk.ktsu(&["trace", &run, "3", "--mermaid"]).is(2);
    desk.ktsu(&["trace", &run, "--mermaid", "--json"]).is(2);
}

#[test]
fn the_diagram_and_the_page_show_calls_of_tools_and_who_allowed_them() {
    let desk = golden_desk();
    for (name, calls) in [
        (
            "v1-tool-approved",
            &[
                "desk.read: a result after 0 ms",
                "desk.drop, approved by ann: a result after 1 ms",
            ][..],
        ),
        (
            "v1-tool-rejected",
            &["desk.drop, rejected by ann: not called"],
        ),
        (
            "v1-tool-two-gates",
            &[
                "desk.ask, rejected by bob: ",
                "desk.drop, approved by bob: a result",
            ],
        ),
        (
            "v1-tool-doubt-happened",
            &["book.slow-write, happened by ann: "],
        ),
        (
            "v1-tool-late",
            &["desk.late, no decision in time: not called"],
        ),
    ] {
        let run = run_of(name);
        let drawn = desk.ktsu(&["trace", &run, "--mermaid"]);
        let file = format!("{name}.html");
        desk.ktsu(&["trace", &run, "--html", &file]).is(0);
        let page = std::fs::read_to_string(desk.path().join(&file)).unwrap();
        for call in calls {
            // Between braces, at the end of a dotted line from its step.
            let line = drawn.out.lines().find(|line| line.contains(call));
            let line = line.unwrap_or_else(|| panic!("{name}: no {call:?} in {drawn:#?}"));
            let (own, _) = line.trim().split_once("{{").unwrap();
            let (step, _) = own.split_once('t').unwrap();
            drawn.says(&format!("{step} -.-> {own}\n"));
            let (tool, outcome) = call.split_once(": ").unwrap();
            let mut words = tool.split(", ");
            assert!(page.contains(words.next().unwrap()), "{name}: {tool}");
            for said in words {
                assert!(page.contains(&format!("{said}; ")), "{name}: {said}");
            }
            assert!(page.contains(outcome), "{name}: {outcome}");
        }
    }
    let without = desk.ktsu(&["trace", &run_of("v1-agent-plain"), "--mermaid"]);
    assert!(!without.is(0).out.contains("-.->"), "{without:?}");
}

/// Tags that stand alone.
const VOID: [&str; 2] = ["meta", "!DOCTYPE"];

/// Every tag that is opened is closed where it should be; gives the tags with their attributes.
fn tags(page: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag is closed");
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "…{part:.60}"),
            None if VOID.contains(&name) => {}
            None => open.push(name),
        }
        all.push(tag.to_owned());
    }
    assert_eq!(open, Vec::<&str>::new());
    all
}

#[test]
fn the_file_of_a_run_is_its_page_runs_nothing_loads_nothing_and_shows_data_as_text() {
    let desk = Desk::new();
    let hostile = "</pre><script>alert('1')</script><img src=x onerror=\"x()\">&lt;\u{202e}\u{7f}";
    let workflow = "kind: workflow\nname: hostile\nversion: 1.0.0\nparams: {schema: {type: object, properties: {text: {type: string}}}}\npipeline:\n  - {id: a, transform: {inputs: [{from: params.text}], ops: []}}\n  - {id: b, condition: \"params.text == 'no'\", transform: {inputs: [], ops: []}}\n  - id: c\n    transform: {inputs: [{from: params.text}], ops: []}\n    output: {schema: {type: string, maxLength: 3}}\n";
    let kit = desk.write_kit("hostile", workflow);
    let input = json!({ "text": hostile }).to_string();
    let said = desk.ktsu(&["run", &kit, "--input", &input, "--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let run = said.json()["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["trace", &run, "--html", "page.html"])
        .is(0)
        .says("wrote page.html");
    let page = std::fs::read_to_string(desk.path().join("page.html")).unwrap();
    let tags = tags(&page);
    let policy = "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'";
    assert!(
        tags.iter()
            .any(|tag| tag.starts_with("meta") && tag.contains(policy))
    );
    for tag in &tags {
        let name = tag
            .trim_start_matches('/')
            .split_whitespace()
            .next()
            .unwrap();
        assert!(
            name == "!DOCTYPE" || name == "style" || TAGS.contains(&name),
            "<{tag}>"
        );
        assert!(
            !["script", "form", "link", "input"].contains(&name),
            "<{tag}>"
        );
        for attribute in [" src", " on", " style=", "url(", "http:", "https:"] {
            assert!(!tag.contains(attribute), "<{tag}>");
        }
        if let Some((_, link)) = tag.split_once(" href=\"") {
            assert!(link.starts_with('#'), "<{tag}>");
        }
    }
    let (_, style) = page.split_once("<style>").unwrap();
    let (style, _) = style.split_once("</style>").unwrap();
    let hash = BASE64.encode(sha2::Sha256::digest(style));
    assert!(page.contains(&format!("; style-src 'sha256-{hash}';")));
    // The head, the time line, and the reasons, as the page of the run has them.
    for part in [
        "<table class=\"timeline\"",
        "<span class=\"status bad\">",
        "<table class=\"why\"",
        "href=\"#step-b\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)"), "{page}");
    assert!(page.contains("&amp;lt;"), "{page}");
    for raw in ["\u{202e}", "\u{7f}", "\u{1b}"] {
        assert!(!page.contains(raw), "{raw:?} is in the page");
    }
    for words in [
        "schema_violation",
        ">hostile</a> 1.0.0",
        "step.skipped",
        "\\u{202e}",
    ] {
        assert!(page.contains(words), "no {words:?}");
    }
    let told = desk.ktsu(&["trace", &run, "--mermaid"]);
    assert!(!told.is(0).out.contains("<script"), "{told:?}");
    desk.ktsu(&["trace", &run, "--html", "none/page.html"])
        .is(2)
        .warns("cannot write none/page.html");
}

#[test]
fn the_page_of_every_golden_run_is_whole() {
    let desk = golden_desk();
    for (name, golden) in crate::golden::goldens() {
        let run = golden.stream.name();
        let file = format!("{run}.html");
        desk.ktsu(&["trace", run, "--html", &file]).is(0);
        desk.ktsu(&["trace", run, "--html", &file])
            .is(2)
            .warns("choose another name");
        let page = std::fs::read_to_string(desk.path().join(&file)).unwrap();
        assert!(tags(&page).len() > 100, "{name}");
    }
}

#[test]
fn a_cause_that_is_not_there_is_said_to_be_missing() {
    // A ledger takes no such frame: it lost what the frame follows from.
    let desk = golden_desk();
    let (run, other) = (run_of("v1-failure"), run_of("v1-dead"));
    let (here, beyond) = (format!("run:{other}#0"), format!("run:{other}#9999"));
    forge(&desk, &run, |seq, body| {
        let causes = format!("\"cause\":[1,\"{here}\",\"{beyond}\",\"run:run_nobody#3\"]");
        Some(match seq {
            2 => body.replacen("\"cause\":[1]", &causes, 1),
            3 => {
                let (before, after) = body.split_once("\"cause\":[").unwrap();
                format!("{before}\"cause\":[9999,{after}")
            }
            _ => body,
        })
    });
    let told = desk.ktsu(&["trace", &run, "2", "--json"]).is(0).json();
    let missing = json!([beyond, "run:run_nobody#3"]);
    assert_eq!(told["chain"][0]["missing"], missing, "{told}");
    assert_eq!(told["chain"][1]["missing"], Value::Null);
    desk.ktsu(&["trace", &run, "2"]).is(0).says(&format!(
        "{here}, {beyond} (missing), run:run_nobody#3 (missing)"
    ));
    desk.ktsu(&["trace", &run, "--frames"])
        .is(0)
        .says(&format!("its cause is missing: {beyond}, run:run_nobody#3"));
    // One of the same run is no more there for being named by a number alone.
    let told = desk.ktsu(&["trace", &run, "3", "--json"]).is(0).json();
    assert_eq!(told["chain"][0]["missing"], json!(["9999"]), "{told}");
    // Over HTTP, in the chain and in the tree.
    let reading = desk.start(&["--read-only"]);
    let chain = get(&reading.url, &format!("/runs/{run}/trace?frame=2"));
    assert_eq!(chain["chain"][0]["missing"], missing, "{chain}");
    let tree = get(&reading.url, &format!("/runs/{run}/trace"));
    let tree = tree["tree"].as_array().unwrap();
    let second = tree.iter().find(|node| node["seq"] == 2).unwrap();
    assert_eq!(second["missing"], missing, "{second}");
}

/// The body of an answer.
fn get(url: &str, path: &str) -> Value {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn an_attempt_of_a_step_is_reported_as_that_of_an_item() {
    let desk = golden_desk();
    let mut found = 0;
    for (name, golden) in crate::golden::goldens() {
        let said = desk.ktsu(&["trace", golden.stream.name()]);
        for line in said.out.lines() {
            let Some((_, numbered)) = line.split_once(" attempt ") else {
                continue;
            };
            let rest = numbered.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest == numbered {
                continue;
            }
            assert!(rest.is_empty() || rest.starts_with(", "), "{name}: {line}");
            found += usize::from(!rest.is_empty());
        }
    }
    assert!(found > 0, "no golden has a step that began again");
}
