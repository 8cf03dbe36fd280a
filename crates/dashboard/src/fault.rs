//! A request that cannot be answered, as a page that names the field and the fix.

use axum::response::{IntoResponse, Response};
use holdline_server::Problem;
use http::StatusCode;
use maud::{Markup, html};

use crate::shell::Shell;
use crate::text::Text;

/// Why a request has no page.
#[derive(Debug)]
pub(crate) struct Fault(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    title: String,
    detail: String,
    field: Option<String>,
    fix: Option<String>,
    more: Option<Markup>,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, title: &str, detail: impl Into<String>) -> Fault {
        let title = title.to_owned();
        let detail = detail.into();
        Fault(Box::new(Parts { status, title, detail, field: None, fix: None, more: None }))
    }

    /// A field of the query or the form has a wrong value.
    pub(crate) fn invalid(field: &str, detail: impl Into<String>, fix: impl Into<String>) -> Fault {
        let mut fault =
            Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "A field has a wrong value", detail);
        fault.0.field = Some(field.to_owned());
        fault.fix(fix)
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Fault {
        self.0.fix = Some(fix.into());
        self
    }

    /// Adds to the page, such as a form to log in.
    pub(crate) fn with(mut self, more: Markup) -> Fault {
        self.0.more = Some(more);
        self
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Fault {
        let mut fault = Fault::new(problem.status(), problem.title(), problem.detail());
        fault.0.field = problem.field().map(str::to_owned);
        fault.0.fix = problem.advice().map(str::to_owned);
        if problem.is_uncertain() {
            return fault.fix("it may have taken effect all the same: look at the name again");
        }
        fault
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let Parts { status, title, detail, field, fix, more } = *self.0;
        let main = html! {
            h1 { (title) }
            @if let Some(field) = &field {
                p { "Field " code { (Text(field)) } ": " (Text(&detail)) "." }
            } @else {
                p { (Text(&detail)) "." }
            }
            @if let Some(fix) = &fix { p { strong { "What to do: " } (Text(fix)) "." } }
            @if let Some(more) = more { (more) }
            p { a href="/dashboard" { "To the overview" } }
        };
        let banner = html! { a.brand href="/dashboard" { "Holdline" } };
        let shell = Shell { title: &title, banner, live: None, main, footer: html! {} };
        shell.response(status)
    }
}
