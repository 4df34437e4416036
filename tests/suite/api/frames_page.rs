//! The page of the frames of a run, and the page of where values came from and why steps did not run.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::SqliteStore;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::access;
use super::describe::Described;
use super::pages::{BROWSER, HOSTILE, is_harmless, lab};
use crate::golden::goldens;
use crate::support::client::Answer;
use crate::support::process::Process;
use crate::support::{Client, KitDir, Lab};

/// The text of a page as one reads it, without markup and with single spaces.
pub(super) fn words_of(page: &str) -> String {
    let mut text = String::new();
    for (at, part) in page.split('<').enumerate() {
        let shown = part.split_once('>').map_or(part, |(_, shown)| shown);
        text.push_str(if at == 0 { part } else { " " });
        text.push_str(if at == 0 { "" } else { shown });
    }
    single_spaced(&unescaped(&text))
}

fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (escape, character) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(escape, character);
    }
    text
}

/// Markup between a word and a mark shows no space.
fn single_spaced(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    [" )", " :", " ,"]
        .into_iter()
        .fold(text, |text, mark| text.replace(mark, mark.trim_start()))
}

/// The address that a link of a page leads to.
pub(super) fn resolved(page: &str, link: &str) -> String {
    let base = url::Url::parse("http://ktsu.test").unwrap();
    let url = base.join(page).unwrap().join(link).unwrap();
    let query = url.query().map(|query| format!("?{query}"));
    format!("{}{}", url.path(), query.unwrap_or_default())
}

pub(super) fn links_of(page: &str) -> BTreeSet<String> {
    let links = page.split(" href=\"").skip(1);
    let links = links.map(|part| part.split('"').next().unwrap().replace("&amp;", "&"));
    links.collect()
}

/// The numbers of the frames that have rows.
fn rows_of(page: &Answer) -> Vec<u64> {
    let text = page.text();
    let rows = text.split("<tr id=\"f").skip(1);
    let rows = rows.map(|row| row.split('"').next().unwrap().parse().unwrap());
    rows.collect()
}

async fn frames_page(api: &Described, run: &str, query: &str) -> Answer {
    let path = format!("/inspector/runs/{}/frames{query}", run.replace('/', "%2F"));
    let page = api.get(&path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.text());
    is_harmless(&page);
    page
}

async fn why_page(api: &Described, run: &str, query: &str) -> Answer {
    let path = format!("/inspector/runs/{}/why{query}", run.replace('/', "%2F"));
    let page = api.get(&path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.text());
    is_harmless(&page);
    page
}

#[tokio::test]
async fn every_frame_of_a_run_has_a_row_with_links_to_its_causes_and_effects() {
    let (_kit, lab, api) = lab().await;
    let ended = lab
        .client
        .run("parent", json!({"list": ["a", "bad"]}))
        .await;
    let run = ended["run_id"].as_str().unwrap();
    let page = frames_page(&api, run, "").await;
    let frames = lab.client.frames(run).await;
    let numbers: Vec<u64> = (0..frames.len() as u64).collect();
    assert_eq!(rows_of(&page), numbers);
    let text = page.text();
    assert!(
        text.contains(&format!("{} frames, numbers 0 to", frames.len())),
        "{text}"
    );
    for (frame, row) in frames.iter().zip(text.split("<tr id=\"f").skip(1)) {
        let row = row.split("</tr>").next().unwrap();
        for shown in [&frame["type"], &frame["actor"]] {
            assert!(row.contains(shown.as_str().unwrap()), "{frame}: {row}");
        }
        for cause in frame["cause"].as_array().unwrap() {
            assert!(
                row.contains(&format!("?frame={cause}#f{cause}\"")),
                "{frame}: {row}"
            );
            let effect = format!("?frame={0}#f{0}\"", frame["seq"]);
            let caused = text
                .split("<tr id=\"f")
                .nth(cause.as_u64().unwrap() as usize + 1);
            let caused = caused.unwrap();
            let is_summed_up = caused
                .split("</tr>")
                .next()
                .unwrap()
                .contains(" more</span>");
            assert!(
                caused.contains(&effect) || is_summed_up,
                "{frame}: {caused}"
            );
        }
    }
    // Every link of the pages of a run leads somewhere, also from the page of a child.
    let child = format!("{run}/call");
    let mut followed = BTreeSet::new();
    for (run, query) in [
        (run, ""),
        (run, "?frame=3"),
        (&child, ""),
        (&child, "?type=step."),
    ] {
        let at = format!("/inspector/runs/{}/frames{query}", run.replace('/', "%2F"));
        let page = frames_page(&api, run, query).await;
        for link in links_of(&page.text()) {
            let to = resolved(&at, &link);
            if followed.insert(to.clone()) {
                assert_eq!(lab.client.get(&to).await.status, 200, "{at}: {link}");
            }
        }
    }
    assert!(followed.len() > frames.len(), "{followed:?}");
    let within = frames_page(&api, &child, "").await;
    let scoped = frames.iter().filter(|frame| frame["scope"] == "call");
    let scoped: Vec<u64> = scoped.map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert_eq!(rows_of(&within), scoped, "a child has its own frames");
    // What it follows from is on the page of the run.
    let outside = format!("href=\"../../runs/{run}/frames?frame=");
    assert!(within.text().contains(&outside), "{}", within.text());
    let elsewhere = frames_page(&api, &child, "?frame=0").await;
    assert!(
        elsewhere.text().contains("The run has no frame 0."),
        "{}",
        elsewhere.text()
    );
}

#[tokio::test]
async fn filters_choose_frames_and_a_large_run_is_shown_in_windows_of_50() {
    let (_kit, lab, api) = lab().await;
    let list: Vec<String> = (0..90).map(|n| format!("item {n}")).collect();
    let ended = lab.client.run("alone", json!({"list": list})).await;
    let run = ended["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    let count = frames.len() as u64;
    assert!((501..1_000).contains(&count), "{count}");
    let first = frames_page(&api, run, "").await;
    assert_eq!(rows_of(&first), (0..50).collect::<Vec<u64>>());
    let text = first.text();
    assert!(
        text.contains(&format!("{count} frames; shown: numbers 0 to 49.")),
        "{text}"
    );
    assert!(text.contains("from=50\">Later, from 50</a>"), "{text}");
    assert!(!text.contains("Earlier"), "{text}");
    let last = (count - 1) / 50 * 50;
    let later = frames_page(&api, run, &format!("?from={last}")).await;
    assert_eq!(rows_of(&later), (last..count).collect::<Vec<u64>>());
    let before = last - 50;
    let earlier = format!("from={before}\">Earlier, from {before}</a>");
    assert!(later.text().contains(&earlier), "{}", later.text());
    assert!(!later.text().contains("Later, from"), "{}", later.text());
    let jumped = frames_page(&api, run, "?from=17").await;
    assert_eq!(rows_of(&jumped)[0], 17);
    let none = frames_page(&api, run, "?from=9007199254740991").await;
    assert_eq!(rows_of(&none), Vec::<u64>::new());
    assert!(none.text().contains("or a later one"), "{}", none.text());
    // A frame is opened in the window that has it, or in the one that is looked at.
    let opened = frames_page(&api, run, &format!("?frame={}", count - 1)).await;
    assert_eq!(rows_of(&opened), (last..count).collect::<Vec<u64>>());
    let opened = frames_page(&api, run, "?from=17&frame=20").await;
    assert_eq!(rows_of(&opened)[0], 17);
    assert!(
        opened.text().contains("from=17&amp;frame=21#f21"),
        "{}",
        opened.text()
    );
    let of = |wanted: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        let wanted = frames.iter().filter(|frame| wanted(frame));
        wanted
            .map(|frame| frame["seq"].as_u64().unwrap())
            .take(500)
            .collect()
    };
    let has = |frame: &Value, name: &str, value: &str| frame[name] == value;
    for (query, expected) in [
        (
            "?type=llm.response&step=&actor=",
            of(&|one| has(one, "type", "llm.response")),
        ),
        (
            "?type=llm.",
            of(&|one| one["type"].as_str().unwrap().starts_with("llm.")),
        ),
        ("?actor=runtime", of(&|one| has(one, "actor", "runtime"))),
        (
            "?step=each.7&type=item.",
            of(&|one| {
                let of_items = one["type"].as_str().unwrap().starts_with("item.");
                of_items && one["data"]["item"] == 7
            }),
        ),
        ("?step=absent", vec![]),
        ("?type=absent", vec![]),
    ] {
        let page = frames_page(&api, run, query).await;
        assert_eq!(rows_of(&page), expected, "{query}");
        let text = page.text();
        assert!(
            text.contains(&format!("of {count} frames match")),
            "{query}: {text}"
        );
    }
    let kept = frames_page(&api, run, "?type=llm.&from=30").await;
    assert!(
        kept.text().contains("<option value=\"llm.\" selected>"),
        "{}",
        kept.text()
    );
    assert!(
        kept.text().contains("type=llm.&amp;from="),
        "{}",
        kept.text()
    );
}

#[tokio::test]
async fn a_frame_is_shown_as_it_is_recorded_to_those_who_may_read_frames() {
    let kit = access::kit();
    let text = access::environment();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[access::HOOK]).await;
    let api = Described::new(&lab.client).await;
    let admin = Client::showing(&lab.engine.url, &access::token("admin"));
    let run = admin.run("hello", json!({"canary": "a-canary"})).await;
    let run = run["run_id"].as_str().unwrap();
    let frames = admin.frames(run).await;
    for role in access::ROLES {
        let client = Client::showing(&lab.engine.url, &access::token(role));
        let path = format!("/inspector/runs/{run}/frames?frame=0");
        let may_read = client.get(&format!("/runs/{run}/frames")).await.status == 200;
        let page = api.at(&client).get(&path).await;
        if role == "runtime" {
            assert_eq!(page.status, 403);
            continue;
        }
        is_harmless(&page);
        let shown = page.text();
        assert_eq!(shown.contains("a-canary"), may_read, "{role}: {shown}");
        let hash = frames[0]["hash"].as_str().unwrap();
        assert_eq!(shown.contains(hash), may_read, "{role}: {shown}");
        assert_eq!(shown.contains("Download it"), may_read, "{role}: {shown}");
        let why = "this needs one of the roles operator, auditor, admin";
        assert_eq!(shown.contains(why), !may_read, "{role}: {shown}");
        assert!(shown.contains("run.created"), "{role}: {shown}");
    }
    lab.close().await;
}

#[tokio::test]
async fn the_json_of_a_frame_has_the_bytes_that_are_stored() {
    let (_kit, lab, api) = lab().await;
    let ended = lab
        .client
        .run("alone", json!({"list": ["a", 2.50, {"z": 1, "a": 2}]}))
        .await;
    let run = ended["run_id"].as_str().unwrap();
    for frame in lab.client.frames(run).await {
        let seq = &frame["seq"];
        let page = frames_page(&api, run, &format!("?frame={seq}"))
            .await
            .text();
        let (_, json) = page
            .split_once("As it is recorded</h3><pre tabindex=\"0\">")
            .unwrap();
        let (json, _) = json.split_once("</pre>").unwrap();
        if page.contains("; the API has all of it") {
            continue;
        }
        let shown: Value = serde_json::from_str(&unescaped(json)).unwrap();
        let mut stored = frame.clone();
        let members = stored.as_object_mut().unwrap();
        members.remove("id");
        members.remove("source_frame_id");
        assert_eq!(shown, stored);
    }
}

#[tokio::test]
async fn hostile_text_is_text_on_pages_of_frames_and_reasons() {
    let (_kit, lab, api) = lab().await;
    for text in HOSTILE {
        let ended = lab
            .client
            .run("alone", json!({"list": [text, "bad"]}))
            .await;
        let run = ended["run_id"].as_str().unwrap();
        let count = lab.client.frames(run).await.len();
        for seq in 0..count {
            frames_page(&api, run, &format!("?frame={seq}")).await;
        }
        let sent: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for name in ["type", "step", "actor"] {
            frames_page(&api, run, &format!("?{name}={sent}&from=0")).await;
        }
        for path in ["step.last", "params.list%5B0%5D", "output", &sent] {
            why_page(&api, run, &format!("?of={path}")).await;
        }
        for step in ["each.1", "each.0", "last", &sent] {
            why_page(&api, run, &format!("?not={step}")).await;
        }
    }
    let marked = lab.client.run("alone", json!({"list": [HOSTILE[6]]})).await;
    let run = marked["run_id"].as_str().unwrap();
    let page = why_page(&api, run, "?of=params.list%5B0%5D").await;
    assert!(page.text().contains("abc\\u{202e}fed"), "{}", page.text());
}

#[tokio::test]
async fn a_step_links_to_where_its_output_came_from_and_to_why_it_did_not_run() {
    let (_kit, lab, api) = lab().await;
    let mut runs = Vec::new();
    for list in [["a", "bad"], ["bad", "bad"]] {
        let ended = lab.client.run("parent", json!({"list": list})).await;
        runs.push(ended["run_id"].as_str().unwrap().to_owned());
    }
    let (run, failed) = (&runs[0], &runs[1]);
    for (run, scope, step, to) in [
        (run, "", "call/each.0", "why?of=step.call%2Feach.0"),
        (run, "", "call/each.1", "why?not=call%2Feach.1"),
        (run, "%2Fcall", "call/each.1", "why?not=call%2Feach.1"),
        (run, "", "call/last", "why?of=step.call%2Flast"),
        (failed, "", "call/last", "why?not=call%2Flast"),
    ] {
        let at = format!("/inspector/runs/{run}{scope}?step={step}");
        let page = api.get(&at).await;
        is_harmless(&page);
        let text = page.text();
        let link = format!("../runs/{run}/{to}");
        assert!(links_of(&text).contains(&link), "{step}: {text}");
        let answer = api.get(&resolved(&at, &link)).await;
        assert_eq!(answer.status, 200);
        let text = answer.text();
        assert!(!text.contains("class=\"error\""), "{step}: {text}");
    }
    let nothing = why_page(&api, run, "").await;
    assert!(
        nothing.text().contains("Where did this value come from?"),
        "{}",
        nothing.text()
    );
    let unknown = why_page(&api, run, "?not=cal").await;
    let text = words_of(&unknown.text());
    assert!(text.contains("there is no step \"cal\""), "{text}");
    assert!(text.contains("did you mean call?"), "{text}");
    assert!(
        links_of(&unknown.text()).contains("why?not=call"),
        "{}",
        unknown.text()
    );
    let unknown = why_page(&api, run, "?of=step.absent").await;
    assert!(
        links_of(&unknown.text()).contains("why?of=step.call"),
        "{}",
        unknown.text()
    );
}

#[tokio::test]
async fn a_browser_gets_a_page_where_there_are_no_frames_to_show() {
    let (_kit, lab, _api) = lab().await;
    for below in ["frames", "why", "frames?from=x", "why?of=a&not=b"] {
        let path = format!("/inspector/runs/absent/{below}");
        let page = lab
            .client
            .send("GET", &path, &[("accept", BROWSER)], "")
            .await;
        assert!([400, 404].contains(&page.status), "{path}: {}", page.status);
        is_harmless(&page);
        assert!(
            links_of(&page.text()).contains("../../runs"),
            "{}",
            page.text()
        );
        for link in links_of(&page.text())
            .iter()
            .filter(|link| !link.starts_with('#'))
        {
            let to = resolved(&path, link);
            assert_eq!(lab.client.get(&to).await.status, 200, "{path}: {link}");
        }
    }
}

/// An engine that only reads a ledger.
pub(super) fn reading(ledger: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["start", "--read-only", "--json", "--port", "0", "--ledger"]);
    command.arg(ledger).env_clear().env("KTSU_LOG", "error");
    command.current_dir(ledger.parent().unwrap());
    Process::spawn(command)
}

/// The lines that a command prints about where a value came from, without what it says of itself.
pub(super) fn printed(ledger: &Path, run: &str, question: [&str; 2]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["trace", run, question[0], question[1], "--ledger"]);
    let output = command.arg(ledger).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{run} {question:?}");
    let lines = text
        .lines()
        .map(|line| line.replace("; all with --json", ""));
    lines.map(|line| single_spaced(&line)).collect()
}

#[tokio::test]
async fn the_pages_say_why_in_the_words_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let mut store = SqliteStore::open(&ledger).unwrap();
    let asked = [
        "v1-conditions",
        "v1-agent-fan-out-fails",
        "v1-failing-child",
        "v1-tool-calls",
    ];
    let mut runs = Vec::new();
    for (name, golden) in goldens() {
        golden.put(&mut store);
        if asked.contains(&name.as_str()) {
            runs.push(golden.stream.name().to_owned());
        }
    }
    drop(store);
    let engine = reading(&ledger);
    let client = engine.client();
    let mut lines = 0;
    for run in &runs {
        let envelope = client.get(&format!("/runs/{run}/envelope")).await.json();
        let steps = envelope["steps"].as_array().unwrap();
        let steps = steps
            .iter()
            .map(|step| step["id"].as_str().unwrap().to_owned());
        let mut questions = vec![("--of", "of", "status".to_owned())];
        for step in steps {
            let shown = client
                .get(&format!("/runs/{run}/steps/{step}"))
                .await
                .json();
            let items = shown["items"].as_array().map_or(&[][..], Vec::as_slice);
            for (at, item) in items.iter().enumerate() {
                questions.push(("--why-not", "not", format!("{step}.{at}")));
                if !item["output"].is_null() {
                    questions.push(("--of", "of", format!("step.{step}.{at}")));
                }
            }
            questions.push(("--of", "of", format!("step.{step}")));
            questions.push(("--why-not", "not", step));
        }
        for (flag, name, value) in questions {
            let page = client
                .get(&format!("/inspector/runs/{run}/why?{name}={value}"))
                .await;
            is_harmless(&page);
            let words = words_of(&page.text());
            for line in printed(&ledger, run, [flag, &value]) {
                let line = line.replacen(&format!("{value} = "), "", 1);
                // A value that is cut here is longer on the page.
                for shown in line.split('…').map(str::trim) {
                    assert!(
                        words.contains(shown),
                        "{run} {value}: {shown:?} is not in {words}"
                    );
                }
                lines += 1;
            }
        }
    }
    assert!(lines > 40, "{lines}");
    engine.stop();
}

/// Opens a ledger as a forger would: nothing refuses a change.
fn forge(ledger: &Path, change: &str) {
    let tool = Connection::open(ledger).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'trigger'";
    let mut found = tool.prepare(names).unwrap();
    let found: Vec<String> = found
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for name in found {
        tool.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    tool.execute_batch(change).unwrap();
}

#[tokio::test]
async fn what_can_be_read_of_a_damaged_run_is_listed_with_the_damage() {
    let step = "pipeline: [{id: t, transform: {inputs: [params], ops: []}}]\n";
    let kit = KitDir::new(&[("w", step)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let lab = Lab::on_file(&ledger, &kit, &[]).await;
    let large = "x".repeat(100_000);
    let ended = lab.client.run("w", json!({"a": large})).await;
    let run = ended["run_id"].as_str().unwrap().to_owned();
    lab.close().await;
    forge(&ledger, "DELETE FROM blobs");
    let page = format!("/inspector/runs/{run}/frames");
    let engine = reading(&ledger);
    let shown = engine.client().get(&format!("{page}?frame=0")).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    is_harmless(&shown);
    let text = shown.text();
    assert!(rows_of(&shown).len() > 3, "{text}");
    assert!(text.contains("is kept beside the frame"), "{text}");
    assert!(
        text.contains("role=\"alert\"") && text.contains("is missing"),
        "{text}"
    );
    let why = format!("/inspector/runs/{run}/why?of=output");
    let why = engine
        .client()
        .send("GET", &why, &[("accept", BROWSER)], "")
        .await;
    assert_eq!(why.status, 500, "{}", why.text());
    is_harmless(&why);
    engine.stop();
    // A frame that was changed ends what is listed.
    let of = format!("stream = (SELECT id FROM streams WHERE name = 'run:{run}')");
    let change =
        |seq: u32| format!("UPDATE frames SET body = body || ' ' WHERE seq = {seq} AND {of}");
    forge(&ledger, &change(2));
    let engine = reading(&ledger);
    let shown = engine.client().get(&page).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    is_harmless(&shown);
    assert_eq!(rows_of(&shown), [0, 1]);
    assert!(shown.text().contains("role=\"alert\""), "{}", shown.text());
    engine.stop();
    forge(&ledger, &change(0));
    let engine = reading(&ledger);
    let shown = engine
        .client()
        .send("GET", &page, &[("accept", BROWSER)], "")
        .await;
    assert_eq!(shown.status, 500, "{}", shown.text());
    is_harmless(&shown);
    assert!(shown.text().contains("ktsu verify"), "{}", shown.text());
    engine.stop();
}
