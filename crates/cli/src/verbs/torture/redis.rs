//! The faults that an operator of Redis servers can inject over a connection.

use std::sync::Arc;

use holdline::clock::{Clock, ClockKind, SystemClock};
use holdline::redis::RedisOptions;
use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_torture::endpoints::{Endpoint, Endpoints};
use holdline_torture::{Fault, Injection, Nemesis};
use tokio::runtime::Handle;

/// The servers of a URL.
pub(super) struct Servers {
    nodes: Vec<RedisOptions>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
}

impl Servers {
    /// Finds the servers of a URL; `None` if they are no Redis servers, or cannot be distinguished.
    pub(super) fn of(url: &str) -> Result<Option<Servers>, LockError> {
        let redis =
            ["redis://", "rediss://", "redis+unix://", "redis+sentinel://", "rediss+sentinel://"];
        let urls = match Endpoints::of(url) {
            Some(all) if url.starts_with("redlock://") => each(&all, "redlock://"),
            None if url.starts_with("redis-cluster://") => {
                // Its nodes name each other, so no proxy can stand before a single one.
                let alone = url.replacen("redis-cluster://", "redis://", 1);
                match Endpoints::of(&alone) {
                    Some(all) => each(&all, "redis://"),
                    None => return Ok(None),
                }
            }
            _ if redis.iter().any(|scheme| url.starts_with(scheme)) => vec![url.to_owned()],
            _ => return Ok(None),
        };
        let clock = SystemClock::new(ClockKind::Boottime).map_err(|error| {
            let message = format!("the machine gives no timer: {error}");
            LockError::new("redis", ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let nodes: Result<_, _> = urls.iter().map(|url| RedisOptions::from_url(url)).collect();
        let nodes = nodes?;
        Ok(Some(Servers { nodes, clock: Arc::new(clock), runtime: Handle::current() }))
    }
}

/// Returns the URLs of the nodes of a quorum or a cluster, each by itself.
fn each(all: &Endpoints, scheme: &str) -> Vec<String> {
    let one = |server: &Endpoint| all.with_servers(std::slice::from_ref(server));
    all.servers().iter().map(|server| one(server).replacen(scheme, "redis://", 1)).collect()
}

impl Nemesis for Servers {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = vec![Fault::ScriptFlush, Fault::ClientKill, Fault::FlushAll];
        faults
            .extend(self.nodes.iter().any(RedisOptions::has_sentinels).then_some(Fault::Failover));
        faults
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        let node = self.nodes.get(injection.node).ok_or("there is no such node")?;
        let failed = |error: LockError| format!("{}: {error}", injection.fault);
        let words: &[&str] = match injection.fault {
            Fault::Failover => {
                let done = holdline_redis::fail_over(node, self.clock.clone());
                return self.runtime.block_on(done).map_err(failed);
            }
            Fault::ScriptFlush => &["SCRIPT", "FLUSH"],
            Fault::ClientKill => &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
            Fault::FlushAll => &["FLUSHALL"],
            other => return Err(format!("{other} is not possible over a connection")),
        };
        let sent = holdline_redis::command(node, self.clock.clone(), words);
        self.runtime.block_on(sent).map_err(failed)
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_of_a_quorum_is_reached_by_itself() {
        let all = Endpoints::of("redlock://u:p@a,b:7/2?prefix=x:").expect("servers");
        let urls = ["redis://u:p@a:6379/2?prefix=x:", "redis://u:p@b:7/2?prefix=x:"];
        assert_eq!(each(&all, "redlock://"), urls);
    }
}
