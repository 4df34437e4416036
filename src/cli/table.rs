//! Tables: with lines for a person at a terminal, in plain columns for everything else.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::output::{is_terminal, line};

/// Columns, and rows of clean text.
pub(super) struct Rows {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns whose text ends at the same place.
    right: Vec<usize>,
}

impl Rows {
    /// A table with these columns.
    pub(super) fn new(head: &[&'static str], right: &[usize]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            right: right.to_vec(),
        }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Prints it on standard output.
    pub(super) fn print(&self) {
        let text = if is_terminal() {
            self.lined()
        } else {
            self.plain()
        };
        for one in text.lines() {
            line(one);
        }
    }

    fn lined(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(self.head.clone());
        for row in &self.rows {
            table.add_row(row.clone());
        }
        for column in &self.right {
            if let Some(column) = table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }

    fn plain(&self) -> String {
        let head: Vec<String> = self.head.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<&Vec<String>> = std::iter::once(&head).chain(&self.rows).collect();
        let wide = |column: usize| {
            let cells = all.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(wide).collect();
        let mut out = String::new();
        for row in all {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, width))| {
                if self.right.contains(&column) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            let joined = cells.collect::<Vec<_>>().join("  ");
            out.push_str(joined.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_columns_are_as_wide_as_their_widest_cell() {
        let mut rows = Rows::new(&["STEP", "TIME"], &[1]);
        rows.push(vec!["größer".into(), "1 ms".into()]);
        rows.push(vec!["b".into(), "10.5 s".into()]);
        assert_eq!(
            rows.plain(),
            "STEP      TIME\ngrößer    1 ms\nb       10.5 s\n"
        );
    }
}
