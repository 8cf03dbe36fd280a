//! The settings of a quorum, in code or in a URL.
//!
//! `redlock://[user[:password]@]host[:port],host[:port],…[/db][?…]`, and `redlocks://` for TLS.
//! User, password and parameters apply to all nodes.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::configuration::{DEFAULT_MAX_LEASE, MAX_LEASE_CAP, MAX_NODES};
use holdline_core::{LockError, accept_url};

use super::ENGINE;
use crate::environment::Environment;
use crate::options::{Dialect, RedisOptions};

/// The default timeout of a request to one node. An acquire never waits for it while a majority
/// answers.
const NODE_DEADLINE: Duration = Duration::from_millis(200);

/// Rejects credentials in the wrong place: part of a password could be read as a server's name.
const CREDENTIALS: &str = "has a user and password for one of its servers: give them once, before \
                           the first server; they apply to all (write `%40` for `@` and `%2C` for \
                           `,` in them)";

/// The settings of a quorum engine.
#[derive(Clone, Debug)]
pub struct QuorumOptions {
    nodes: Vec<RedisOptions>,
    max_lease: Option<Duration>,
    read_only: bool,
}

impl QuorumOptions {
    /// Reads the settings from a URL. Its parameters are those of
    /// [`RedisOptions::from_url`]; `command_timeout_ms` is 200 unless set, and bounds the answer of
    /// one node. `max_lease_duration_ms` is [`QuorumOptions::with_max_lease`].
    ///
    /// # Errors
    /// `Invalid`: the URL is wrong. The message never shows its password. No connection was made.
    pub fn from_url(url: &str) -> Result<QuorumOptions, LockError> {
        let url = &*accept_url(url).map_err(bad)?;
        let (scheme, rest) = match url.split_once("://") {
            Some(("redlock", rest)) => ("redis", rest),
            Some(("redlocks", rest)) => ("rediss", rest),
            _ => return Err(bad("must begin with `redlock://` or `redlocks://`")),
        };
        // Each part keeps its separator: `user:password@`, hosts, `/db`, `?parameters`.
        let (before, parameters) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (credentials, hosts) = before.split_at(before.rfind('@').map_or(0, |at| at + 1));
        if credentials.strip_suffix('@').is_some_and(|text| text.contains(['@', ','])) {
            return Err(bad(CREDENTIALS));
        }
        let (hosts, db) = hosts.split_at(hosts.find('/').unwrap_or(hosts.len()));
        if db.len() > 1 && db[1..].parse::<u32>().is_err() {
            return Err(bad(NO_GROUP));
        }
        let mut max_lease = None;
        let mut node_parameters = Vec::new();
        for parameter in parameters.strip_prefix('?').into_iter().flat_map(|all| all.split('&')) {
            match parameter.strip_prefix(MAX_LEASE) {
                Some(value) => max_lease = Some(millis(value)?),
                None => node_parameters.push(parameter),
            }
        }
        let mut after = db.to_owned();
        if !node_parameters.is_empty() {
            after.push('?');
            after.push_str(&node_parameters.join("&"));
        }
        let mut nodes = Vec::new();
        for host in hosts.split(',') {
            if host.is_empty() {
                return Err(bad("names its servers like `redlock://one,two:7000,three`"));
            }
            let url = format!("{scheme}://{credentials}{host}{after}");
            let mut node = RedisOptions::from_url(&url).map_err(as_quorum_error)?;
            if !node_parameters.iter().any(|parameter| is_command_timeout(parameter)) {
                node = node.with_command_timeout(NODE_DEADLINE);
            }
            nodes.push(node);
        }
        let options = QuorumOptions::of(nodes)?;
        Ok(QuorumOptions { max_lease, ..options })
    }

    /// Makes the settings of a quorum of these servers.
    ///
    /// # Errors
    /// `Invalid`: there are no servers, too many, or one is named twice.
    pub fn of(nodes: Vec<RedisOptions>) -> Result<QuorumOptions, LockError> {
        if nodes.is_empty() || nodes.len() > MAX_NODES {
            let message = format!("must name 1 to {MAX_NODES} servers, not {}", nodes.len());
            return Err(bad(message));
        }
        if nodes.iter().any(RedisOptions::has_sentinels) {
            return Err(bad(NO_GROUP));
        }
        for (at, node) in nodes.iter().enumerate() {
            let identity = |node: &RedisOptions| (node.address().clone(), node.db());
            if let Some(twice) = nodes[..at].iter().find(|other| identity(other) == identity(node))
            {
                return Err(bad(format!("names {} twice", twice.address())));
            }
        }
        Ok(QuorumOptions { nodes, max_lease: None, read_only: false })
    }

    /// Sets the longest lease of a set that this client initialises; 60 s unless set, 10 min at
    /// most. An existing set keeps its own.
    #[must_use]
    pub fn with_max_lease(mut self, max_lease: Duration) -> QuorumOptions {
        self.max_lease = Some(max_lease);
        self
    }

    /// Makes this client read-only: it readmits no server and measures no quarantine. For programs
    /// that only display the state of names.
    #[must_use]
    pub fn with_read_only(mut self) -> QuorumOptions {
        self.read_only = true;
        self
    }

    /// Sets the environment of each node, in the order of the nodes; for simulators.
    #[must_use]
    pub fn with_environment(
        mut self,
        environment: impl IntoIterator<Item = Arc<dyn Environment>>,
    ) -> QuorumOptions {
        let nodes = self.nodes.into_iter().zip(environment);
        self.nodes = nodes.map(|(node, one)| node.with_environment(one)).collect();
        self
    }

    pub(crate) fn nodes(&self) -> &[RedisOptions] {
        &self.nodes
    }

    pub(super) fn max_lease(&self) -> Duration {
        self.max_lease.unwrap_or(DEFAULT_MAX_LEASE)
    }

    pub(super) fn configured_max_lease(&self) -> Option<Duration> {
        self.max_lease
    }

    pub(super) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns whether the servers are a maintained set; without tokens they are not.
    pub(crate) fn is_set(&self) -> bool {
        self.nodes[0].fencing()
    }

    pub(super) fn require_set(&self) -> Result<(), LockError> {
        if self.is_set() {
            return Ok(());
        }
        let feature = "maintaining a set: with `fencing=off` these servers are none, and there \
                       is nothing to initialise";
        Err(LockError::unsupported(ENGINE, feature))
    }

    pub(super) fn validate(&self) -> Result<(), LockError> {
        if self.max_lease().is_zero() || self.max_lease() > MAX_LEASE_CAP {
            let message = format!("must be above 0 and at most {MAX_LEASE_CAP:?}");
            return Err(LockError::invalid(ENGINE, "max_lease_duration_ms", message));
        }
        if self.max_lease.is_some() && !self.is_set() {
            let message = "is for sets: with `fencing=off` there is none";
            return Err(LockError::invalid(ENGINE, "max_lease_duration_ms", message));
        }
        self.nodes.iter().try_for_each(|node| self.validate_layout(node))
    }

    fn validate_layout(&self, node: &RedisOptions) -> Result<(), LockError> {
        node.validate().map_err(as_quorum_error)?;
        let invalid = |field, message| Err(LockError::invalid(ENGINE, field, message));
        if node.dialect() == Dialect::Redisson && node.fencing() {
            let message = "must be off: Redisson's RedissonRedLock has no tokens, so write \
                           `fencing=off`";
            return invalid("fencing", message);
        }
        if node.failover().are_set() {
            let message = "has `old_master_ms`, `quarantine` or `replicas`, which a quorum has \
                           not: a server that may have lost its votes waits by rules of its own";
            return invalid("url", message);
        }
        if node.signal_template().is_some() {
            let message = "is for one server: no library that locks over several waits on a list";
            return invalid("signal_template", message);
        }
        let first = &self.nodes[0];
        let layout = |node: &RedisOptions| {
            let texts = [node.key_template(), node.prefix()].map(str::to_owned);
            (node.dialect(), node.fencing(), texts)
        };
        if layout(node) != layout(first) {
            return invalid("dialect", "must be the same for all servers, and so must their keys");
        }
        Ok(())
    }
}

/// Why no group of Sentinels is a node (decision 0069).
const NO_GROUP: &str = "has a path that is no database number: each node of a quorum is one \
                        server, and none is a service of Sentinels. Name servers without \
                        replicas, or write `redis+sentinel://` for one group";

/// The parameter that belongs to the set and not to each server.
const MAX_LEASE: &str = "max_lease_duration_ms=";

fn millis(text: &str) -> Result<Duration, LockError> {
    let millis: u64 = text
        .parse()
        .map_err(|_| bad(format!("{MAX_LEASE}{text}: must be a whole number of milliseconds")))?;
    Ok(Duration::from_millis(millis))
}

fn is_command_timeout(parameter: &str) -> bool {
    parameter.split('=').next() == Some("command_timeout_ms")
}

fn bad(message: impl std::fmt::Display) -> LockError {
    LockError::invalid(ENGINE, "url", message)
}

/// Reports an error in the URL of one node as an error of the whole URL.
fn as_quorum_error(error: LockError) -> LockError {
    match error.kind() {
        holdline_core::ErrorKind::Invalid { field, message } => {
            LockError::invalid(ENGINE, field, message)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Vec<String> {
        let options = QuorumOptions::from_url(url).expect(url);
        options.nodes().iter().map(|node| node.address().to_string()).collect()
    }

    fn refused(url: &str) -> String {
        QuorumOptions::from_url(url).expect_err(url).to_string()
    }

    #[test]
    fn a_url_names_all_servers() {
        let all = addresses("redlock://u:p@one,two:7000,[::1]:7001/3?prefix=x:");
        assert_eq!(all, ["one:6379", "two:7000", "[::1]:7001"]);
        let options = QuorumOptions::from_url("redlock://:s3cret@one,two/3").expect("good");
        assert!(options.nodes().iter().all(|node| node.db() == 3));
        assert!(
            options.nodes().iter().all(|node| node.password().last().as_deref() == Some("s3cret"))
        );
        assert!(!format!("{options:?}").contains("s3cret"));
        assert!(options.nodes().iter().all(|node| node.command_timeout() == NODE_DEADLINE));
        let slow = QuorumOptions::from_url("redlock://one?command_timeout_ms=900").expect("good");
        assert_eq!(slow.nodes()[0].command_timeout(), Duration::from_millis(900));
        let longest = QuorumOptions::from_url("redlock://one,two?max_lease_duration_ms=5000&db=3");
        let longest = longest.expect("good");
        assert_eq!((longest.max_lease(), longest.nodes()[1].db()), (Duration::from_secs(5), 3));
    }

    #[test]
    fn errors_never_show_the_password() {
        assert!(refused("redlock://").contains("one,two:7000"));
        assert!(refused("redis://one").contains("redlock://"));
        assert!(refused("redlock://one,,two").contains("one,two:7000"));
        assert!(refused("redlock://one:7,two,one:7").contains("one:7 twice"));
        assert!(refused("redlock://one?prefx=1").contains("prefix"));
        assert!(refused("redlock://one,two/locks").contains("none is a service of Sentinels"));
        let replicas = QuorumOptions::from_url("redlock://one?replicas=1").expect("read");
        let replicas = replicas.validate().expect_err("no quorum has it").to_string();
        assert!(replicas.contains("by rules of its own"), "{replicas}");
        assert!(refused("redlock://one?max_lease_duration_ms=5s").contains("milliseconds"));
        let long = QuorumOptions::from_url("redlock://one?max_lease_duration_ms=600001");
        assert!(long.expect("a number").validate().is_err());
        let many = (0..16).map(|at| format!("h{at}")).collect::<Vec<_>>().join(",");
        assert!(refused(&format!("redlock://{many}")).contains("1 to 15"));
        assert!(!refused("redlock://u:s3cret@one:x,two").contains("s3cret"));
    }

    #[test]
    fn a_password_in_the_wrong_place_is_rejected() {
        for url in [
            "redlock://u:s3cret@one,u:s3cret@two,three",
            "redlock://one,two,u:s3cret@three",
            "redlock://one,u@two",
        ] {
            let message = refused(url);
            assert!(message.contains("once, before the first"), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
        let options = QuorumOptions::from_url("redlock://u:a%40b%2Cc@one,two").expect("good");
        assert_eq!(options.nodes()[1].password().last().as_deref(), Some("a@b,c"));
    }
}
