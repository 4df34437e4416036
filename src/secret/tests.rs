use super::*;
use serde_json::json;

/// A text as somebody else escapes it for a page: each special character in one of some ways.
fn escaped(text: &str, ways: &[(char, &str)]) -> String {
    let one = |one: char| {
        let way = ways.iter().find(|(of, _)| *of == one);
        way.map_or(one.to_string(), |(_, written)| (*written).to_owned())
    };
    text.chars().map(one).collect()
}

#[test]
fn a_secret_that_was_escaped_for_html_is_taken_out_however_each_character_was_written() {
    let secret = "p&ss<w>r'd\"/`=€x";
    let redactor = Redactor::new(&[Secret::new(secret)]);
    let all = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")];
    let python = [&all[..], &[('"', "&quot;"), ('\'', "&#x27;")]].concat();
    let go = [&all[..], &[('"', "&#34;"), ('\'', "&#39;")]].concat();
    let php = [
        &all[..],
        &[('"', "&quot;"), ('\'', "&#039;"), ('€', "&euro;")],
    ]
    .concat();
    let xml = [
        &all[..],
        &[('"', "&quot;"), ('\'', "&apos;"), ('€', "&#8364;")],
    ]
    .concat();
    let javascript = [
        &go[..],
        &[('/', "&#x2F;"), ('`', "&#x60;"), ('=', "&#x3D;")],
    ]
    .concat();
    let mut whole: Vec<String> = [python, go, php, xml, javascript]
        .iter()
        .map(|ways| escaped(secret, ways))
        .collect();
    whole.push(
        secret
            .chars()
            .map(|one| format!("&#{};", u32::from(one)))
            .collect(),
    );
    whole.push(
        secret
            .chars()
            .map(|one| format!("&#x{:X};", u32::from(one)))
            .collect(),
    );
    // Escaped again, and once more.
    for _ in 0..2 {
        let again: Vec<String> = whole.iter().map(|one| escaped(one, &all)).collect();
        whole.extend(again);
    }
    for text in whole {
        let around = format!("&lt;b&gt;said: {text}&lt;/b&gt;");
        let expected = format!("&lt;b&gt;said: {REDACTED}&lt;/b&gt;");
        assert_eq!(redactor.redact_text(&around), expected, "{text}");
        assert!(redactor.finds(&text), "{text}");
        let deep = text.contains("&amp;amp;");
        assert!(deep || text.len() <= redactor.longest(), "{text}");
        let mut value = json!({ &around: [&around] });
        redactor.redact_value(&mut value);
        assert_eq!(value, json!({ &expected: [&expected] }));
        let kept = redactor.redact_beginning(&around, around.len() - 20);
        assert!(kept.starts_with(&expected[..expected.len() - 20]), "{kept}");
    }
    // In a mixture of escapes nothing of the text is kept.
    let mut mixed = json!("said: p%26amp%3Bss&lt;w\\u0026gt;r&#39;d&quot;/`=€x");
    redactor.redact_value(&mut mixed);
    assert_eq!(mixed, REDACTED);
    // What others escaped stays as it is.
    let plain = "&lt;p&gt;Fish &amp; chips&#39;&nbsp;&unheard;";
    assert_eq!(redactor.redact(plain), None);
    assert!(!redactor.finds(plain));
}

#[test]
fn what_is_left_of_an_escaped_secret_where_someone_cut_a_text_is_taken_out() {
    let redactor = Redactor::new(&[Secret::new("pa&ss<word")]);
    for cut in [
        "pa&amp;ss&lt;wor",
        "pa&amp;ss&l",
        "pa&amp;ss",
        "pa&amp;s&",
        "pa&#38;s&#x3",
    ] {
        let text = format!("upstream said {cut}");
        assert_eq!(
            redactor.redact_cut(&text),
            "upstream said [REDACTED]",
            "{cut}"
        );
    }
    for kept in ["upstream said pa&amp", "fish &amp; chips &a"] {
        assert_eq!(redactor.redact_cut(kept), kept);
    }
}

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
        "%70%22%73%73%20%77%2F%72%64%E2%82%AC%78",
        "%70%22%73%73%20%77%2f%72%64%e2%82%ac%78",
        r"\u0070\u0022\u0073\u0073\u0020\u0077\u002f\u0072\u0064\u20ac\u0078",
        r"\u0070\u0022\u0073\u0073\u0020\u0077\u002F\u0072\u0064\u20AC\u0078",
        "7022737320772f7264e282ac78",
        "7022737320772F7264E282AC78",
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
fn a_secret_is_taken_out_of_sql_and_the_rest_stays() {
    let redactor = Redactor::new(&[Secret::new("h'2\\c\"o\n`x")]);
    for text in [
        // A literal, one with escapes, and the data of COPY: PostgreSQL.
        "h''2\\c\"o\n`x",
        "h''2\\\\c\"o\n`x",
        "h'2\\\\c\"o\\n`x",
        // Data, and a comment: MariaDB.
        "h\\'2\\\\c\\\"o\\n`x",
        "h''2\\\\c\"o\\n`x",
        // Names.
        "h'2\\c\"\"o\n`x",
        "h'2\\c\"o\n``x",
        // JSON in the data of COPY, in a literal, and in one with escapes.
        "h'2\\\\\\\\c\\\\\"o\\\\n`x",
        "h''2\\\\c\\\"o\\n`x",
        "h\\'2\\\\\\\\c\\\\\\\"o\\\\n`x",
    ] {
        let mut dump = json!(format!("INSERT INTO a VALUES ('{text}');\n"));
        redactor.redact_value(&mut dump);
        assert_eq!(dump, "INSERT INTO a VALUES ('[REDACTED]');\n", "{text}");
        assert!(text.len() <= redactor.longest(), "{text}");
    }
    let plain = "SELECT 'it''s', \"a\"\"b\", 'it\\'s';\n";
    assert_eq!(redactor.redact_text(plain), plain);
    // Escaped in part, so that nothing is kept.
    let redactor = Redactor::new(&[Secret::new("hunter'2-correct")]);
    let mut mixed = json!("h\\u0075nter\\'2-correct");
    redactor.redact_value(&mut mixed);
    assert_eq!(mixed, REDACTED);
}

#[test]
fn the_key_of_a_webhook_is_taken_out_with_and_without_its_prefix() {
    let redactor = Redactor::new(&[Secret::new("whsec_c29tZSBrZXk=")]);
    for (text, plain) in [
        ("<whsec_c29tZSBrZXk=>", "<[REDACTED]>"),
        ("<c29tZSBrZXk=>", "<[REDACTED]>"),
        ("<whsec_>", "<whsec_>"),
    ] {
        assert_eq!(redactor.redact_text(text), plain);
    }
    // What is too short for a key is not looked for by itself.
    let redactor = Redactor::new(&[Secret::new("whsec_abc")]);
    assert_eq!(redactor.redact_text("abc whsec_abc"), "abc [REDACTED]");
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

/// The beginning of a text, where the secret is escaped in part.
#[test]
fn what_is_escaped_in_part_takes_the_whole_text_with_it() {
    let redactor = Redactor::new(&[Secret::new("s3cret w/rd\u{1f511}")]);
    for hidden in [
        r"<s\u0033cret w/rd\ud83d\udd11>",
        r"<s3cret w\/rd\uD83D\uDD11>",
        "<s3cret w/rd%f0%9f%94%91>",
        r"<%73\u0033cret+w%2Frd\uD83d\uDd11>",
        r"<%5cu00733cret w/rd\ud83d\udd11>",
    ] {
        assert_eq!(redactor.redact(hidden), None, "{hidden}");
        assert_eq!(redactor.redact_beginning(hidden, 2), REDACTED, "{hidden}");
    }
    let plain = r"100 % of \users and \u0033 %zz \ud83d %";
    assert_eq!(redactor.redact_beginning(plain, plain.len()), plain);
    assert_eq!(Redactor::default().redact_beginning("a%73€", 5), "a%73");
}

#[test]
fn a_reply_that_hides_a_secret_is_written_anew_or_not_given() {
    let redactor = Redactor::new(&[Secret::new("s3cret!"), Secret::new("1234567")]);
    for (reply, redacted) in [
        ("plain \\u0041 %41", "plain \\u0041 %41"),
        (
            r#"{"b": "s3cret!", "a": 1}"#,
            r#"{"b": "[REDACTED]", "a": 1}"#,
        ),
        (
            r#"{"b": "s\u0033cret!", "a": 1}"#,
            r#"{"a":1,"b":"[REDACTED]"}"#,
        ),
        (
            "```json\n{\"\\u00733cret!\": 1}\n```",
            r#"{"[REDACTED]":1}"#,
        ),
        (r#"Here: {"b": "s\u0033cret!"}"#, REDACTED),
        // Nobody would take it as it stands.
        (r#"{"a": 1, "a": 2, "b": "s\u0033cret!"}"#, REDACTED),
        (r#"{"b": "s\\u0033cret!"}"#, r#"{"b":"[REDACTED]"}"#),
        (r#"{"b": "%73\u0033cret!"}"#, r#"{"b":"[REDACTED]"}"#),
        (r#"{"s\\u0033cret!": 1}"#, r#"{"[REDACTED]":1}"#),
        (
            r#"{"a": 1.234567e6, "b": "s\u0033cret!"}"#,
            r#"{"a":"[REDACTED]","b":"[REDACTED]"}"#,
        ),
    ] {
        assert_eq!(redactor.redact_reply(reply), redacted, "{reply}");
    }
}

#[test]
fn of_a_secret_that_begins_before_the_end_nothing_is_left() {
    let secret = "s3cret w/rd";
    let redactor = Redactor::new(&[Secret::new(secret)]);
    let text = format!("ab{secret}cd");
    for end in 0..=text.len() {
        let expected = match end {
            0..=2 => text[..end].to_owned(),
            _ => format!("ab{REDACTED}{}", text.get(13..end).unwrap_or_default()),
        };
        assert_eq!(redactor.redact_beginning(&text, end), expected, "{end}");
    }
    let lengths = forms(secret).into_iter().map(|form| form.len());
    assert!(lengths.max() <= Some(redactor.longest()));
}

#[test]
fn what_is_left_of_a_secret_where_someone_cut_a_text_is_taken_out() {
    let redactor = Redactor::new(&[Secret::new("s3cret w/rd€x"), Secret::new("0ther!")]);
    for (text, left) in [
        ("upstream said s3cret w/rd€x", "upstream said [REDACTED]"),
        ("upstream said s3cret w/rd€", "upstream said [REDACTED]"),
        ("upstream said s3cr", "upstream said [REDACTED]"),
        ("0ther! and s3cret", "[REDACTED] and [REDACTED]"),
        // In other forms as well.
        ("said s3cret%20w%2Frd%E2%8", "said [REDACTED]"),
        ("said 733363726574", "said [REDACTED]"),
        // Three letters say nothing.
        ("upstream said s3c", "upstream said s3c"),
        ("s3cr and more", "s3cr and more"),
        ("€", "€"),
        ("", ""),
    ] {
        assert_eq!(redactor.redact_cut(text), left, "{text}");
    }
    assert_eq!(Redactor::default().redact_cut("s3cr"), "s3cr");
}

#[test]
fn a_secret_does_not_print() {
    assert_eq!(format!("{:?}", Secret::new("s3cret!")), REDACTED);
    assert!(!format!("{:?}", Redactor::new(&[Secret::new("s3cret!")])).contains("s3c"));
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn the_plain_secret_never_remains(secret in "[a-zéX/+\" ]{6,12}", a in ".{0,20}", b in ".{0,20}") {
        let redactor = Redactor::new(&[Secret::new(secret.clone())]);
        let redacted = redactor.redact_text(&format!("{a}{secret}{b}"));
        proptest::prop_assert!(!redacted.contains(&secret));
    }
}

/// What a receiver says back of a URL, and what others wrote into JSON within JSON.
#[test]
fn a_secret_is_found_as_urls_and_other_programs_write_it() {
    for secret in [
        "p@ss word 9",
        "clé/secrète/1",
        "ab\"cd=ef+gh",
        "abc/def/ghi",
    ] {
        let redactor = Redactor::new([&Secret::new(secret)]);
        let mut url = url::Url::parse("http://h/x/").unwrap();
        url.set_path(&format!("/x/{secret}"));
        url.set_query(Some(&format!("k={secret}")));
        url.set_fragment(Some(secret));
        let json = Value::from(secret).to_string();
        let escaped = json
            .replace('/', "\\/")
            .replace('é', "\\u00e9")
            .replace('è', "\\u00e8");
        for text in [
            url.path(),
            url.query().unwrap(),
            url.fragment().unwrap(),
            &escaped,
        ] {
            let mut value = Value::from(text);
            redactor.redact_value(&mut value);
            assert!(value.as_str().unwrap().contains(REDACTED), "{text}");
        }
    }
    let redactor = Redactor::new([&Secret::new("8714992031")]);
    let mut value = serde_json::json!({"n": 8_714_992_031_u64, "m": 5});
    redactor.redact_value(&mut value);
    assert_eq!(value, serde_json::json!({"n": REDACTED, "m": 5}));
    let redactor = Redactor::new([&Secret::new("unused secret")]);
    let mut value = Value::from("100 % \\u0041 %41");
    redactor.redact_value(&mut value);
    assert_eq!(value, "100 % \\u0041 %41", "escapes of others stay");
}
