//! Runs that are very long: whoever looks back at one follows chains as long as the run, and has a
//! thread's stack to do it with.

use std::collections::BTreeSet;

use ktsu_history::provenance::{self, TracedRun};
use ktsu_history::why_not;
use ktsu_ledger::StreamId;
use ktsu_ledger::branch;
use ktsu_ledger::store::Reader;
use serde_json::json;

use crate::support::{KitDir, Lab};

/// Children, one after another, and the chained transforms of each.
const SHAPE: (usize, usize) = (17, 400);
/// Says otherwise, as `children,transforms`: `17,3000` is a run of 102,000 frames.
const SHAPE_VARIABLE: &str = "KTSU_TEST_LONG_RUN";

fn shape() -> (usize, usize) {
    let given = std::env::var(SHAPE_VARIABLE).ok();
    let given = given.as_deref().and_then(|text| text.split_once(','));
    given.map_or(SHAPE, |(children, transforms)| {
        (children.parse().unwrap(), transforms.parse().unwrap())
    })
}

/// A root that hands a value through children that each hand it through a chain of transforms.
fn kit(children: usize, transforms: usize) -> KitDir {
    let call = |at: usize| {
        let value = match at {
            0 => "params.n".to_owned(),
            _ => format!("step.c{}.n", at - 1),
        };
        format!(
            "  - {{id: c{at}, workflow: ./chain.workflow.yaml, params: {{n: '{{{{ {value} }}}}'}}}}\n"
        )
    };
    let link = |at: usize| {
        let from = match at {
            0 => "params".to_owned(),
            _ => format!("step.s{}.result", at - 1),
        };
        let expr = if at == 0 { "n" } else { "@" };
        format!(
            "  - {{id: s{at}, transform: {{inputs: [{{from: {from}}}], ops: [{{map: {{expr: '{expr}'}}}}]}}}}\n"
        )
    };
    let root: String = (0..children).map(call).collect();
    let chain: String = (0..transforms).map(link).collect();
    let output = |value: String| format!("output: {{map: {{n: '{{{{ {value} }}}}'}}}}\n");
    let root_output = output(format!("step.c{}.n", children - 1));
    let chain_output = output(format!("step.s{}.result[0]", transforms - 1));
    KitDir::new(&[
        ("root", &format!("pipeline:\n{root}{root_output}")),
        (
            "chain",
            &format!("visibility: sub-workflow\npipeline:\n{chain}{chain_output}"),
        ),
    ])
}

/// On a thread with a quarter of the stack that threads have: what needs stack for each link ends
/// the process.
fn on_little_stack(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(512 * 1024);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap();
    });
}

/// A browser that opens a page of a large run sees at once what is known before all frames are read, and then the
/// page that a program gets. The next time the page is there at once.
async fn pages_begin_with_what_is_known(lab: &Lab, run: &str) {
    let pages = format!("/inspector/runs/{run}");
    for (path, known) in [
        (
            format!("{pages}/frames?from=777"),
            "from=827\">Later, from 827</a>",
        ),
        (pages, "are being read"),
    ] {
        let page = async |mode| {
            let headers = [("accept", "text/html"), ("sec-fetch-mode", mode)];
            lab.client.send("GET", &path, &headers, "").await.text()
        };
        let first = page("navigate").await;
        let whole = page("cors").await;
        let main = "<main id=\"main\">";
        let (_, rest) = whole.split_once(main).unwrap();
        let early = first.strip_suffix(rest).unwrap();
        assert!(
            early.contains(&format!("{main}<div class=\"early\">")),
            "{early}"
        );
        assert!(
            early.contains(known) && early.ends_with("</div>"),
            "{early}"
        );
        assert!(
            !rest.contains("class=\"early\"") && rest.ends_with("</html>"),
            "{rest}"
        );
        let ids: Vec<&str> = first
            .split(" id=\"")
            .skip(1)
            .filter_map(|part| part.split('"').next())
            .collect();
        let distinct: BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        assert_eq!(page("navigate").await, whole, "it is kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_value_came_from_is_reported_however_long_its_history_is() {
    let (children, transforms) = shape();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit(children, transforms), &[]).await;
    let run = lab.client.invoke("root", json!({"n": 7})).await;
    assert_eq!(lab.client.ended(&run).await["output"], json!({"n": 7}));
    pages_begin_with_what_is_known(&lab, &run).await;
    // Over HTTP first: this is the question that ended the engine.
    let asked = lab
        .client
        .get(&format!("/runs/{run}/trace?of=output.n"))
        .await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    let origin = &asked.json()["origin"];
    assert_eq!(origin["origins"][0]["name"], "params.n", "{origin}");
    let hops = origin["chain"].as_array().unwrap().len();
    assert_eq!(hops, 1000, "as many hops as are told");
    let last = format!("c{}/s{}", children - 1, transforms - 1);
    let asked = lab
        .client
        .get(&format!("/runs/{run}/trace?why_not={last}"))
        .await;
    assert_eq!(
        asked.json()["why_not"]["because"][0]["text"],
        "it completed"
    );
    assert_eq!(lab.client.get("/health").await.status, 200);
    lab.close().await;

    let reader = ktsu_ledger::store::SqliteReader::open(&path).unwrap();
    let stream = StreamId::run(&run).unwrap();
    assert!(reader.tail(&stream).unwrap().is_some());
    let frames = branch::frames(&reader, &stream).unwrap();
    on_little_stack(|| {
        let story = TracedRun::of(&frames).unwrap();
        let answer = provenance::answer(&story, "", "output.n").unwrap();
        assert_eq!(answer.origins.len(), 1);
    });
    // As it was when the first child had just begun: the last step waits for every one before it.
    let begun = frames.iter().position(|frame| frame.scope == "c0").unwrap();
    on_little_stack(|| {
        let story = TracedRun::of(&frames[..=begun]).unwrap();
        let why = why_not::why_not(&story, "", &format!("c0/s{}", transforms - 1)).unwrap();
        let last = why.because.last().unwrap();
        assert_eq!(
            (last.step.as_str(), last.text.as_str()),
            ("c0/s0", "it is about to begin")
        );
        assert!(why.because.len() >= transforms.min(1000));
    });
}
