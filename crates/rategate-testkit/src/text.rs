//! The report as text: title, tape, and a table of calls.

use std::fmt::Write as _;

use rategate_core::span::write_decimal;

use crate::report::{Operation, Report, StepReport};

impl Report {
    /// Returns the report as text for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        if let Some(title) = &self.title {
            writeln!(text, "{title}")?;
        }
        if !self.tape.is_empty() {
            writeln!(text, "{}", self.tape)?;
        }
        writeln!(text, "elapsed {} ms, granted {}", milliseconds(self.elapsed_ns), self.granted)?;
        if self.operations.is_empty() && self.steps.is_empty() {
            writeln!(text, "nothing called: no [[caller]], [[arrivals]] or [[step]] does")?;
        }
        let shape = StepShape::of(&self.steps);
        if !self.steps.is_empty() {
            writeln!(text, "\n{}", shape.heading())?;
        }
        for (number, step) in (1_usize..).zip(&self.steps) {
            writeln!(text, "{}", shape.row(number, step).trim_end())?;
        }
        // If each starts as promised, one column shows both.
        let has_late = self.operations.iter().any(|done| done.promised_ns != done.start_ns);
        if !self.operations.is_empty() {
            writeln!(text, "\n{}", operation_heading(has_late))?;
        }
        for operation in &self.operations {
            writeln!(text, "{}", operation_row(operation, has_late).trim_end())?;
        }
        if !self.checks.is_empty() {
            writeln!(text)?;
        }
        for check in &self.checks {
            let verdict = if check.seen <= check.at_most { "held" } else { "BROKEN" };
            let (window, from) = (milliseconds(check.window_ns), milliseconds(check.from_ns));
            writeln!(
                text,
                "check {verdict}: at most {} in any {window} ms; \
                 the fullest, from {from} ms, has {}",
                check.at_most, check.seen
            )?;
        }
        for mismatch in &self.mismatches {
            writeln!(text, "MISMATCH {mismatch}")?;
        }
        Ok(())
    }
}

fn operation_heading(has_late: bool) -> String {
    let promised = if has_late { "  promised ms" } else { "" };
    format!(
        "caller    arrival ms{promised}     start ms       end ms      wait ms  permits  outcome"
    )
}

/// The shape of the table of steps: its width, and which optional columns it has.
struct StepShape {
    outcome: usize,
    has_waits: bool,
    has_returns: bool,
}

impl StepShape {
    fn of(steps: &[StepReport]) -> Self {
        let outcome = steps.iter().map(|step| step.outcome.word().len()).fold(9, usize::max);
        let has_waits = steps.iter().any(|step| step.call == "wait");
        let has_returns = steps.iter().any(|step| ["charge", "commit"].contains(&step.call));
        Self { outcome, has_waits, has_returns }
    }

    fn heading(&self) -> String {
        format!(
            "step        at ms  call     permits  {:<width$}     start ms       wait ms   \
             retry after ms  remaining{}{}",
            "outcome",
            if self.has_waits { "     ended ms" } else { "" },
            if self.has_returns { "       back       owed" } else { "" },
            width = self.outcome,
        )
    }

    fn row(&self, number: usize, step: &StepReport) -> String {
        let mut row = self.call(number, step);
        // Writing to a string cannot fail.
        if self.has_waits {
            let ended = step.ended_ns.map(milliseconds).unwrap_or_default();
            let _ = write!(row, " {ended:>12}");
        }
        if self.has_returns {
            let count = |count: Option<u64>| count.map_or_else(String::new, |n| n.to_string());
            let owed = step.owed.or(step.debt);
            let _ = write!(row, " {:>10} {:>10}", count(step.back), count(owed));
        }
        row
    }

    fn call(&self, number: usize, step: &StepReport) -> String {
        format!(
            "{number:>4} {:>12}  {:<8} {:>6}  {:<width$} {:>12}  {:>12} {:>16} {:>10}",
            milliseconds(step.at_ns),
            step.call,
            step.permits.map_or_else(String::new, |permits| permits.to_string()),
            step.outcome,
            optional(step.start_ns),
            optional(step.wait_ns),
            optional(step.retry_after_ns),
            if step.remaining == u64::MAX { "any".to_owned() } else { step.remaining.to_string() },
            width = self.outcome,
        )
    }
}

fn operation_row(operation: &Operation, has_late: bool) -> String {
    let promised =
        if has_late { format!(" {:>12}", optional(operation.promised_ns)) } else { String::new() };
    let wait_ns = match (operation.start_ns, operation.scheduled_ns) {
        (Some(start_ns), Some(scheduled_ns)) => Some(start_ns.saturating_sub(scheduled_ns)),
        _ => None,
    };
    format!(
        "{:>6} {:>13}{promised} {:>12} {:>12} {:>12} {:>8}  {}",
        operation.caller,
        milliseconds(operation.arrival_ns),
        optional(operation.start_ns),
        optional(operation.end_ns),
        optional(wait_ns),
        operation.permits,
        operation.outcome,
    )
}

fn optional(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), milliseconds)
}

/// Returns milliseconds in their shortest decimal form.
pub(crate) fn milliseconds(ns: u64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_decimal(&mut text, ns, 1_000_000);
    text
}
