//! Tables that scroll by themselves where they are wider than the page.

use super::{Element, Html, element};

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Words, to the left.
    Text,
    /// Numbers, to the right.
    Number,
    /// Words or a drawing that a narrow screen can do without.
    Extra,
}

/// A table with a header. The first cell of a row says what the row is about.
///
/// ```
/// use tantalum_report::html::{Column, Html, table};
///
/// let columns = [("device", Column::Text), ("writes", Column::Number)];
/// let rows = [vec![Html::from("usb-a"), Html::from("12,000")]];
/// assert!(Html::from(table(&columns, rows)).as_str().contains("<td class=\"number\">12,000</td>"));
/// ```
pub fn table<T: AsRef<str>>(columns: &[(T, Column)], rows: impl IntoIterator<Item = Vec<Html>>) -> Element {
    let kinds = || columns.iter().map(|column| column.1);
    let head =
        columns.iter().map(|(title, kind)| kind.of(element("th").attribute("scope", "col")).with(title.as_ref()));
    let body = rows.into_iter().map(|row| {
        let cells = row.into_iter().zip(kinds()).enumerate().map(|(place, (cell, kind))| match place {
            0 => kind.of(element("th").attribute("scope", "row")).with(cell),
            _ => kind.of(element("td")).with(cell),
        });
        element("tr").with(Html::from_iter(cells))
    });
    let head = element("thead").with(element("tr").with(Html::from_iter(head)));
    let table = element("table").with(head).with(element("tbody").with(Html::from_iter(body)));
    // What scrolls can be scrolled with the keyboard too.
    element("div").class("scroll").attribute("tabindex", "0").with(table)
}

impl Column {
    fn of(self, cell: Element) -> Element {
        match self {
            Self::Text => cell,
            Self::Number => cell.class("number"),
            Self::Extra => cell.class("extra"),
        }
    }
}
