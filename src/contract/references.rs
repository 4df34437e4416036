//! References: texts that stand for where a run has its files and services.

use std::collections::BTreeMap;

/// A text with values in place of its references. `values` has what each reference, as it is written, stands for.
pub fn resolved(text: &str, values: &BTreeMap<String, String>) -> String {
    let values = values.iter();
    values.fold(text.to_owned(), |text, (reference, value)| {
        text.replace(reference, value)
    })
}

#[cfg(test)]
mod tests {
    use super::resolved;

    #[test]
    fn only_exact_references_are_replaced() {
        let values = [("{{ workspace }}".to_owned(), "/tmp/x".to_owned())].into();
        let text = resolved("{{ workspace }}/a:{{workspace}}:{{ other }}", &values);
        assert_eq!(text, "/tmp/x/a:{{workspace}}:{{ other }}");
    }
}
