//! The requirement lines, and their names in texts: `S0.29`, `S0.9–S0.23`, `fn s0_29_low_latency`.

use std::fmt;

/// The number of lines in each series; they count from 1. The series are the requirement lines of
/// the five designs that rategate grew out of (`S`), and their errors and open questions (`X`).
const SERIES: [(char, u32, u32); 11] = [
    ('S', 0, 36),
    ('X', 0, 7),
    ('S', 1, 12),
    ('X', 1, 7),
    ('S', 2, 54),
    ('X', 2, 13),
    ('S', 3, 20),
    ('X', 3, 9),
    ('S', 4, 20),
    ('X', 4, 6),
    ('X', 5, 6),
];

/// One requirement line, such as `S0.29`. A parsed one need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    kind: char,
    design: u32,
    number: u32,
}

impl Line {
    /// Returns `true` if the series has a line of this number.
    pub(super) fn exists(self) -> bool {
        let series = SERIES.iter().find(|series| (series.0, series.1) == (self.kind, self.design));
        series.is_some_and(|series| (1..=series.2).contains(&self.number))
    }

    fn up_to(self, last: Self) -> impl Iterator<Item = Self> {
        (self.number..=last.number).map(move |number| Self { number, ..self })
    }

    /// Returns the line at the start of `text`, and the text after it.
    fn at_start(text: &str) -> Option<(Self, &str)> {
        let kind = text.chars().next().filter(|kind| matches!(kind, 'S' | 'X'))?;
        let (design, rest) = number_at_start(&text[1..])?;
        let (number, rest) = number_at_start(rest.strip_prefix('.')?)?;
        Some((Self { kind, design, number }, rest))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As text, so that a width given by the caller pads the whole.
        f.pad(&format!("{}{}.{}", self.kind, self.design, self.number))
    }
}

/// Returns every requirement line, in order.
pub(super) fn all() -> impl Iterator<Item = Line> {
    SERIES.into_iter().flat_map(|(kind, design, count)| {
        (1..=count).map(move |number| Line { kind, design, number })
    })
}

/// Returns every line that a text names, with ranges expanded. Lines that do not exist are
/// included.
pub(super) fn named_in(text: &str) -> Vec<Line> {
    let mut named = Vec::new();
    let mut rest = text;
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        if !after_word && let Some((line, after)) = Line::at_start(rest) {
            let (last, after) = end_of_range(line, after).unwrap_or((line, after));
            named.extend(line.up_to(last));
            rest = after;
            after_word = true;
        } else {
            after_word = first.is_alphanumeric() || first == '_';
            rest = &rest[first.len_utf8()..];
        }
    }
    named
}

/// Returns the lines of a text that is one line or one range, and nothing else.
pub(super) fn parse_key(text: &str) -> Option<Vec<Line>> {
    let (first, after) = Line::at_start(text)?;
    let (last, after) = end_of_range(first, after).unwrap_or((first, after));
    after.is_empty().then(|| first.up_to(last).collect())
}

/// Returns the lines in a function's name. `x_s2_500` names none, for such a line does not exist.
pub(super) fn named_in_function(name: &str) -> Vec<Line> {
    let words: Vec<&str> = name.split('_').collect();
    let pairs = words.windows(2).map(|pair| format!("{}.{}", pair[0].to_uppercase(), pair[1]));
    let lines = pairs.filter_map(|pair| match Line::at_start(&pair) {
        Some((line, "")) if line.exists() => Some(line),
        _ => None,
    });
    lines.collect()
}

/// Returns the `–S0.23` after `S0.9`. Two ends in different series are two lines, not a range.
fn end_of_range(first: Line, after: &str) -> Option<(Line, &str)> {
    let joint = ["–", "-", "..=", ".."].into_iter().find(|&joint| after.starts_with(joint))?;
    let (last, after) = Line::at_start(after.strip_prefix(joint)?)?;
    let same_series = (last.kind, last.design) == (first.kind, first.design);
    (same_series && last.number >= first.number).then_some((last, after))
}

fn number_at_start(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::{all, named_in, named_in_function};

    fn names(text: &str) -> String {
        named_in(text).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_text_names_lines_and_ranges() {
        assert_eq!(names("S0.29: the tape, (X3.1)."), "S0.29 X3.1");
        assert_eq!(
            names("S0.9–S0.11 S1.1-S1.2, X0.6..X0.7, S2.1..=S2.2"),
            "S0.9 S0.10 S0.11 S1.1 S1.2 X0.6 X0.7 S2.1 S2.2"
        );
        assert_eq!(names("S0.9-S1.2, S0.9-S0.7, S0.9-8"), "S0.9 S1.2 S0.9 S0.7 S0.9");
        assert_eq!(names("AS0.9, MAX3.1, S3, S0.x, 2.5"), "");
        assert_eq!(names("S9.1"), "S9.1");
    }

    #[test]
    fn a_function_name_names_lines() {
        let names =
            |name| named_in_function(name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names("s0_29_low_latency"), ["S0.29"]);
        assert_eq!(names("exact_x3_1_and_s3_4"), ["X3.1", "S3.4"]);
        assert!(names("s2_500_state").is_empty() && names("is_5").is_empty());
    }

    #[test]
    fn every_line_exists_once() {
        assert_eq!(all().count(), 190);
        assert!(all().all(super::Line::exists));
        assert!(named_in("S0.37 S0.0 S5.1").iter().all(|line| !line.exists()));
    }
}
