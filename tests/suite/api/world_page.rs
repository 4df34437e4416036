//! The page of the world of a run.

use serde_json::{Value, json};

use super::describe::Described;
use super::pages::{BROWSER, HOSTILE, is_harmless};
use crate::support::worlds::TIDES;
use crate::support::{KitDir, Lab};

async fn world_page(api: &Described, run: &str, query: &str) -> String {
    let path = format!("/inspector/runs/{run}/world{query}");
    let page = api.get(&path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.text());
    is_harmless(&page);
    page.text()
}

/// The classes and the words of the boxes of a page.
fn boxes(page: &str) -> Vec<(String, String)> {
    let boxes = page.split("class=\"node ").skip(1).map(|text| {
        let (class, rest) = text.split_once('"').unwrap();
        let (_, words) = rest.split_once("aria-label=\"").unwrap();
        (
            class.to_owned(),
            words.split('"').next().unwrap().to_owned(),
        )
    });
    boxes.collect()
}

fn rows(page: &str) -> usize {
    page.matches("<tr id=\"row-").count()
}

/// An engine with the world of `TIDES`, whose topics have a label, and a run of it.
async fn tides(goal: &str) -> (KitDir, Lab, Described, String) {
    let world = TIDES.replace("Topic: {schema", "Topic: {label: text, schema");
    assert!(world.contains("label"));
    let kit = KitDir::new(&[]).with("worlds/tides.world.yaml", &world);
    let lab = Lab::new(&kit, &[]).await;
    let api = Described::new(&lab.client).await;
    let run = lab.client.run("tides", json!({ "goal": goal })).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    (kit, lab, api, run)
}

#[tokio::test]
async fn a_world_is_drawn_and_listed_by_names_and_an_object_is_shown_whole() {
    let (_kit, _lab, api, run) = tides("tides").await;
    let world = api.get(&format!("/runs/{run}/world")).await.json();
    let topic = world["objects"][0]["id"].as_str().unwrap();
    let page = world_page(&api, &run, "").await;
    let mut shown = boxes(&page);
    shown.sort();
    let names: Vec<&str> = shown
        .iter()
        .map(|(_, words)| words.split(',').next().unwrap())
        .collect();
    // The label of a topic; the shortest text of a question that is no id.
    assert_eq!(names, ["What is tides?", "Why tides?", "tides"], "{page}");
    assert_eq!(page.matches("class=\"relation\"").count(), 2, "{page}");
    assert_eq!(rows(&page), 3, "{page}");
    for (query, objects, drawn) in [
        ("?type=Topic", 1, 3),
        ("?type=about", 0, 3),
        ("?text=WHY", 1, 3),
        ("?type=Question&text=", 2, 3),
        ("?type=Nothing", 0, 0),
    ] {
        let page = world_page(&api, &run, query).await;
        assert_eq!(
            (rows(&page), boxes(&page).len()),
            (objects, drawn),
            "{query}: {page}"
        );
    }
    let selected = world_page(&api, &run, &format!("?object={topic}")).await;
    assert_eq!(
        selected.matches("class=\"node t1 selected\"").count(),
        1,
        "{selected}"
    );
    assert_eq!(
        selected.matches("class=\"edge near\"").count(),
        4,
        "{selected}"
    );
    assert!(
        selected.contains(&format!("why?of={topic}.state\"")),
        "{selected}"
    );
    let none = world_page(&api, &run, "?object=absent").await;
    assert!(none.contains("There is no object absent"), "{none}");
    for below in ["", "/graph", "/frames", "/why", "/why?of=output"] {
        let page = api
            .get(&format!("/inspector/runs/{run}{below}"))
            .await
            .text();
        assert!(
            page.contains(&format!("{run}/world\">World</a>")),
            "{below}: {page}"
        );
    }
}

#[tokio::test]
async fn a_world_is_shown_after_each_of_its_frames_with_what_changed_and_who_reacted() {
    let (_kit, _lab, api, run) = tides("tides").await;
    let frames = api.get(&format!("/runs/{run}/frames")).await.json();
    let frames = frames["frames"].as_array().unwrap();
    let of = |kind: &str| -> Vec<u64> {
        let all = frames.iter().filter(|frame| frame["type"] == kind);
        all.map(|frame| frame["seq"].as_u64().unwrap()).collect()
    };
    let kinds = ["object.created", "object.patched", "relation.created"];
    let mut changes: Vec<u64> = kinds.iter().flat_map(|kind| of(kind)).collect();
    changes.sort_unstable();
    // From the last frame back, from change to change, until there is none.
    let mut found = Vec::new();
    let mut page = world_page(&api, &run, "").await;
    while let Some((before, _)) = page.split_once("\">‹ Change before") {
        let (_, link) = before.rsplit_once("/world?at=").unwrap();
        found.push(link.parse::<u64>().unwrap());
        page = world_page(&api, &run, &format!("?at={link}")).await;
    }
    found.reverse();
    assert_eq!(found, changes);
    assert!(page.contains("no change before"), "{page}");
    assert!(
        page.contains(&format!("Change after, {} ›", changes[1])),
        "{page}"
    );
    assert_eq!(boxes(&page).len(), 1, "{page}");
    assert!(boxes(&page)[0].0.contains("added"), "{page}");
    assert!(
        page.contains("<span class=\"dot run\"></span>questions: reacted, items: 2"),
        "{page}"
    );
    // The patch: who made it, and what it replaced.
    let patched = of("object.patched")[0];
    let page = world_page(&api, &run, &format!("?at={patched}")).await;
    for part in [
        "UTC, close",
        "state: <del>&quot;open&quot;</del> <ins>&quot;asked&quot;</ins>",
        "class=\"node t1 changed\"",
        "None was asked about this frame",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let last = frames.len() - 1;
    let page = world_page(&api, &run, &format!("?at={last}")).await;
    assert!(
        page.contains("Nothing. The last change before it: frame"),
        "{page}"
    );
    let beyond = api
        .get(&format!("/inspector/runs/{run}/world?at=9999"))
        .await;
    assert_eq!(beyond.status, 404);
    // A branch has the world of the frames that it shares.
    let body = json!({"at": changes[0] + 1}).to_string();
    let branch = api.post(&format!("/runs/{run}/fork"), &body).await.json();
    let branch = branch["branch_id"].as_str().unwrap();
    let page = world_page(&api, branch, &format!("?at={}", changes[0])).await;
    assert_eq!(boxes(&page).len(), 1, "{page}");
}

#[tokio::test]
async fn of_a_large_world_a_part_is_drawn_and_the_tables_have_pages() {
    let items: Vec<String> = (0..230).map(|at| format!("question {at}")).collect();
    let world = TIDES.replace(
        r#"["What is {{ object.data.text }}?", "Why {{ object.data.text }}?"]"#,
        &Value::from(items).to_string(),
    );
    let kit = KitDir::new(&[]).with("worlds/tides.world.yaml", &world);
    let lab = Lab::new(&kit, &[]).await;
    let api = Described::new(&lab.client).await;
    let run = lab.client.run("tides", json!({"goal": "tides"})).await;
    let run = run["run_id"].as_str().unwrap();
    let page = world_page(&api, run, "").await;
    assert_eq!(boxes(&page).len(), 200);
    assert!(
        page.contains("200 of 231 objects drawn: those created first"),
        "{page}"
    );
    let world = api.get(&format!("/runs/{run}/world")).await.json();
    let last = world["objects"].as_array().unwrap().last().unwrap();
    let id = last["id"].as_str().unwrap();
    assert!(!page.contains(&format!("id=\"box-{id}\"")));
    let near = world_page(&api, run, &format!("?object={id}")).await;
    assert!(near.contains(&format!("id=\"box-{id}\"")), "{near}");
    assert_eq!(boxes(&near).len(), 200);
    assert!(
        near.contains("those nearest to the one that is selected"),
        "{near}"
    );
    // 231 objects and 230 relations, 200 at a time.
    let (mut pages, mut listed, mut page) = (1, rows(&page), page);
    while let Some((before, _)) = page.split_once("\">Next 200") {
        let (_, from) = before.rsplit_once("/world?from=").unwrap();
        page = world_page(&api, run, &format!("?from={from}")).await;
        (pages, listed) = (pages + 1, listed + rows(&page));
    }
    assert_eq!((pages, listed), (3, 231));
}

#[tokio::test]
async fn what_is_recorded_is_text_in_a_world() {
    for text in HOSTILE {
        let (_kit, _lab, api, run) = tides(text).await;
        let sent: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for query in [
            String::new(),
            "?object=Topic".to_owned(),
            format!("?type={sent}&text={sent}&object={sent}"),
        ] {
            world_page(&api, &run, &query).await;
        }
    }
}

#[tokio::test]
async fn what_has_no_world_says_so_and_has_no_link_to_one() {
    let (_kit, lab, api) = super::pages::lab().await;
    let ended = lab.client.run("parent", json!({"list": ["a"]})).await;
    let run = ended["run_id"].as_str().unwrap();
    for path in [run.to_owned(), format!("{run}%2Fcall")] {
        let path = format!("/inspector/runs/{path}/world");
        let page = lab
            .client
            .send("GET", &path, &[("accept", BROWSER)], "")
            .await;
        assert_eq!(page.status, 409, "{path}");
        is_harmless(&page);
        assert!(page.text().contains("All runs"), "{}", page.text());
        assert_eq!(api.get(&path).await.json()["code"], "no_world", "{path}");
    }
    for below in ["", "/graph", "/frames", "/why", "/why?of=output"] {
        let page = api
            .get(&format!("/inspector/runs/{run}{below}"))
            .await
            .text();
        assert!(!page.contains("/world\""), "{below}: {page}");
    }
}
