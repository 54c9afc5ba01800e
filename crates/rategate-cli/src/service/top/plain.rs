//! The view as plain text.

use std::fmt::Write as _;

use super::state::Overview;

/// Escapes control characters, which could move the cursor of a terminal or end a line.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a line for each rule, in the service's order.
pub(super) fn table(overview: &Overview) -> String {
    let mut rows =
        vec![["RULE", "LIMIT", "ARRIVALS/S", "GRANTED/S", "DENIED/S"].map(str::to_owned)];
    rows.extend(overview.rules.iter().map(|row| {
        let rates = [row.arrivals, row.granted, row.denied].map(|rate| rate.to_string());
        let [arrivals, granted, denied] = rates;
        [printable(&row.shown()), printable(&row.limit), arrivals, granted, denied]
    }));
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Text is aligned to the left, numbers to the right.
            let _ = if column < 2 {
                write!(text, "{cell:<width$}  ")
            } else {
                write!(text, "{cell:>width$}  ")
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for row in overview.rules.iter().filter(|row| !row.sentence.is_empty()) {
        let _ = writeln!(text, "{}: {}", printable(&row.shown()), printable(&row.sentence));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{printable, table};
    use crate::service::top::state::tests::overview;

    #[test]
    fn the_table_is_in_columns() {
        let text = table(&overview());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "RULE  LIMIT           ARRIVALS/S  GRANTED/S  DENIED/S",
                "a     100 per second           5          5         0",
                "b     100 per second         900        888        12",
                "c     100 per second          70         30        40",
                "a: a is busy",
                "b: b is busy",
                "c: c is busy",
            ]
        );
    }

    #[test]
    fn no_key_moves_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\n\u{e4}"), "a\\u{1b}[2Jb\\n\u{e4}");
    }
}
