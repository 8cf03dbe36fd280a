//! An HTTP service of many replicas in which each order is handled by one request at a time:
//! a lock for each request, and `423 Locked` while another request holds it.
//!
//! ```sh
//! cargo run -p holdline --example axum_handler --features redis -- redis://localhost
//! curl -i -X POST http://localhost:3000/orders/17/ship
//! ```
//!
//! When a client disconnects, axum drops the handler. That drops the guard, which releases the
//! lock in the background.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use holdline::{Client, ErrorKind, LockError};

pub(crate) fn service(client: Client) -> Router {
    Router::new().route("/orders/{order}/ship", post(ship)).with_state(client)
}

async fn ship(State(client): State<Client>, Path(order): Path<String>) -> Result<String, Refusal> {
    let guard = client.mutex(format!("orders/{order}"))?.try_lock().await?;
    // If the lease is lost, the work is dropped at its next await.
    let shipped = guard.run(async { format!("order {order} is on its way\n") }).await?;
    guard.release().await.into_result()?;
    Ok(shipped)
}

/// A lock that was not acquired, as an HTTP response.
struct Refusal(LockError);

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Refusal {
        Refusal(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self.0.kind() {
            ErrorKind::Busy { .. } => (StatusCode::LOCKED, "another request handles this order\n"),
            ErrorKind::Invalid { .. } => (StatusCode::BAD_REQUEST, "not a name of an order\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "no lock at the moment\n"),
        }
        .into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: axum_handler redis://host")?;
    let client = Client::connect(&url).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, service(client)).await?;
    Ok(())
}
