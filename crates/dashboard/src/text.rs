//! Text from outside, and figures, as pages show them.

use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime};

use holdline_core::Escaped;
use jiff::Timestamp;
use maud::{Escaper, Markup, Render, html};

/// How many characters of a text a cell of a table shows.
const IN_A_CELL: usize = 96;

/// Text from outside: escaped for HTML, with hidden characters shown as `\u{…}`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl Render for Text<'_> {
    fn render_to(&self, buffer: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(Escaper::new(buffer), "{}", Escaped(self.0));
    }
}

/// Shows a text in a cell: long ones are cut, and their title is the whole.
pub(crate) fn cell(text: &str) -> Markup {
    match text.char_indices().nth(IN_A_CELL) {
        None => html! { (Text(text)) },
        Some((end, _)) => {
            html! { span title=(Escaped(text)) { (Text(&text[..end])) "…" } }
        }
    }
}

/// Shows a text that may be absent.
pub(crate) fn or_dash(text: &str) -> Markup {
    if text.is_empty() {
        html! { span.muted { "–" } }
    } else {
        cell(text)
    }
}

/// Shows a figure that may be unknown.
pub(crate) fn figure(figure: Option<impl Display>) -> Markup {
    html! { @if let Some(figure) = figure { (figure.to_string()) } @else { "–" } }
}

/// Writes a duration as people read it, two units at most.
pub(crate) fn short(duration: Duration) -> String {
    match duration.as_secs() {
        0 if duration.as_millis() > 0 => format!("{} ms", duration.as_millis()),
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds @ 3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        seconds => format!("{} d {:02} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Shows a moment of the machine's time of day.
pub(crate) fn moment(at: SystemTime) -> Markup {
    let Ok(at) = Timestamp::try_from(at) else { return html! { "?" } };
    let at = at.strftime("%Y-%m-%d %H:%M:%S").to_string();
    html! { time datetime=(format!("{}Z", at.replace(' ', "T"))) { (at) " UTC" } }
}

/// Writes a number and its noun: `1 lock`, `2 locks`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Writes a query behind its `?`; parameters without a value are left out.
pub(crate) fn query(parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let parameters = parameters.iter().filter(|(_, value)| !value.is_empty());
    query.extend_pairs(parameters);
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_from_outside_is_markup_or_hides_anything() {
        let hostile = "<b onclick=\"x\">&\u{202e}\u{1b}[31m";
        let shown = html! { (Text(hostile)) (cell(hostile)) }.into_string();
        assert!(!shown.contains('<') && !shown.contains(['\u{202e}', '\u{1b}']), "{shown}");
        assert!(shown.contains("&lt;b onclick=&quot;x&quot;&gt;&amp;\\u{202e}\\u{1b}[31m"));
        let long = cell(&"é<".repeat(256)).into_string();
        assert!(long.starts_with("<span title=\"é&lt;") && long.ends_with("…</span>"), "{long}");
    }

    #[test]
    fn figures_are_written_as_people_read_them() {
        for (millis, text) in [
            (0, "0 s"),
            (7, "7 ms"),
            (59_999, "59 s"),
            (61_000, "1 min 01 s"),
            (3_660_000, "1 h 01 min"),
            (90_000_000, "1 d 01 h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
        assert_eq!((count(1, "lock"), count(0, "lock")), ("1 lock".into(), "0 locks".into()));
        assert_eq!(query(&[("q", "a b&"), ("sort", "")]), "?q=a+b%26");
        assert_eq!(query(&[]), "");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let shown = moment(at).into_string();
        assert_eq!(shown, "<time datetime=\"1970-01-02T00:00:00Z\">1970-01-02 00:00:00 UTC</time>");
    }
}
