//! The parts that may be shown of a file whose values may be secret: its keys, and the length of
//! everything else.
//!
//! Which values of an environment file are secret is declared in other files, so no value is shown,
//! and nothing is guessed from the look of a line: a comma, a colon or a space may be part of a
//! password. Keys are shown if the parser recognised them. If the text is not YAML, nothing is
//! shown.

use super::yaml::{self, YamlNode, YamlValue};

/// The text with a star for every character that is neither white space nor part of a key. Lines and
/// columns are those of the text.
///
/// The entries of `values` are names, and below them nothing is a key: where a blank is missing in
/// `values: {NAME:secret}`, or a brace too many stands, a part of a secret looks like one.
pub fn of(text: &str, values: &str) -> String {
    let mut ranges = Vec::new();
    if let Ok(root) = yaml::parse(text) {
        collect(text, &root, values, 0, &mut ranges);
    }
    ranges.sort_unstable();
    let mut ranges = ranges.into_iter().peekable();
    let star = |(at, one): (usize, char)| {
        while ranges.next_if(|(_, end)| *end <= at).is_some() {}
        let shown = ranges.peek().is_some_and(|(start, _)| *start <= at);
        if shown || one.is_whitespace() {
            one
        } else {
            '*'
        }
    };
    text.char_indices().map(star).collect()
}

/// Collects the ranges of the keys of a tree and of its opening brackets, in bytes.
fn collect(
    text: &str,
    node: &YamlNode,
    values: &str,
    depth: usize,
    shown: &mut Vec<(usize, usize)>,
) {
    match &node.data {
        YamlValue::Map(members) => {
            shown.extend(bracket(text, node));
            for (key, member) in members {
                shown.extend(range(text, key));
                if depth > 0 || key.text != values {
                    collect(text, member, values, depth + 1, shown);
                } else if let YamlValue::Map(entries) = &member.data {
                    shown.extend(bracket(text, member));
                    let names = entries.iter().filter(|(key, _)| is_name(&key.text));
                    shown.extend(names.filter_map(|(key, _)| range(text, key)));
                }
            }
        }
        YamlValue::List(items) => {
            shown.extend(bracket(text, node));
            for item in items {
                collect(text, item, values, depth + 1, shown);
            }
        }
        _ => {}
    }
}

fn bracket(text: &str, node: &YamlNode) -> Option<(usize, usize)> {
    let offset = node.place.offset;
    let opens = text.get(offset..)?.starts_with(['{', '[']);
    opens.then(|| (from(text, offset), offset + 1))
}

/// The beginning of something at an offset, with the dashes of a list before it.
fn from(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or_default();
    before.trim_end_matches([' ', '-']).len()
}

fn is_name(text: &str) -> bool {
    text.chars().all(|one| one.is_alphanumeric() || one == '_')
}

/// From the beginning of a key to behind its colon. Only what is the key letter by letter, and has its
/// colon, is one: an alias is none, nor is what stands behind a comma.
fn range(text: &str, key: &yaml::YamlKey) -> Option<(usize, usize)> {
    let rest = text.get(key.place.offset..)?;
    let quote = rest.chars().next().filter(|one| "\"'".contains(*one));
    let quotes = quote.map_or(0, char::len_utf8);
    let length = quotes + key.text.len() + quotes;
    let own = rest.get(quotes..quotes + key.text.len())? == key.text;
    let closed = quote.is_none_or(|quote| {
        let behind = rest.get(length - quotes..);
        behind.is_some_and(|behind| behind.starts_with(quote))
    });
    if !own || !closed || !rest.get(length..)?.starts_with(':') {
        return None;
    }
    let start = from(text, key.place.offset);
    Some((start, key.place.offset + length + 1))
}

#[cfg(test)]
mod tests {
    use super::of;

    fn outline(text: &str) -> String {
        of(text, "variables")
    }

    #[test]
    fn keys_are_shown_and_values_are_not_whatever_is_in_them() {
        for (text, shown) in [
            ("egress:", "egress:"),
            ("name: prod # hunter2, 'x'", "name: **** * ******** ***"),
            (
                "variables:\n  DB: \"hunter2,topsecret\"\n",
                "variables:\n  DB: *******************\n",
            ),
            (
                "variables:\n  DB: postgres://u:pw,rest@h:x\n",
                "variables:\n  DB: ************************\n",
            ),
            (
                "variables: {\"DB\":\"topsecret99\", KEY: \"a b\", X: 5}",
                "variables: {\"DB\":************** KEY: ** *** X: **",
            ),
            (
                "variables:\n  PEM: |\n    key: one, [two]\n    - three\n  NEXT: >-\n    four: 5\n",
                "variables:\n  PEM: *\n    **** **** *****\n    * *****\n  NEXT: **\n    ***** *\n",
            ),
            (
                "variables:\n  A: 'one\n    two: three'\n  B: four\n    five, six\n",
                "variables:\n  A: ****\n    **** ******\n  B: ****\n    ***** ***\n",
            ),
            (
                "variables:\n  DB:hunter2: x\n",
                "variables:\n  *********** *\n",
            ),
            (
                "variables: {A: hunter2,topsecret, B: x}",
                "variables: {A: ****************** B: **",
            ),
            (
                "variables: {DB: {hunter2: x}, É: &hunter2 y}\nname: *hunter2\n",
                "variables: {DB: ********* *** É: ******** **\nname: ********\n",
            ),
            (
                "principals:\n  - name: ann\n    roles: [operator, admn]\n  - {name: bo}\n",
                "principals:\n  - name: ***\n    roles: [********* *****\n  - {name: ***\n",
            ),
        ] {
            assert_eq!(outline(text), shown);
        }
    }

    #[test]
    fn nothing_is_shown_of_what_cannot_be_read() {
        for (text, shown) in [
            ("variables:\n  DB: \"hunter2", "**********\n  *** ********"),
            (
                "variables:\n  DB: postgres://u:pw,rest@h: x\n",
                "**********\n  *** *********************** *\n",
            ),
            (
                "variables:\n  \"DB\":\"hunter2\"\n",
                "**********\n  **************\n",
            ),
            ("KEY: é\thunter2: 3", "**** *\t******** *"),
        ] {
            assert_eq!(outline(text), shown);
        }
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn a_value_is_never_shown(
            value in "[a-z0-9:,{}\\[\\]&*!|>'\"# -]{6,40}",
            form in "(DB: @|\"DB\":@|\\{DB: @\\}|DB: \"@\"|DB: '@'|DB: \\|\n    @|DB: [@]|DB:@)",
        ) {
            let secret = format!("QQ{value}QQ");
            let text = format!("name: n\nvariables:\n  {}\n", form.replace('@', &secret));
            let shown = outline(&text);
            let lengths = |text: &str| -> Vec<usize> {
                text.lines().map(|line| line.chars().count()).collect()
            };
            proptest::prop_assert_eq!(lengths(&shown), lengths(&text));
            proptest::prop_assert!(!shown.contains('Q'), "{}\n{}", text, shown);
        }
    }
}
