//! Text for people: safe for terminals, and formatted amounts.
//!
//! All text from data (outputs, names, error messages, paths) passes [`clean`] or [`line()`] before
//! it is printed. Control sequences steer terminals and newlines split log lines; untrusted text
//! may do neither.

use std::borrow::Cow;
use std::fmt::Write as _;

pub(super) use ktsu_history::json_text::is_control;
use ktsu_ledger::Timestamp;

use super::layout;
use super::terminal::symbols;

/// Text in which nothing steers a terminal: line breaks and tabs stay, every other control
/// character, escape sequence, direction override and invisible mark is shown as its code.
pub fn clean(text: &str) -> Cow<'_, str> {
    escape_where(text, |character| matches!(character, '\n' | '\t'))
}

/// As [`clean`], and on one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escape_where(text, |_| false)
}

/// As [`clean`], for text that was coloured by us: colours stay, no other sequence does.
pub fn clean_coloured(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut pieces = text.split('\u{1b}');
    out.push_str(&clean(pieces.next().unwrap_or_default()));
    for piece in pieces {
        let colour = piece
            .strip_prefix('[')
            .and_then(|rest| rest.split_once('m'));
        let is_colour = |codes: &str| codes.chars().all(|one| one.is_ascii_digit() || one == ';');
        match colour.filter(|(codes, _)| is_colour(codes)) {
            Some((codes, rest)) => {
                let _ = write!(out, "\u{1b}[{codes}m{}", clean(rest));
            }
            None => {
                let _ = write!(out, "\\u{{1b}}{}", clean(piece));
            }
        }
    }
    out
}

/// At most `width` columns on one line of standard output, the last an ellipsis if something was
/// left out.
pub(super) fn short(text: &str, width: usize) -> String {
    layout::fit(&line(text), width, symbols().ellipsis())
}

/// A number and its noun: `1 run`, `2 runs`.
pub fn count<N: std::fmt::Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// The time that something waited for people, in words; empty if it did not.
pub fn waited(ms: u64) -> String {
    match ms {
        0 => String::new(),
        ms => format!("waited {}", duration(ms)),
    }
}

/// A duration: `850 ms`, `4.2 s`, `3 min 5 s`, `2 h 0 min`, `3 d 4 h`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        86_400.. => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A moment, to the second: `2026-11-20 20:07:11Z`.
pub fn moment(at: Timestamp) -> String {
    let text = at.to_string().replace('T', " ");
    format!("{}Z", text.get(..19).unwrap_or(&text))
}

/// A size: `17 B`, `1.5 KiB`, `64.0 KiB`, `3.2 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut tenths = u128::from(count) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// A cost in millionths of a US dollar: `$0.00`, `$12.34`, and all digits if cents are too coarse:
/// `$0.000042`.
pub fn cost(micro_usd: u64) -> String {
    let (dollars, micros) = (micro_usd / 1_000_000, micro_usd % 1_000_000);
    let digits = format!("{micros:06}");
    let significant = digits.trim_end_matches('0').len().max(2);
    format!(
        "${dollars}.{}",
        digits.get(..significant).unwrap_or(&digits)
    )
}

fn escape_where(text: &str, passes: impl Fn(char) -> bool) -> Cow<'_, str> {
    let steers = |character: char| is_control(character) && !passes(character);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if steers(character) {
            // Visible, unambiguous, and the same on every terminal.
            let _ = write!(clean, "\\u{{{:x}}}", u32::from(character));
        } else {
            clean.push(character);
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_not_copied() {
        for text in [
            "",
            "plain",
            "Größe 5 µm",
            "日本語",
            "👩\u{200d}🚒",
            "two\nlines\tand a tab",
        ] {
            assert!(
                matches!(clean(text), Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        for (text, expected) in [
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("over\rwritten\u{8}", "over\\u{d}written\\u{8}"),
            ("a\u{202e}txt.exe", "a\\u{202e}txt.exe"),
            ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
            ("a\u{2028}b\u{2029}c", "a\\u{2028}b\\u{2029}c"),
            ("nul\0", "nul\\u{0}"),
            ("pay\u{200b}pal\u{feff}", "pay\\u{200b}pal\\u{feff}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(clean(text), expected);
        }
    }

    #[test]
    fn colours_stay_and_no_other_sequence_does() {
        assert_eq!(
            clean_coloured("\u{1b}[1;31mred\u{1b}[0m \u{1b}[2J \u{1b}]0;t\u{7}"),
            "\u{1b}[1;31mred\u{1b}[0m \\u{1b}[2J \\u{1b}]0;t\\u{7}"
        );
    }

    #[test]
    fn no_character_but_newline_and_tab_is_a_control_afterwards() {
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let kept = clean(&all);
        assert_eq!(kept.matches(is_control).collect::<String>(), "\t\n");
        assert!(!line(&all).contains(is_control));
    }

    #[test]
    fn a_line_has_no_breaks_and_a_short_one_no_more_than_its_width() {
        assert_eq!(line("a\nb\tc"), "a\\u{a}b\\u{9}c");
        assert_eq!(short("abcdef", 6), "abcdef");
        assert_eq!(short("abcdefg", 6), "abcde…");
        assert_eq!(short("äöüßé!", 3), "äö…");
        assert_eq!(short("ab", 1), "…");
        assert_eq!(short("ab", 0), "");
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        let durations = [
            0,
            999,
            1000,
            4250,
            59_999,
            60_000,
            185_000,
            7_200_000,
            273_600_000,
        ];
        assert_eq!(
            durations.map(duration),
            [
                "0 ms",
                "999 ms",
                "1.0 s",
                "4.2 s",
                "59.9 s",
                "1 min 0 s",
                "3 min 5 s",
                "2 h 0 min",
                "3 d 4 h"
            ]
        );
        let sizes = [0, 1023, 1024, 1536, 65_536, 3_355_443, u64::MAX];
        assert_eq!(
            sizes.map(bytes),
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "1.5 KiB",
                "64.0 KiB",
                "3.1 MiB",
                "16777215.9 TiB"
            ]
        );
        let costs = [0, 12_340_000, 42, 100_000, 1_000_001];
        assert_eq!(
            costs.map(cost),
            ["$0.00", "$12.34", "$0.000042", "$0.10", "$1.000001"]
        );
    }
}
