//! Commands for tools that administer or test a server.

use std::sync::Arc;

use holdline_core::{Clock, LockError};

use crate::error::ENGINE;
use crate::options::RedisOptions;
use crate::sentinel::{self, Watcher};

/// Sends one command to the server of these options, over a connection of its own, and waits for
/// the reply. For tools that test a server; no verb of the engine uses it.
///
/// # Errors
/// - `Invalid`: an option is wrong.
/// - `Unavailable`: no reply came; the command may have been carried out.
/// - `Refused` and others: the server's error reply.
pub async fn command(
    options: &RedisOptions,
    clock: Arc<dyn Clock>,
    args: &[&str],
) -> Result<(), LockError> {
    let link = sentinel::link(&options.read_only(), clock)?;
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    link.command(args, None, options.command_timeout()).await.map(drop)
}

/// Has the sentinels of these options promote a replica, and waits until they name it as the
/// master. For tools that test a failover; no verb of the engine uses it.
///
/// # Errors
/// - `Invalid`: the options name no sentinels.
/// - `Unavailable`: the sentinels do not answer, or no replica was promoted in 20 s.
/// - `Refused` and others: the sentinels' error reply.
pub async fn fail_over(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<(), LockError> {
    let Some(watcher) = Watcher::new(options, &clock)? else {
        return Err(LockError::invalid(ENGINE, "url", "names no sentinels"));
    };
    watcher.fail_over().await
}
