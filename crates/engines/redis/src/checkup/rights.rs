//! The user's rights, and how well the server is protected.

use holdline_core::{Finding, LeaseId, LockError, LockKind, LockName, Mode};

use super::Probe;
use crate::keys::Layout;
use crate::link::Value;
use crate::options::{Address, Dialect, Publish, RedisOptions, Replicas, is_near};
use crate::plain::Keys;
use crate::redisson::Names;

const RIGHTS: &str = "without one of these commands locks cannot be taken, kept or released";
const GUARD: &str = "any client that can write to the server can take and free every lock";

/// The commands of the scripts with the arguments that they need, `K` for the lock key; and those
/// that we send ourselves, with `C` for the counter and `I` for an inbox.
const NEEDED: [&str; 33] = [
    "DEL K",
    "EVAL text 1 K",
    "EVALSHA 0000000000000000000000000000000000000000 1 K",
    "EXISTS K",
    "GET C",
    "GET K",
    "GETRANGE K 0 1",
    "GETSET C 1",
    "HDEL K f",
    "HGET K f",
    "HGETALL K",
    "HLEN K",
    "HMGET K f",
    "HSET K f v",
    "HSETNX K f v",
    "PEXPIRE K 1",
    "PTTL K",
    "PUBLISH I text",
    "SET C 1",
    "SET K v",
    "SETRANGE K 0 v",
    "SUBSCRIBE I",
    "TIME",
    "TYPE K",
    "ZADD K 1 m",
    "ZCARD K",
    "ZCOUNT K 0 1",
    "ZRANGE K 0 1",
    "ZRANGEBYSCORE K 0 1",
    "ZRANK K m",
    "ZREM K m",
    "ZSCORE K m",
    "PING",
];
/// The same for the plain dialect with tokens; the marks of lease ids share the counter's prefix.
const NEEDED_PLAIN: [&str; 16] = [
    "DEL K",
    "EVAL text 1 K",
    "EVALSHA 0000000000000000000000000000000000000000 1 K",
    "EXISTS K",
    "GET C",
    "GETRANGE K 0 1",
    "GETSET C 1",
    "PEXPIRE K 1",
    "PTTL K",
    "PTTL C",
    "SET C 1",
    "SET K v",
    "SETRANGE K 0 v",
    "TIME",
    "TYPE K",
    "PING",
];
/// And without tokens.
const NEEDED_BARE: [&str; 11] = [
    "DEL K",
    "EVAL text 1 K",
    "EVALSHA 0000000000000000000000000000000000000000 1 K",
    "EXISTS K",
    "GETRANGE K 0 1",
    "PEXPIRE K 1",
    "PTTL K",
    "SET K v",
    "TIME",
    "TYPE K",
    "PING",
];
/// What the list of releases needs.
const NEEDED_SIGNAL: [&str; 3] = ["DEL S", "LPUSH S 1", "PEXPIRE S 1"];
/// The same for Redisson's dialect, with `I` for a channel, `S` for the permits and `N` for the
/// records of a semaphore, `W` for the mark of a lease id, and `Q`, `T`, `B` for the list, the
/// scores and the heartbeats of a fair lock.
const NEEDED_REDISSON: [&str; 50] = [
    "DECR C",
    "DECRBY K 1",
    "DEL K",
    "EVAL text 1 K",
    "EVALSHA 0000000000000000000000000000000000000000 1 K",
    "EXISTS K",
    "GET K",
    "GET W",
    "GETRANGE K 0 1",
    "HDEL N f",
    "HGET N f",
    "HGETALL K",
    "HLEN K",
    "HMGET K f",
    "HSET K f v",
    "HSET N f v",
    "INCR C",
    "INCRBY K 1",
    "PERSIST K",
    "PEXPIRE K 1",
    "PTTL K",
    "SET K v",
    "SET W v",
    "TIME",
    "TYPE K",
    "ZADD S 1 m",
    "ZCARD S",
    "ZRANGE S 0 1",
    "ZRANGEBYSCORE S 0 1",
    "ZREM S m",
    "ZSCORE S m",
    "TYPE Q",
    "EXISTS Q",
    "LINDEX Q 0",
    "LLEN Q",
    "LPOP Q",
    "LPOS Q v",
    "LRANGE Q 0 1",
    "LREM Q 1 v",
    "RPUSH Q v",
    "ZADD T 1 m",
    "ZRANGE T 0 1",
    "ZREM T m",
    "ZSCORE T m",
    "PEXPIRE B 1",
    "ZADD B 1 m",
    "ZRANGEBYSCORE B 0 1",
    "ZREM B m",
    "SUBSCRIBE I",
    "PING",
];
/// What publishes.
const PUBLISHES: &str = "PUBLISH I text";
/// The same for sharded channels of a cluster.
const SHARDED: [&str; 2] = ["SPUBLISH I text", "SSUBSCRIBE I"];
/// The same for a server of a quorum, with `N` for the state of the node and `W` for the channel of
/// releases.
const NEEDED_QUORUM: [&str; 21] = [
    "DEL K",
    "EVAL text 1 K",
    "EVALSHA 0000000000000000000000000000000000000000 1 K",
    "GET K",
    "GETRANGE K 0 1",
    "HDEL N f",
    "HGET N f",
    "HLEN N",
    "HMGET N f",
    "HSET N f v",
    "INFO",
    "MGET K K",
    "PEXPIRE K 1",
    "PTTL K",
    "PUBLISH W text",
    "SET K v",
    "SETRANGE K 0 v",
    "SUBSCRIBE W",
    "TIME",
    "TYPE K",
    "PING",
];
/// What a cluster needs in addition, or in another form.
const NEEDED_CLUSTER: [&str; 4] = ["ASKING", "CLUSTER INFO", "CLUSTER SLOTS", "SET C 1 PX 1 GET"];
/// What it does not need.
const NOT_IN_CLUSTER: [&str; 2] = ["GETSET C 1", "SET C 1"];
/// What a server with sentinels needs in addition, with `R` for the master term.
const NEEDED_GROUP: [&str; 4] = ["HMGET R f", "HSET R f v", "INFO", "ROLE"];
/// What counts acknowledgements of replicas.
const NEEDED_COPIES: &str = "WAIT 1 1";
/// What `ls` needs in addition.
const FOR_LISTS: &str = "SCAN 0";
/// What an operator needs in addition, with `A` for the audit trail.
const FOR_AUDIT: [&str; 3] =
    ["EVALSHA 0000000000000000000000000000000000000000 1 A", "XADD A * r v", "XREVRANGE A + -"];

/// Checks the user's rights.
pub(super) async fn findings(probe: &Probe, options: &RedisOptions) -> [Finding; 2] {
    of(probe, options, needed(options)).await
}

/// Checks the user's rights on a server of a quorum.
pub(super) async fn of_member(probe: &Probe, options: &RedisOptions) -> [Finding; 2] {
    let forms = NEEDED_QUORUM.to_vec();
    let needed = if options.fencing() {
        Needed { forms, lists: false, document: "docs/quorum.md" }
    } else {
        needed(options)
    };
    of(probe, options, needed).await
}

async fn of(probe: &Probe, options: &RedisOptions, needed: Needed) -> [Finding; 2] {
    let user = probe.text(&["ACL", "WHOAMI"]).await;
    let rights = match &user {
        Ok(user) => rights(probe, user, options, needed).await,
        Err(error) => unknown(error),
    };
    [rights, guard(probe, user.ok().as_deref(), options).await]
}

/// What a user needs.
struct Needed {
    forms: Vec<&'static str>,
    /// Names can be listed and actions recorded, which takes other commands.
    lists: bool,
    /// The page that lists the rights.
    document: &'static str,
}

fn unknown(error: &LockError) -> Finding {
    if error.to_string().contains("nknown subcommand") {
        let found = "cannot be checked: ACL DRYRUN is there from Redis 7 on";
        return Finding::ok("rights", RIGHTS, found).warn("try a lock with this user");
    }
    Finding::ok("rights", RIGHTS, format!("is not permitted: {error}"))
        .warn("allow ACL WHOAMI and ACL DRYRUN (Redis 7) to this user, or try a lock")
}

/// The keys for which the letters in the forms stand.
struct Places {
    lock: Vec<u8>,
    counter: Vec<u8>,
    inbox: Vec<u8>,
    signal: Vec<u8>,
    node: Vec<u8>,
    master_term: Vec<u8>,
    wake: Vec<u8>,
    audit: Vec<u8>,
    /// The list of those that wait for a fair lock of Redisson's, their scores, our heartbeats.
    fair: [Vec<u8>; 3],
}

impl Places {
    fn of(options: &RedisOptions, name: &LockName) -> Places {
        let layout = Layout::of(options);
        let mut places = Places {
            lock: layout.keys_of(name).lock,
            counter: layout.counter_of(name),
            inbox: layout.inbox("0000000000000000"),
            signal: Vec::new(),
            node: layout.node(),
            master_term: layout.master_term(),
            wake: layout.wake(name),
            audit: layout.audit(),
            fair: Default::default(),
        };
        if options.dialect() == Dialect::Redisson {
            let names = Names::of(options);
            let mapped = names.map(name);
            let lease_id = LeaseId::from_bytes([0; 16]);
            places.counter = names.counter(&mapped).into_bytes();
            places.inbox = names.channel(&mapped, Mode::Exclusive, LockKind::Mutex).into_bytes();
            places.signal = names.permits(&mapped).into_bytes();
            places.node = names.records(&mapped).into_bytes();
            places.wake = names.mark(&mapped, lease_id).into_bytes();
            places.fair = names.fair_keys(&mapped).map(String::into_bytes);
            places.lock = mapped.key.into_bytes();
        }
        if options.dialect() == Dialect::Plain {
            let keys = Keys::of(options);
            places.lock = keys.lock(name);
            places.signal = keys.signal(name).unwrap_or_default();
            places.wake = Layout::plain(options.key_template(), options.prefix()).wake(name);
        }
        places
    }
}

/// Returns the needed commands, and the page that lists them.
fn needed(options: &RedisOptions) -> Needed {
    if options.dialect() == Dialect::Redisson {
        let forms = of_redisson(options);
        return Needed { forms, lists: false, document: "docs/redisson.md" };
    }
    let is_plain = options.dialect() == Dialect::Plain;
    if options.is_of_cluster() && !is_plain {
        let mut forms = NEEDED.to_vec();
        forms.retain(|form| !NOT_IN_CLUSTER.contains(form));
        forms.extend(NEEDED_CLUSTER);
        return Needed { forms, lists: true, document: "docs/redis-cluster.md" };
    }
    let plain = match (options.dialect(), options.fencing()) {
        (Dialect::Native, _) => {
            let forms = [&NEEDED[..], &of_group(options)].concat();
            return Needed { forms, lists: true, document: "docs/redis.md" };
        }
        (Dialect::Plain | Dialect::Redisson, true) => &NEEDED_PLAIN[..],
        (Dialect::Plain | Dialect::Redisson, false) => &NEEDED_BARE[..],
    };
    let signal = if options.signal_template().is_some() { &NEEDED_SIGNAL[..] } else { &[] };
    let mut forms = [plain, signal, &of_group(options)].concat();
    if options.is_of_cluster() {
        forms.extend(NEEDED_CLUSTER.iter().filter(|form| !form.contains(" C ")));
    }
    Needed { forms, lists: false, document: "docs/interop.md" }
}

fn of_redisson(options: &RedisOptions) -> Vec<&'static str> {
    let mut forms = NEEDED_REDISSON.to_vec();
    if !options.fencing() {
        forms.retain(|form| !form.ends_with(" C"));
    }
    let sharded = match options.publish() {
        Publish::Plain => false,
        Publish::Auto => options.is_of_cluster(),
        Publish::Sharded | Publish::Both => true,
    };
    if sharded {
        forms.extend(SHARDED);
    } else {
        forms.push(PUBLISHES);
    }
    if options.publish() == Publish::Both {
        forms.push(PUBLISHES);
    }
    if options.is_of_cluster() {
        forms.extend(["ASKING", "CLUSTER INFO", "CLUSTER SLOTS"]);
    }
    [forms, of_group(options)].concat()
}

fn of_group(options: &RedisOptions) -> Vec<&'static str> {
    let rules = options.failover();
    if !options.has_sentinels() {
        return Vec::new();
    }
    let counts = (rules.replicas() != Replicas::None).then_some(NEEDED_COPIES);
    NEEDED_GROUP.into_iter().chain(counts).collect()
}

async fn rights(probe: &Probe, user: &str, options: &RedisOptions, needed: Needed) -> Finding {
    let Ok(name) = LockName::new("doctor") else { return Finding::ok("rights", RIGHTS, "none") };
    let places = Places::of(options, &name);
    let Needed { forms, lists, document } = needed;
    let mut lacks = Vec::new();
    for command in forms {
        match may(probe, user, &places, command).await {
            Ok(true) => {}
            Ok(false) => lacks.push(command.replace(" K", " <lock key>")),
            Err(error) => return unknown(&error),
        }
    }
    if !lacks.is_empty() {
        return Finding::ok("rights", RIGHTS, format!("user {user} may not: {}", lacks.join(", ")))
            .fail(format!("give the user the rights that {document} lists"));
    }
    let finding = Finding::ok("rights", RIGHTS, format!("user {user} may do all that is needed"));
    match may(probe, user, &places, FOR_LISTS).await {
        Ok(false) if lists => finding.warn("allow SCAN as well, or `holdline ls` is refused"),
        _ if lists => audit(probe, user, &places, finding).await,
        _ => finding,
    }
}

/// Adds to the finding of a user who may lock whether its actions as an operator are recorded.
async fn audit(probe: &Probe, user: &str, places: &Places, finding: Finding) -> Finding {
    let mut lacks = Vec::new();
    for command in FOR_AUDIT {
        // The same question about a lock was answered.
        if let Ok(false) = may(probe, user, places, command).await {
            lacks.push(command.replace(" A", " <audit trail>"));
        }
    }
    if lacks.is_empty() {
        return finding;
    }
    let found = format!(
        "user {user} may do all that locks need, and with the audit trail not: {}",
        lacks.join(", ")
    );
    Finding::ok("rights", RIGHTS, found).warn(
        "give operators the right to the audit trail that docs/redis.md lists: without it, what \
         this user revokes or freezes is not recorded",
    )
}

/// Asks the server whether the user may send a command, without executing it.
async fn may(probe: &Probe, user: &str, places: &Places, form: &str) -> Result<bool, LockError> {
    let words = form.split(' ').map(|word| match word {
        "K" => places.lock.clone(),
        "C" => places.counter.clone(),
        "I" => places.inbox.clone(),
        "S" => places.signal.clone(),
        "N" => places.node.clone(),
        "Q" => places.fair[0].clone(),
        "T" => places.fair[1].clone(),
        "B" => places.fair[2].clone(),
        "R" => places.master_term.clone(),
        "W" => places.wake.clone(),
        "A" => places.audit.clone(),
        plain => plain.as_bytes().to_vec(),
    });
    let asked = ["ACL", "DRYRUN", user].map(|word| word.as_bytes().to_vec());
    let answer = probe.ask_bytes(asked.into_iter().chain(words).collect()).await?;
    Ok(answer.as_text() == Some("OK"))
}

async fn guard(probe: &Probe, user: Option<&str>, options: &RedisOptions) -> Finding {
    // If sentinels name the server, they have done so by now.
    let master = probe.link.master_source().and_then(|source| source.master().borrow().clone());
    let place = master.map(|(host, port)| options.at(&host, port));
    let (way, is_near) = way(place.as_ref().unwrap_or(options).address());
    // Even if we have a user of our own, `default` may be open to everybody.
    let open = match probe.ask(&["ACL", "GETUSER", "default"]).await {
        Ok(entry) => lets_everybody_in(&entry) && frees(probe, "default", options).await,
        Err(_) if user == Some("default") => false,
        Err(_) => {
            let found =
                format!("{way}; we are not permitted to ask whether others need a password");
            return Finding::ok("guard", GUARD, found);
        }
    };
    let finding = Finding::ok("guard", GUARD, way);
    match (open, is_near) {
        (true, false) => finding.fail(
            "set a password for the user `default`, or disable that user: anybody who reaches \
             the server can free locks",
        ),
        (true, true) => finding.warn(
            "set a password for the user `default`, or disable that user: anybody on this \
             machine can free locks",
        ),
        (false, _) => finding,
    }
}

/// Returns whether a user can free locks; true if that is unknown.
async fn frees(probe: &Probe, user: &str, options: &RedisOptions) -> bool {
    let Ok(name) = LockName::new("doctor") else { return true };
    may(probe, user, &Places::of(options, &name), "DEL K").await.unwrap_or(true)
}

/// Reads the reply to `ACL GETUSER`: whether the user is on, and needs no password.
fn lets_everybody_in(entry: &Value) -> bool {
    let parts = entry.as_array().unwrap_or_default();
    let flags: Vec<&str> = parts
        .iter()
        .filter_map(|part| part.as_array())
        .flatten()
        .filter_map(|flag| flag.as_text())
        .collect();
    flags.contains(&"on") && flags.contains(&"nopass")
}

/// Returns how the server is reached, and whether the traffic stays on this machine.
fn way(address: &Address) -> (String, bool) {
    match address {
        Address::Unix(_) => ("by a socket of this machine".to_owned(), true),
        Address::Service { tls, .. } => by_network(false, *tls),
        Address::Cluster { seeds, tls } => {
            by_network(seeds.iter().all(|(host, _)| is_near(host)), *tls)
        }
        Address::Tcp { host, tls, .. } => by_network(is_near(host), *tls),
    }
}

fn by_network(is_near: bool, tls: bool) -> (String, bool) {
    let place = if is_near { "on this machine" } else { "over the network" };
    (format!("{place}, {}", if tls { "encrypted" } else { "unencrypted" }), is_near)
}

#[cfg(test)]
mod tests;
