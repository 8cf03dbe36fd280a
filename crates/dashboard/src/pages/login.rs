//! Logging in with a token, and out.

use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::post;
use http::header::{ORIGIN, SET_COOKIE};
use http::{HeaderMap, StatusCode};

use crate::browser_sessions::LASTS;
use crate::fault::Fault;
use crate::site::{Form, Site, login_form, read_form};

/// The routes.
pub(crate) fn routes() -> Router<Site> {
    Router::new().route("/dashboard/login", post(log_in)).route("/dashboard/logout", post(log_out))
}

async fn log_in(State(site): State<Site>, request: Request) -> Result<Response, Fault> {
    let dashboard = &site.dashboard;
    let is_encrypted = dashboard.server.has_tls() || came_by_tls(request.headers());
    let mut fields = read_form(request.into_body()).await?;
    let token = fields.need("token")?;
    let next = fields.take("next").filter(|next| is_ours(next));
    fields.finish()?;
    let next = next.unwrap_or_else(|| "/dashboard".to_owned());
    let Some(login) = dashboard.server.login(token.trim()) else {
        let detail = "The server does not know this token, or it has expired";
        let fault = Fault::new(StatusCode::UNAUTHORIZED, "Not logged in", detail);
        return Err(fault.with(login_form(&next)));
    };
    let id = dashboard.server.draw_secret();
    dashboard.sessions.begin(&id, login.digest, Instant::now());
    Ok(with_cookie(&site, &id, is_encrypted, LASTS.as_secs(), &next))
}

async fn log_out(headers: HeaderMap, Form(viewer, fields): Form) -> Result<Response, Fault> {
    fields.finish()?;
    let dashboard = &viewer.site.dashboard;
    if let Some(id) = dashboard.session(&headers) {
        dashboard.sessions.end(id);
    }
    let is_encrypted = dashboard.server.has_tls() || came_by_tls(&headers);
    Ok(with_cookie(&viewer.site, "", is_encrypted, 0, "/dashboard"))
}

/// Whether the browser came by TLS. Behind a proxy that ends TLS only the browser knows, and says
/// so in the `Origin` of a form. The server has checked that it is its own.
fn came_by_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

fn with_cookie(site: &Site, id: &str, is_encrypted: bool, seconds: u64, next: &str) -> Response {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let cookie = format!(
        "{}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}",
        site.dashboard.cookie
    );
    ([(SET_COOKIE, cookie)], Redirect::to(next)).into_response()
}

/// Whether a path is one of the dashboard: a login must not lead to another site.
fn is_ours(next: &str) -> bool {
    let path = next.split('?').next().unwrap_or_default();
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_page = path == "/dashboard" || path.starts_with("/dashboard/");
    is_plain && (is_page || path.starts_with("/stores/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_our_pages_only() {
        for next in ["/dashboard", "/dashboard/locks?q=a%20b", "/stores/eu/dashboard"] {
            assert!(is_ours(next), "{next}");
        }
        for next in ["", "//evil.example", "https://evil.example", "/\\evil", "/dashboard\r\nX: y"]
        {
            assert!(!is_ours(next), "{next}");
        }
    }
}
