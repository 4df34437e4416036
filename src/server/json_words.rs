//! The fault of a text that is not JSON, in words of ktsu: line, column and what is missing there.
//! Parsers have words of their own, which name what they do instead of what the text lacks.

use ktsu_ledger::canonical::JsonError;

/// A text that the strict parser refused.
pub fn of_refused(error: &JsonError) -> String {
    match error {
        JsonError::Syntax {
            reason,
            line,
            column,
        } => at(reason, *line, *column),
        JsonError::Depth => error.to_string(),
    }
}

/// A text that the parser of the services refused.
pub fn of_parser(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let reason = said.split(" at line ").next().unwrap_or_default();
    at(reason, error.line(), error.column())
}

fn at(reason: &str, line: usize, column: usize) -> String {
    format!("{} at line {line} column {column}", words(reason))
}

/// The words for a reason of the parser. A reason that it does not have is one of ours.
fn words(reason: &str) -> &str {
    match reason {
        "EOF while parsing a list" => "the text ends within an array",
        "EOF while parsing an object" => "the text ends within an object",
        "EOF while parsing a string" => "the text ends within a string",
        "EOF while parsing a value" => "the text ends where a value is expected",
        "expected `:`" => "a colon is missing after a key",
        "expected `,` or `]`" => "a comma or ] is missing",
        "expected `,` or `}`" => "a comma or } is missing",
        "expected `\"`" => "a double quote is missing",
        "expected ident" => "this is no value: the only words are true, false and null",
        "expected value" => "a value is missing",
        "key must be a string" => "a key is not in double quotes",
        "trailing comma" => "there is nothing after a comma",
        "trailing characters" => "there is more text after the value",
        "invalid escape" => "there is no such escape in JSON",
        "invalid number" => "this is not a number of JSON",
        "number out of range" | "a number out of range" => "the number is out of range",
        "invalid unicode code point" => "the text is not UTF-8",
        "lone leading surrogate in hex escape" => "an escape is half of a surrogate pair",
        "unexpected end of hex escape" => "an escape \\u is not complete",
        reason if reason.starts_with("control character") => {
            "a control character is not written as an escape, such as \\n"
        }
        reason if IS_OURS.iter().any(|ours| reason.starts_with(ours)) => reason,
        _ => "this is not JSON",
    }
}

/// The beginnings of the reasons that the strict parser adds.
const IS_OURS: [&str; 2] = ["the key ", "a whole number "];

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_ledger::canonical::parse_strict;
    use serde_json::Value;

    /// Texts that a parser refuses in every way that it has, with what is said of them.
    const REFUSED: [(&str, &str); 22] = [
        (
            "",
            "the text ends where a value is expected at line 1 column 0",
        ),
        ("{", "the text ends within an object at line 1 column 1"),
        ("[1", "the text ends within an array at line 1 column 2"),
        (
            "{\"a\": \"x",
            "the text ends within a string at line 1 column 8",
        ),
        (
            "{\"a\"\n1}",
            "a colon is missing after a key at line 2 column 1",
        ),
        ("[1 2]", "a comma or ] is missing at line 1 column 4"),
        ("{\"a\": 1 2}", "a comma or } is missing at line 1 column 9"),
        (
            "nul",
            "the text ends where a value is expected at line 1 column 3",
        ),
        (
            "nope",
            "this is no value: the only words are true, false and null at line 1 column 2",
        ),
        ("[x]", "a value is missing at line 1 column 2"),
        ("{a: 1}", "a key is not in double quotes at line 1 column 2"),
        ("[1,]", "there is nothing after a comma at line 1 column 4"),
        (
            "{} {}",
            "there is more text after the value at line 1 column 4",
        ),
        (
            "\"\\x\"",
            "there is no such escape in JSON at line 1 column 3",
        ),
        ("01", "this is not a number of JSON at line 1 column 2"),
        ("1e400", "the number is out of range at line 1 column 5"),
        (
            "\"\\ud800\"",
            "an escape \\u is not complete at line 1 column 8",
        ),
        (
            "\"\\u12",
            "the text ends within a string at line 1 column 5",
        ),
        (
            "\"\u{1}\"",
            "a control character is not written as an escape, such as \\n at line 1 column 2",
        ),
        (
            "{\"a\":1,\"a\":1}",
            "the key \"a\" twice at line 1 column 10",
        ),
        (
            "18446744073709551616",
            "a whole number beyond 64 bits cannot be kept exactly at line 1 column 1",
        ),
        (
            "{\"a\" 1}",
            "a colon is missing after a key at line 1 column 6",
        ),
    ];

    #[test]
    fn a_text_that_is_no_json_is_refused_with_its_place_in_words_of_our_own() {
        for (text, words) in REFUSED {
            let error = parse_strict(text.as_bytes()).unwrap_err();
            assert_eq!(of_refused(&error), words, "{text}");
        }
        let error = parse_strict(b"\"\xff\"").unwrap_err();
        assert!(of_refused(&error).starts_with("the text is not UTF-8 at line 1"));
    }

    #[test]
    fn no_words_of_the_parser_are_left() {
        for (text, _) in REFUSED {
            let Err(error) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            let words = of_parser(&error);
            for theirs in ["EOF", "expected `", "trailing", "while parsing", "invalid"] {
                assert!(!words.contains(theirs), "{text}: {words}");
            }
        }
    }
}
