//! The event stream that says when a page is out of date. It has no data of locks: the page is
//! loaded again, with all checks.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use holdline_server::Counted;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fault::Fault;
use crate::site::{Site, Viewer};

/// After this the browser connects again, and is asked again who it is.
const LASTS: Duration = Duration::from_secs(300);
/// How often a stream without events writes a comment.
const STILL_HERE: Duration = Duration::from_secs(10);

/// The route of the stream.
pub(crate) fn routes() -> Router<Site> {
    Router::new().route("/dashboard/live", get(follow))
}

async fn follow(viewer: Viewer) -> Result<Response, Fault> {
    let open = viewer.site.dashboard.server.open_stream(&viewer.identity)?;
    let follower = Follower {
        rounds: viewer.site.follower.rounds(),
        site: viewer.site,
        ends: Instant::now() + LASTS,
        began: false,
        _open: open,
    };
    let body = Body::from_stream(stream::unfold(follower, |mut follower| async move {
        let text = follower.next().await?;
        Some((Ok::<_, Infallible>(text), follower))
    }));
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(([kind], body).into_response())
}

struct Follower {
    site: Site,
    rounds: tokio::sync::watch::Receiver<u64>,
    ends: Instant,
    began: bool,
    _open: Counted,
}

impl Follower {
    async fn next(&mut self) -> Option<String> {
        self.site.follower.looked_at();
        if !self.began {
            self.began = true;
            return Some("retry: 3000\n\n".to_owned());
        }
        tokio::select! {
            biased;
            () = self.site.dashboard.server.stopping() => None,
            () = sleep_until(self.ends) => None,
            changed = self.rounds.changed() => {
                changed.ok()?;
                let round = *self.rounds.borrow_and_update();
                Some(format!("event: changed\ndata: {round}\n\n"))
            }
            () = sleep(STILL_HERE) => Some(": \n\n".to_owned()),
        }
    }
}
