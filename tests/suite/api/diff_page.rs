//! The page of two runs, side by side, and the branches of a run on its page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::describe::Described;
use super::frames_page::{links_of, resolved, words_of};
use super::pages::{HOSTILE, is_harmless, lab};
use crate::support::{Client, KitDir, Lab};

async fn diff_page(api: &Described, a: &str, b: &str) -> String {
    let page = api.get(&diff_path(a, b)).await;
    assert_eq!(page.status, 200, "{}", page.text());
    is_harmless(&page);
    page.text()
}

fn diff_path(a: &str, b: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("a", a).append_pair("b", b);
    format!("/inspector/diff?{}", query.finish())
}

/// A branch that continues with another list.
async fn forked(client: &Client, run: &str, at_frame: u64, list: Value) -> String {
    let body = json!({"at_frame": at_frame, "set": {"params.list": list}, "go": true});
    let path = format!("/runs/{run}/fork");
    let answer = client.post(&path, body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    client.ended(&branch).await;
    branch
}

async fn run(lab: &Lab, workflow: &str, list: Value) -> String {
    let ended = lab.client.run(workflow, json!({"list": list})).await;
    ended["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_differs_in_a_fork_with_another_param_is_marked_word_by_word() {
    let (_kit, lab, api) = lab().await;
    let run = run(&lab, "alone", json!(["please say hello to Ann", "x"])).await;
    let list = json!(["please say hello to Bob", "x"]);
    let branch = forked(&lab.client, &run, 0, list).await;
    let page = diff_page(&api, &run, &branch).await;
    for shown in [
        "please say hello to <del>Ann</del>",
        "please say hello to <ins>Bob</ins>",
        // The param, what a model was asked, and what the steps gave.
        "<h2>Params</h2>",
        "<h3>list.0</h3>",
        "item 0, prompt: messages.1.content",
        "output.results.0",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(words_of(&page).contains("Both share frame 0."), "{page}");
    let used = api.get(&format!("/diff?a={run}&b={branch}")).await.json()["used"].clone();
    let row = format!("<td class=\"id\">{}</td>", used["a"]["tokens_in"]);
    assert!(page.contains(&row), "{used}: {page}");
    // Every link leads somewhere.
    let at = diff_path(&run, &branch);
    let links: BTreeSet<String> = links_of(&page)
        .iter()
        .map(|link| resolved(&at, link))
        .collect();
    assert!(
        links.contains(&format!("/diff?a={run}&b={branch}")),
        "{links:?}"
    );
    for link in links {
        assert_eq!(lab.client.get(&link).await.status, 200, "{link}");
    }
    // The other side round.
    let page = diff_page(&api, &branch, &run).await;
    assert!(page.contains("hello to <ins>Ann</ins>"), "{page}");
    // What is equal is folded.
    let same = diff_page(&api, &run, &run).await;
    let words = words_of(&same);
    assert!(
        words.contains("Nothing differs.") && words.contains("2 steps that are equal"),
        "{words}"
    );
    assert!(
        !same.contains("<del>") && !same.contains("<details class=\"compared\" open>"),
        "{same}"
    );
}

#[tokio::test]
async fn children_are_compared_by_their_steps_and_alone() {
    let (_kit, lab, api) = lab().await;
    let one = run(&lab, "parent", json!(["say a", "x"])).await;
    let other = run(&lab, "parent", json!(["say b", "bad"])).await;
    let whole = diff_page(&api, &one, &other).await;
    assert!(whole.contains("call/each"), "{whole}");
    assert!(words_of(&whole).contains("They share no frame."), "{whole}");
    assert!(
        whole.contains("Only in B"),
        "the failed item has other frames: {whole}"
    );
    let child = diff_page(&api, &format!("{one}/call"), &format!("{other}/call")).await;
    assert!(child.contains("<span class=\"id\">each</span>"), "{child}");
    assert!(child.contains("say <del>a</del>"), "{child}");
}

#[tokio::test]
async fn the_page_of_a_run_has_its_branches_as_a_tree_and_compares_them() {
    let (_kit, lab, api) = lab().await;
    let run = run(&lab, "alone", json!(["a"])).await;
    let page = api.get(&format!("/inspector/runs/{run}")).await.text();
    assert!(!page.contains("Branches"), "there are none: {page}");
    assert!(
        page.contains("name=\"b\""),
        "any other run can be compared: {page}"
    );
    let first = forked(&lab.client, &run, 0, json!(["b"])).await;
    let second = forked(&lab.client, &run, 0, json!(["c"])).await;
    let below = forked(&lab.client, &first, 1, json!(["d"])).await;
    for shown in [&run, &first, &second, &below] {
        let page = api.get(&format!("/inspector/runs/{shown}")).await;
        is_harmless(&page);
        let text = page.text();
        let tree = text.split_once("class=\"branches\"").unwrap().1;
        let tree = words_of(&format!("<ul {}", tree.split("</ul>").next().unwrap()));
        let places: Vec<usize> = [&run, &first, &below, &second]
            .iter()
            .map(|one| tree.find(one.as_str()).unwrap())
            .collect();
        assert!(places.is_sorted(), "{tree}");
        assert!(tree.contains(&format!("├─ {first}")), "{tree}");
        assert!(tree.contains(&format!("└─ {below}")), "{tree}");
        assert!(tree.contains(&format!("└─ {second}")), "{tree}");
        assert_eq!(
            text.matches("<li aria-current=\"true\"").count(),
            1,
            "{text}"
        );
    }
    let page = api.get(&format!("/inspector/runs/{below}")).await.text();
    let compare = format!("../diff?a={first}&amp;b={below}");
    assert_eq!(
        page.matches(&compare).count(),
        2,
        "in its head and in the tree: {page}"
    );
}

#[tokio::test]
async fn a_branch_that_waits_to_be_resumed_says_so_and_has_the_form_for_it() {
    let (_kit, lab, api) = lab().await;
    let run = run(&lab, "alone", json!(["a"])).await;
    let path = format!("/runs/{run}/fork");
    let forked = lab.client.post(&path, json!({"at_frame": 0}).to_string());
    let branch = forked.await.json()["branch_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let page = api.get(&format!("/inspector/runs/{branch}")).await.text();
    for part in [
        "It waits to be resumed.",
        "/resume\"",
        "/cancel\"",
        "<dd>first frame ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("/pause\""), "{page}");
    let ended = api.get(&format!("/inspector/runs/{run}")).await.text();
    assert!(!ended.contains("It waits to be resumed."), "{ended}");
    assert!(!ended.contains("<dd>first frame "), "{ended}");
}

/// Transforms one after another.
const STEPS: usize = 250;

#[tokio::test]
async fn of_many_steps_the_first_are_compared_and_the_others_counted() {
    let link = |at: usize| {
        let from = match at {
            0 => "params".to_owned(),
            _ => format!("step.s{}.result", at - 1),
        };
        format!("  - {{id: s{at}, transform: {{inputs: [{{from: {from}}}], ops: []}}}}\n")
    };
    let chain: String = (0..STEPS).map(link).collect();
    let kit = KitDir::new(&[("chain", &format!("pipeline:\n{chain}"))]);
    let lab = Lab::new(&kit, &[]).await;
    let api = Described::new(&lab.client).await;
    let [one, two] = [
        run(&lab, "chain", json!(["a"])).await,
        run(&lab, "chain", json!(["b"])).await,
    ];
    for other in [&one, &two] {
        let page = diff_page(&api, &one, other).await;
        assert!(page.contains("and 50 steps more"), "{page}");
        assert!(page.contains("?step=s199\""), "{page}");
        assert!(!page.contains("?step=s200\""), "{page}");
    }
}

#[tokio::test]
async fn without_both_runs_the_page_has_a_form_and_what_is_typed_is_text() {
    let (_kit, lab, api) = lab().await;
    for path in [
        "/inspector/diff",
        "/inspector/diff?a=&b=",
        "/inspector/diff?a=run_x",
    ] {
        let page = api.get(path).await;
        assert_eq!(page.status, 200);
        is_harmless(&page);
        assert!(page.text().contains("action=\"diff\""), "{path}");
    }
    let run = run(&lab, "alone", json!(["a"])).await;
    assert_eq!(api.get(&diff_path(&run, "absent")).await.status, 404);
    for text in HOSTILE {
        let query: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        is_harmless(&api.get(&format!("/inspector/diff?a={query}")).await);
        let other = forked(&lab.client, &run, 0, json!([text, "bad"])).await;
        diff_page(&api, &run, &other).await;
        diff_page(&api, &other, &run).await;
    }
}
