//! Widths of columns, and cut lines.

use proptest::prelude::*;

use super::*;

const TABLE: [Column; 6] = [
    Column::whole("RUN"),
    Column::name("WORKFLOW"),
    Column::whole("STATUS"),
    Column::whole("STARTED").spare(2),
    Column::whole("TIME").right().spare(3),
    Column::text("ERROR").spare(1),
];

fn found(natural: [usize; 6], room: usize) -> Option<Vec<Option<usize>>> {
    widths(&TABLE, &natural, room, 2).map(|widths| widths.0)
}

#[test]
fn free_text_is_cut_first_then_names_then_columns_go_and_ids_stay() {
    let natural = [36, 30, 8, 20, 6, 90];
    let all = |widths: [usize; 6]| Some(widths.map(Some).to_vec());
    assert_eq!(found(natural, 200), all(natural));
    assert_eq!(found(natural, 180), all([36, 30, 8, 20, 6, 70]));
    assert_eq!(found(natural, 126), all([36, 30, 8, 20, 6, 16]));
    assert_eq!(found(natural, 110), all([36, 14, 8, 20, 6, 16]));
    let kept = Some(vec![Some(36), Some(13), Some(8), Some(20), None, Some(16)]);
    assert_eq!(found(natural, 101), kept);
    let kept = Some(vec![Some(36), Some(12), Some(8), None, None, Some(16)]);
    assert_eq!(found(natural, 80 - 2), kept);
    let kept = Some(vec![Some(36), Some(12), Some(8), None, None, None]);
    assert_eq!(found(natural, 60), kept);
    assert_eq!(found(natural, 57), None);
}

#[test]
fn a_wide_character_takes_two_columns_and_a_colour_none() {
    assert_eq!(columns("größer"), 6);
    assert_eq!(columns("日本語"), 6);
    assert_eq!(columns("e\u{301}"), 1);
    assert_eq!(columns("\u{1b}[1;31mred\u{1b}[0m"), 3);
    assert_eq!(columns("☁\u{fe0f}"), 2);
    assert_eq!(padded("日本", 6, true), "  日本");
    assert_eq!(padded("日本", 6, false), "日本  ");
    assert_eq!(padded("too long", 3, false), "too long");
}

#[test]
fn a_cut_text_ends_in_an_ellipsis_and_keeps_its_colours() {
    assert_eq!(fit("abcdef", 6, "…"), "abcdef");
    assert_eq!(fit("abcdefg", 6, "…"), "abcde…");
    assert_eq!(fit("abcdefg", 6, "..."), "abc...");
    assert_eq!(fit("日本語", 5, "…"), "日本…");
    assert_eq!(fit("日本語", 4, "…"), "日…");
    assert_eq!(fit("ab", 1, "…"), "…");
    assert_eq!(fit("ab", 0, "…"), "");
    assert_eq!(fit("abcdef", 3, "..."), "...");
    assert_eq!(fit("abcdef", 2, "..."), "ab");
    let red = "\u{1b}[31mabcdef\u{1b}[0m";
    assert_eq!(fit(red, 4, "…"), "\u{1b}[31mabc…\u{1b}[0m");
}

#[test]
fn a_folded_text_loses_nothing() {
    assert_eq!(fold("abcdefg", 3), ["abc", "def", "g"]);
    assert_eq!(fold("日本語", 5), ["日本", "語"]);
    assert_eq!(fold("日", 1), ["日"]);
    assert_eq!(fold("one two three", 8), ["one two ", "three"]);
    assert_eq!(fold("a bcdefghij", 6), ["a bcde", "fghij"]);
    assert!(fold("", 3).is_empty());
}

fn column() -> impl Strategy<Value = Column> {
    let names = prop_oneof![Just("A"), Just("NAME"), Just("A LONG HEADING")];
    (names, 0..3, 0..4u8, any::<bool>()).prop_map(|(name, rank, spare, right)| {
        let column = match rank {
            0 => Column::whole(name),
            1 => Column::name(name),
            _ => Column::text(name),
        };
        let column = column.spare(spare);
        if right { column.right() } else { column }
    })
}

fn table() -> impl Strategy<Value = (Vec<Column>, Vec<usize>)> {
    let column = column().prop_flat_map(|column| {
        let least = columns(column.name);
        (Just(column), least..200)
    });
    proptest::collection::vec(column, 1..9).prop_map(|all| all.into_iter().unzip())
}

proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn a_table_is_never_wider_than_its_room(
        (table, natural) in table(), room in 0..260usize, between in 1..4usize,
    ) {
        let found = widths(&table, &natural, room, between);
        prop_assert_eq!(&found, &widths(&table, &natural, room, between));
        let needed = |place: usize| table[place].least(natural[place]);
        let needs: Vec<usize> = (0..table.len()).filter(|place| table[*place].spare == 0).collect();
        let gaps = |count: usize| between * count.saturating_sub(1);
        let least: usize = needs.iter().map(|place| needed(*place)).sum::<usize>() + gaps(needs.len());
        prop_assert_eq!(found.is_some(), least <= room);
        let Some(Widths(found)) = found else { return Ok(()) };
        let shown = found.iter().flatten().count();
        let total = found.iter().flatten().sum::<usize>() + gaps(shown);
        prop_assert!(total <= room, "{} > {}", total, room);
        let mut cut_name = false;
        let mut long_text = false;
        for (place, width) in found.iter().enumerate() {
            let (column, natural) = (&table[place], natural[place]);
            let Some(width) = *width else {
                prop_assert!(column.spare > 0, "a column that must stay is gone");
                continue;
            };
            prop_assert!(width <= natural && width >= needed(place));
            if column.is_whole() {
                prop_assert_eq!(width, natural, "an id is cut");
            }
            cut_name |= column.rank == Rank::Name && width < natural;
            long_text |= column.rank == Rank::Text && width > needed(place);
        }
        prop_assert!(!(cut_name && long_text), "a name is cut before free text is short");
        // Nothing is cut or left out where there is room.
        let whole = natural.iter().sum::<usize>() + gaps(table.len());
        if whole <= room {
            prop_assert_eq!(found, natural.into_iter().map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_cut_text_is_never_wider_and_begins_as_the_text_does(
        text in "[a-z日é\u{301}👩\u{200d}]{0,30}", width in 0..40usize,
        dots in prop_oneof![Just("…"), Just("...")],
    ) {
        let cut = fit(&text, width, dots);
        prop_assert!(columns(&cut) <= width);
        prop_assert!(text.starts_with(cut.strip_suffix(dots).unwrap_or(&cut)));
        prop_assert_eq!(cut == text, columns(&text) <= width);
        let folded = fold(&text, width.max(2));
        prop_assert_eq!(folded.concat(), text);
        prop_assert!(folded.iter().all(|line| columns(line) <= width.max(2)));
    }
}
