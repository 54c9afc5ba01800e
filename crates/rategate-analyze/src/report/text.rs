//! The report as text.

use std::fmt::{self, Write as _};

use rategate::deny::escaped;
use rategate_core::span;

use super::{CallersBeyond, Counts, Followed, ListReport, Published, Report, percent};
use crate::callers::Row;

impl Report {
    /// Returns the report as text for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, text: &mut String) -> fmt::Result {
        let Counts { lines, calls, allowed, denied, too_large, unlimited, .. } = self.counts;
        writeln!(text, "{}, for each {}\n", self.limit, self.key)?;
        let span = self.from.zip(self.to);
        let span = span.map_or_else(String::new, |(from, to)| format!(", {from} to {to}"));
        writeln!(text, "lines     {lines}{span}")?;
        self.write_passed_over(text)?;
        writeln!(text, "calls     {calls}")?;
        writeln!(text, "allowed   {allowed} ({})", percent(allowed, calls))?;
        writeln!(text, "denied    {denied} ({})", percent(denied, calls))?;
        if too_large > 0 {
            writeln!(text, "          {too_large} of them for more than can ever pass at once")?;
        }
        if self.unit == "bytes" {
            let (allowed, denied) = (self.counts.allowed_amount, self.counts.denied_amount);
            let denied_percent = percent(denied, allowed.saturating_add(denied));
            writeln!(text, "bytes     {allowed} allowed, {denied} denied ({denied_percent})")?;
        }
        if unlimited > 0 {
            writeln!(
                text,
                "WARNING   {unlimited} calls did not fit in the table and passed without a limit; \
                 raise --keys"
            )?;
        }
        self.write_callers(text)?;
        self.write_suggestion(text)?;
        if let Some(Published { callers, left_out }) = self.gate {
            write!(text, "gate      {callers} callers on the deny list")?;
            if left_out > 0 {
                write!(text, ", {left_out} denials did not fit on it")?;
            }
            writeln!(text)?;
        }
        if let Some(follow) = &self.follow {
            self.write_follow(follow, text)?;
        }
        if let Some(list) = &self.list {
            self.write_with_list(list, text)?;
        }
        write_rows("most denied", &self.by_denied, text)?;
        write_rows("most calls", &self.by_calls, text)
    }

    fn write_passed_over(&self, text: &mut String) -> fmt::Result {
        let Counts { skipped, blank, filtered, late, latest_ns, .. } = self.counts;
        for (what, count) in [("skipped", skipped), ("blank", blank), ("filtered", filtered)] {
            if count > 0 {
                writeln!(text, "{what:<9} {count}")?;
            }
        }
        if late > 0 {
            let latest = span::Text(latest_ns);
            let how = "each counts as at the newest before it";
            writeln!(text, "late      {late}, by up to {latest}; {how}")?;
        }
        Ok(())
    }

    fn write_callers(&self, text: &mut String) -> fmt::Result {
        let [all, denied] = [self.callers, self.callers_denied]
            .map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        writeln!(
            text,
            "callers   {all}, of whom {denied} were denied at least once ({})",
            percent(denied, all)
        )?;
        if let Some(CallersBeyond { calls, denied, unlisted_denied_at_most }) = self.beyond_keys {
            writeln!(
                text,
                "          beyond --keys came others with {calls} calls, {denied} of them denied; \
                 none that is not listed was denied more than {unlisted_denied_at_most} times"
            )?;
        }
        let Some(Row { caller, fullest_at_least: Some(min), fullest_at_most: Some(max), .. }) =
            &self.fullest
        else {
            return Ok(());
        };
        let (unit, period, name) = (self.unit, &self.period, escaped(caller));
        let range = if self.fullest_is_exact { min.to_string() } else { between(*min, *max) };
        writeln!(text, "fullest   {range} {unit} in a window of {period}, by {name}")
    }

    fn write_suggestion(&self, text: &mut String) -> fmt::Result {
        let (spare, set_aside) = (self.spare, self.set_aside);
        let Some(found) = self.suggestion else {
            return writeln!(
                text,
                "suggested nothing: too few callers to tell the well-behaved from others"
            );
        };
        let (unit, period) = (self.unit, &self.period);
        writeln!(text, "suggested at most {} {unit} in any window of {period}", found.permits)?;
        if found.at_least < found.permits {
            writeln!(
                text,
                "          (no less than {} would do: windows are counted in sixtieths)",
                found.at_least
            )?;
        }
        writeln!(
            text,
            "          denies fewer than {spare} of the {} well-behaved callers, \
             and {} of all\n          \
             not well-behaved: the {} with the fullest windows ({set_aside}, rounded up)",
            found.well_behaved, found.denies_callers, found.set_aside
        )
    }

    fn write_follow(&self, follow: &Followed, text: &mut String) -> fmt::Result {
        let Followed { rotations, lines, max_in_second, overshoot_at_most, .. } = follow;
        writeln!(text, "rotations {rotations}")?;
        if *lines == 0 {
            return writeln!(text, "delay     none seen: no line came while following");
        }
        let [worst, mean] = [follow.delay_worst_ns, follow.delay_mean_ns].map(rounded);
        writeln!(text, "delay     {mean} on average, {worst} at most, of {lines} lines")?;
        if follow.published_worst_ns > 0 {
            let worst = rounded(follow.published_worst_ns);
            writeln!(text, "          {worst} at most until the deny list had it")?;
        }
        writeln!(
            text,
            "overshoot at most {overshoot_at_most} {} of one caller before a denial took hold: up \
             to {max_in_second} a second for that long",
            self.unit
        )
    }

    fn write_with_list(&self, list: &ListReport, text: &mut String) -> fmt::Result {
        let (effects, needless) = (&list.effects, &list.needless);
        let ([passed, denied], unit) = (effects.sums(), self.unit);
        let (hold, delay) = (span::Text(list.hold_ns), rounded(list.delay_ns));
        writeln!(
            text,
            "with list {passed} calls passed, {} of them over the limit; {denied} denied, {} of \
             them within the limit",
            effects.passed_over, effects.denied_within
        )?;
        writeln!(
            text,
            "          {} times a caller was listed for {hold}, {} of them before it was over the \
             limit",
            effects.closings, effects.closings_early
        )?;
        writeln!(
            text,
            "          {} {unit} of one caller over the limit passed before the list had it; at \
             most {} could, \
             up to {} a second for {delay}",
            effects.overshoot, list.overshoot_at_most, list.max_in_second
        )?;
        writeln!(
            text,
            "          listed without need: {} callers who were never over the limit; {} of the \
             {} well-behaved ones, \
             of whom {} calls within the limit were denied",
            needless.callers_never_over,
            needless.well_behaved_listed,
            needless.well_behaved,
            needless.well_behaved_denied_within
        )
    }
}

fn write_rows(title: &str, rows: &[Row], text: &mut String) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}\n{:>12} {:>12} {:>15}  caller", "denied", "calls", "fullest window")?;
    for row in rows {
        let denied = if row.denied_error > 0 {
            between(row.denied.saturating_sub(row.denied_error), row.denied)
        } else {
            row.denied.to_string()
        };
        let calls = row.calls.map_or_else(|| "-".to_owned(), |calls| calls.to_string());
        let fullest = row.fullest_at_least.map_or_else(|| "-".to_owned(), |min| min.to_string());
        writeln!(text, "{denied:>12} {calls:>12} {fullest:>15}  {}", escaped(&row.caller))?;
    }
    Ok(())
}

fn between(min: u64, max: u64) -> String {
    if min == max { min.to_string() } else { format!("{min} to {max}") }
}

/// Rounds up to the millisecond.
fn rounded(ns: u64) -> span::Text {
    span::Text(ns.div_ceil(1_000_000).saturating_mul(1_000_000))
}
