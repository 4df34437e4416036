//! Mutations of a YAML text: what a hand that slips does to lines, keys, values, references and
//! templates.

/// Chance that can be had again: splitmix64.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    pub(super) fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// Values of every type, and some that are none.
const VALUES: &[&str] = &[
    "",
    "null",
    "~",
    "true",
    "no",
    "\"\"",
    "text",
    "\"text\"",
    "-1",
    "0",
    "1",
    "2",
    "3.5",
    "1e3",
    "1e400",
    "9007199254740993",
    "99999999999999999999",
    "\"1.0.0\"",
    "1.0",
    "[]",
    "{}",
    "[1, 2]",
    "[[]]",
    "{a: 1}",
    "[a, b, c]",
    "\"{{ params }}\"",
    "\"{{ params.nope }}\"",
    "\"{{ step.nope.x }}\"",
    "\"{{ env.NOPE }}\"",
    "\"{{ 1 + 1 }}\"",
    "\"{{ }}\"",
    "\"{{ params.x\"",
    "\"{{ item }}\"",
    "\"a {{ params }} b\"",
    "\"{{ step }}\"",
    "\"{{ env }}\"",
    "\"{{ run }}\"",
    "*x",
    "&x 1",
    "!!str 1",
    "| ",
    "\"\\u202e\\0\"",
    "\"é\"",
    "'a''b'",
    "string",
    "object",
    "array",
    "integer",
    "execute",
    "suppress",
    "root",
    "sub-workflow",
    "raw",
    "desc",
    "{type: string}",
    "{type: [string, \"null\"]}",
    "{type: nope}",
    "{\"$ref\": \"#/nope\"}",
    "{\"$ref\": \"#\"}",
    "{pattern: \"(\"}",
    "{enum: []}",
    "{type: object, required: [zzz]}",
    "{required: zzz}",
    "{minimum: x}",
    "{default: 1}",
    "{type: integer, default: x}",
    "false",
];

/// Expressions, good and bad.
const EXPRESSIONS: &[&str] = &[
    "params",
    "params.nope",
    "params.rows",
    "params.rows[0]",
    "params.rows[*].n",
    "params.n",
    "step",
    "env",
    "env.SINK",
    "env.NOPE",
    "item",
    "item_index",
    "item.n",
    "@",
    "*",
    "null",
    "`1`",
    "`{`",
    "'x'",
    "length(@)",
    "length(params.n)",
    "length(`1`)",
    "sort(params.rows)",
    "nope(@)",
    "length()",
    "length(a, b)",
    "keys(params)",
    "join(',', params.rows)",
    "max_by(params.rows, &n)",
    "max_by(params.rows, n)",
    "params.rows[?n > `1`]",
    "params.rows[?",
    "a.b.c",
    "a-b.c",
    "[a, b]",
    "{x: params.n}",
    "{x: nope}",
    "!params.n",
    "a || b",
    "a && b",
    "a | b",
    "params.rows[::0]",
    "params.rows[-1]",
    "to_number('x')",
    "abs('x')",
    "sum(params.rows)",
    "not_null()",
    "&n",
    "foo.&n",
    "map(&n, params.rows)",
    "map(n, params.rows)",
    "((((1))))",
    "\"quoted\"",
    "'unclosed",
    "params.'x'",
    "step.tidy.result",
    "tidy.result[0].n",
    "step.ask.answer",
    "step.each.results[0].answer",
    "to_string(params)",
    "reverse('x')",
    "merge(params, params)",
    "merge('x')",
    "type(@)",
];

/// One mutation of a text. `words` are names that occur in the kit; `other` is another of its files.
pub(super) fn mutate(text: &str, words: &[String], other: &str, chance: &mut Chance) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return text.to_owned();
    }
    let at = meaningful(&lines, chance);
    match chance.below(18) {
        0 => {
            lines.remove(at);
        }
        1 => {
            lines.drain(at..block(&lines, at));
        }
        2 => lines.insert(at, lines[at].clone()),
        3 => {
            let copy: Vec<String> = lines[at..block(&lines, at)].to_vec();
            let to = block(&lines, at);
            lines.splice(to..to, copy);
        }
        4 => lines[at] = misspelt(&lines[at], chance),
        5 | 6 => lines[at] = with_value(&lines[at], chance.one(VALUES)),
        7..=9 => lines[at] = renamed(&lines[at], words, chance),
        10 => lines[at] = counted(&lines[at], chance),
        11 => {
            let to = block(&lines, at);
            let deeper = chance.below(2) == 0;
            lines[at..to]
                .iter_mut()
                .for_each(|line| shift(line, deeper));
        }
        12 => {
            let with = meaningful(&lines, chance);
            lines.swap(at, with);
        }
        13 => {
            let with = meaningful(&lines, chance);
            let value = value_of(&lines[with]).to_owned();
            lines[at] = with_value(&lines[at], &value);
        }
        14 => lines[at] = slipped(&lines[at], chance),
        15 | 16 => lines[at] = templated(&lines[at], chance),
        _ => {
            let strange: Vec<&str> = other.lines().collect();
            if !strange.is_empty() {
                lines.insert(at, strange[chance.below(strange.len())].to_owned());
            }
        }
    }
    lines.join("\n") + "\n"
}

/// A line that says something, if there is one.
fn meaningful(lines: &[String], chance: &mut Chance) -> usize {
    for _ in 0..8 {
        let at = chance.below(lines.len());
        let line = lines[at].trim_start();
        if !line.is_empty() && !line.starts_with('#') {
            return at;
        }
    }
    0
}

/// Where what hangs below a line ends.
fn block(lines: &[String], at: usize) -> usize {
    let depth = indent(&lines[at]);
    let below = lines[at + 1..]
        .iter()
        .take_while(|line| indent(line) > depth);
    at + 1 + below.count()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn shift(line: &mut String, deeper: bool) {
    match deeper {
        true => line.insert_str(0, "  "),
        false => *line = line.strip_prefix("  ").unwrap_or(line).to_owned(),
    }
}

/// `key: value` where the line has both; in braces the last pair.
fn value_of(line: &str) -> &str {
    line.split_once(": ").map_or("", |(_, value)| value)
}

fn with_value(line: &str, value: &str) -> String {
    match line.split_once(':') {
        Some((key, _)) => format!("{key}: {value}"),
        None => match line.split_once("- ") {
            Some((lead, _)) => format!("{lead}- {value}"),
            None => format!("{}{value}", &line[..indent(line)]),
        },
    }
}

/// A key with a letter lost, doubled, or in the other case.
fn misspelt(line: &str, chance: &mut Chance) -> String {
    let words = spans(line);
    if words.is_empty() {
        return line.to_owned();
    }
    let (from, to) = words[chance.below(words.len())];
    let word = &line[from..to];
    let new = match chance.below(4) {
        0 => word[..word.len() - 1].to_owned(),
        1 => format!("{word}{}", &word[word.len() - 1..]),
        2 => word.to_uppercase(),
        _ => word.replace('_', "-"),
    };
    format!("{}{new}{}", &line[..from], &line[to..])
}

/// A name of the kit in the place of another.
fn renamed(line: &str, words: &[String], chance: &mut Chance) -> String {
    let spans = spans(line);
    if spans.is_empty() || words.is_empty() {
        return line.to_owned();
    }
    let (from, to) = spans[chance.below(spans.len())];
    let new = &words[chance.below(words.len())];
    format!("{}{new}{}", &line[..from], &line[to..])
}

/// A number that is another one.
fn counted(line: &str, chance: &mut Chance) -> String {
    let numbers = [
        "-1",
        "0",
        "1",
        "2",
        "10",
        "65",
        "1000000",
        "4294967296",
        "0.5",
        "1.5",
        "01",
    ];
    let Some(from) = line.find(|one: char| one.is_ascii_digit()) else {
        return with_value(line, chance.one(&numbers));
    };
    let rest = &line[from..];
    let length = rest
        .find(|one: char| !one.is_ascii_digit())
        .unwrap_or(rest.len());
    format!(
        "{}{}{}",
        &line[..from],
        chance.one(&numbers),
        &rest[length..]
    )
}

/// A character lost, or one too many.
fn slipped(line: &str, chance: &mut Chance) -> String {
    let mut characters: Vec<char> = line.chars().collect();
    let at = chance.below(characters.len());
    match chance.below(2) {
        0 if !characters.is_empty() => {
            characters.remove(at);
        }
        _ => {
            let marks: Vec<char> = "{}[]:,'\"|>&*!%@#-?\\\t `".chars().collect();
            characters.insert(at, marks[chance.below(marks.len())]);
        }
    }
    characters.into_iter().collect()
}

/// What stands in a template, or in place of a value, is another expression.
fn templated(line: &str, chance: &mut Chance) -> String {
    let new = chance.one(EXPRESSIONS);
    if let (Some(from), Some(to)) = (line.find("{{"), line.find("}}"))
        && from < to
    {
        return format!("{}{{{{ {new} }}}}{}", &line[..from], &line[to + 2..]);
    }
    for key in ["expr: ", "from: ", "condition: ", "field: "] {
        if let Some((lead, rest)) = line.split_once(key) {
            let end = rest.find(['}', ',']).unwrap_or(rest.len());
            let written = new.replace('"', "\\\"");
            return format!("{lead}{key}\"{written}\"{}", &rest[end..]);
        }
    }
    with_value(line, &format!("\"{{{{ {} }}}}\"", new.replace('"', "\\\"")))
}

/// Where the words of a line stand.
fn spans(line: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut from = None;
    for (at, one) in line.char_indices().chain([(line.len(), ' ')]) {
        let inside = one.is_ascii_alphanumeric() || one == '_' || one == '-';
        match (inside, from) {
            (true, None) => from = Some(at),
            (false, Some(start)) => {
                if line[start..at].starts_with(|first: char| first.is_ascii_alphabetic()) {
                    spans.push((start, at));
                }
                from = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    spans
}

/// The names that occur in some files.
pub(super) fn words<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut words = std::collections::BTreeSet::new();
    for text in texts {
        for line in text.lines() {
            words.extend(
                spans(line)
                    .into_iter()
                    .map(|(from, to)| line[from..to].to_owned()),
            );
        }
    }
    words.into_iter().collect()
}
