//! Tables on terminals of several widths, and in a pipe.

use super::*;

fn runs() -> Rows {
    let mut rows = Rows::new(&[
        Column::whole("RUN"),
        Column::name("WORKFLOW"),
        Column::whole("TIME").right().spare(2),
        Column::text("ERROR").spare(1),
    ]);
    let cells = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
    rows.push(cells(["run_0123456789", "größer", "1 ms", ""]));
    rows.push(cells([
        "run_9876543210",
        "日本語の仕事",
        "10.5 s",
        "provider_error: it went away",
    ]));
    rows
}

fn on(width: Option<usize>, symbols: Symbols) -> Vec<String> {
    runs().shown(&Terminal { width, symbols }).lines
}

#[test]
fn a_pipe_gets_plain_columns_as_wide_as_their_widest_cell() {
    assert_eq!(
        on(None, Symbols::Unicode),
        [
            "RUN             WORKFLOW        TIME  ERROR",
            "run_0123456789  größer          1 ms",
            "run_9876543210  日本語の仕事  10.5 s  provider_error: it went away",
        ]
    );
}

#[test]
fn a_wide_terminal_gets_lines() {
    assert_eq!(
        on(Some(70), Symbols::Unicode),
        [
            "┌────────────────┬──────────────┬────────┬───────────────────────────┐",
            "│ RUN            ┆ WORKFLOW     ┆   TIME ┆ ERROR                     │",
            "╞════════════════╪══════════════╪════════╪═══════════════════════════╡",
            "│ run_0123456789 ┆ größer       ┆   1 ms ┆                           │",
            "│ run_9876543210 ┆ 日本語の仕事 ┆ 10.5 s ┆ provider_error: it went … │",
            "└────────────────┴──────────────┴────────┴───────────────────────────┘",
        ]
    );
    let ascii = on(Some(70), Symbols::Ascii);
    assert_eq!(
        ascii[4],
        "| run_9876543210 | 日本語の仕事 | 10.5 s | provider_error: it wen... |"
    );
    assert!(ascii[2].starts_with("+====") && ascii[2].ends_with("====+"));
}

#[test]
fn a_narrow_terminal_gets_columns_without_lines_and_does_without_some() {
    let shown = runs().shown(&Terminal {
        width: Some(48),
        symbols: Symbols::Unicode,
    });
    assert_eq!(
        shown.lines,
        [
            "RUN             WORKFLOW      ERROR",
            "run_0123456789  größer",
            "run_9876543210  日本語の仕事  provider_error: i…",
        ]
    );
    assert_eq!(shown.hidden, ["TIME"]);
}

#[test]
fn a_terminal_for_which_no_table_is_narrow_enough_gets_a_block_a_row() {
    assert_eq!(
        on(Some(25), Symbols::Ascii),
        [
            "RUN       run_0123456789",
            "WORKFLOW  größer",
            "TIME      1 ms",
            "",
            "RUN       run_9876543210",
            "WORKFLOW  日本語の仕事",
            "TIME      10.5 s",
            "ERROR     provider_err...",
        ]
    );
}

#[test]
fn no_width_cuts_an_id_or_is_exceeded_by_anything_else() {
    for width in 0..160 {
        let lines = on(Some(width), Symbols::Unicode);
        for id in ["run_0123456789", "run_9876543210"] {
            assert!(
                lines.iter().any(|line| line.contains(id)),
                "{width}: {lines:#?}"
            );
        }
        for line in &lines {
            assert!(columns(line) <= width.max(24), "{width}: {line:?}");
        }
    }
}
