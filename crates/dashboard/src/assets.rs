//! The style, the script and the icon, served from the binary.
//!
//! The URL of each has a digest of its content, so that a browser keeps it until it changes.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sha2::{Digest, Sha256};

/// A file.
pub(crate) struct Asset {
    path: &'static str,
    media_type: &'static str,
    content: &'static str,
    version: LazyLock<String>,
}

pub(crate) static STYLE: Asset = Asset {
    path: "/dashboard/style.css",
    media_type: "text/css; charset=utf-8",
    content: include_str!("assets/style.css"),
    version: LazyLock::new(|| version(include_str!("assets/style.css"))),
};

pub(crate) static SCRIPT: Asset = Asset {
    path: "/dashboard/live.js",
    media_type: "text/javascript; charset=utf-8",
    content: include_str!("assets/live.js"),
    version: LazyLock::new(|| version(include_str!("assets/live.js"))),
};

pub(crate) static ICON: Asset = Asset {
    path: "/dashboard/icon.svg",
    media_type: "image/svg+xml",
    content: include_str!("assets/icon.svg"),
    version: LazyLock::new(|| version(include_str!("assets/icon.svg"))),
};

fn version(content: &str) -> String {
    Sha256::digest(content).iter().take(6).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Asset {
    /// Returns the path with the digest.
    pub(crate) fn url(&self) -> String {
        format!("{}?v={}", self.path, *self.version)
    }

    fn route(&'static self) -> Router {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static(self.media_type)),
            (CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400")),
        ];
        let answer = async move || (headers, self.content).into_response();
        Router::new().route(self.path, get(answer))
    }
}

/// The routes of all files. They hold nothing that needs a right.
pub(crate) fn routes() -> Router {
    STYLE.route().merge(SCRIPT.route()).merge(ICON.route())
}
