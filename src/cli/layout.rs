//! Fits text to the width of a terminal: columns that are shortened or dropped by rank, and lines
//! that are cut. Pure.
//!
//! Widths are columns of a screen: a wide character takes two, a colour none.

use unicode_width::UnicodeWidthChar as _;

/// The treatment of a column where a table is wider than the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// Never cut: ids, deadlines, states.
    Whole,
    /// Cut once free text is as short as it gets.
    Name,
    /// Cut first.
    Text,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// Its heading.
    pub(super) name: &'static str,
    /// True if its text is aligned to the right.
    pub(super) right: bool,
    rank: Rank,
    /// The number of columns below which it is not cut.
    least: usize,
    /// 0: always shown. Otherwise the column may be dropped, see [`Column::spare`].
    spare: u8,
}

impl Column {
    /// A column that is never shortened.
    pub(super) const fn whole(name: &'static str) -> Self {
        Self {
            name,
            right: false,
            rank: Rank::Whole,
            least: usize::MAX,
            spare: 0,
        }
    }

    /// A column of names.
    pub(super) const fn name(name: &'static str) -> Self {
        Self {
            rank: Rank::Name,
            least: 10,
            ..Self::whole(name)
        }
    }

    /// A column of free text.
    pub(super) const fn text(name: &'static str) -> Self {
        Self {
            rank: Rank::Text,
            least: 16,
            ..Self::whole(name)
        }
    }

    /// With its text at the right.
    pub(super) const fn right(self) -> Self {
        Self {
            right: true,
            ..self
        }
    }

    /// Not cut below so many columns.
    pub(super) const fn at_least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    /// An optional column. Those with smaller numbers are kept first; later ones are kept if they
    /// still fit.
    pub(super) const fn spare(self, order: u8) -> Self {
        Self {
            spare: order,
            ..self
        }
    }

    /// Returns `true` if it is never cut.
    pub(super) fn is_whole(&self) -> bool {
        self.rank == Rank::Whole
    }

    /// The least number of columns that it may be cut to.
    fn least(&self, natural: usize) -> usize {
        natural.min(self.least.max(columns(self.name)))
    }
}

/// The columns of a table that are shown, and how wide each is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Widths(pub(super) Vec<Option<usize>>);

/// Finds widths with which a table takes at most `room` columns, given the space between two
/// columns. `None` if the columns that must be shown whole do not fit.
pub(super) fn widths(
    table: &[Column],
    natural: &[usize],
    room: usize,
    between: usize,
) -> Option<Widths> {
    let least = |place: &usize| {
        let natural = natural.get(*place).copied().unwrap_or(0);
        table.get(*place).map_or(0, |column| column.least(natural))
    };
    let total = |kept: &[usize]| {
        let gaps = between.saturating_mul(kept.len().saturating_sub(1));
        kept.iter().map(least).fold(gaps, usize::saturating_add)
    };
    let spare = |place: &usize| table.get(*place).map_or(0, |column| column.spare);
    let (mut kept, mut spares): (Vec<usize>, Vec<usize>) =
        (0..table.len()).partition(|place| spare(place) == 0);
    if total(&kept) > room {
        return None;
    }
    spares.sort_by_key(spare);
    for place in spares {
        kept.push(place);
        if total(&kept) > room {
            kept.pop();
        }
    }
    let gaps = between.saturating_mul(kept.len().saturating_sub(1));
    let mut widths = vec![None; table.len()];
    for place in &kept {
        if let (Some(width), Some(natural)) = (widths.get_mut(*place), natural.get(*place)) {
            // A column wider than the whole table is cut in any case.
            *width = Some((*natural).min(room.max(least(place))));
        }
    }
    for rank in [Rank::Text, Rank::Name] {
        narrow(table, &mut widths, room.saturating_sub(gaps), rank, &least);
    }
    Some(Widths(widths))
}

/// Takes columns of the screen from the columns of a rank, always from the widest, until it fits.
fn narrow(
    table: &[Column],
    widths: &mut [Option<usize>],
    room: usize,
    rank: Rank,
    least: &impl Fn(&usize) -> usize,
) {
    while widths.iter().flatten().sum::<usize>() > room {
        let wide = widths.iter_mut().enumerate().filter_map(|(place, width)| {
            let gives = table.get(place).is_some_and(|column| column.rank == rank);
            width
                .as_mut()
                .filter(|width| gives && **width > least(&place))
        });
        let Some(widest) = wide.max_by_key(|width| **width) else {
            return;
        };
        *widest -= 1;
    }
}

/// The number of columns that a text takes on a screen; colours take none.
pub(super) fn columns(text: &str) -> usize {
    TextPieces(text).map(|piece| piece.columns()).sum()
}

/// A text in at most so many columns, the last of them an ellipsis if something was left out.
/// Colours stay.
pub(super) fn fit(text: &str, width: usize, ellipsis: &str) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let ellipsis = match columns(ellipsis) <= width {
        true => ellipsis,
        false => "",
    };
    let room = width.saturating_sub(columns(ellipsis));
    let (mut out, mut taken, mut full) = (String::new(), 0, false);
    for piece in TextPieces(text) {
        match piece {
            TextPiece::Colour(sequence) => out.push_str(sequence),
            TextPiece::Shown(_, _) if full => {}
            TextPiece::Shown(shown, wide) if taken + wide <= room => {
                out.push_str(shown);
                taken += wide;
            }
            TextPiece::Shown(_, _) => {
                full = true;
                out.push_str(ellipsis);
            }
        }
    }
    out
}

/// A text in lines of at most so many columns, broken behind spaces where they are not too short
/// then; nothing is left out.
pub(super) fn fold(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut taken) = (Vec::new(), String::new(), 0);
    for piece in TextPieces(text) {
        let wide = piece.columns();
        if taken > 0 && taken + wide > width {
            let space = line.rfind(' ').map_or(0, |space| space + 1);
            let at = match columns(line.get(..space).unwrap_or_default()) * 2 > width {
                true => space,
                false => line.len(),
            };
            let rest = line.split_off(at);
            lines.push(std::mem::replace(&mut line, rest));
            taken = columns(&line);
        }
        line.push_str(piece.text());
        taken += wide;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Pads a text with spaces up to a width, on the left if `right` is set.
pub(super) fn padded(text: &str, width: usize, right: bool) -> String {
    let spaces = " ".repeat(width.saturating_sub(columns(text)));
    match right {
        true => format!("{spaces}{text}"),
        false => format!("{text}{spaces}"),
    }
}

/// A text in pieces that are not to be cut.
struct TextPieces<'a>(&'a str);

enum TextPiece<'a> {
    /// One of our colours; text from data has no escape sequences.
    Colour(&'a str),
    /// A character and the marks that belong to it, and its width.
    Shown(&'a str, usize),
}

impl<'a> TextPiece<'a> {
    fn text(&self) -> &'a str {
        match self {
            Self::Colour(text) | Self::Shown(text, _) => text,
        }
    }

    fn columns(&self) -> usize {
        match self {
            Self::Colour(_) => 0,
            Self::Shown(_, wide) => *wide,
        }
    }
}

impl<'a> Iterator for TextPieces<'a> {
    type Item = TextPiece<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut characters = self.0.char_indices();
        let (_, first) = characters.next()?;
        if first == '\u{1b}' {
            let end = self.0.find('m').map_or(self.0.len(), |end| end + 1);
            let (sequence, rest) = self.0.split_at(end);
            self.0 = rest;
            return Some(TextPiece::Colour(sequence));
        }
        let mut wide = first.width().unwrap_or(0);
        let mut end = self.0.len();
        for (at, character) in characters {
            // The variation selector makes a narrow character a wide emoji.
            if character == '\u{fe0f}' {
                wide = wide.max(2);
            } else if character == '\u{1b}' || character.width().unwrap_or(0) > 0 {
                end = at;
                break;
            }
        }
        let (shown, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(TextPiece::Shown(shown, wide))
    }
}

#[cfg(test)]
mod tests;
