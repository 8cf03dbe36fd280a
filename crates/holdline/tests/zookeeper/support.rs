//! What the tests share: clients.

use holdline::Client;

pub(crate) use crate::contenders::{
    LONG, lease, let_go, patient, queued, renewed, soon, take, taking, until,
};

/// A client with short deadlines, so that a member that stands still is soon left.
pub(crate) async fn client(url: &str) -> Client {
    let url = format!("{url}?command_timeout_ms=3000&connect_timeout_ms=3000");
    Client::connect(&url).await.expect("connected")
}
