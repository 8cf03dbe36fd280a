//! The HTML around everything, and the headers of every page.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderName, HeaderValue, StatusCode};
use maud::{DOCTYPE, Markup, html};

use crate::assets;

/// What a page may load and do. `shield` of the server forbids everything else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// The parts of a page.
pub(crate) struct Shell<'a> {
    /// What the window is called.
    pub(crate) title: &'a str,
    /// The banner: the navigation, and who is logged in.
    pub(crate) banner: Markup,
    /// The path of the event stream that says when the page is out of date.
    pub(crate) live: Option<String>,
    pub(crate) main: Markup,
    pub(crate) footer: Markup,
}

impl Shell<'_> {
    /// Makes the response.
    pub(crate) fn response(self, status: StatusCode) -> Response {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Holdline" }
                    link rel="icon" type="image/svg+xml" href=(assets::ICON.url());
                    link rel="stylesheet" href=(assets::STYLE.url());
                    script type="module" src=(assets::SCRIPT.url()) {}
                }
                body data-live=[self.live] {
                    a.skip href="#main" { "Skip to the content" }
                    header.banner { (self.banner) }
                    main #main tabindex="-1" { (self.main) }
                    footer { (self.footer) }
                }
            }
        };
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            // Browsers send no `Origin` with a form of a page that has `no-referrer`.
            (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                HeaderValue::from_static("same-origin"),
            ),
        ];
        (status, headers, markup.into_string()).into_response()
    }
}
