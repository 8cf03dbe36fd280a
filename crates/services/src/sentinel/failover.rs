//! Failovers of a group: who is the master, how another one is promoted, and what replicas have.

use super::{SENTINELS, SERVERS, Sentinel, SentinelGroup, address_of};
use crate::Reply;
use crate::failure::log_ends;
use crate::redis::RedisServer;
use crate::wait::{LIMIT, until};

impl SentinelGroup {
    /// Writes to a server what a client writes that has known it as the master for long, so that it
    /// grants at once.
    ///
    /// # Panics
    /// The server does not answer, or takes no writes.
    pub fn settle(&self, server: usize) {
        self.servers[server].settle();
    }

    /// Has a sentinel promote a replica while all servers are healthy; returns its number.
    ///
    /// # Panics
    /// None is promoted.
    pub fn fail_over(&self) -> usize {
        let before = self.master();
        let words = ["SENTINEL", "FAILOVER", Self::SERVICE];
        let begun = || self.sentinels.iter().find_map(|sentinel| sentinel.say(&words));
        self.must(until(LIMIT, begun), "a sentinel begins");
        self.await_promotion(before)
    }

    /// Makes a server that was the master follow the one that is, and waits until it does. The
    /// sentinels see to that themselves, after ten seconds. From then on another may be promoted.
    ///
    /// # Panics
    /// It does not.
    pub fn follow(&self, server: usize, master: usize) {
        self.point(server, master);
        self.await_linked();
        let port = Some(u64::from(address_of(&self.servers[master], self.tls.is_some()).port()));
        // While a sentinel still moves the others over it names the next master, and keeps the
        // last: if the next one ran now, it would be stopped there.
        let settled = || {
            let mut all = self.sentinels.iter();
            all.all(|sentinel| sentinel.number_of("port") == port).then_some(())
        };
        self.must(until(LIMIT, settled), "the failover comes to its end");
    }

    /// Makes a server follow another.
    ///
    /// # Panics
    /// It does not answer, or refuses.
    pub fn point(&self, server: usize, master: usize) {
        let address = address_of(&self.servers[master], self.tls.is_some());
        let line = format!("REPLICAOF {} {}", address.ip(), address.port());
        let reply = self.servers[server].raw().say(&line).expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }

    /// Waits until the replicas have all writes of the master.
    ///
    /// # Panics
    /// They do not get it.
    pub fn await_replicated(&self) {
        let mut raw = self.servers[self.master()].raw();
        raw.say("SET replicated 1").expect("written");
        let reply = raw.say("WAIT 2 60000").expect("an answer");
        assert_eq!(reply.integer(), Some(2), "both have it");
    }

    /// The number of the server that the first sentinel names.
    ///
    /// # Panics
    /// The sentinel does not answer, or names a stranger.
    #[must_use]
    pub fn master(&self) -> usize {
        self.master_seen_by(0)
    }

    fn master_seen_by(&self, sentinel: usize) -> usize {
        let named = self.sentinels[sentinel].master().expect("the sentinel knows the service");
        let is_named = |server: &RedisServer| address_of(server, self.tls.is_some()) == named;
        self.servers.iter().position(is_named).expect("a server of ours")
    }

    /// Waits until all sentinels name another server than this one, and that is a master; returns
    /// its number.
    ///
    /// # Panics
    /// They do not.
    pub fn await_promotion(&self, before: usize) -> usize {
        self.await_promotion_seen_by(&[0, 1, 2], before)
    }

    /// The same for some of the sentinels: others may be away.
    ///
    /// # Panics
    /// They do not.
    pub fn await_promotion_seen_by(&self, sentinels: &[usize], before: usize) -> usize {
        let promoted = || {
            let now = self.master_seen_by(*sentinels.first()?);
            let all = sentinels.iter().all(|sentinel| self.master_seen_by(*sentinel) == now);
            (now != before && all && self.servers[now].is_master()).then_some(now)
        };
        self.must(until(LIMIT, promoted), "a replica is promoted")
    }

    /// Waits until each sentinel knows this many healthy replicas, and all other sentinels.
    ///
    /// # Panics
    /// They do not.
    pub fn await_known(&self, replicas: usize) {
        let knows = |sentinel: &Sentinel| {
            let others = sentinel.number_of("num-other-sentinels");
            let up = sentinel.replicas_up() == replicas;
            up && others == Some(SENTINELS as u64 - 1)
        };
        let all = || self.sentinels.iter().all(knows).then_some(());
        self.must(until(LIMIT, all), "the sentinels know each other and the replicas");
    }

    /// Returns the awaited value, or panics with the logs of the sentinels.
    fn must<T>(&self, came: Option<T>, what: &str) -> T {
        let title = |(at, one): (usize, &Sentinel)| {
            (format!("sentinel {at}, {}", one.address()), one.log())
        };
        let words = || log_ends(self.sentinels.iter().enumerate().map(title));
        came.unwrap_or_else(|| panic!("waited in vain until {what}:\n{}", words()))
    }

    /// Waits until the master has all the others as replicas that are up to date.
    ///
    /// # Panics
    /// It has not.
    pub fn await_linked(&self) {
        let linked = || {
            let info = self.servers[self.master()].raw().say("INFO replication").ok()?;
            let online = info.text()?.matches("state=online").count();
            (online == SERVERS - 1).then_some(())
        };
        until(LIMIT, linked).expect("the replicas follow their master");
    }

    /// Cuts the replicas off, so that they miss later writes of the master, and stops them until
    /// [`RedisServer::cont`].
    ///
    /// # Panics
    /// A command to a server fails.
    pub fn hold_replicas_back(&self) {
        let master = self.master();
        let replicas = || self.servers.iter().enumerate().filter(|(at, _)| *at != master);
        replicas().for_each(|(_, replica)| replica.stop());
        // What waited in their sockets is lost with the connection.
        self.servers[master].raw().say("CLIENT KILL TYPE replica").expect("an answer");
    }

    /// Continues the replicas.
    ///
    /// # Panics
    /// A command to a server fails.
    pub fn let_replicas_go(&self, master: usize) {
        let replicas = self.servers.iter().enumerate().filter(|(at, _)| *at != master);
        replicas.for_each(|(_, replica)| replica.cont());
    }
}
