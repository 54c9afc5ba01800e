//! The picture of a run: limit, latency and served calls over time.

use rategate_core::adaptive::Outcome;

use super::report::ServerReport;
use super::run::Seen;
use crate::svg::{Anchor, RIGHT, Svg};

const LEFT: f64 = 60.0;
/// The upper and lower ends of the three panels.
const PANELS: [[f64; 2]; 3] = [[56.0, 176.0], [208.0, 328.0], [360.0, 480.0]];
const HEIGHT: f64 = 516.0;
/// The names of the panels.
const NAMES: [&str; 3] = ["limit", "mean latency in ms", "served a second"];
/// The number of points of each line.
const POINTS: usize = 240;
const STYLE: &str = "\
.limit{stroke:#1467c8;stroke-width:2}.latency{stroke:#d08700;stroke-width:2}\
.served{stroke:#2f8f4e;stroke-width:2}\
@media(prefers-color-scheme:dark){.limit{stroke:#5aa2f0}.latency{stroke:#f0b040}\
.served{stroke:#5fbf7f}}";

/// The sums of some time.
#[derive(Clone, Copy, Default)]
struct Bin {
    calls: f64,
    served: f64,
    latency_ms: f64,
    limit: f64,
}

impl ServerReport {
    /// Returns the run of the first client as an SVG picture.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut svg = self.panels();
        let lines = self.lines();
        let classes = ["limit", "latency", "served"];
        for (((class, name), line), panel) in classes.iter().zip(NAMES).zip(&lines).zip(PANELS) {
            draw(&mut svg, name, panel, (class, line));
        }
        svg.end()
    }

    fn end_ns(&self) -> u64 {
        self.measures.iter().map(|report| report.measure.to_ns).max().unwrap_or(1).max(1)
    }

    /// Begins a picture with its title and the axis of time.
    fn panels(&self) -> Svg {
        let title = self.title.as_deref().unwrap_or("a server under load");
        let mut svg = Svg::new(title, "time in s", LEFT, HEIGHT, STYLE);
        let [_, _, [_, bottom]] = PANELS;
        for sixth in 0..=6 {
            let x = LEFT + (RIGHT - LEFT) * f64::from(sixth) / 6.0;
            let second = self.end_ns() as f64 / 1e9 * f64::from(sixth) / 6.0;
            svg.label([x, bottom + 20.0], Anchor::Middle, format!("{second:.0}"));
        }
        svg
    }

    /// Returns the limit, the mean latency and the served calls of the first client over time.
    fn lines(&self) -> [Vec<f64>; 3] {
        let end_ns = self.end_ns();
        let seen: Vec<&Seen> = self.run.seen.iter().filter(|seen| seen.client == 0).collect();
        let seconds = end_ns as f64 / 1e9 / POINTS as f64;
        let mut last = (0.0, 0.0);
        let mut lines = [Vec::new(), Vec::new(), Vec::new()];
        let [limits, latencies, served] = &mut lines;
        for bin in &bins(&seen, end_ns) {
            if bin.calls > 0.0 {
                last = (bin.limit, bin.latency_ms / bin.calls);
            }
            limits.push(last.0);
            latencies.push(last.1);
            served.push(bin.served / seconds);
        }
        lines
    }
}

/// Draws a panel: its grid, its name and its line.
fn draw(svg: &mut Svg, name: &str, [top, bottom]: [f64; 2], (class, line): (&str, &Vec<f64>)) {
    let max = line.iter().copied().fold(1.0, f64::max);
    // Four quarters in whole numbers.
    let max = (max / 4.0).ceil() * 4.0;
    let y = |value: f64| bottom - (bottom - top) * value / max;
    svg.quarters(max as u64, y);
    svg.label([LEFT, top - 8.0], Anchor::Start, name);
    let x = |at: usize| LEFT + (RIGHT - LEFT) * (at as f64 + 0.5) / line.len() as f64;
    svg.polyline(class, line.iter().enumerate().map(|(at, &value)| [x(at), y(value)]));
}

fn bins(seen: &[&Seen], end_ns: u64) -> Vec<Bin> {
    let mut bins = vec![Bin::default(); POINTS];
    for seen in seen {
        let at = u128::from(seen.sample.end_ns) * POINTS as u128 / u128::from(end_ns);
        let Some(bin) = bins.get_mut(at as usize) else { continue };
        bin.calls += 1.0;
        bin.latency_ms += seen.sample.end_ns.saturating_sub(seen.sample.start_ns) as f64 / 1e6;
        bin.limit = f64::from(seen.limit);
        if seen.sample.outcome == Outcome::Served {
            bin.served += 1.0;
        }
    }
    bins
}
