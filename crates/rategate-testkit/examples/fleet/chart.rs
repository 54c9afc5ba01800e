//! A chart of lines over a common axis, with one panel below the other.

use rategate_testkit::svg::{Anchor, RIGHT, Svg};

const LEFT: f64 = 70.0;
const PANEL: f64 = 210.0;
const TOP: f64 = 64.0;
const GAP: f64 = 44.0;
const STYLE: &str = "\
polyline{stroke-width:2.2}.c0{stroke:#1467c8}.c1{stroke:#c8102e}\
.c2{stroke:#2e8b57}.c3{stroke:#8a4fbf}\
.bound{stroke:#d08700;stroke-dasharray:6 4;stroke-width:1.5}\
.f0{fill:#1467c8}.f1{fill:#c8102e}.f2{fill:#2e8b57}.f3{fill:#8a4fbf}.fbound{fill:#d08700}";

/// A chart, which draws itself as SVG.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// The label of the axis.
    pub(crate) across: &'static str,
    /// The marks of the axis, by position.
    pub(crate) marks: Vec<(u64, String)>,
    pub(crate) panels: Vec<Panel>,
}

/// A panel of lines on one scale.
pub(crate) struct Panel {
    /// The label of the height.
    pub(crate) up: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// A line of a panel.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// The style of the line: `c0` to `c3`, or `bound`.
    pub(crate) class: &'static str,
    /// The points as `(position, height)`, in order.
    pub(crate) points: Vec<(u64, u64)>,
    /// `true` if the line keeps its height until the next point.
    pub(crate) is_stairs: bool,
}

impl Chart {
    /// Returns the chart as SVG. Equal numbers give equal bytes.
    pub(crate) fn draw(&self) -> String {
        let height = TOP + (PANEL + GAP) * self.panels.len() as f64;
        let mut svg = Svg::new(self.title, self.across, LEFT, height, STYLE);
        let mut top = TOP;
        for panel in &self.panels {
            self.draw_panel(panel, top, &mut svg);
            top += PANEL + GAP;
        }
        svg.end()
    }

    fn draw_panel(&self, panel: &Panel, top: f64, svg: &mut Svg) {
        let points = || panel.lines.iter().flat_map(|line| &line.points);
        let furthest = points().map(|point| point.0).max().unwrap_or(1).max(1);
        let highest = points().map(|point| point.1).max().unwrap_or(1).max(1);
        let bottom = top + PANEL;
        let x = |position: u64| LEFT + (RIGHT - LEFT) * position as f64 / furthest as f64;
        let y = |height: f64| bottom - PANEL * 0.9 * height / highest as f64;
        for (position, name) in &self.marks {
            svg.mark(x(*position), [top, bottom], bottom + 18.0, name);
        }
        svg.quarters(highest, y);
        svg.label([LEFT, top - 6.0], Anchor::Start, panel.up);
        let mut legend_x = LEFT + 330.0;
        for line in &panel.lines {
            let fill = line.class.strip_prefix('c').unwrap_or(line.class);
            svg.bar(&format!("f{fill}"), [legend_x, top - 16.0], [10.0, 10.0]);
            svg.label([legend_x + 15.0, top - 6.0], Anchor::Start, line.name);
            legend_x += 140.0;
            let before = line.points.iter().scan(None, |before, &(_, height)| {
                Some(before.replace(height).filter(|_| line.is_stairs))
            });
            let corners =
                line.points.iter().zip(before).flat_map(|(&(position, height), before)| {
                    let heights = before.into_iter().chain([height]);
                    heights.map(move |height| [x(position), y(height as f64)])
                });
            svg.polyline(line.class, corners);
        }
    }
}
