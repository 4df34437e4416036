#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn baseline() -> Baseline {
    let tool_results = vec![ToolResult {
        arguments_hash: "7".repeat(64),
        content: json!([{"type": "text", "text": "ordered"}]),
        is_error: true,
        not_sent: Some(ktsu_ledger::event::UnsentReason::Rejected),
        recorded: ktsu_ledger::event::RecordedAt {
            seq: 9,
            server: "shop".to_owned(),
            stream: "run:1".to_owned(),
            tool: "order".to_owned(),
        },
        structured: Some(Value::Null),
    }];
    let commands = vec![json!({"type": "emit", "topic": "claim.judged", "payload": {"n": 1.5}})];
    let input = json!({"msg": "good day", "n": 3, "deep": {"list": [1, null, true, "x"]}});
    let output = json!({"answer": "fine", "list": [{"a": 1.5}, "é"]});
    Baseline {
        format: FORMAT.to_owned(),
        metadata: Metadata {
            item: Some(2),
            label: Some("first".to_owned()),
            meta: BTreeMap::from([("team".to_owned(), "desk".to_owned())]),
            run: Some("run_1".to_owned()),
        },
        snapshot: Snapshot {
            commands_hash: Some(hash_of_commands(&commands)),
            commands: Some(commands),
            captured_at: Timestamp::from_micros(1_790_000_000_000_000),
            input_hash: jcs::digest(&input),
            input: input.as_object().unwrap().clone(),
            output_hash: Some(jcs::digest(&output)),
            output: Some(output),
            step: "call/inner".to_owned(),
            tool_results_hash: results::hash_of(&tool_results),
            tool_results,
            version: "1.0.0".to_owned(),
            workflow: "triage".to_owned(),
        },
    }
}

#[test]
fn a_baseline_reads_back_as_it_was_written() {
    let text = baseline().write().unwrap();
    assert_eq!(Baseline::read(text.as_bytes()), Ok(baseline()));
    assert_eq!(baseline().file_name(), "call__inner.2.baseline.json");
    let mut hash_only = baseline();
    (hash_only.snapshot.output, hash_only.snapshot.commands) = (None, None);
    let text = hash_only.write().unwrap();
    assert_eq!(Baseline::read(text.as_bytes()), Ok(hash_only));
    // A file of before there were results of tools and commands in them.
    let mut without = baseline();
    (without.snapshot.commands, without.snapshot.commands_hash) = (None, None);
    without.snapshot.tool_results.clear();
    without.snapshot.tool_results_hash = None;
    let text = without.write().unwrap();
    assert!(
        !text.contains("toolResults") && !text.contains("commands"),
        "{text}"
    );
    assert_eq!(Baseline::read(text.as_bytes()), Ok(without));
}

#[test]
fn what_was_changed_is_described_in_one_line() {
    let text = baseline().write().unwrap();
    for (from, to, words) in [
        ("good day", "bad day", "input_hash_mismatch"),
        ("\"n\": 3", "\"n\": 4", "input_hash_mismatch"),
        ("fine", "bad", "output_corrupted"),
        ("ordered", "refused", "tool_results_corrupted"),
        ("claim.judged", "claim.lost", "commands_corrupted"),
        ("\"commands\": [", "\"command\": [", "malformed"),
        ("\"toolResultsHash\"", "\"toolResultHash\"", "malformed"),
        ("baseline@1", "baseline@2", "format \"ktsu-baseline@2\""),
        ("\"workflow\"", "\"workflaw\"", "malformed"),
        ("{", "", "malformed"),
        ("\"n\": 3", "\"n\": 3, \"n\": 3", "malformed"),
    ] {
        let changed = text.replacen(from, to, 1);
        let error = Baseline::read(changed.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(words), "{from} to {to}: {error}");
        assert!(!error.contains('\n'));
    }
    for hostile in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        "\u{feff}{}".to_owned(),
        String::new(),
        "null".to_owned(),
        "9".repeat(5000),
        format!("{{\"format\":{:?}}}", "x\n".repeat(5000)),
    ] {
        let error = Baseline::read(hostile.as_bytes()).unwrap_err().to_string();
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }
    let large = vec![b' '; MAX_FILE + 1];
    assert_eq!(Baseline::read(&large), Err(BaselineError::TooLarge));
}

/// Whatever becomes of the bytes: either the same input and output are read, or a line says why not.
#[test]
fn five_thousand_mutations_are_read_as_they_were_or_refused_in_one_line() {
    let whole = baseline();
    let text = whole.write().unwrap();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let (mut refused, mut read) = (0, 0);
    for _ in 0..5000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(6) {
                0 => bytes[at] ^= 1 << next(8),
                1 => bytes[at] = b"\"{}[]:,0\\\0"[next(10)],
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.remove(at)),
                4 => bytes.insert(at, b"\"{}[]:,0e\xff"[next(10)]),
                _ => {
                    let end = (at + next(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = next(bytes.len());
                    bytes.splice(to..to, part);
                }
            }
        }
        match Baseline::read(&bytes) {
            Ok(one) => {
                read += 1;
                let (before, after) = (&whole.snapshot, &one.snapshot);
                let same = jcs::digest(&Value::Object(after.input.clone()));
                assert_eq!(same, after.input_hash);
                assert_eq!(before.input_hash, after.input_hash);
                assert_eq!(before.tool_results, after.tool_results);
                let commands = after.commands.as_deref().unwrap_or_default();
                let hash = Some(hash_of_commands(commands));
                assert!(after.commands.is_none() || hash == before.commands_hash);
                assert_eq!(
                    jcs::text(&after.output.clone().unwrap()),
                    jcs::text(&before.output.clone().unwrap())
                );
            }
            Err(error) => {
                refused += 1;
                let words = error.to_string();
                assert!(!words.chars().any(char::is_control), "{words:?}");
                assert!(words.len() < 1000, "{words}");
            }
        }
    }
    assert!(
        refused > 4000 && read > 20,
        "{refused} refused, {read} read"
    );
}
