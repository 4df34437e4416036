use crate::{FrameFilter, FrameView};

use super::support::paid;

fn filter(words: &[&str]) -> FrameFilter {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    FrameFilter::from_words(&words).unwrap()
}

fn refused(word: &str) -> String {
    let error = FrameFilter::from_words(&[word.to_owned()]).unwrap_err();
    format!("{} | {}", error.message, error.hint.unwrap_or_default())
}

fn seqs(words: &[&str]) -> Vec<u64> {
    let filter = filter(words);
    let is_meant = |frame: &&FrameView| filter.matches(frame).unwrap();
    let frames = paid();
    frames
        .iter()
        .filter(is_meant)
        .map(|frame| frame.seq)
        .collect()
}

#[test]
fn every_frame_of_a_call_has_the_fields_of_the_call() {
    // 0 and 1 are the model call, 2 and 3 the call of look_up; 4 and 5 again, 6 to 9 the call of pay.
    assert_eq!(seqs(&["tool=pay"]), [6, 7, 8, 9]);
    assert_eq!(seqs(&["server=bank"]), [2, 3, 6, 7, 8, 9]);
    assert_eq!(seqs(&["tool=bank__p*"]), [6, 7, 8, 9]);
    assert_eq!(seqs(&["model=small"]), [1, 2, 3, 5, 6, 7, 8, 9]);
    assert_eq!(
        seqs(&["expr=call.arguments.amount == `7`"]),
        [2, 3, 6, 7, 8, 9]
    );
    assert_eq!(seqs(&["expr=call.approved"]), [8]);
    assert_eq!(seqs(&["expr=call.group == 'fast'"]), [0, 1, 4, 5]);
}

#[test]
fn all_words_must_hold_and_one_glob_of_each() {
    assert_eq!(seqs(&["type=tool.*"]), [2, 3, 8, 9]);
    assert_eq!(seqs(&["type=tool.called,llm.request"]), [0, 2, 4, 8]);
    assert_eq!(seqs(&["type=tool.*", "tool=pay", "type=*.called"]), [8]);
    assert_eq!(seqs(&["actor=principal:*"]), [7]);
    assert_eq!(seqs(&["status=approved"]), [7]);
    assert_eq!(seqs(&["status=ok"]), [1, 3, 5, 9]);
    assert_eq!(seqs(&["step=pay", "scope=", "type=llm.request"]), [0, 4]);
    assert_eq!(seqs(&["item=*"]), [0_u64; 0]);
    assert_eq!(seqs(&[]).len(), 10);
}

#[test]
fn an_expression_sees_the_frame_as_it_is_printed() {
    assert_eq!(seqs(&["expr=id == 'run:run_a#4'"]), [4]);
    assert_eq!(seqs(&["expr=source_frame_id == 'run:run_a#4'"]), [5]);
    assert_eq!(seqs(&["expr=data.cost_micro_usd > `1`"]), [1, 5]);
}

#[test]
fn globs_come_before_expressions_which_need_not_fit_other_frames() {
    let failing = filter(&["expr=starts_with(data.model, 's')"]);
    assert!(paid().iter().any(|frame| failing.matches(frame).is_err()));
    assert_eq!(
        seqs(&["expr=starts_with(data.model, 's')", "type=llm.response"]),
        [1, 5]
    );
}

#[test]
fn what_is_no_filter_is_refused_with_what_to_type() {
    for (word, words) in [
        (
            "tol=pay",
            "unknown key \"tol\" in the filter | did you mean tool?",
        ),
        ("zzzzzz=pay", "known keys: type, scope"),
        ("tool", "\"tool\" has no = | --where KEY=GLOB"),
        ("tool=", "tool has an empty glob"),
        (
            "type=tool.caled",
            "there is no type of frames \"tool.caled\" | did you mean tool.called?",
        ),
        ("type=nothing.*", "there is no type of frames"),
        ("expr=a ==", "a =="),
    ] {
        let found = refused(word);
        assert!(found.contains(words), "{word}: {found}");
    }
    assert!(FrameFilter::from_words(&["type=x.kit.seen".to_owned()]).is_ok());
    assert!(FrameFilter::from_words(&vec!["tool=a".to_owned(); 33]).is_err());
}

#[test]
fn a_star_covers_any_characters_anywhere() {
    use crate::glob::Glob;
    for (glob, text, covers) in [
        ("pay", "pay", true),
        ("pay", "pays", false),
        ("*", "", true),
        ("p*y", "py", true),
        ("p*y", "pay", true),
        ("p*y", "payx", false),
        ("a*a", "a", false),
        ("*é*", "né", true),
        ("a*b*c", "a1b2c", true),
        ("a*b*c", "acb", false),
        ("**", "x", true),
    ] {
        assert_eq!(Glob::new(glob).covers(text), covers, "{glob} {text}");
    }
}
