//! The report as JSON. Names of fields are stable; fields may be added.

use std::fmt::{self, Write as _};

use super::super::callers::Row;
use super::super::log::Utc;
use super::Report;

impl Report {
    pub(in crate::analyze) fn to_json(&self) -> String {
        let mut json = String::new();
        // Writing to a `String` cannot fail.
        let _ = self.write_json(&mut json);
        json
    }

    fn write_json(&self, json: &mut String) -> fmt::Result {
        let counts = &self.counts;
        writeln!(json, "{{\n  \"limit\": {},", text(&self.title))?;
        writeln!(
            json,
            "  \"key\": {}, \"unit\": \"{}\", \"period\": \"{}\",",
            text(&self.key),
            self.unit,
            self.period
        )?;
        let first =
            counts.first_ns.map_or_else(|| "null".to_owned(), |ns| format!("\"{}\"", Utc(ns)));
        let last = counts
            .first_ns
            .map_or_else(|| "null".to_owned(), |_| format!("\"{}\"", Utc(counts.newest_ns)));
        writeln!(json, "  \"from\": {first}, \"to\": {last},")?;
        for (name, number) in [
            ("lines", counts.lines),
            ("blank", counts.blank),
            ("filtered", counts.filtered),
            ("skipped", counts.skipped),
            ("late", counts.late),
            ("latest_ns", counts.latest_ns),
            ("calls", self.calls()),
            ("allowed", counts.allowed),
            ("denied", counts.denied),
            ("allowed_amount", counts.allowed_amount),
            ("denied_amount", counts.denied_amount),
            ("too_large", counts.too_large),
            ("unlimited", counts.unlimited),
        ] {
            writeln!(json, "  \"{name}\": {number},")?;
        }
        writeln!(
            json,
            "  \"callers\": {}, \"callers_denied\": {},",
            self.callers, self.callers_denied
        )?;
        self.write_skipped(json)?;
        match self.beyond {
            Some((calls, denied, floor)) => writeln!(
                json,
                "  \"beyond_keys\": {{\"calls\": {calls}, \"denied\": {denied}, \
                 \"unlisted_denied_at_most\": {floor}}},"
            )?,
            None => writeln!(json, "  \"beyond_keys\": null,")?,
        }
        self.write_suggested(json)?;
        self.write_gate(json)?;
        write_rows("by_denied", &self.by_denied, json)?;
        write_rows("by_calls", &self.by_calls, json)?;
        let bars =
            self.timeline.bars.iter().map(|(allowed, denied)| format!("[{allowed},{denied}]"));
        let bars = bars.collect::<Vec<_>>().join(",");
        let (from_s, width_s) = (self.timeline.from_s, self.timeline.width_s);
        writeln!(
            json,
            "  \"timeline\": {{\"from_s\": {from_s}, \"width_s\": {width_s}, \"allowed_denied\": \
             [{bars}]}}\n}}"
        )
    }

    fn write_skipped(&self, json: &mut String) -> fmt::Result {
        let skipped = self.counts.shown.iter().map(|(file, line, why)| {
            format!("{{\"file\": {}, \"line\": {line}, \"why\": {}}}", text(file), text(why.what()))
        });
        writeln!(json, "  \"first_skipped\": [{}],", skipped.collect::<Vec<_>>().join(", "))
    }

    fn write_suggested(&self, json: &mut String) -> fmt::Result {
        writeln!(json, "  \"fullest_is_exact\": {},", self.is_exact)?;
        let Some(found) = self.suggestion else { return writeln!(json, "  \"suggestion\": null,") };
        writeln!(
            json,
            "  \"suggestion\": {{\"permits\": {}, \"at_least\": {}, \"well_behaved\": {}, \
             \"set_aside\": {}, \
             \"may_deny\": {}, \"denies_callers\": {}}},",
            found.permits,
            found.at_least,
            found.well_behaved,
            found.set_aside,
            found.may_deny,
            self.suggestion_denies
        )
    }

    fn write_gate(&self, json: &mut String) -> fmt::Result {
        match self.gate {
            Some((denied, left_out)) => {
                writeln!(json, "  \"gate\": {{\"callers\": {denied}, \"left_out\": {left_out}}},")?;
            }
            None => writeln!(json, "  \"gate\": null,")?,
        }
        self.write_list(json)?;
        let Some(follow) = &self.follow else { return writeln!(json, "  \"follow\": null,") };
        let lag = &follow.lag;
        writeln!(
            json,
            "  \"follow\": {{\"rotations\": {}, \"lines\": {}, \"delay_mean_ns\": {}, \
             \"delay_worst_ns\": {}, \
             \"published_worst_ns\": {}, \"most_in_second\": {}, \"overshoot_at_most\": {}}},",
            follow.rotations,
            lag.lines,
            lag.mean_ns(),
            lag.worst_ns,
            lag.worst_published_ns,
            follow.max_in_second,
            lag.overshoot(follow.max_in_second)
        )
    }

    fn write_list(&self, json: &mut String) -> fmt::Result {
        let Some(list) = &self.list else { return writeln!(json, "  \"list\": null,") };
        let (effects, innocent) = (&list.effects, &list.innocent);
        let numbers = [
            ("hold_ns", list.hold_ns),
            ("delay_ns", list.delay_ns),
            ("passed_within", effects.passed_within),
            ("passed_over", effects.passed_over),
            ("denied_within", effects.denied_within),
            ("denied_over", effects.denied_over),
            ("closings", effects.closings),
            ("closings_early", effects.early),
            ("callers_never_over", count(innocent.never_over)),
            ("well_behaved", count(innocent.well_behaved)),
            ("well_behaved_listed", count(innocent.listed)),
            ("well_behaved_denied_within", innocent.calls),
            ("overshoot", effects.overshoot),
            ("overshoot_at_most", list.overshoot_at_most),
        ];
        let fields = numbers.map(|(name, number)| format!("\"{name}\": {number}"));
        writeln!(json, "  \"list\": {{{}}},", fields.join(", "))
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn write_rows(name: &str, rows: &[Row], json: &mut String) -> fmt::Result {
    let number =
        |number: Option<u64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
    let row = |row: &Row| {
        let caller = text(&String::from_utf8_lossy(&row.name));
        let (calls, min) = (number(row.calls), number(row.fullest.map(|(min, _)| min)));
        let max = number(row.fullest.map(|(_, max)| max));
        let (denied, error) = (row.denied, row.error);
        format!(
            "\n    {{\"caller\": {caller}, \"denied\": {denied}, \"denied_error\": {error}, \
             \"calls\": {calls}, \
             \"fullest_at_least\": {min}, \"fullest_at_most\": {max}}}"
        )
    };
    let rows = rows.iter().map(row).collect::<Vec<_>>().join(",");
    writeln!(json, "  \"{name}\": [{rows}],")
}

/// Returns a JSON string.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.extend([format!("\\u{:04x}", u32::from(control))]);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
