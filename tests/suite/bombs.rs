//! Files, bodies, expressions, schemas and archives that are made to cost: each is answered with an
//! error, nothing aborts, and memory stays where it was (spec S05-S08, S22).
//!
//! Each group runs in a process of its own, whose peak of memory the system tells. Times are in
//! `cargo bench`.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu_evidence::{tar, transfer};
use ktsu_kit as kit;
use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use crate::support::{KitDir, Within};

/// What a group may add to the peak of its process, in KiB: inputs have up to a mebibyte, and this
/// is not a release build.
const MOST_KIB: u64 = 48 * 1024;

/// Says which group a child process takes.
const GROUP: &str = "KTSU_TEST_BOMBS";

const HEAD: &str = "kind: workflow\nname: w\nversion: 1.0.0\n";

/// Runs a group in a process of its own; it says how many cases there were.
fn group(name: &str, least: u64) {
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "bombs::a_group"])
        .env(GROUP, name)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{name}: {}\n{said}", done.status);
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("bombs: "))
        .unwrap();
    let numbers: Vec<u64> = line.split(' ').map(|one| one.parse().unwrap()).collect();
    let [cases, grown] = numbers[..] else {
        panic!("{line}");
    };
    assert!(cases >= least, "{name}: {cases} cases");
    assert!(grown <= MOST_KIB, "{name}: {grown} KiB more");
}

/// The peak when the bombs were made, which take room themselves.
static BEFORE: AtomicU64 = AtomicU64::new(0);

fn bombs_are_made() {
    BEFORE.store(peak_kib(), Ordering::Relaxed);
}

/// The peak of this process so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "a part of the tests below, in a process of its own"]
fn a_group() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let name = std::env::var(GROUP).unwrap();
    // What every group needs once is there before.
    refused(
        "warm",
        &[(
            "workflows/w.workflow.yaml".to_owned(),
            format!("{HEAD}pipeline: 1\n"),
        )],
    );
    bombs_are_made();
    let cases = match name.as_str() {
        "yaml" => yaml(),
        "json" => runtime.block_on(bodies()),
        "expressions" => expressions(),
        "evaluation" => runtime.block_on(evaluation()),
        "schemas" => schemas(),
        "archives" => archives(),
        "greed" => greed(),
        other => panic!("{other}"),
    };
    let before = BEFORE.load(Ordering::Relaxed);
    eprintln!("bombs: {cases} {}", peak_kib().saturating_sub(before));
}

#[test]
fn yaml_bombs_are_faults() {
    group("yaml", 60);
}

#[test]
fn bodies_that_are_bombs_are_refused() {
    group("json", 30);
}

#[test]
fn expression_bombs_are_faults() {
    group("expressions", 50);
}

#[test]
fn expressions_that_grow_fail_their_step_and_nothing_else() {
    group("evaluation", 30);
}

#[test]
fn schema_bombs_are_faults() {
    group("schemas", 60);
}

#[test]
fn archives_and_exports_that_are_bombs_are_refused() {
    group("archives", 40);
}

/// The measure finds what takes too much.
#[test]
#[should_panic(expected = "KiB more")]
fn memory_that_is_taken_is_measured() {
    group("greed", 1);
}

fn greed() -> usize {
    let taken = vec![1_u8; 100 << 20];
    usize::from(std::hint::black_box(&taken)[7])
}

/// A kit of these files is not loaded; the faults can be shown.
fn refused(what: &str, files: &[(String, String)]) {
    let kit = KitDir::new(&[]);
    for (path, text) in files {
        let path = kit.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let Err(faults) = kit::load(kit.dir.path()) else {
        panic!("{what} is taken: {}", files[0].1.len());
    };
    let shown = ktsu_config::render::text(&faults, false);
    assert!(shown.contains("error["), "{what}: {shown}");
    assert!(
        shown.len() < 1 << 20,
        "{what}: {} bytes of faults",
        shown.len()
    );
}

fn yaml() -> usize {
    let mut bombs: Vec<(String, String)> = Vec::new();
    let mut add = |what: String, text: String| bombs.push((what, text));
    for levels in [2, 4, 6, 9, 20, 60] {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..=levels {
            let row = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{row}]\n"));
        }
        add(format!("aliases {levels}"), format!("{HEAD}{text}"));
    }
    for (what, text) in [
        ("an alias of itself", "a: &a [*a]\n"),
        ("aliases of one another", "a: &a [*b]\nb: &b [*a]\n"),
        ("an unknown alias", "a: *nobody\n"),
        ("a merge of itself", "a: &a\n  <<: *a\n"),
        ("a tag", "a: !!python/object/apply:os.system [id]\n"),
        ("binary", "a: !!binary AAAA\n"),
        ("no number", "a: 0x7fffffffffffffffffffffff\n"),
        ("infinity", "a: .inf\n"),
        ("no end", "a: \"x\n"),
        ("directives", "%YAML 9.9\n---\na: 1\n"),
        ("a nul", "a: \0\n"),
        ("a tab", "a:\n\t- 1\n"),
        ("a complex key", "? [a, b]\n: 1\n"),
        ("a key twice", "name: w\n"),
    ] {
        add(what.to_owned(), format!("{HEAD}{text}"));
    }
    for depth in [65, 100, 1_000, 20_000, 300_000] {
        add(
            format!("lists {depth}"),
            format!("{HEAD}a: {}\n", "[".repeat(depth)),
        );
        add(
            format!("closed lists {depth}"),
            format!("{HEAD}a: {}{}\n", "[".repeat(depth), "]".repeat(depth)),
        );
        add(
            format!("maps {depth}"),
            format!("{HEAD}a: {}\n", "{a: ".repeat(depth.min(200_000))),
        );
        add(
            format!("dashes {depth}"),
            format!("{HEAD}a:\n  {}1\n", "- ".repeat(depth)),
        );
        add(
            format!("questions {depth}"),
            format!("{HEAD}{}\n", "? ".repeat(depth)),
        );
        add(
            format!("anchors {depth}"),
            format!("{HEAD}a: {}1\n", "&a ".repeat(depth)),
        );
        add(
            format!("tags {depth}"),
            format!("{HEAD}a: {}1\n", "! ".repeat(depth)),
        );
        add(
            format!("documents {depth}"),
            format!("{HEAD}{}", "---\n".repeat(depth.min(200_000))),
        );
    }
    for depth in [70, 400, 1_200] {
        let rows: String = (0..depth)
            .map(|n| format!("{}a:\n", " ".repeat(n)))
            .collect();
        add(format!("indents {depth}"), format!("{HEAD}a:\n{rows}"));
    }
    for width in [50_001, 150_000] {
        add(
            format!("items {width}"),
            format!("{HEAD}pipeline:\n{}", "- 1\n".repeat(width)),
        );
        add(
            format!("nothings {width}"),
            format!("{HEAD}a: [{}]\n", ",".repeat(width)),
        );
        let keys: String = (0..width / 2).map(|n| format!("k{n}: 1\n")).collect();
        add(format!("keys {width}"), format!("{HEAD}{keys}"));
    }
    let long = "x".repeat(1_000_000);
    for (what, text) in [
        ("a long key", format!("{long}: 1\n")),
        ("a long text", format!("description: [{long}]\n")),
        ("a long block", format!("description:\n  - |\n    {long}\n")),
        ("digits", format!("a: {}\n", "9".repeat(900_000))),
        ("an exponent", "a: 1e999999999\n".to_owned()),
        ("a file too large", format!("a: {long}{long}\n")),
        ("a comment", format!("# {long}\n")),
    ] {
        add(what.to_owned(), format!("{HEAD}{text}"));
    }
    bombs_are_made();
    for (what, text) in &bombs {
        refused(
            what,
            &[("workflows/w.workflow.yaml".to_owned(), text.clone())],
        );
    }
    // The other files are read the same way.
    for path in ["kit.yaml", "agents/a.agent.yaml"] {
        for (what, text) in bombs.iter().step_by(7) {
            let good = (
                "workflows/w.workflow.yaml".to_owned(),
                format!("{HEAD}pipeline: []\n"),
            );
            refused(what, &[good, (path.to_owned(), text.clone())]);
        }
    }
    bombs.len()
}

async fn bodies() -> usize {
    let kit = KitDir::new(&[("w", "params: {schema: {type: object}}\npipeline: []\n")]);
    let within = Within::new(
        kit.load(),
        MemoryStore::new(),
        Options::default(),
        &[],
        None,
    )
    .await;
    let mut bombs: Vec<Vec<u8>> = Vec::new();
    for depth in [66, 128, 1_000, 100_000, 1_000_000] {
        bombs.push("[".repeat(depth).into_bytes());
        bombs.push(
            format!(
                "{{\"a\":{}{}}}",
                "[".repeat(depth.min(500_000)),
                "]".repeat(depth.min(500_000))
            )
            .into_bytes(),
        );
        bombs.push(
            format!(
                "{}1{}",
                "{\"a\":".repeat(depth.min(150_000)),
                "}".repeat(depth.min(150_000))
            )
            .into_bytes(),
        );
        bombs.push("{\"a\":".repeat(depth.min(200_000)).into_bytes());
    }
    for text in [
        "{\"a\":1,\"a\":2}",
        "{\"a\":{\"b\":1,\"b\":1}}",
        "{\"a\":1e400}",
        "{\"a\":-1e999999}",
        "{\"a\":NaN}",
        "{\"a\":0x1}",
        "{\"a\":99999999999999999999}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\udc00\\ud800\"}",
        "{\"a\":\"\\u12\"}",
        "{\"\\ud800\":1}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":1.}",
        "{'a':1}",
        "{\"a\":1,}",
        "{} {}",
        "{}x",
        "[1]",
        "1",
        "null",
        "\"text\"",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\0\"}",
        "\u{feff}{}",
    ] {
        bombs.push(text.as_bytes().to_vec());
    }
    bombs.push(vec![b'{', 0xff, b'}']);
    bombs.push(b"{\"a\":\"\xc0\xaf\"}".to_vec());
    bombs.push(format!("{{\"a\":{}}}", "9".repeat(1_000_000)).into_bytes());
    bombs.push(vec![b' '; (1 << 20) + 1]);
    bombs.push(format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20)).into_bytes());
    bombs_are_made();
    for bomb in &bombs {
        let shown = String::from_utf8_lossy(&bomb[..bomb.len().min(60)]).into_owned();
        let answer = within.client.post("/invoke/w", bomb.clone()).await;
        assert!(
            (400..500).contains(&answer.status),
            "{shown}: {} {}",
            answer.status,
            answer.text()
        );
        assert_eq!(answer.kind(), "application/problem+json", "{shown}");
        assert!(answer.body.len() < 4096, "{shown}");
    }
    bombs.len()
}

fn expressions() -> usize {
    let mut bombs = Vec::new();
    for depth in [65, 200, 499] {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{a: ", "}"),
            ("[?", "]"),
            ("not_null(", ")"),
            ("[*].[", "]"),
        ] {
            let depth = depth.min(990 / (open.len() + close.len()));
            bombs.push(format!(
                "{}a{}",
                open.repeat(depth.max(65)),
                close.repeat(depth.max(65))
            ));
        }
        bombs.push("(".repeat(depth));
        bombs.push(format!("`{}`", "[".repeat(depth)));
        bombs.push(format!(
            "`{}{}`",
            "[".repeat(depth + 1),
            "]".repeat(depth + 1)
        ));
    }
    for length in [1_001, 5_000, 100_000] {
        bombs.push("a".repeat(length));
        bombs.push("!".repeat(length));
        bombs.push(format!("a{}", ".a".repeat(length / 2)));
        bombs.push(format!("a{}", "[0]".repeat(length / 3)));
        bombs.push(format!("a{}", " || a".repeat(length / 5)));
        bombs.push(format!("a{}", " | [@, @]".repeat(length / 8)));
        bombs.push(format!("'{}'", "x".repeat(length)));
        bombs.push(format!("\"{}\"", "\\".repeat(length)));
    }
    for text in [
        "a[::0]",
        "a[::-9999999999]",
        "a[9999999999999999999999]",
        "a[",
        "'",
        "`",
        "\"",
        "a.",
        "&a",
        "a.&b",
        "@",
        "*",
        "",
        "nope(a)",
        "length()",
        "length(a, b)",
        "a[?",
        "a | ",
        "`{\"a\":1,\"a\":2}`x",
        "a b",
        "$",
        "#",
        "\u{0}",
    ] {
        bombs.push(text.to_owned());
    }
    bombs_are_made();
    for bomb in &bombs {
        let step = format!(
            "{HEAD}pipeline:\n  - {{id: a, transform: {{inputs: [], ops: []}}}}\n  \
             - {{id: b, transform: {{inputs: [{{from: {}}}], ops: []}}}}\n",
            Value::from(bomb.as_str())
        );
        refused(
            &bomb[..bomb.len().min(60)],
            &[("workflows/w.workflow.yaml".to_owned(), step)],
        );
    }
    bombs.len()
}

/// Each grows beyond what a result may have, most of them by doubling.
async fn evaluation() -> usize {
    let mut bombs = Vec::new();
    for times in [22, 30, 60, 100] {
        bombs.push(format!("params.x{}", " | [@, @]".repeat(times)));
        bombs.push(format!(
            "params.x{}",
            " | [@, @, @, @]".repeat(times.min(60))
        ));
        bombs.push(format!(
            "params.x{}",
            " | {a: @, b: @}".repeat(times.min(60))
        ));
        bombs.push(format!(
            "params.x{}",
            " | [@, @] | to_string(@)".repeat(times.min(38))
        ));
        bombs.push(format!(
            "params.x{}",
            " | [to_string(@), to_string(@)]".repeat(times.min(30))
        ));
        bombs.push(format!(
            "params.x{}",
            " | [@, @] | [{l: @, r: @}, @]".repeat(times.min(28))
        ));
        bombs.push(format!(
            "params.s{}",
            " | join('', [@, @])".repeat(times.min(48))
        ));
        bombs.push(format!(
            "params.s{}",
            " | join('xxxxxxxxxxxxxxxxxxxxx', [@, @])".repeat(times.min(24))
        ));
    }
    let mut files: Vec<(String, String)> = Vec::new();
    for (n, bomb) in bombs.iter().enumerate() {
        assert!(bomb.len() <= 1000, "{bomb}");
        let rest = format!(
            "params: {{schema: {{type: object, properties: {{x: {{default: [1, 2]}}, s: {{default: abcdefgh}}}}}}}}\n\
             pipeline: [{{id: t, transform: {{inputs: [{{from: {}}}], ops: []}}}}]\n",
            Value::from(bomb.as_str())
        );
        files.push((format!("w{n}"), rest));
    }
    let warm = "pipeline: [{id: t, transform: {inputs: [{from: params}], ops: []}}]\n";
    files.push(("warm".to_owned(), warm.to_owned()));
    let borrowed: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let kit = KitDir::new(&borrowed).load();
    let within = Within::new(kit, MemoryStore::new(), Options::default(), &[], None).await;
    // An engine that has done something takes room, too.
    let envelope = within.client.run("warm", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    bombs_are_made();
    for (n, bomb) in bombs.iter().enumerate() {
        let envelope = within.client.run(&format!("w{n}"), json!({})).await;
        assert_eq!(
            envelope["status"], "failed",
            "{bomb}: {}",
            envelope["output"]
        );
        let code = envelope["error"]["code"].as_str().unwrap();
        assert!(
            ["transform_failed", "expression_failed"].contains(&code),
            "{bomb}: {code}"
        );
    }
    // And the engine is as well as before.
    let kit = KitDir::new(&[("w", "pipeline: []\n")]).load();
    let within = Within::new(kit, MemoryStore::new(), Options::default(), &[], None).await;
    assert_eq!(
        within.client.run("w", json!({})).await["status"],
        "complete"
    );
    bombs.len()
}

fn schemas() -> usize {
    let mut bombs: Vec<Value> = Vec::new();
    for reference in [
        "http://127.0.0.1:1/x",
        "https://example.invalid/schema.json",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "//127.0.0.1/x",
        "other.json",
        "../../etc/passwd",
        "/etc/passwd",
        "urn:uuid:1",
        "data:application/json,{}",
        "#/nope",
        "#/$defs/nope",
        "#nope",
        "?x",
        "http:",
        "json-schema:///x",
        "jar:file:/x",
    ] {
        bombs.push(json!({ "$ref": reference }));
        bombs.push(json!({"properties": {"a": {"$ref": reference}}}));
    }
    bombs.push(json!({"$ref": "#"}));
    for keyword in ["allOf", "anyOf", "oneOf"] {
        bombs.push(json!({keyword: [{"$ref": "#"}]}));
        bombs
            .push(json!({"$ref": "#/$defs/a", "$defs": {"a": {keyword: [{"$ref": "#/$defs/a"}]}}}));
    }
    for keyword in ["not", "if"] {
        bombs.push(json!({keyword: {"$ref": "#"}, "then": {}}));
    }
    for length in [2, 3, 10, 40] {
        let defs: serde_json::Map<String, Value> = (0..length)
            .map(|n| {
                (
                    format!("d{n}"),
                    json!({"allOf": [{"$ref": format!("#/$defs/d{}", (n + 1) % length)}]}),
                )
            })
            .collect();
        bombs.push(json!({"$ref": "#/$defs/d0", "$defs": defs}));
    }
    for levels in [20, 30, 60] {
        let mut defs = serde_json::Map::new();
        for n in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"allOf": [next.clone(), next]}));
        }
        defs.insert(format!("d{levels}"), json!({"type": "object"}));
        bombs.push(json!({"$ref": "#/$defs/d0", "$defs": defs}));
    }
    for pattern in [
        "(",
        "[",
        "a{2,1}",
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(a)\\1",
        "a{1000000}",
        "((a{1000}){1000}){1000}",
        "\\p{Nope}",
        "(?P<x>a)(?P<x>b)",
        "[z-a]",
        "*a",
    ] {
        bombs.push(json!({ "pattern": pattern }));
        bombs.push(json!({"patternProperties": {pattern: {}}}));
    }
    for wrong in [
        json!({"type": "nope"}),
        json!({"type": ["string", "string"]}),
        json!({"required": "a"}),
        json!({"minimum": "x"}),
        json!({"enum": 1}),
        json!({"properties": []}),
        json!({"items": 3}),
        json!({"multipleOf": 0}),
        json!(7),
        json!("x"),
        json!([]),
        json!({"$schema": "http://127.0.0.1:1/meta"}),
    ] {
        bombs.push(wrong);
    }
    bombs_are_made();
    for bomb in &bombs {
        let step = format!(
            "{HEAD}pipeline:\n  - {{id: a, transform: {{inputs: [], ops: []}}, output: {{schema: {bomb}}}}}\n"
        );
        refused(
            &bomb.to_string(),
            &[("workflows/w.workflow.yaml".to_owned(), step)],
        );
        let params = format!("{HEAD}params: {{schema: {bomb}}}\npipeline: []\n");
        refused(
            &bomb.to_string(),
            &[("workflows/w.workflow.yaml".to_owned(), params)],
        );
    }
    bombs.len()
}

fn archives() -> usize {
    let good = tar::write(&tar::Files::from([("a.txt".to_owned(), b"x".to_vec())])).unwrap();
    let mut bombs: Vec<Vec<u8>> = Vec::new();
    let mut changed = |at: usize, bytes: &[u8]| {
        let mut bomb = good.clone();
        bomb[at..at + bytes.len()].copy_from_slice(bytes);
        // With a sum that is right again.
        bomb[148..156].copy_from_slice(b"        ");
        let sum: u32 = bomb[..512].iter().map(|byte| u32::from(*byte)).sum();
        bomb[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bombs.push(bomb);
    };
    for size in [
        "77777777777",
        "37777777777",
        "00000001001",
        "-0000000001",
        "           ",
        "0000000000x",
        "99999999999",
    ] {
        changed(124, size.as_bytes());
    }
    changed(
        124,
        &[
            0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    );
    // Links, devices, folders, long names, sparse files.
    for kind in b"123456789LKSgxDVMN" {
        changed(156, &[*kind]);
    }
    changed(157, b"/etc/passwd");
    changed(100, b"0004777");
    changed(136, b"77777777777");
    for length in [0, 1, 511, 513, 1024, 1535] {
        bombs.push(good[..length].to_vec());
    }
    bombs.push([&good[..], &vec![0; 8 << 20]].concat());
    bombs.push(good[..1024].repeat(5_000));
    bombs.push([b"\x1f\x8b\x08".to_vec(), vec![0; 1 << 16]].concat());
    bombs.push([b"PK\x03\x04".to_vec(), vec![0; 1 << 16]].concat());
    bombs_are_made();
    for bomb in &bombs {
        assert!(
            tar::read(bomb).is_err(),
            "{:?}",
            &bomb[..bomb.len().min(160)]
        );
    }
    let header = |blobs: u64, frames: u64| {
        json!({"ktsu_export": 1, "blobs": blobs, "frames": frames}).to_string()
    };
    let zeros = "0".repeat(64);
    let mut exports = vec![
        String::new(),
        header(u64::MAX, u64::MAX),
        header(0, u64::MAX),
        header(1, 0),
        json!({"ktsu_export": 2, "blobs": 0, "frames": 0}).to_string(),
        format!("{}\n{}", header(0, 1), "[".repeat(1_000_000)),
        format!(
            "{}\n{{\"hash\":\"{zeros}\",\"body\":{}}}",
            header(0, 1),
            "[".repeat(100_000)
        ),
        format!(
            "{}\n{{\"hash\":\"{zeros}\",\"body\":{}1{}}}",
            header(0, 1),
            "[".repeat(90_000),
            "]".repeat(90_000)
        ),
        format!(
            "{}\n{{\"blob\":\"{zeros}\",\"text\":{}1{}}}",
            header(1, 0),
            "[".repeat(90_000),
            "]".repeat(90_000)
        ),
        format!(
            "{}\n{{\"blob\":\"{zeros}\",\"text\":\"{}\"}}",
            header(1, 0),
            "x".repeat(1_000_000)
        ),
    ];
    exports.push(format!(
        "{}\n{}",
        header(0, 100_000),
        "{}\n".repeat(100_000)
    ));
    exports.push("\n".repeat(500_000));
    for export in &exports {
        assert!(
            transfer::check(export, None).is_err(),
            "{}",
            &export[..export.len().min(160)]
        );
    }
    bombs.len() + exports.len()
}
