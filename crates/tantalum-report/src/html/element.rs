//! Elements and texts.

/// A piece of HTML: texts and elements, one after the other.
///
/// ```
/// use tantalum_report::html::{Html, element};
///
/// let html = Html::from("1 < 2 ").and(element("em").class("loud").with("& so on"));
/// assert_eq!(html.as_str(), "1 &lt; 2 <em class=\"loud\">&amp; so on</em>");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Html(String);

/// An element under construction.
///
/// ```
/// let link = tantalum_report::html::element("a").attribute("href", "#top").with("up");
/// assert_eq!(tantalum_report::html::Html::from(link).as_str(), "<a href=\"#top\">up</a>");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Element {
    tag: &'static str,
    attributes: String,
    content: Html,
}

/// An element without attributes and content.
pub fn element(tag: &'static str) -> Element {
    Element { tag, attributes: String::new(), content: Html::default() }
}

impl Html {
    /// The same with more at its end.
    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        self.add(more);
        self
    }

    /// Adds to its end.
    pub fn add(&mut self, more: impl Into<Self>) {
        self.0.push_str(&more.into().0);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is HTML already: drawings, style sheets.
    pub(super) fn verbatim(html: impl Into<String>) -> Self {
        Self(html.into())
    }
}

impl Element {
    /// Gives it a class, or several with spaces between.
    pub fn class(self, class: &str) -> Self {
        self.attribute("class", class)
    }

    /// Gives it an attribute.
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        self.attributes += &format!(" {name}=\"{}\"", escape(value));
        self
    }

    /// Adds to its content.
    pub fn with(mut self, more: impl Into<Html>) -> Self {
        self.content.add(more);
        self
    }
}

impl From<&str> for Html {
    fn from(text: &str) -> Self {
        Self(escape(text))
    }
}

impl From<&String> for Html {
    fn from(text: &String) -> Self {
        Self(escape(text))
    }
}

impl From<String> for Html {
    fn from(text: String) -> Self {
        Self(escape(&text))
    }
}

impl From<Element> for Html {
    fn from(Element { tag, attributes, content }: Element) -> Self {
        Self(format!("<{tag}{attributes}>{}</{tag}>", content.0))
    }
}

impl<T: Into<Html>> From<Option<T>> for Html {
    fn from(html: Option<T>) -> Self {
        html.map(Into::into).unwrap_or_default()
    }
}

impl<T: Into<Html>> FromIterator<T> for Html {
    fn from_iter<I: IntoIterator<Item = T>>(pieces: I) -> Self {
        pieces.into_iter().fold(Self::default(), Self::and)
    }
}

/// A text as it stands in HTML and SVG, between tags and in quoted attributes.
///
/// ```
/// assert_eq!(tantalum_report::html::escape("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
/// ```
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no others, and HTML shows nothing for them.
            control if control.is_control() && control != '\n' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_become_tags_or_attributes() {
        let hostile = "\"><script>alert('1')</script>\u{1b}";
        let html = Html::from(element("p").attribute("title", hostile).with(hostile));
        assert_eq!(html.as_str().matches('<').count(), 2, "{html:?}");
        assert_eq!(html.as_str().matches('"').count(), 2, "{html:?}");
        assert!(!html.as_str().contains('\u{1b}'));
    }

    #[test]
    fn pieces_follow_each_other() {
        let items = ["a", "b"].map(|text| element("li").with(text));
        let html = Html::from_iter(items).and(None::<Element>).and(Some("c"));
        assert_eq!(html.as_str(), "<li>a</li><li>b</li>c");
        assert!(Html::default().is_empty());
    }
}
