//! A writer of SVG pictures: lines, bars and labels on axes, in one style.
//!
//! Coordinates are cut to tenths of a pixel, so that equal figures give equal bytes.

use std::fmt::{Display, Write as _};

/// The width of all pictures, in pixels.
const WIDTH: f64 = 960.0;
/// The right end of the axes.
pub const RIGHT: f64 = 940.0;
const STYLE: &str = "\
text{font:13px sans-serif;fill:#333}.t{font-size:16px;font-weight:600}.a{fill:#777}\
.grid{stroke:#e4e4e4}polyline{fill:none}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.a{fill:#aaa}.grid{stroke:#3a3a3a}}";

/// A picture that is being written, from the back to the front.
#[derive(Debug)]
pub struct Svg {
    text: String,
    left: f64,
}

/// The side of a label at which it is anchored.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The label begins there.
    Start,
    /// The label's middle is there.
    Middle,
    /// The label ends there.
    End,
}

impl Svg {
    /// Begins a picture with its title, and with a note at the right.
    ///
    /// `left` is the left end of the axes. `style` has the rules for the classes that the picture
    /// uses.
    #[must_use]
    pub fn new(title: &str, note: impl Display, left: f64, height: f64, style: &str) -> Self {
        let title = escaped(title);
        let mut svg = Self { text: String::new(), left };
        svg.write(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\">\n<title>{title}</title><style>{STYLE}{style}</style>\n\
             <text class=\"t\" x=\"{left}\" y=\"24\">{title}</text>\n"
        ));
        svg.label([RIGHT, 24.0], Anchor::End, note);
        svg
    }

    /// Writes a label.
    pub fn label(&mut self, [x, y]: [f64; 2], anchor: Anchor, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let text = escaped(&text.to_string());
        let (x, y) = (Tenths(x), Tenths(y));
        self.write(format_args!("<text class=\"a\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>\n"));
    }

    /// Draws a line.
    pub fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let ([x1, y1], [x2, y2]) = (from.map(Tenths), to.map(Tenths));
        self.write(format_args!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>\n"
        ));
    }

    /// Draws a bar by its upper left corner and its size.
    pub fn bar(&mut self, class: &str, corner: [f64; 2], size: [f64; 2]) {
        let ([x, y], [width, height]) = (corner.map(Tenths), size.map(Tenths));
        self.write(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>\n"
        ));
    }

    /// Draws a line through points.
    pub fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = [f64; 2]>) {
        self.write(format_args!("<polyline class=\"{class}\" points=\""));
        for [x, y] in points {
            self.write(format_args!("{},{} ", Tenths(x), Tenths(y)));
        }
        self.text.push_str("\"/>\n");
    }

    /// Draws an upright grid line with its label below the axis.
    pub fn mark(&mut self, x: f64, [top, bottom]: [f64; 2], label_y: f64, label: impl Display) {
        self.line("grid", [x, top], [x, bottom]);
        self.label([x, label_y], Anchor::Middle, label);
    }

    /// Draws grid lines at the quarters of `max`, each with its number. `y` returns the height of
    /// a number.
    pub fn quarters(&mut self, max: u64, y: impl Fn(f64) -> f64) {
        for quarter in 0..=4_u64 {
            let number = max * quarter / 4;
            let y = y(number as f64);
            self.line("grid", [self.left, y], [RIGHT, y]);
            self.label([self.left - 8.0, y + 4.0], Anchor::End, number);
        }
    }

    /// Returns the picture.
    #[must_use]
    pub fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(text);
    }
}

/// A coordinate, in tenths of a pixel where it is not whole.
struct Tenths(f64);

impl Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.1}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
