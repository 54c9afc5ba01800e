//! The report as SVG: allowed and denied calls over time, in stacked bars.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a drawing in tenths of a pixel; no decision rests on it"
)]

use rategate_testkit::svg::{Anchor, RIGHT, Svg};

use super::{Report, percent};
use crate::SECOND_NS;
use crate::log::UnixTime;

const LEFT: f64 = 70.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 380.0;
const STYLE: &str = "\
.allowed{fill:#1467c8}.denied{fill:#c8102e}\
@media(prefers-color-scheme:dark){.allowed{fill:#5aa2f0}}";

impl Report {
    /// Returns the report as SVG: allowed and denied calls over time.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let (counts, timeline) = (&self.counts, &self.timeline);
        let title = format!("{}, for each {}", self.limit, self.key);
        let legend = format!("blue: allowed, red: denied; calls in {} s", timeline.width_s);
        let mut svg = Svg::new(&title, legend, LEFT, 430.0, STYLE);
        let summary = format!(
            "{} calls: {} allowed, {} denied ({}); {} of {} callers were denied",
            counts.calls,
            counts.allowed,
            counts.denied,
            percent(counts.denied, counts.calls),
            self.callers_denied,
            self.callers
        );
        svg.label([LEFT, 46.0], Anchor::Start, summary);
        let sums = timeline.bars.iter().map(|(allowed, denied)| allowed + denied);
        let max = sums.max().unwrap_or(0).max(1);
        let height = |count: f64| (BOTTOM - TOP) * (count / max as f64);
        svg.quarters(max, |sum| BOTTOM - height(sum));
        let length_s = timeline.bars.len() as u64 * timeline.width_s;
        for (half, anchor) in [(0, Anchor::Start), (1, Anchor::Middle), (2, Anchor::End)] {
            let at_s = timeline.from_s + length_s * half / 2;
            let x = LEFT + (RIGHT - LEFT) * (half as f64 / 2.0);
            svg.label([x, 404.0], anchor, UnixTime(at_s.saturating_mul(SECOND_NS)));
        }
        let width = (RIGHT - LEFT) / timeline.bars.len().max(1) as f64;
        for (index, &(allowed, denied)) in timeline.bars.iter().enumerate() {
            let (x, mut y) = (LEFT + width * index as f64, BOTTOM);
            for (class, count) in [("allowed", allowed), ("denied", denied)] {
                let height = height(count as f64);
                y -= height;
                if count > 0 {
                    svg.bar(class, [x, y], [(width - 0.2).max(0.3), height]);
                }
            }
        }
        svg.end()
    }
}
