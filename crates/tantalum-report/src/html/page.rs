//! The page around everything.

use super::{Html, element, escape};
use crate::plot;

/// A page in one file. It looks right on a wide and on a narrow screen, in print, in light and in dark.
///
/// Style sheets and drawings are in the file; scripts there are none, and what is in the page cannot load anything: its
/// content security policy forbids it.
///
/// ```
/// use tantalum_report::html::{Page, element};
///
/// let mut page = Page::new("Results");
/// page.add(element("h1").with("Results"));
/// assert!(page.to_html().starts_with("<!DOCTYPE html>"));
/// ```
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: Html,
}

/// What of the page's looks is not about plots.
const STYLE: &str = include_str!("page.css");

impl Page {
    /// An empty page with this title.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), body: Html::default() }
    }

    /// Adds to its end.
    pub fn add(&mut self, more: impl Into<Html>) {
        self.body.add(more);
    }

    /// The page as the text of a file.
    pub fn to_html(&self) -> String {
        let (title, style) = (escape(&self.title), plot::STYLE);
        let body = Html::from(element("main").with(self.body.clone()));
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title}</title>\n<style>\n{STYLE}{style}</style></head>\n\
             <body>{}</body></html>\n",
            body.as_str()
        )
    }
}
