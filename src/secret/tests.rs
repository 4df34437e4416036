use super::*;
use serde_json::json;

#[test]
fn every_form_of_a_secret_is_taken_out() {
    let redactor = Redactor::new(&[Secret::new("p\"ss w/rd€x")]);
    for text in [
        "p\"ss w/rd€x",
        r#"{"k":"p\"ss w/rd€x"}"#,
        "p%22ss%20w%2Frd%E2%82%ACx",
        "p%22ss+w%2Frd%E2%82%ACx",
        "p%22ss%20w%2frd%e2%82%acx",
        "cCJzcyB3L3Jk4oKseA==",
        "dXNlcjpwInNzIHcvcmTigqx4",
    ] {
        let redacted = redactor.redact(&format!("<{text}>"));
        assert!(
            redacted.is_some_and(|text| text.contains(REDACTED)),
            "{text}"
        );
    }
    assert_eq!(redactor.redact("password"), None);
}

#[test]
fn overlapping_occurrences_leave_nothing() {
    let secrets = [
        Secret::new("abcdef"),
        Secret::new("defghi"),
        Secret::new("REDACTED"),
    ];
    let redactor = Redactor::new(&secrets);
    assert_eq!(redactor.redact_text("xabcdefghiy"), "x[REDACTED]y");
    assert_eq!(redactor.redact_text("abcdefabcdef"), "[REDACTED][REDACTED]");
    assert_eq!(redactor.redact_text("REDACTED"), "[REDACTED]");
    let nested = Redactor::new(&[Secret::new("abcdefghij"), Secret::new("bcdefg")]);
    assert_eq!(nested.redact_text("<abcdefghij>"), "<[REDACTED]>");
}

#[test]
fn strings_and_names_of_members_are_redacted() {
    let redactor = Redactor::new(&[Secret::new("s3cret!")]);
    let mut value = json!({"s3cret!": ["a s3cret! b", 1, {"k": "s3cret!"}]});
    redactor.redact_value(&mut value);
    assert_eq!(
        value,
        json!({"[REDACTED]": ["a [REDACTED] b", 1, {"k": "[REDACTED]"}]})
    );
}

#[test]
fn members_whose_names_become_one_are_all_kept() {
    let redactor = Redactor::new(&[Secret::new("s3cret!"), Secret::new("0ther!")]);
    let mut value = json!({"s3cret!": 1, "0ther!": 2, "[REDACTED]": 3, "[REDACTED] 2": 4});
    redactor.redact_value(&mut value);
    let mut kept: Vec<_> = value.as_object().unwrap().values().cloned().collect();
    kept.sort_by_key(serde_json::Value::as_u64);
    assert_eq!(kept, [1, 2, 3, 4]);
}

#[test]
fn a_secret_does_not_print() {
    assert_eq!(format!("{:?}", Secret::new("s3cret!")), REDACTED);
    assert!(!format!("{:?}", Redactor::new(&[Secret::new("s3cret!")])).contains("s3c"));
}

proptest::proptest! {
    #[test]
    fn the_plain_secret_never_remains(secret in "[a-zéX/+\" ]{6,12}", a in ".{0,20}", b in ".{0,20}") {
        let redactor = Redactor::new(&[Secret::new(secret.clone())]);
        let redacted = redactor.redact_text(&format!("{a}{secret}{b}"));
        proptest::prop_assert!(!redacted.contains(&secret));
    }
}
