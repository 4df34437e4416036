//! Agent activity in words: calls, tokens, and how items ended.

use super::text;

/// Counts of items by how they ended: `24 items, 2 failed, 1 skipped`.
pub(super) fn items(succeeded: u64, failed: u64, skipped: u64) -> String {
    let mut words = text::count(succeeded + failed + skipped, "item");
    for (number, how) in [(failed, "failed"), (skipped, "skipped")] {
        if number > 0 {
            words.push_str(&format!(", {number} {how}"));
        }
    }
    words
}

/// Model calls in words: `3 calls, 812+200 tokens`, with the number of reflections and repairs, and
/// of those that an earlier reply answered.
pub(super) fn calls(
    calls: u64,
    tokens: (u64, u64),
    (reflections, repairs, cached): (u64, u64, u64),
) -> String {
    let mut words = text::count(calls, "call");
    if cached > 0 {
        words.push_str(&format!(" ({cached} cached)"));
    }
    for (number, what) in [(reflections, "reflection"), (repairs, "repair")] {
        if number > 0 {
            words.push_str(&format!(", {}", text::count(number, what)));
        }
    }
    format!("{words}, {}", self::tokens(tokens))
}

/// The number of tool calls: `2 tool calls`; empty if there were none.
pub(super) fn tools(calls: u64) -> String {
    match calls {
        0 => String::new(),
        calls => text::count(calls, "tool call"),
    }
}

/// Sent and received: `812+200 tokens`.
pub(super) fn tokens((sent, received): (u64, u64)) -> String {
    format!("{sent}+{received} tokens")
}

/// `flags: urgent, spam`; nothing if there are none.
pub(super) fn flags<'a>(flags: impl IntoIterator<Item = &'a str>) -> String {
    let flags: Vec<&str> = flags.into_iter().collect();
    match flags.is_empty() {
        true => String::new(),
        false => format!("flags: {}", text::line(&flags.join(", "))),
    }
}

/// Joins the non-empty parts with commas.
pub(super) fn joined(words: impl IntoIterator<Item = String>) -> String {
    let words = words.into_iter().filter(|words| !words.is_empty());
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_name_only_what_there_is() {
        assert_eq!(items(1, 0, 0), "1 item");
        assert_eq!(items(20, 2, 1), "23 items, 2 failed, 1 skipped");
        assert_eq!(calls(1, (10, 2), (0, 0, 0)), "1 call, 10+2 tokens");
        assert_eq!(
            calls(4, (10, 2), (1, 2, 0)),
            "4 calls, 1 reflection, 2 repairs, 10+2 tokens"
        );
        assert_eq!(flags([]), "");
        assert_eq!(flags(["a", "\u{1b}[2J"]), "flags: a, \\u{1b}[2J");
        assert_eq!(
            joined(["a".to_owned(), String::new(), "b".to_owned()]),
            "a, b"
        );
    }
}
