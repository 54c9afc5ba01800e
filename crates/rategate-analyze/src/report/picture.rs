//! The report as SVG: allowed and denied calls over time, in stacked bars.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a drawing in tenths of a pixel; no decision rests on it"
)]

use std::fmt::Write as _;

use super::{Report, percent};
use crate::SECOND_NS;
use crate::log::UnixTime;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 940.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 380.0;
const STYLE: &str = "<style>\
text{font:13px sans-serif;fill:#333}.t{font-size:16px;font-weight:600}.a{fill:#777}\
.allowed{fill:#1467c8}.denied{fill:#c8102e}.grid{stroke:#e4e4e4}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.a{fill:#aaa}\
.grid{stroke:#3a3a3a}.allowed{fill:#5aa2f0}}\
</style>";

impl Report {
    /// Returns the report as SVG: allowed and denied calls over time.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a `String` cannot fail.
        let _ = self.write_svg(&mut svg);
        svg
    }

    fn write_svg(&self, svg: &mut String) -> std::fmt::Result {
        let title = escaped(&format!("{}, for each {}", self.limit, self.key));
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 430\" role=\"img\">"
        )?;
        writeln!(svg, "<title>{title}</title>{STYLE}")?;
        writeln!(svg, "<text class=\"t\" x=\"{LEFT}\" y=\"24\">{title}</text>")?;
        let (counts, timeline) = (&self.counts, &self.timeline);
        let summary = format!(
            "{} calls: {} allowed, {} denied ({}); {} of {} callers were denied",
            counts.calls,
            counts.allowed,
            counts.denied,
            percent(counts.denied, counts.calls),
            self.callers_denied,
            self.callers
        );
        writeln!(svg, "<text class=\"a\" x=\"{LEFT}\" y=\"46\">{summary}</text>")?;
        let legend = format!("blue: allowed, red: denied; calls in {} s", timeline.width_s);
        writeln!(
            svg,
            "<text class=\"a\" x=\"{RIGHT}\" y=\"24\" text-anchor=\"end\">{legend}</text>"
        )?;
        self.write_axes(svg)?;
        self.write_bars(svg)?;
        svg.push_str("</svg>\n");
        Ok(())
    }

    /// Returns the height of the highest bar.
    fn max(&self) -> u64 {
        let sums = self.timeline.bars.iter().map(|(allowed, denied)| allowed + denied);
        sums.max().unwrap_or(0).max(1)
    }

    fn write_axes(&self, svg: &mut String) -> std::fmt::Result {
        let max = self.max();
        for quarter in 0..=4_u64 {
            let sum = max * quarter / 4;
            let y = BOTTOM - (BOTTOM - TOP) * (sum as f64 / max as f64);
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
                 <text class=\"a\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{sum}</text>",
                LEFT - 8.0,
                y + 4.0
            )?;
        }
        let timeline = &self.timeline;
        let length_s = timeline.bars.len() as u64 * timeline.width_s;
        for (half, anchor) in [(0, "start"), (1, "middle"), (2, "end")] {
            let at_s = timeline.from_s + length_s * half / 2;
            let x = LEFT + (RIGHT - LEFT) * (half as f64 / 2.0);
            let label = UnixTime(at_s.saturating_mul(SECOND_NS));
            writeln!(
                svg,
                "<text class=\"a\" x=\"{x:.1}\" y=\"404\" text-anchor=\"{anchor}\">{label}</text>"
            )?;
        }
        Ok(())
    }

    fn write_bars(&self, svg: &mut String) -> std::fmt::Result {
        let (max, bars) = (self.max() as f64, &self.timeline.bars);
        let width = (RIGHT - LEFT) / bars.len().max(1) as f64;
        for (index, &(allowed, denied)) in bars.iter().enumerate() {
            let x = LEFT + width * index as f64;
            let mut y = BOTTOM;
            for (class, count) in [("allowed", allowed), ("denied", denied)] {
                if count > 0 {
                    let height = (BOTTOM - TOP) * (count as f64 / max);
                    y -= height;
                    writeln!(
                        svg,
                        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                         height=\"{height:.1}\"/>",
                        (width - 0.2).max(0.3)
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
