//! The picture of a run: arrivals, grants and waits on one time axis, with the allowance curve.
//!
//! Permits are summed over time. The grey stairs climb when permits that are granted are requested,
//! the blue ones when they start. The horizontal distance between them is the wait of each call,
//! the vertical distance the number of permits that calls wait for. The dashed line is the total
//! that the limit allows. Red marks below the axis are denials, grey bars are sleeps. Numbers are
//! cut to a tenth of a pixel, so that equal reports give equal bytes.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a drawing in tenths of a pixel; no decision rests on it"
)]

use std::fmt::Write as _;

use crate::report::{Allowance, Outcome, Report};
use crate::tape::milliseconds;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 380.0;
/// The maximum number of points in one stair; more are thinned out.
const MAX_POINTS: usize = 1_500;
const STYLE: &str = "<style>\
text{font:13px sans-serif;fill:#333}.t{font-size:16px;font-weight:600}.a{fill:#777}\
.asked{fill:none;stroke:#9a9a9a;stroke-width:1.5}\
.granted{fill:none;stroke:#1467c8;stroke-width:2.5}\
.wait{stroke:#1467c8;stroke-opacity:.18}\
.allow{fill:none;stroke:#d08700;stroke-dasharray:6 4;stroke-width:1.5}\
.grid{stroke:#e4e4e4}.denied{stroke:#c8102e;stroke-width:1.5}.sleep{fill:#b9b9b9}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.a{fill:#aaa}.grid{stroke:#3a3a3a}\
.granted{stroke:#5aa2f0}.wait{stroke:#5aa2f0}}\
</style>";

impl Report {
    /// Returns the report as an SVG picture.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = Drawing::of(self).write(self, &mut svg);
        svg
    }
}

struct Drawing {
    /// `(instant, sum of permits)` after each request that is granted, sooner or later.
    requested: Vec<(u64, u64)>,
    granted: Vec<(u64, u64)>,
    denied: Vec<u64>,
    span_ns: u64,
    max: u64,
}

impl Drawing {
    fn of(report: &Report) -> Self {
        let (mut requested, mut denied) = (Vec::new(), Vec::new());
        for operation in &report.operations {
            match operation.outcome {
                Outcome::Granted => requested.push((operation.arrival_ns, operation.permits)),
                _ => denied.push(operation.arrival_ns),
            }
        }
        for step in &report.steps {
            let permits = step.permits.unwrap_or(0);
            match (step.call, step.outcome) {
                ("try" | "reserve" | "wait", Outcome::Granted) => {
                    requested.push((step.at_ns, permits));
                }
                ("try" | "reserve", _) => denied.push(step.at_ns),
                _ => {}
            }
        }
        let granted = stairs(&report.picture.grants);
        let requested = stairs(&requested);
        let ends = granted.iter().chain(&requested).map(|&(at_ns, _)| at_ns);
        let span_ns = ends.chain([report.elapsed_ns, 1]).max().unwrap_or(1);
        let max = granted.iter().chain(&requested).map(|&(_, sum)| sum).max().unwrap_or(1).max(1);
        Self { requested, granted, denied, span_ns, max }
    }

    fn x(&self, at_ns: u64) -> f64 {
        LEFT + (WIDTH - LEFT - 20.0) * (at_ns as f64 / self.span_ns as f64)
    }

    fn y(&self, sum: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (sum / self.max as f64).min(1.0)
    }

    fn write(&self, report: &Report, svg: &mut String) -> std::fmt::Result {
        let title = report.title.as_deref().unwrap_or("a run on the virtual clock");
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 450\" role=\"img\">"
        )?;
        writeln!(svg, "<title>{}</title>{STYLE}", escaped(title))?;
        writeln!(svg, "<text class=\"t\" x=\"{LEFT}\" y=\"24\">{}</text>", escaped(title))?;
        let limits = report.picture.limits.join(" and ");
        let summary = format!(
            "{limits} - {} granted, {} denied, elapsed {} ms",
            report.granted,
            self.denied.len(),
            milliseconds(report.elapsed_ns)
        );
        writeln!(svg, "<text class=\"a\" x=\"{LEFT}\" y=\"46\">{}</text>", escaped(&summary))?;
        self.write_axes(svg)?;
        self.write_waits(report, svg)?;
        if let Some(allowance) = report.picture.allowance {
            self.write_allowance(allowance, svg)?;
        }
        self.write_stairs("asked", &self.requested, svg)?;
        self.write_stairs("granted", &self.granted, svg)?;
        self.write_strip(report, svg)?;
        svg.push_str("</svg>\n");
        Ok(())
    }

    fn write_axes(&self, svg: &mut String) -> std::fmt::Result {
        let step_ns = round_step(self.span_ns);
        for at_ns in (0..=self.span_ns / step_ns).map(|step| step * step_ns) {
            let (x, label) = (self.x(at_ns), milliseconds(at_ns));
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>\
                 <text class=\"a\" x=\"{x:.1}\" y=\"440\" text-anchor=\"middle\">{label}</text>"
            )?;
        }
        for quarter in 0..=4_u64 {
            let sum = self.max * quarter / 4;
            let y = self.y(sum as f64);
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"940\" y2=\"{y:.1}\"/>\
                 <text class=\"a\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{sum}</text>",
                LEFT - 8.0,
                y + 4.0
            )?;
        }
        let legend = "blue: started, grey: requested, dashed: allowed, red: denied; time in ms";
        writeln!(svg, "<text class=\"a\" x=\"940\" y=\"24\" text-anchor=\"end\">{legend}</text>")
    }

    /// Draws a horizontal line for each wait, at the height that the operation's permits reach.
    fn write_waits(&self, report: &Report, svg: &mut String) -> std::fmt::Result {
        let granted = report.operations.iter().filter(|done| done.outcome == Outcome::Granted);
        let every = report.operations.len() / MAX_POINTS + 1;
        let mut sum = 0_u64;
        for (index, done) in granted.enumerate() {
            sum += done.permits;
            let Some(start_ns) = done.start_ns.filter(|&start_ns| start_ns > done.arrival_ns)
            else {
                continue;
            };
            if index % every == 0 {
                let (from, to, y) = (self.x(done.arrival_ns), self.x(start_ns), self.y(sum as f64));
                writeln!(
                    svg,
                    "<line class=\"wait\" x1=\"{from:.1}\" y1=\"{y:.1}\" \
                     x2=\"{to:.1}\" y2=\"{y:.1}\"/>"
                )?;
            }
        }
        Ok(())
    }

    fn write_allowance(&self, allowance: Allowance, svg: &mut String) -> std::fmt::Result {
        let points: Vec<(u64, f64)> = match allowance {
            Allowance::Line { burst, permits, period_ns } => {
                // The line ends where it would leave the frame.
                let headroom = self.max.saturating_sub(burst);
                let full_ns = u128::from(headroom) * u128::from(period_ns) / u128::from(permits);
                let end_ns = u64::try_from(full_ns).unwrap_or(u64::MAX).min(self.span_ns);
                let earned = end_ns as f64 * permits as f64 / period_ns as f64;
                vec![(0, burst as f64), (end_ns, burst as f64 + earned)]
            }
            Allowance::Stairs { permits, period_ns } => {
                let periods = (self.span_ns / period_ns).min(1_000);
                let steps = (0..=periods).flat_map(|period| {
                    let (from_ns, sum) = (period * period_ns, permits as f64 * (period + 1) as f64);
                    [(from_ns, sum), (from_ns.saturating_add(period_ns).min(self.span_ns), sum)]
                });
                steps.collect()
            }
        };
        svg.push_str("<polyline class=\"allow\" points=\"");
        for (at_ns, sum) in points {
            write!(svg, "{:.1},{:.1} ", self.x(at_ns), self.y(sum))?;
        }
        svg.push_str("\"/>\n");
        Ok(())
    }

    fn write_stairs(
        &self,
        class: &str,
        stairs: &[(u64, u64)],
        svg: &mut String,
    ) -> std::fmt::Result {
        write!(svg, "<polyline class=\"{class}\" points=\"")?;
        let every = stairs.len() / MAX_POINTS + 1;
        let mut before = 0_u64;
        for (index, &(at_ns, sum)) in stairs.iter().enumerate() {
            if index % every == 0 || index + 1 == stairs.len() {
                let x = self.x(at_ns);
                write!(
                    svg,
                    "{x:.1},{:.1} {x:.1},{:.1} ",
                    self.y(before as f64),
                    self.y(sum as f64)
                )?;
                before = sum;
            }
        }
        svg.push_str("\"/>\n");
        Ok(())
    }

    /// Draws denials and sleeps below the axis.
    fn write_strip(&self, report: &Report, svg: &mut String) -> std::fmt::Result {
        let every = self.denied.len() / MAX_POINTS + 1;
        for &at_ns in self.denied.iter().step_by(every) {
            let x = self.x(at_ns);
            writeln!(
                svg,
                "<line class=\"denied\" x1=\"{x:.1}\" y1=\"388\" x2=\"{x:.1}\" y2=\"400\"/>"
            )?;
        }
        let every = report.sleeps.len() / MAX_POINTS + 1;
        for sleep in report.sleeps.iter().step_by(every) {
            let from = self.x(sleep.at_ns);
            let to = self.x(sleep.at_ns.saturating_add(sleep.slept_ns).min(self.span_ns));
            writeln!(
                svg,
                "<rect class=\"sleep\" x=\"{from:.1}\" y=\"404\" width=\"{:.1}\" height=\"8\"/>",
                (to - from).max(0.5)
            )?;
        }
        Ok(())
    }
}

/// Returns the distance between marks on the axis: 1, 2 or 5 times a power of ten, for at most
/// nine marks.
fn round_step(span_ns: u64) -> u64 {
    let min_ns = span_ns.div_ceil(8).max(1);
    let mut power = 1_u64;
    loop {
        for step_ns in [1, 2, 5].map(|times: u64| power.saturating_mul(times)) {
            if step_ns >= min_ns {
                return step_ns;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Returns the running sums by instant.
fn stairs(events: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted = events.to_vec();
    sorted.sort_unstable();
    let mut sum = 0_u64;
    let mut stairs: Vec<(u64, u64)> = Vec::new();
    for (at_ns, permits) in sorted {
        sum = sum.saturating_add(permits);
        match stairs.last_mut() {
            Some(last) if last.0 == at_ns => last.1 = sum,
            _ => stairs.push((at_ns, sum)),
        }
    }
    stairs
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
