//! What is made to cost: how long the worst of each kind takes to be refused, and a text in which
//! five hundred secrets are looked for.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ktsu_evidence::tar;
use ktsu_kit as kit;
use ktsu_secret::{Redactor, Secret};

use crate::Effort;
use crate::table::{Row, Table, median, ms};

const HEAD: &str = "kind: workflow\nname: w\nversion: 1.0.0\n";
const BAR: Duration = Duration::from_millis(100);

pub(crate) fn measure(_: Effort, table: &mut Table) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("workflows")).unwrap();
    for (kind, bombs) in [
        ("YAML", yaml()),
        ("expressions", expressions()),
        ("JSON Schemas", schemas()),
    ] {
        let times = bombs
            .iter()
            .map(|(name, text)| (refused(dir.path(), text), *name));
        slowest(table, kind, times.max());
    }
    let archives = archives();
    let times = archives.iter().map(|(name, bytes)| {
        let took = timed(|| assert!(tar::read(bytes).is_err(), "{name}"));
        (took, *name)
    });
    slowest(table, "archives", times.max());
    redaction(table);
}

fn slowest(table: &mut Table, kind: &str, worst: Option<(Duration, &str)>) {
    let Some((took, name)) = worst else { return };
    table.add(Row {
        what: format!("bombs, {kind}: the slowest to be refused, {name}, median of 5"),
        figure: ms(took),
        bare: String::new(),
        ratio: String::new(),
        bar: "≤ 100 ms".to_owned(),
        met: Some(took <= BAR),
    });
}

fn redaction(table: &mut Table) {
    let secrets: Vec<Secret> = (0..500)
        .map(|n| Secret::new(format!("secret {n} of some length/{n}")))
        .collect();
    let redactor = Redactor::new(&secrets);
    let text = "What somebody says of secrets, 100 % of it plain. ".repeat(1300);
    let took = timed(|| assert!(redactor.redact(std::hint::black_box(&text)).is_none()));
    let reading = timed(|| {
        std::hint::black_box(text.bytes().filter(|byte| *byte == b'%').count());
    });
    table.add(Row {
        what: "64 KiB of text, searched for 500 secrets in all their forms, median of 5".to_owned(),
        figure: ms(took),
        bare: format!("reading it: {}", ms(reading)),
        ratio: String::new(),
        bar: String::new(),
        met: None,
    });
}

fn timed(work: impl Fn()) -> Duration {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    median(&mut times)
}

fn refused(dir: &Path, text: &str) -> Duration {
    std::fs::write(dir.join("workflows/w.workflow.yaml"), text).unwrap();
    timed(|| assert!(kit::load(dir).is_err()))
}

fn yaml() -> Vec<(&'static str, String)> {
    let mut aliases = format!("{HEAD}a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..=20 {
        let row = vec![format!("*a{}", level - 1); 9].join(", ");
        let _ = writeln!(aliases, "a{level}: &a{level} [{row}]");
    }
    let deep = |open: &str, close: &str| {
        format!(
            "{HEAD}a: {}{}\n",
            open.repeat(300_000),
            close.repeat(300_000)
        )
    };
    vec![
        ("aliases", aliases),
        ("lists in lists", deep("[", "]")),
        ("maps in maps", deep("{a: ", "")[..1_000_000].to_owned()),
        ("dashes", format!("{HEAD}a:\n  {}1\n", "- ".repeat(500_000))),
        (
            "items",
            format!("{HEAD}pipeline:\n{}", "- 1\n".repeat(49_000)),
        ),
        (
            "too many items",
            format!("{HEAD}pipeline:\n{}", "- 1\n".repeat(200_000)),
        ),
        ("digits", format!("{HEAD}a: {}\n", "9".repeat(900_000))),
        ("text", format!("{HEAD}a: |\n  {}\n", "x".repeat(1_000_000))),
    ]
}

fn expressions() -> Vec<(&'static str, String)> {
    let from = |expression: &str| {
        format!(
            "{HEAD}pipeline: [{{id: t, transform: {{inputs: [{{from: \"{expression}\"}}], ops: []}}}}]\n"
        )
    };
    vec![
        ("brackets", from(&"(".repeat(900))),
        ("not", from(&"!".repeat(1_000))),
        ("members", from(&format!("a{}", ".a".repeat(499)))),
        ("a literal", from(&format!("`{}`", "[".repeat(900)))),
        ("length", from(&"a | ".repeat(200_000))),
    ]
}

fn schemas() -> Vec<(&'static str, String)> {
    let with = |schema: &str| format!("{HEAD}params: {{schema: {schema}}}\npipeline: []\n");
    let mut doubling = String::from("{\"$ref\": \"#/$defs/d0\", \"$defs\": {");
    for n in 0..60 {
        let _ = write!(
            doubling,
            "\"d{n}\": {{\"allOf\": [{{\"$ref\": \"#/$defs/d{0}\"}}, {{\"$ref\": \"#/$defs/d{0}\"}}]}}, ",
            n + 1
        );
    }
    doubling.push_str("\"d60\": {}}}");
    vec![
        ("doubling references", with(&doubling)),
        ("itself", with("{\"allOf\": [{\"$ref\": \"#\"}]}")),
        (
            "a large pattern",
            with("{pattern: \"((a{1000}){1000}){1000}\"}"),
        ),
        ("elsewhere", with("{\"$ref\": \"http://127.0.0.1:1/x\"}")),
    ]
}

fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let files = tar::Files::from([("a.txt".to_owned(), b"x".to_vec())]);
    let good = tar::write(&files).unwrap();
    vec![
        ("one name many times", good[..1024].repeat(5_000)),
        ("a long end", [&good[..], &vec![0; 64 << 20]].concat()),
    ]
}
