//! Many ratios at a glance, in a line of a table.

use std::fmt::Write;

use super::{Html, escape};
use crate::plot::Size;

/// Of a strip.
const SIZE: Size = Size { width: 180, height: 20 };

/// Ratios beyond this factor are drawn at the edge.
const EDGE: f64 = 3.0;

/// Dots for ratios around 1 on a logarithmic scale from a third to three, with bands of 10 % and 25 %. Each ratio comes
/// with whether its dot is hollow; what lies beyond the scale is an arrow at its edge.
///
/// ```
/// let strip = tantalum_report::html::strip("usb-a", &[(1.02, false), (7.0, true)]);
/// assert!(strip.as_str().starts_with("<svg"));
/// ```
pub fn strip(label: &str, ratios: &[(f64, bool)]) -> Html {
    let Size { width, height } = SIZE;
    let middle = f64::from(height) / 2.0;
    let half = f64::from(width) / 2.0 - 6.0;
    let place = |ratio: f64| f64::from(width) / 2.0 + ratio.ln() / EDGE.ln() * half;
    let label = escape(label);
    let mut svg = format!(
        "<svg class=\"plot strip\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\">"
    );
    // Writing into a string does not fail.
    for share in [0.25, 0.1] {
        let (from, to) = (place(1.0 - share), place(1.0 + share));
        let _ = write!(
            svg,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{height}\"/>",
            to - from
        );
    }
    let _ = write!(svg, "<path class=\"base\" d=\"M{:.1} 0v{height}\"/>", place(1.0));
    for &(ratio, is_hollow) in ratios {
        let class = if is_hollow { "hollow" } else { "mark" };
        let outline = if ratio > EDGE {
            format!("M{:.1} {:.1}l5 4l-5 4z", f64::from(width) - 6.0, middle - 4.0)
        } else if ratio >= 1.0 / EDGE {
            format!("M{:.1} {middle:.1}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z", place(ratio) - 2.5)
        } else {
            format!("M6 {:.1}l-5 4l5 4z", middle - 4.0)
        };
        let _ = write!(svg, "<path class=\"{class}\" d=\"{outline}\"/>");
    }
    Html::verbatim(svg + "</svg>")
}

#[cfg(test)]
mod tests {
    use super::strip;

    #[test]
    fn every_ratio_has_its_place_in_the_strip() {
        let strip = strip("<a>", &[(1.0, false), (0.0, false), (f64::INFINITY, true), (f64::NAN, true), (-2.0, false)]);
        let svg = strip.as_str();
        assert_eq!(svg.matches("class=\"mark\"").count() + svg.matches("class=\"hollow\"").count(), 5);
        assert!(!svg.contains("inf") && !svg.contains("NaN") && svg.contains("&lt;a&gt;"), "{svg}");
    }
}
