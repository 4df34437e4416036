//! Tables: fitted to the terminal they are shown on, in plain columns for everything else. Pure but
//! for [`Rows::print`].
//!
//! ```text
//! wide enough ─▶ with lines, free text cut if it must be
//!   else      ─▶ without lines, and without columns one can do without
//!   else      ─▶ a record per block: a line per column
//! ```

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::layout::{Column, Widths, columns, fit, padded, widths};
use super::output::{BAD, DIM, line, note_dim, painted, sheet, words as print_words};
use super::symbols::Symbols;
use super::terminal::{BETWEEN, Terminal};

/// Columns, and rows of clean text.
pub(super) struct Rows {
    head: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// True if lines are drawn where there is space for them.
    lined: bool,
}

/// The reason why the subject of a row failed.
pub(super) struct FailureReason {
    /// The row, counted from 0.
    pub(super) row: usize,
    /// The name of the subject.
    pub(super) name: String,
    /// The reason.
    pub(super) words: String,
}

/// A table after layout.
pub(super) struct LaidOutTable {
    pub(super) lines: Vec<String>,
    /// The position among them at which each row begins.
    starts: Vec<usize>,
    /// Omitted columns that have content.
    pub(super) hidden: Vec<&'static str>,
}

impl LaidOutTable {
    /// Returns `true` if a row shows a text in full.
    fn holds(&self, row: usize, text: &str) -> bool {
        let start = self.starts.get(row).copied().unwrap_or(0);
        let end = self.starts.get(row + 1).copied();
        let lines = self.lines.get(start..end.unwrap_or(self.lines.len()));
        lines
            .unwrap_or_default()
            .iter()
            .any(|line| line.contains(text))
    }
}

impl Rows {
    /// A table with these columns.
    pub(super) fn new(head: &[Column]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            lined: true,
        }
    }

    /// A table that is never drawn with lines, since it is a tree. Its text may have colours.
    pub(super) fn open(head: &[Column]) -> Self {
        Self {
            lined: false,
            ..Self::new(head)
        }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Prints it on standard output.
    pub(super) fn print(&self) {
        self.print_with(&[]);
    }

    /// Prints the table, followed by the reasons that do not fit in their rows.
    pub(super) fn print_with(&self, reasons: &[FailureReason]) {
        let shown = self.shown(&sheet());
        for one in &shown.lines {
            if !line(one) {
                return;
            }
        }
        for FailureReason { row, name, words } in reasons {
            if !shown.holds(*row, words) {
                let mark = painted(BAD, sheet().symbols.bad());
                print_words(&format!("  {mark} {name} {}", painted(DIM, words)), 4);
            }
        }
        if !shown.hidden.is_empty() {
            let words = format!("left out: {}; all with --json", shown.hidden.join(", "));
            note_dim(&words);
        }
    }

    /// Lays it out.
    pub(super) fn shown(&self, sheet: &Terminal) -> LaidOutTable {
        let all = self.natural();
        let Some(width) = sheet.width else {
            return self.columns(&Widths(all.iter().copied().map(Some).collect()), sheet);
        };
        // A line before and behind every column, and a space on both sides of it.
        let room = width.saturating_sub(4);
        if self.lined
            && let Some(found) = widths(&self.head, &all, room, 3)
            && found.0.iter().all(Option::is_some)
        {
            return self.lined(&found, sheet.symbols);
        }
        match widths(&self.drop_spare_columns(), &all, width, BETWEEN.len()) {
            Some(found) => self.columns(&found, sheet),
            None => self.records(sheet),
        }
    }

    /// The columns, with empty ones first to be dropped.
    fn drop_spare_columns(&self) -> Vec<Column> {
        let columns = self.head.iter().enumerate();
        let columns = columns.map(|(place, column)| match self.is_filled(place) {
            true => *column,
            false => column.spare(u8::MAX),
        });
        columns.collect()
    }

    /// The width of each column where nothing is cut.
    fn natural(&self) -> Vec<usize> {
        let wide = |(place, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(place));
            let cells = cells.map(|cell| columns(cell)).max().unwrap_or(0);
            cells.max(columns(column.name))
        };
        self.head.iter().enumerate().map(wide).collect()
    }

    fn lined(&self, widths: &Widths, symbols: Symbols) -> LaidOutTable {
        let mut table = Table::new();
        table
            .load_style(match symbols {
                Symbols::Unicode => presets::UTF8_FULL_CONDENSED,
                Symbols::Ascii => presets::ASCII_FULL_CONDENSED,
            })
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(self.head.iter().map(|column| column.name));
        for row in &self.rows {
            let cells = row.iter().zip(&widths.0);
            table.add_row(
                cells.map(|(cell, width)| fit(cell, width.unwrap_or(0), symbols.ellipsis())),
            );
        }
        for (place, _) in self.head.iter().enumerate().filter(|(_, one)| one.right) {
            if let Some(column) = table.column_mut(place) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table.trim_fmt().lines().map(str::to_owned).collect();
        LaidOutTable {
            // A line above the headings, and one below them; a row is a line.
            starts: (3..).take(self.rows.len()).collect(),
            lines,
            hidden: Vec::new(),
        }
    }

    fn columns(&self, widths: &Widths, sheet: &Terminal) -> LaidOutTable {
        let joined = |row: &mut dyn Iterator<Item = &str>| {
            let cells = row.zip(&self.head).zip(&widths.0);
            let cells = cells.filter_map(|((cell, column), width)| {
                let width = (*width)?;
                let cell = fit(cell, width, sheet.symbols.ellipsis());
                Some(padded(&cell, width, column.right))
            });
            let line = cells.collect::<Vec<_>>().join(BETWEEN);
            line.trim_end().to_owned()
        };
        let head = joined(&mut self.head.iter().map(|column| column.name));
        let head = match self.lined {
            true => head,
            false => painted(DIM, &head),
        };
        let rows = self.rows.iter();
        let rows = rows.map(|row| joined(&mut row.iter().map(String::as_str)));
        let hidden = self.head.iter().enumerate().zip(&widths.0);
        let hidden = hidden.filter(|((place, _), width)| width.is_none() && self.is_filled(*place));
        LaidOutTable {
            lines: std::iter::once(head).chain(rows).collect(),
            starts: (1..).take(self.rows.len()).collect(),
            hidden: hidden.map(|((_, column), _)| column.name).collect(),
        }
    }

    /// One block of lines per row, for narrow terminals. Columns that must be whole stay whole.
    fn records(&self, sheet: &Terminal) -> LaidOutTable {
        let names = self.head.iter().map(|column| columns(column.name));
        let names = names.max().unwrap_or(0);
        let (mut lines, mut starts) = (Vec::new(), Vec::new());
        for (position, row) in self.rows.iter().enumerate() {
            if position > 0 {
                lines.push(String::new());
            }
            starts.push(lines.len());
            for (cell, column) in row
                .iter()
                .zip(&self.head)
                .filter(|(cell, _)| is_filled(cell))
            {
                let name = padded(column.name, names, false);
                let line = format!("{name}{BETWEEN}{cell}");
                lines.push(match column.is_whole() {
                    true => line,
                    false => sheet.fit(&line),
                });
            }
        }
        LaidOutTable {
            lines,
            starts,
            hidden: Vec::new(),
        }
    }

    fn is_filled(&self, place: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(place));
        cells.any(|cell| is_filled(cell))
    }
}

/// Returns `true` if a cell has content.
fn is_filled(cell: &str) -> bool {
    !matches!(cell, "" | "-")
}

#[cfg(test)]
mod tests;
