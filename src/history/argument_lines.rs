//! Arguments of a call, as people read them before they decide.

use serde_json::Value;

/// Arguments in lines: as one line of JSON, unless one of them is a text of several lines. Then each
/// argument has a line of its own, and a text of several lines has each of them below its name.
pub fn argument_lines(arguments: &Value) -> Vec<String> {
    let members = arguments.as_object();
    let is_long = |value: &Value| value.as_str().is_some_and(|text| text.contains('\n'));
    let Some(members) = members.filter(|all| all.values().any(is_long)) else {
        return vec![arguments.to_string()];
    };
    let mut lines = Vec::new();
    for (name, value) in members {
        match value.as_str() {
            Some(text) if is_long(value) => {
                lines.push(format!("{name}:"));
                lines.extend(text.split('\n').map(|line| format!("  {line}")));
            }
            Some(text) => lines.push(format!("{name}: {text}")),
            None => lines.push(format!("{name}: {value}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_of_several_lines_is_shown_in_lines_and_nothing_of_it_is_left_out() {
        let short = json!({"n": 1, "to": "ada"});
        assert_eq!(argument_lines(&short), [short.to_string()]);
        assert_eq!(argument_lines(&json!("a\nb")), [r#""a\nb""#]);
        let long = json!({"body": "Dear Ada,\n\n  yes\n", "n": [1], "to": "ada"});
        let expected = [
            "body:",
            "  Dear Ada,",
            "  ",
            "    yes",
            "  ",
            "n: [1]",
            "to: ada",
        ];
        assert_eq!(argument_lines(&long), expected);
    }
}
