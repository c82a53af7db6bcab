//! Rows of cells as text in columns, and as a table of a document.

use std::fmt::Write as _;

/// Space between two columns.
const GAP: &str = "  ";

/// The rows below a heading, each column as wide as its widest cell.
#[must_use]
pub fn text<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let heading = heading.map(str::to_owned);
    let all = || std::iter::once(&heading).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|column| all().map(|row| row[column].chars().count()).max().unwrap_or_default());
    let mut made = String::new();
    for row in all() {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(made, "{}", cells.join(GAP).trim_end());
    }
    made
}

/// The same as a table of a document.
#[must_use]
pub fn markdown<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let mut made = format!("| {} |\n|{}\n", heading.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(made, "| {} |", cells.join(" | "));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 2]> {
        vec![["relay".into(), "1".into()], ["a|b".into(), String::new()]]
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        assert_eq!(text(["row", "figure"], &rows()), "row    figure\nrelay  1\na|b\n");
    }

    #[test]
    fn cells_of_documents_hold_no_bar() {
        assert_eq!(markdown(["row", "x"], &rows()), "| row | x |\n|---|---|\n| relay | 1 |\n| a\\|b |  |\n");
    }
}
