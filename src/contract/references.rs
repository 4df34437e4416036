//! References: texts that stand for where a run has its files and services.

use std::collections::BTreeMap;

/// A text with values in place of its references. `values` has what each reference, as it is written, stands for.
pub fn resolved(text: &str, values: &BTreeMap<String, String>) -> String {
    let values = values.iter();
    values.fold(text.to_owned(), |text, (reference, value)| {
        text.replace(reference, value)
    })
}

/// A text with a reference in place of a value, where the value is not a part of a longer name.
pub fn without_value(text: &str, value: &str, reference: &str) -> String {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let (mut without, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(value).filter(|_| !value.is_empty()) {
        let mut next = after.chars();
        let is_longer = match next.next() {
            Some('.') => next.next().is_some_and(is_of_name),
            Some(c) => is_of_name(c),
            None => false,
        };
        without.push_str(before);
        let is_further =
            without.ends_with(reference) || without.chars().next_back().is_some_and(is_of_name);
        let is_part = is_longer || is_further;
        without.push_str(if is_part { value } else { reference });
        rest = after;
    }
    without.push_str(rest);
    without
}

#[cfg(test)]
mod tests {
    use super::{resolved, without_value};

    #[test]
    fn only_exact_references_are_replaced() {
        let values = [("{{ workspace }}".to_owned(), "/tmp/x".to_owned())].into();
        let text = resolved("{{ workspace }}/a:{{workspace}}:{{ other }}", &values);
        assert_eq!(text, "/tmp/x/a:{{workspace}}:{{ other }}");
    }

    #[test]
    fn a_value_is_replaced_unless_it_is_a_part_of_a_longer_name() {
        for (text, expected) in [
            ("/work", "{{ w }}"),
            ("in /work/a, /work.", "in {{ w }}/a, {{ w }}."),
            (
                "/workshop /home/work /work.txt /work-2",
                "/workshop /home/work /work.txt /work-2",
            ),
            ("/work/work", "{{ w }}/work"),
        ] {
            assert_eq!(without_value(text, "/work", "{{ w }}"), expected);
        }
        assert_eq!(without_value("a", "", "{{ w }}"), "a");
    }
}
