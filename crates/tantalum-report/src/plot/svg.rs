//! The text of an SVG drawing.

use std::fmt::{Arguments, Write};

use super::style::{ALONE, STYLE};
use crate::html::escape;

#[derive(Debug)]
pub(super) struct Svg(String);

impl Svg {
    /// A drawing of this size in pixels; for a file of its own, style sheet and title are in it.
    pub fn new(width: u32, height: f64, title: &str, is_alone: bool) -> Self {
        let mut svg = Self(String::with_capacity(1 << 14));
        let name = if is_alone { "xmlns=\"http://www.w3.org/2000/svg\" " } else { "" };
        let label = escape(title);
        svg.write(format_args!(
            "<svg {name}class=\"plot\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-label=\"{label}\">"
        ));
        if is_alone {
            svg.write(format_args!("<style>{STYLE}{ALONE}</style>"));
            svg.text("title", 0.0, 17.0, "start", title);
        }
        svg
    }

    pub fn write(&mut self, text: Arguments<'_>) {
        // Writing into a string does not fail.
        let _ = self.0.write_fmt(text);
    }

    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escape(text);
        self.write(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// The whole drawing.
    pub fn end(self) -> String {
        self.0 + "</svg>"
    }
}
