//! Plots in a page: for a wide and for a narrow screen, and the numbers behind them.

use super::{Column, Element, Html, element, table};
use crate::plot::{Plot, Ratios, Size};

/// Points of a plot that are listed below it; no reader goes through more.
const LISTED: usize = 400;

/// A plot under its title, the numbers folded away below it. `None` if there is nothing to draw.
///
/// ```
/// use tantalum_report::{html, plot::{Axis, Plot, Series, Unit}};
///
/// let (x, y) = (Axis::names("device", ["usb-a", "usb-b"]), Axis::linear("MB/s", Unit::Number));
/// let plot = Plot::new("Peak bandwidth", x, y, vec![Series::bars("writes", [11.0, 17.0])]);
/// assert!(html::figure(&plot).is_some());
/// ```
pub fn figure(plot: &Plot) -> Option<Element> {
    let drawn = |size, class| {
        let svg = plot.to_inline_svg(size)?;
        Some(element("div").class(class).with(Html::verbatim(svg)))
    };
    let (wide, narrow) = (drawn(Size::WIDE, "wide")?, drawn(Size::NARROW, "narrow")?);
    let title = element("figcaption").with(&plot.title);
    Some(element("figure").with(title).with(wide).with(narrow).with(numbers(plot)))
}

/// Ratios, for a wide and for a narrow screen. `None` if there are none.
pub fn ratios(ratios: &Ratios) -> Option<Element> {
    let drawn =
        |size: Size, class| Some(element("div").class(class).with(Html::verbatim(ratios.to_inline_svg(size.width)?)));
    Some(element("figure").with(drawn(Size::WIDE, "wide")?).with(drawn(Size::NARROW, "narrow")?))
}

/// What is plotted, one row for each point.
fn numbers(plot: &Plot) -> Option<Element> {
    let count: usize = plot.series.iter().map(|series| series.points.len()).sum();
    if count > LISTED {
        return None;
    }
    let title = |title: &str, other: &str| if title.is_empty() { other.to_owned() } else { title.to_owned() };
    let columns = [
        ("series".to_owned(), Column::Text),
        (title(&plot.x.title, "at"), Column::Number),
        (title(&plot.y.title, "value"), Column::Number),
    ];
    let rows = plot.series.iter().flat_map(|series| {
        let published = if series.is_published { ", published" } else { "" };
        series.points.iter().map(move |&(x, y)| {
            let name = format!("{}{published}", series.name);
            vec![Html::from(name), Html::from(plot.x.write(x)), Html::from(plot.y.write(y))]
        })
    });
    let says = format!("The {count} plotted numbers");
    Some(element("details").with(element("summary").with(says)).with(table(&columns, rows)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Series, Unit};

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        let series = vec![Series::line("<a>", points).published()];
        Plot::new("t & t", Axis::linear("", Unit::Number), Axis::log("MB/s", Unit::Number), series)
    }

    #[test]
    fn a_figure_has_both_drawings_and_the_numbers() {
        let html = Html::from(figure(&plot(vec![(1.0, 2.0), (3.0, 4.0)])).unwrap());
        assert_eq!(html.as_str().matches("<svg").count(), 2);
        assert!(html.as_str().contains("&lt;a&gt;, published") && html.as_str().contains("t &amp; t"), "{html:?}");
        assert!(html.as_str().contains("The 2 plotted numbers"));
    }

    #[test]
    fn too_many_numbers_are_only_drawn_and_none_make_no_figure() {
        let many = (1..1000).map(|number| (f64::from(number), 1.0)).collect();
        assert!(!Html::from(figure(&plot(many)).unwrap()).as_str().contains("<details>"));
        assert!(figure(&plot(Vec::new())).is_none());
    }
}
