//! Schemas that are allowed, and about which there is something to say.

use super::*;

/// A workflow whose params are a union of recursive forms.
const UNION: &str = "\
kind: workflow
name: w
version: 1.0.0
params:
  schema:
    required: [tree]
    properties: {tree: {$ref: '#/$defs/node'}}
    $defs:
      node:
        oneOf:
          - properties:
              left: {$ref: '#/$defs/node'}
          - properties:
              other: {$ref: '#/$defs/node'}
              left: {$ref: '#/$defs/node'}
pipeline: [{id: t, transform: {ops: []}}]
";

#[test]
fn a_recursion_with_two_ways_is_a_warning_that_names_both() {
    let dir = kit(&[("workflows/w.workflow.yaml", UNION)]);
    let loaded = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let [fault] = &loaded.warnings.faults[..] else {
        panic!("{}", loaded.warnings);
    };
    assert_eq!(fault.code.text(), "ambiguous-recursion");
    assert_eq!((fault.line, fault.column), (12, 21));
    let words = "a recursion comes to #/$defs/node at one place by two ways: \
        #/$defs/node/oneOf/0/properties/left here, and #/$defs/node/oneOf/1/properties/left at 15:21";
    assert_eq!(fault.message, words);
    let shown = loaded.warnings.to_string();
    assert!(shown.contains("w.workflow.yaml:12:21"), "{shown}");
    let apart = UNION.replacen("left:", "right:", 1);
    let dir = kit(&[("workflows/w.workflow.yaml", apart.as_str())]);
    let loaded = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(loaded.warnings.faults, []);
}
