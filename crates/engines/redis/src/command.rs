//! One command for tools that have power over a server.

use std::sync::Arc;

use holdline_core::{Clock, LockError};

use crate::node::Node;
use crate::options::RedisOptions;

/// Sends one command to the server of these options, over a connection of its own, and waits for
/// the answer. For tools that test a server; no verb of the engine uses it.
///
/// # Errors
/// - `Invalid`: an option is wrong.
/// - `Unavailable`: no answer came; the command may have been carried out.
/// - `Refused` and others: what the server said.
pub async fn command(
    options: &RedisOptions,
    clock: Arc<dyn Clock>,
    words: &[&str],
) -> Result<(), LockError> {
    let node = Node::new(&options.only_looking(), clock)?;
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    node.command(words, None, options.command_timeout()).await.map(drop)
}
