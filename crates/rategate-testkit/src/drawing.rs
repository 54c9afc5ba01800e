//! The picture of a run: arrivals, grants and waits on one time axis, with the allowance curve.
//!
//! Permits are summed over time. The grey stairs climb when permits that are granted are requested,
//! the blue ones when they start. The horizontal distance between them is the wait of each call,
//! the vertical distance the number of permits that calls wait for. The dashed line is the total
//! that the limit allows. Red marks below the axis are denials, grey bars are sleeps.

use crate::report::{Allowance, Outcome, Report};
use crate::svg::{Anchor, RIGHT, Svg};
use crate::text::milliseconds;

const LEFT: f64 = 60.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 380.0;
/// The maximum number of points in one stair; more are thinned out.
const MAX_POINTS: usize = 1_500;
const STYLE: &str = "\
.requested{stroke:#9a9a9a;stroke-width:1.5}.granted{stroke:#1467c8;stroke-width:2.5}\
.wait{stroke:#1467c8;stroke-opacity:.18}\
.allow{stroke:#d08700;stroke-dasharray:6 4;stroke-width:1.5}\
.denied{stroke:#c8102e;stroke-width:1.5}.sleep{fill:#b9b9b9}\
@media(prefers-color-scheme:dark){.granted{stroke:#5aa2f0}.wait{stroke:#5aa2f0}}";
const LEGEND: &str = "blue: started, grey: requested, dashed: allowed, red: denied; time in ms";

impl Report {
    /// Returns the report as an SVG picture.
    #[must_use]
    pub fn to_svg(&self) -> String {
        Drawing::of(self).draw(self)
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
        LEFT + (RIGHT - LEFT) * (at_ns as f64 / self.span_ns as f64)
    }

    fn y(&self, sum: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (sum / self.max as f64).min(1.0)
    }

    fn draw(&self, report: &Report) -> String {
        let title = report.title.as_deref().unwrap_or("a run on the virtual clock");
        let mut svg = Svg::new(title, LEGEND, LEFT, 450.0, STYLE);
        let limits = report.picture.limits.join(" and ");
        let summary = format!(
            "{limits} - {} granted, {} denied, elapsed {} ms",
            report.granted,
            self.denied.len(),
            milliseconds(report.elapsed_ns)
        );
        svg.label([LEFT, 46.0], Anchor::Start, summary);
        let step_ns = round_step(self.span_ns);
        for at_ns in (0..=self.span_ns / step_ns).map(|step| step * step_ns) {
            svg.mark(self.x(at_ns), [TOP, BOTTOM], 440.0, milliseconds(at_ns));
        }
        svg.quarters(self.max, |sum| self.y(sum));
        self.draw_waits(report, &mut svg);
        if let Some(allowance) = report.picture.allowance {
            let points = self.allowed(allowance).into_iter();
            svg.polyline("allow", points.map(|(at_ns, sum)| [self.x(at_ns), self.y(sum)]));
        }
        svg.polyline("requested", self.points(&self.requested));
        svg.polyline("granted", self.points(&self.granted));
        self.draw_strip(report, &mut svg);
        svg.end()
    }

    /// Draws a horizontal line for each wait, at the height that the operation's permits reach.
    fn draw_waits(&self, report: &Report, svg: &mut Svg) {
        let granted = report.operations.iter().filter(|done| done.outcome == Outcome::Granted);
        let every = report.operations.len() / MAX_POINTS + 1;
        let mut sum = 0_u64;
        for (index, done) in granted.enumerate() {
            sum += done.permits;
            let start_ns = done.start_ns.filter(|&start_ns| start_ns > done.arrival_ns);
            if let Some(start_ns) = start_ns.filter(|_| index % every == 0) {
                let y = self.y(sum as f64);
                svg.line("wait", [self.x(done.arrival_ns), y], [self.x(start_ns), y]);
            }
        }
    }

    /// Returns the points of the curve that the limit allows.
    fn allowed(&self, allowance: Allowance) -> Vec<(u64, f64)> {
        match allowance {
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
        }
    }

    /// Returns the corners of stairs.
    fn points(&self, stairs: &[(u64, u64)]) -> Vec<[f64; 2]> {
        let every = stairs.len() / MAX_POINTS + 1;
        let (mut points, mut before) = (Vec::new(), 0_u64);
        for (index, &(at_ns, sum)) in stairs.iter().enumerate() {
            if index % every == 0 || index + 1 == stairs.len() {
                let x = self.x(at_ns);
                points.extend([[x, self.y(before as f64)], [x, self.y(sum as f64)]]);
                before = sum;
            }
        }
        points
    }

    /// Draws denials and sleeps below the axis.
    fn draw_strip(&self, report: &Report, svg: &mut Svg) {
        let every = self.denied.len() / MAX_POINTS + 1;
        for &at_ns in self.denied.iter().step_by(every) {
            let x = self.x(at_ns);
            svg.line("denied", [x, 388.0], [x, 400.0]);
        }
        let every = report.sleeps.len() / MAX_POINTS + 1;
        for sleep in report.sleeps.iter().step_by(every) {
            let from = self.x(sleep.at_ns);
            let to = self.x(sleep.at_ns.saturating_add(sleep.slept_ns).min(self.span_ns));
            svg.bar("sleep", [from, 404.0], [(to - from).max(0.5), 8.0]);
        }
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
