//! A chart of lines over a common axis, with one panel below the other.

use std::fmt::Write as _;

const WIDTH: u64 = 960;
const LEFT: u64 = 70;
const RIGHT: u64 = 940;
const PANEL: u64 = 210;
const TOP: u64 = 64;
const GAP: u64 = 44;
const STYLE: &str = "<style>\
text{font:13px sans-serif;fill:#333}.t{font-size:16px;font-weight:600}.a{fill:#777}\
.grid{stroke:#e4e4e4}\
polyline{fill:none;stroke-width:2.2}.c0{stroke:#1467c8}.c1{stroke:#c8102e}\
.c2{stroke:#2e8b57}.c3{stroke:#8a4fbf}\
.bound{stroke:#d08700;stroke-dasharray:6 4;stroke-width:1.5}\
.f0{fill:#1467c8}.f1{fill:#c8102e}.f2{fill:#2e8b57}.f3{fill:#8a4fbf}.fbound{fill:#d08700}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.a{fill:#aaa}.grid{stroke:#3a3a3a}}\
</style>";

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
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut svg);
        svg
    }

    fn write(&self, svg: &mut String) -> std::fmt::Result {
        let panels = self.panels.iter().zip(0..);
        let height = TOP
            + (PANEL + GAP) * panels.clone().map(|(_, position)| position + 1).max().unwrap_or(1);
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\">"
        )?;
        writeln!(svg, "<title>{0}</title>{STYLE}", self.title)?;
        writeln!(svg, "<text class=\"t\" x=\"{LEFT}\" y=\"24\">{}</text>", self.title)?;
        let across = self.across;
        writeln!(
            svg,
            "<text class=\"a\" x=\"{RIGHT}\" y=\"24\" text-anchor=\"end\">{across}</text>"
        )?;
        for (panel, position) in panels {
            self.write_panel(panel, TOP + position * (PANEL + GAP), svg)?;
        }
        svg.push_str("</svg>\n");
        Ok(())
    }

    fn write_panel(&self, panel: &Panel, top: u64, svg: &mut String) -> std::fmt::Result {
        let points = || panel.lines.iter().flat_map(|line| &line.points);
        let furthest = points().map(|point| point.0).max().unwrap_or(1).max(1);
        let highest = points().map(|point| point.1).max().unwrap_or(1).max(1);
        let bottom = top + PANEL;
        let x = |position: u64| LEFT * 10 + (RIGHT - LEFT) * 10 * position / furthest;
        let y = |height: u64| bottom * 10 - PANEL * 9 * height / highest;
        for (position, name) in &self.marks {
            let x = tenths(x(*position));
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\"/>\
                 <text class=\"a\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                bottom + 18
            )?;
        }
        for quarter in 0..=4 {
            let height = highest * quarter / 4;
            let y = y(height);
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{0}\" x2=\"{RIGHT}\" y2=\"{0}\"/>\
                 <text class=\"a\" x=\"{1}\" y=\"{2}\" text-anchor=\"end\">{height}</text>",
                tenths(y),
                LEFT - 8,
                tenths(y + 40)
            )?;
        }
        writeln!(svg, "<text class=\"a\" x=\"{LEFT}\" y=\"{}\">{}</text>", top - 6, panel.up)?;
        let mut legend_x = LEFT + 330;
        for line in &panel.lines {
            let (class, name) = (line.class, line.name);
            let fill = class.strip_prefix('c').unwrap_or(class);
            writeln!(
                svg,
                "<rect class=\"f{fill}\" x=\"{legend_x}\" y=\"{}\" width=\"10\" height=\"10\"/>\
                 <text class=\"a\" x=\"{}\" y=\"{}\">{name}</text>",
                top - 16,
                legend_x + 15,
                top - 6
            )?;
            legend_x += 140;
            write!(svg, "<polyline class=\"{class}\" points=\"")?;
            let mut before = None;
            for &(position, height) in &line.points {
                if let Some(before) = before.filter(|_| line.is_stairs) {
                    write!(svg, "{},{} ", tenths(x(position)), tenths(y(before)))?;
                }
                write!(svg, "{},{} ", tenths(x(position)), tenths(y(height)))?;
                before = Some(height);
            }
            svg.push_str("\"/>\n");
        }
        Ok(())
    }
}

fn tenths(number: u64) -> String {
    format!("{}.{}", number / 10, number % 10)
}
