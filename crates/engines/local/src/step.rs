//! One command: the rules of the lock table over rows, in one transaction.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use holdline_core::table::{Holder, Table, WakeUp};
use holdline_core::{Capabilities, ClientId, FencingToken, Hold, LeaseId, LockName, Moment};

use crate::clients::Clients;
use crate::database::{Database, Flush, Identity, identity_of};
use crate::error::Fault;
use crate::keys;
use crate::machine::BootId;
use crate::names;
use crate::probes::Probes;
use crate::queue::{LazyCounter, Queue};
use crate::rows::Rows;
use crate::token::Counter;

/// The most holders of one name that a command checks.
const PROBES: usize = 64;
/// How long a check of the database's path suffices for new grants.
const STORE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The attempts for one command: one more than a batch has entries.
const ATTEMPTS: usize = 130;

/// The state that the short lock protects.
#[derive(Debug)]
pub(crate) struct StoreState {
    pub(crate) database: Database,
    pub(crate) clients: Clients,
    pub(crate) boot: BootId,
    probes: Probes,
    /// The holder, among very many, at which the next command starts its checks.
    probe_from: usize,
    /// The last check that the database is the one at its path.
    seen: Option<Moment>,
}

/// What remains to be done after the commit of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// The wake-ups to send, with their names.
    pub(crate) wake_ups: Vec<(LockName, WakeUp)>,
    buried_clients: Vec<ClientId>,
    buried_grants: Vec<FencingToken>,
    over: Vec<LeaseId>,
}

/// A transaction in progress.
pub(crate) struct Step<'a> {
    rows: Rows<'a>,
    pub(crate) clients: &'a mut Clients,
    probes: &'a mut Probes,
    pub(crate) profile: &'a Capabilities,
    /// The moment of the whole transaction.
    pub(crate) now: Moment,
    boot: BootId,
    counter: LazyCounter,
    probed: HashSet<LockName>,
    probe_from: usize,
    effects: Effects,
    store: (&'a Path, Identity),
    seen: &'a mut Option<Moment>,
}

/// Whether a command first checks for dead holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadHolders {
    /// It competes with other holders.
    Find,
    /// It is about the caller's own grant.
    Ignore,
}

impl StoreState {
    pub(crate) fn new(database: Database, clients: Clients, boot: BootId) -> StoreState {
        let probes = Probes::of(clients.liveness.clone());
        StoreState { database, clients, boot, probes, probe_from: 0, seen: None }
    }

    /// Runs one command. It may run more than once: if the reserved tokens are used up, it is
    /// rolled back, more are reserved, and it is repeated.
    pub(crate) fn carry_out<T>(
        &mut self,
        profile: &Capabilities,
        now: Moment,
        work: &mut dyn FnMut(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<(T, Effects), Fault> {
        for _ in 0..ATTEMPTS {
            match self.attempt(profile, now, work) {
                Err(Fault::TokensUsedUp) => {
                    self.change_counter(|counter, boot| counter.reserve(boot))?;
                }
                Err(Fault::Again) => {}
                Err(fault) => return Err(fault),
                Ok((reply, effects)) => {
                    self.remove_files(&effects);
                    return Ok((reply, effects));
                }
            }
        }
        Err(Fault::protocol("a command could not be finished"))
    }

    fn attempt<T>(
        &mut self,
        profile: &Capabilities,
        now: Moment,
        work: &mut dyn FnMut(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<(T, Effects), Fault> {
        let StoreState { database, clients, boot, probes, probe_from, seen } = self;
        let liveness = clients.liveness.clone();
        let identity = database.identity;
        let files = liveness.files.database.as_path();
        let done = database.transaction(Flush::No, |rows| {
            let mut step = Step {
                rows,
                clients,
                probes,
                profile,
                now,
                boot: *boot,
                counter: LazyCounter::default(),
                probed: HashSet::new(),
                probe_from: *probe_from,
                effects: Effects::default(),
                store: (files, identity),
                seen,
            };
            let reply = work(&mut step)?;
            step.counter.save(rows)?;
            *probe_from = step.probe_from;
            Ok((reply, step.effects))
        });
        match done {
            Ok(_) => clients.committed(),
            Err(_) => clients.rolled_back(),
        }
        done
    }

    /// Checks that the open database is still the one at its path.
    pub(crate) fn check_store(&self) -> Result<(), Fault> {
        let path = &self.clients.liveness.files.database;
        check_store(path, self.database.identity).map_err(Fault::into_unavailable)
    }

    /// Changes the counter's row in a transaction that is flushed to the disk.
    pub(crate) fn change_counter(
        &mut self,
        change: impl FnOnce(&mut Counter, BootId),
    ) -> Result<(), Fault> {
        let boot = self.boot;
        self.database.transaction(Flush::Yes, |rows| {
            let mut counter = Counter::decode(rows.get(keys::COUNTER)?.as_deref())?;
            if counter.boot != boot {
                return Err(Fault::OtherBoot);
            }
            change(&mut counter, boot);
            rows.update(keys::COUNTER, &counter.encode())
        })
    }

    /// Removes the files of grants that are over.
    fn remove_files(&mut self, effects: &Effects) {
        for lease_id in &effects.over {
            self.clients.release_anchor(*lease_id);
        }
        for token in &effects.buried_grants {
            self.clients.liveness.remove_grant(*token);
        }
        for client in &effects.buried_clients {
            self.clients.liveness.remove_client(*client);
        }
    }
}

impl<'a> Step<'a> {
    pub(crate) fn rows(&self) -> Rows<'a> {
        self.rows
    }

    /// Checks that the open database is still the one at its path.
    pub(crate) fn check_store(&mut self) -> Result<(), Fault> {
        let (path, identity) = self.store;
        *self.seen = None;
        check_store(path, identity)?;
        *self.seen = Some(self.now);
        Ok(())
    }

    /// The same for a command without a grant of its own: in a removed database it would have no
    /// effect, so it fails.
    pub(crate) fn check_store_without_grant(&mut self) -> Result<(), Fault> {
        self.check_store().map_err(Fault::into_unavailable)
    }

    /// The same, unless it was checked recently: a grant just after a removal is no worse than one
    /// just before it.
    pub(crate) fn check_store_sometimes(&mut self) -> Result<(), Fault> {
        match *self.seen {
            Some(seen) if seen <= self.now && seen.until(self.now) < STORE_CHECK_INTERVAL => Ok(()),
            _ => self.check_store(),
        }
    }

    /// Applies the rules to one name.
    pub(crate) fn on<T>(
        &mut self,
        name: &LockName,
        look: DeadHolders,
        work: impl FnOnce(&mut Table<'_, Queue<'_>>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let row = self.rows.get(keys::head(name))?;
        let mut head = names::decode(row.as_deref())?;
        let dead = match look {
            DeadHolders::Find if !head.holders().is_empty() && !self.probed.contains(name) => {
                self.probed.insert(name.clone());
                self.find_dead(head.holders())?
            }
            _ => Dead::default(),
        };
        let mut queue = Queue {
            rows: self.rows,
            name,
            boot: self.boot,
            counter: &mut self.counter,
            last_read: None,
        };
        let mut table = Table::new(&mut head, &mut queue, self.profile, self.now);
        for (lease_id, _) in &dead.grants {
            table.end_live_grant(*lease_id)?;
        }
        for client in &dead.clients {
            table.end_client(*client)?;
        }
        let reply = work(&mut table)?;
        let wake_ups = table.into_wake_ups();
        if head.is_idle() && head.was_queued_for() {
            queue.forget_places()?;
        }
        names::save(self.rows, name, row.as_deref(), &head)?;
        let named = |wake_up| (name.clone(), wake_up);
        self.effects.wake_ups.extend(wake_ups.into_iter().map(named));
        self.effects.buried_grants.extend(dead.grants.into_iter().map(|(_, token)| token));
        self.effects.buried_clients.extend(dead.clients);
        Ok(reply)
    }

    /// Records that a lease id is over.
    pub(crate) fn is_over(&mut self, lease_id: LeaseId) {
        self.effects.over.push(lease_id);
    }

    /// Checks which holders' processes are gone. Of very many holders some are checked now, and
    /// others by the next command.
    fn find_dead(&mut self, holders: &[Holder]) -> Result<Dead, Fault> {
        let from = match holders.len() {
            0..=PROBES => 0,
            many => self.probe_from % many,
        };
        self.probe_from = self.probe_from.wrapping_add(PROBES);
        let mut dead = Dead::default();
        let mut living: HashSet<ClientId> = HashSet::new();
        for holder in holders.iter().cycle().skip(from).take(holders.len().min(PROBES)) {
            let client = holder.client();
            let lease_id = holder.lease_id();
            match holder.hold() {
                Hold::Detached(_) => {}
                Hold::Live if !holder.is_timed() => {
                    let token = holder.token();
                    if !self.clients.has_anchor(lease_id) && self.probes.is_grant_dead(token)? {
                        dead.grants.push((lease_id, token));
                    }
                }
                // A server asked for it: the process whose death we could see is not the holder.
                _ if client.is_remote() => {}
                _ if self.clients.is_ours(client) || dead.clients.contains(&client) => {}
                _ if living.contains(&client) => {}
                _ if self.probes.is_client_dead(client)? => dead.clients.push(client),
                _ => {
                    living.insert(client);
                }
            }
        }
        Ok(dead)
    }
}

fn check_store(path: &Path, identity: Identity) -> Result<(), Fault> {
    if identity_of(path)? == Some(identity) {
        return Ok(());
    }
    let what = format!("{} was removed or replaced since it was opened", path.display());
    Err(Fault::StoreGone(what))
}

/// The processes that are gone.
#[derive(Debug, Default)]
struct Dead {
    clients: Vec<ClientId>,
    grants: Vec<(LeaseId, FencingToken)>,
}
