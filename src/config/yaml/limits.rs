//! The limits of a file, and the messages if one is exceeded: worded here, so that they do not
//! depend on the parser.

use serde_yaml::Error;

/// The deepest that lists and maps stand in one another.
pub(super) const MAX_DEPTH: usize = 64;
/// The most values, keys included.
pub(super) const MAX_NODES: usize = 50_000;
/// The most aliases.
pub(super) const MAX_ALIASES: usize = 1_000;
/// The most values that aliases repeat.
pub(super) const MAX_REPEATED: usize = 10_000;
/// The deepest that aliases stand in what aliases repeat.
pub(super) const MAX_ALIAS_DEPTH: usize = 8;

/// The words for an error that is about a limit; nothing for any other.
///
/// On its way through the tree an error keeps its text and its place alone, so the text says which it
/// is: by how it begins, where no word of the file can stand.
pub(super) fn words(error: &Error) -> Option<String> {
    let said = error.without_snippet().to_string();
    let begins = |starts: &[&str]| starts.iter().any(|start| said.starts_with(start));
    let words = if begins(&["budget breached: Depth", "recursion limit exceeded"]) {
        format!("lists and maps are nested more than {MAX_DEPTH} levels deep")
    } else if begins(&["budget breached: Documents"]) {
        "a file holds one document".to_owned()
    } else if begins(&["budget breached: Nodes", "budget breached: Events"]) {
        format!("a file holds at most {MAX_NODES} values")
    } else if begins(&["budget breached: AliasAnchorRatio"]) {
        "aliases repeat so few values so often that they should be written out".to_owned()
    } else if begins(&["budget breached: Aliases"]) {
        format!("a file has at most {MAX_ALIASES} aliases")
    } else if begins(&["budget breached"]) {
        "the file is larger than what is read".to_owned()
    } else if begins(&["alias replay stack depth"]) {
        format!("aliases are nested more than {MAX_ALIAS_DEPTH} levels deep")
    } else if begins(&["alias replay", "alias expansion"]) {
        format!("aliases repeat more than {MAX_REPEATED} values")
    } else if begins(&["recursive references"]) {
        "the alias refers to a value that contains it".to_owned()
    } else {
        return None;
    };
    Some(words)
}

/// The last line with an alias, and its column, both counted from 1: of a limit that is found only at
/// the end of a file.
pub(super) fn last_alias(text: &str) -> Option<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().rposition(|line| line.contains('*'))?;
    let before = lines.get(at)?.split('*').next().unwrap_or_default();
    Some((at + 1, before.chars().count() + 1))
}

#[cfg(test)]
mod tests {
    use super::super::super::fault::FaultCode;
    use super::super::parse;

    #[test]
    fn every_limit_is_reported_at_its_line_in_words_of_ours() {
        let nested = (1..14).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1));
        let nested = format!("a0: &a0 [1]\n{}", nested.collect::<String>());
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
            c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
            e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
        for (text, line, words) in [
            (
                format!("a: 1\nx: {}{}", "[".repeat(70), "]".repeat(70)),
                2,
                "64 levels deep",
            ),
            (format!("x: {}", "[".repeat(5_000)), 1, "64 levels deep"),
            (format!("x: {}", "{a: ".repeat(5_000)), 1, "64 levels deep"),
            (
                format!("x:\n{}", "  - 1\n".repeat(60_000)),
                0,
                "50000 values",
            ),
            (
                format!("a: &a 1\nx:\n{}", "  - *a\n".repeat(1_200)),
                1_003,
                "1000 aliases",
            ),
            (
                format!("a: &a 1\nx:\n{}z: 1\n", "  - *a\n".repeat(500)),
                502,
                "written out",
            ),
            (bomb.to_owned(), 4, "10000 values"),
            ("a: 1\n---\nb: 1\n".to_owned(), 2, "one document"),
            ("a: 1\nx: &a [*a]\n".to_owned(), 2, "contains it"),
        ] {
            let fault = parse(&text).unwrap_err();
            let begin: String = text.chars().take(40).collect();
            assert_eq!(fault.code, FaultCode::YamlLimit, "{begin}");
            assert!(fault.message.contains(words), "{begin}: {}", fault.message);
            assert!(
                fault.line == line || line == 0 && fault.line > 40_000,
                "{begin}: {}",
                fault.line
            );
        }
        assert!(parse(&nested).is_ok() || parse(&nested).unwrap_err().message.contains("8 levels"));
    }

    #[test]
    fn words_of_the_file_do_not_make_a_limit_of_a_slip() {
        for text in ["x: [budget, limit of depth, a: b: c]\n", "x: *alias\n"] {
            let fault = parse(text).unwrap_err();
            assert_eq!(fault.code, FaultCode::YamlSyntax, "{text}");
        }
    }
}
