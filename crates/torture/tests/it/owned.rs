//! Power over servers of our own: they are killed, emptied, and their clocks are moved.

use std::time::Duration;

use holdline_services::{EtcdCluster, PostgresServer, RedisServer, ZooKeeper};
use holdline_torture::{Blow, Fault, Nemesis};

/// How much faster or slower a clock may run: well within what the lock allows for.
const RATE: f64 = 0.004;

/// Redis servers, the nodes in the order of the URL.
pub(crate) struct OwnRedis {
    pub(crate) nodes: Vec<RedisServer>,
    pub(crate) faults: Vec<Fault>,
}

fn say(server: &RedisServer, line: &str) -> Result<(), String> {
    let reply = server.raw().say(line).map_err(|error| format!("{line}: {error}"))?;
    let told = format!("{reply:?}");
    if told.contains("Error") { Err(format!("{line}: {told}")) } else { Ok(()) }
}

/// Within a fifth of a second to two, forward or back.
fn step(dice: u64) -> (bool, Duration) {
    (dice.is_multiple_of(2), Duration::from_millis(200 + dice / 2 % 1_800))
}

impl Nemesis for OwnRedis {
    fn faults(&self) -> Vec<Fault> {
        self.faults.clone()
    }

    fn strike(&self, blow: Blow) -> Result<(), String> {
        let node = &self.nodes[blow.node];
        match blow.fault {
            Fault::RestartEmpty => {
                node.kill();
                node.restart();
            }
            Fault::ClockStep => match step(blow.dice) {
                (true, by) => node.clock().step_forward(by),
                (false, by) => node.clock().step_back(by),
            },
            Fault::ClockRate => {
                let faster = blow.dice.is_multiple_of(2);
                node.clock().set_rate(if faster { 1.0 + RATE } else { 1.0 - RATE });
            }
            Fault::ScriptFlush => say(node, "SCRIPT FLUSH")?,
            Fault::ClientKill => say(node, "CLIENT KILL TYPE normal SKIPME yes")?,
            Fault::FlushAll => say(node, "FLUSHALL")?,
            other => return Err(format!("{other} is not done to Redis")),
        }
        Ok(())
    }

    fn mend(&self, blow: Blow) -> Result<(), String> {
        if blow.fault == Fault::ClockRate {
            self.nodes[blow.node].clock().set_rate(1.0);
        }
        Ok(())
    }
}

/// A PostgreSQL server, which keeps what it has acknowledged.
pub(crate) struct OwnPostgres(pub(crate) PostgresServer);

impl Nemesis for OwnPostgres {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::ClientKill]
    }

    fn strike(&self, blow: Blow) -> Result<(), String> {
        match blow.fault {
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

    fn mend(&self, _blow: Blow) -> Result<(), String> {
        Ok(())
    }
}

/// An etcd cluster, the members in the order of the URL.
pub(crate) struct OwnEtcd(pub(crate) EtcdCluster);

impl Nemesis for OwnEtcd {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart]
    }

    fn strike(&self, blow: Blow) -> Result<(), String> {
        if blow.fault != Fault::Restart {
            return Err(format!("{} is not done to etcd", blow.fault));
        }
        self.0.kill(blow.node);
        self.0.relaunch(blow.node);
        self.0.await_ready(blow.node);
        Ok(())
    }

    fn mend(&self, _blow: Blow) -> Result<(), String> {
        Ok(())
    }
}

/// A ZooKeeper ensemble, the members in the order of the URL.
pub(crate) struct OwnZooKeeper(pub(crate) ZooKeeper);

impl Nemesis for OwnZooKeeper {
    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::PauseNode, Fault::EndSession]
    }

    fn strike(&self, blow: Blow) -> Result<(), String> {
        match blow.fault {
            Fault::Restart => {
                self.0.kill(blow.node);
                self.0.relaunch(blow.node);
                self.0.await_ready(blow.node);
            }
            Fault::PauseNode => self.0.stop(blow.node),
            Fault::EndSession => {
                let sessions = self.0.sessions_below("/holdline");
                let which = usize::try_from(blow.dice).unwrap_or_default() % sessions.len().max(1);
                // It may have ended by itself meanwhile.
                if let Some(session) = sessions.get(which) {
                    self.0.end_session(*session);
                }
            }
            other => return Err(format!("{other} is not done to ZooKeeper")),
        }
        Ok(())
    }

    fn mend(&self, blow: Blow) -> Result<(), String> {
        if blow.fault == Fault::PauseNode {
            self.0.cont(blow.node);
            self.0.await_ready(blow.node);
        }
        Ok(())
    }
}
