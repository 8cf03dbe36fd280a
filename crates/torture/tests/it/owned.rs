//! Faults of servers that the test owns: they are killed, emptied, and their clocks are stepped.

use std::time::Duration;

use holdline_services::{
    EtcdCluster, MariaDbServer, PostgresServer, RedisCluster, RedisServer, SentinelGroup, ZooKeeper,
};
use holdline_torture::{Fault, Injection, Nemesis};

/// How much faster or slower a clock may run: well within what the lock allows for.
const RATE: f64 = 0.004;

/// Redis servers, the nodes in the order of the URL.
pub(crate) struct OwnRedis {
    pub(crate) nodes: Vec<RedisServer>,
    pub(crate) faults: Vec<Fault>,
}

fn say(server: &RedisServer, line: &str) -> Result<(), String> {
    let reply = server.raw().say(line).map_err(|error| format!("{line}: {error}"))?;
    let answer = format!("{reply:?}");
    if answer.contains("Error") { Err(format!("{line}: {answer}")) } else { Ok(()) }
}

/// Within a fifth of a second to two, forward or back.
fn step(dice: u64) -> (bool, Duration) {
    (dice.is_multiple_of(2), Duration::from_millis(200 + dice / 2 % 1_800))
}

impl Nemesis for OwnRedis {
    fn faults(&self) -> Vec<Fault> {
        self.faults.clone()
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        let node = &self.nodes[injection.node];
        match injection.fault {
            Fault::RestartEmpty => {
                node.kill();
                // One that is not of a quorum would grant nothing for longer than the test lasts.
                match &self.nodes[..] {
                    [alone] => alone.restart_settled(),
                    _ => node.restart(),
                }
            }
            Fault::ClockStep => match step(injection.dice) {
                (true, by) => node.clock().step_forward(by),
                (false, by) => node.clock().step_back(by),
            },
            Fault::ClockRate => {
                let faster = injection.dice.is_multiple_of(2);
                node.clock().set_rate(if faster { 1.0 + RATE } else { 1.0 - RATE });
            }
            Fault::ScriptFlush => say(node, "SCRIPT FLUSH")?,
            Fault::ClientKill => say(node, "CLIENT KILL TYPE normal SKIPME yes")?,
            Fault::FlushAll => say(node, "FLUSHALL")?,
            other => return Err(format!("{other} is not done to Redis")),
        }
        Ok(())
    }

    fn heal(&self, injection: Injection) -> Result<(), String> {
        if injection.fault == Fault::ClockRate {
            self.nodes[injection.node].clock().set_rate(1.0);
        }
        Ok(())
    }
}

/// A Redis Cluster: three masters with a replica each, which may swap roles.
pub(crate) struct OwnRedisCluster {
    pub(crate) cluster: RedisCluster,
    pub(crate) faults: Vec<Fault>,
}

impl OwnRedisCluster {
    /// The master and the replica of a third of the slots.
    fn pair(&self, dice: u64) -> (usize, usize) {
        let first = (dice % 3) as usize;
        let second = self.cluster.replica_of(first);
        if self.cluster.nodes()[first].is_master() { (first, second) } else { (second, first) }
    }

    /// A slot by which it is seen who of a pair is the master, and those that are not of the pair.
    fn seen_by(&self, (master, replica): (usize, usize)) -> (u16, Vec<usize>) {
        let slot = (master % 3 * 16_384 / 3 + 1) as u16;
        (slot, (0..6).filter(|node| ![master, replica].contains(node)).collect())
    }

    /// Moves the slot of some key that the master of the pair has to another master.
    fn move_some(&self, dice: u64) -> Result<(), String> {
        let (from, to) = (self.pair(dice).0, self.pair(dice + 1).0);
        let key = self.cluster.nodes()[from].raw().say("RANDOMKEY");
        let Some(key) = key.map_err(|error| error.to_string())?.text() else { return Ok(()) };
        let slot = self.cluster.slot_of(&key);
        if self.cluster.owner(slot, from) == Some(from) {
            self.cluster.move_slot(slot, from, to);
        }
        Ok(())
    }
}

impl Nemesis for OwnRedisCluster {
    fn faults(&self) -> Vec<Fault> {
        self.faults.clone()
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        let (master, replica) = self.pair(injection.dice);
        let nodes = self.cluster.nodes();
        match injection.fault {
            Fault::Failover => {
                let (slot, others) = self.seen_by((master, replica));
                self.cluster.fail_over(replica, slot, &others);
            }
            Fault::Restart => {
                nodes[master].kill();
                let (slot, others) = self.seen_by((master, replica));
                self.cluster.await_owner(slot, replica, &others);
                nodes[master].restart();
                self.cluster.await_well();
            }
            Fault::Reshard => self.move_some(injection.dice)?,
            Fault::ScriptFlush => say(&nodes[master], "SCRIPT FLUSH")?,
            Fault::ClientKill => say(&nodes[master], "CLIENT KILL TYPE normal SKIPME yes")?,
            other => return Err(format!("{other} is not done to a cluster")),
        }
        Ok(())
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}

/// A PostgreSQL server, which keeps what it has acknowledged.
pub(crate) struct OwnPostgres(pub(crate) PostgresServer);

impl Nemesis for OwnPostgres {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::ClientKill]
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        match injection.fault {
            Fault::Restart => {
                self.0.kill();
                self.0.restart();
            }
            Fault::ClientKill => {
                let kill = "select pg_terminate_backend(pid) from pg_stat_activity \
                            where backend_type = 'client backend' and pid <> pg_backend_pid()";
                self.0.sql(kill);
            }
            other => return Err(format!("{other} is not done to PostgreSQL")),
        }
        Ok(())
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}

/// A MariaDB server, which keeps what it has acknowledged.
pub(crate) struct OwnMariaDb(pub(crate) MariaDbServer);

impl Nemesis for OwnMariaDb {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::ClientKill]
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        match injection.fault {
            Fault::Restart => {
                self.0.kill();
                self.0.restart();
            }
            Fault::ClientKill => {
                self.0.sql("kill user holdline");
            }
            other => return Err(format!("{other} is not done to MariaDB")),
        }
        Ok(())
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}

/// An etcd cluster, the members in the order of the URL.
pub(crate) struct OwnEtcd(pub(crate) EtcdCluster);

impl Nemesis for OwnEtcd {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart]
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        if injection.fault != Fault::Restart {
            return Err(format!("{} is not done to etcd", injection.fault));
        }
        self.0.kill(injection.node);
        self.0.relaunch(injection.node);
        self.0.await_ready(injection.node);
        Ok(())
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}

/// A ZooKeeper ensemble, the members in the order of the URL.
pub(crate) struct OwnZooKeeper(pub(crate) ZooKeeper);

impl Nemesis for OwnZooKeeper {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::PauseNode, Fault::EndSession]
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        match injection.fault {
            Fault::Restart => {
                self.0.kill(injection.node);
                self.0.relaunch(injection.node);
                self.0.await_ready(injection.node);
            }
            Fault::PauseNode => self.0.stop(injection.node),
            Fault::EndSession => {
                let sessions = self.0.sessions_below("/holdline");
                let which =
                    usize::try_from(injection.dice).unwrap_or_default() % sessions.len().max(1);
                // It may have ended by itself meanwhile.
                if let Some(session) = sessions.get(which) {
                    self.0.end_session(*session);
                }
            }
            other => return Err(format!("{other} is not done to ZooKeeper")),
        }
        Ok(())
    }

    fn heal(&self, injection: Injection) -> Result<(), String> {
        if injection.fault == Fault::PauseNode {
            self.0.cont(injection.node);
            self.0.await_ready(injection.node);
        }
        Ok(())
    }
}

/// Servers that sentinels monitor: it is always the master of the moment that is hit.
pub(crate) struct OwnGroup(pub(crate) SentinelGroup);

impl OwnGroup {
    /// The master is stopped until another one has taken over, and continued.
    fn freeze_master(&self, master: usize) {
        self.0.servers()[master].stop();
        let next = self.0.await_promotion(master);
        self.0.servers()[master].cont();
        self.0.follow(master, next);
    }
}

impl Nemesis for OwnGroup {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::ClientKill, Fault::Failover]
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        let master = self.0.master();
        match injection.fault {
            Fault::Restart => {
                self.0.servers()[master].kill();
                let next = self.0.await_promotion(master);
                self.0.servers()[master].restart();
                self.0.follow(master, next);
            }
            Fault::Failover if injection.dice.is_multiple_of(2) => self.freeze_master(master),
            Fault::Failover => {
                let next = self.0.fail_over();
                self.0.follow(master, next);
            }
            Fault::ClientKill => {
                say(&self.0.servers()[master], "CLIENT KILL TYPE normal SKIPME yes")?;
            }
            other => return Err(format!("{other} is not done to a group")),
        }
        Ok(())
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}
