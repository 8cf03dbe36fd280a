//! Commands for tools that have power over a server.

use std::sync::Arc;

use holdline_core::{Clock, LockError};

use crate::error::ENGINE;
use crate::node::Node;
use crate::options::RedisOptions;
use crate::sentinel::Watcher;

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

/// Has the sentinels of these options give the master's place to a replica, and waits until they
/// name that one. For tools that test a group; no verb of the engine uses it.
///
/// # Errors
/// - `Invalid`: the options name no sentinels.
/// - `Unavailable`: the sentinels do not answer, or no replica was promoted in 20 s.
/// - `Refused` and others: what the sentinels said.
pub async fn fail_over(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<(), LockError> {
    let Some(watcher) = Watcher::new(options, &clock)? else {
        return Err(LockError::invalid(ENGINE, "url", "names no sentinels"));
    };
    watcher.fail_over().await
}
