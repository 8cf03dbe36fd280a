//! The engine: each command is one step of the lock table in one transaction.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use holdline_core::{
    AcquireReply, AcquireRequest, Answer, Capabilities, Certainty, Engine, Hints, Hold, LeaseId,
    ListPage, ListRequest, LockError, LockName, Operation, OperationReply, Purpose, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use crate::clients::Clients;
use crate::database;
use crate::directory::{self, Directory};
use crate::error::{ENGINE, Fault};
use crate::hints::Watches;
use crate::housekeeping::Housekeeping;
use crate::inbox::Inbox;
use crate::keepers;
use crate::keys::{self, Files};
use crate::liveness::Liveness;
use crate::machine;
use crate::names;
use crate::options::LocalOptions;
use crate::reboot;
use crate::report::{self, LocalReport, Place};
use crate::room::Room;
use crate::shared::Shared;
use crate::short_lock::ShortLock;
use crate::step::{Inside, Look, Step};

/// The longest page of a listing.
const MAX_PAGE: usize = 1_000;
/// How many names of a listing are looked at in one transaction.
const PAGE_PART: usize = 32;

/// The one-machine engine. Clones share their connection; engines of all processes that are
/// opened on the same directory share their names.
///
/// Opening, and every command that finds another one under way, blocks on files for a moment;
/// commands do so on a thread of their own.
#[derive(Clone)]
pub struct LocalEngine {
    shared: Arc<Shared>,
    files: Files,
    place: Place,
}

impl LocalEngine {
    /// Opens the engine on the directory of the options, and makes that and the database when
    /// they are not there yet.
    ///
    /// # Errors
    /// - `Invalid`: an option is wrong.
    /// - `Refused`: no right to the directory, a file system that cannot carry it, a shifted
    ///   clock, no room on the disk.
    /// - `Foreign`: the database is not ours, or damaged; it was left as it is.
    /// - `Protocol`: the database is of a newer version.
    /// - `Unavailable`: the files cannot be reached, or a process keeps them in a transaction.
    ///
    /// Nothing is held after any of them.
    pub fn open(options: &LocalOptions) -> Result<LocalEngine, LockError> {
        options.validate()?;
        open(options).map_err(Fault::into_error)
    }

    /// Keeps this process outside every transaction while `work` runs: a process that is about
    /// to stop itself must not do so inside, where all others would wait for it.
    pub fn between_transactions<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.room.keep_out(work)
    }

    /// Tells how the directory stands, for people to read. Counts everything: not for often.
    ///
    /// # Errors
    /// As for any command: `Unavailable`, `Refused`, `Foreign`.
    pub fn report(&self) -> Result<LocalReport, LockError> {
        let made = self.shared.room.enter().and_then(|inside| report::make(&inside, &self.place));
        made.map_err(Fault::into_error)
    }
}

fn open(options: &LocalOptions) -> Result<LocalEngine, Fault> {
    let boot = machine::boot_id()?;
    let Directory { files, modes, file_system } = directory::open(options.dir())?;
    let cannot_open = |error| Fault::at("opening", &files.root, error);
    let short_lock = ShortLock::open(&files.root).map_err(cannot_open)?;
    let limit = options.transaction_limit();
    let deadline = Instant::now() + limit;
    if database::identity_of(&files.database)?.is_none() {
        let _kept = short_lock.lock_by(deadline, limit)?;
        database::make(&files, modes)?;
    }
    let database = database::open(&files.database)?;
    let mut capabilities = options.capabilities();
    capabilities.identity = database.identity.to_string();
    let liveness = Arc::new(Liveness { files: files.clone(), modes });
    let clock = options.clock();
    if !reboot::is_of(&database, boot)? {
        let _kept = short_lock.lock_by(deadline, limit)?;
        let now = clock.as_ref().map_or_else(machine::now, |clock| clock.now());
        reboot::take_over(&database, &liveness, boot, now)?;
    }
    let watches = Arc::new(Watches::default());
    let inbox = Inbox::open(&files, modes.file, watches.clone())
        .map_err(|error| Fault::at("opening", &files.wake, error))?;
    let inbox = Arc::new(inbox);
    let inside = Inside::new(database, Clients::new(liveness, inbox.clone()), boot);
    let shared = Shared {
        capabilities,
        clock,
        room: Arc::new(Room::new(short_lock, inside, limit)),
        waiting: Arc::default(),
        watches,
        inbox,
        housekeeping: Housekeeping::default(),
    };
    shared.housekeeping.look_at_opening(&shared.room);
    let place = Place {
        explicit: options.dir().is_some(),
        file_system: file_system.name,
        forgets: file_system.forgets,
    };
    Ok(LocalEngine { shared: Arc::new(shared), files, place })
}

impl Engine for LocalEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        let id = request.lease_id;
        if request.queue {
            // From the commit on a hint may come, before the reply is seen and watched for.
            self.shared.watches.expect(id);
        }
        let (asked, watches) = (request.clone(), self.shared.watches.clone());
        self.shared.command(
            &request.name,
            move |step| acquire(step, &asked),
            move |reply| {
                let may_come_yet = match &reply {
                    Ok(reply) => matches!(reply, AcquireReply::Queued { .. }),
                    Err(error) => error.certainty() == Certainty::Unknown,
                };
                if !may_come_yet {
                    watches.forget(id);
                }
                reply
            },
        )
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        let Some(first) = batch.first() else { return Answer::ready(Vec::new()) };
        let (asked, lines) = (batch.to_vec(), batch.to_vec());
        let (watches, mut foreign) = (self.shared.watches.clone(), HashMap::new());
        self.shared.command(
            &first.name,
            move |step| renew_all(step, &asked, &mut foreign).map(Ok),
            move |done| {
                let replies = done.unwrap_or_else(|error| {
                    let all = lines.iter().map(|line| Err(error.clone().with_name(&line.name)));
                    all.collect()
                });
                for (line, reply) in lines.iter().zip(&replies) {
                    if reply.as_ref().is_ok_and(is_over) {
                        watches.forget(line.lease_id);
                    }
                }
                replies
            },
        )
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        self.shared.watches.forget(request.lease_id);
        let asked = request.clone();
        let work = move |step: &mut Step<'_>| {
            // A holder whose database was removed has lost, however short its work was.
            match step.check_store() {
                Err(gone @ Fault::StoreGone(_)) => return Ok(Err(gone.about(&asked.name))),
                checked => checked?,
            }
            let reply = step.on(&asked.name, Look::Not, |table| table.release(&asked))?;
            step.is_over(asked.lease_id);
            Ok(Ok(reply))
        };
        self.shared.command(&request.name, work, |reply| reply)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        let asked = name.clone();
        let work = move |step: &mut Step<'_>| {
            step.check_store_for_others()?;
            step.on(&asked, Look::ForTheDead, |table| table.inspect(&asked)).map(Ok)
        };
        let answer = self.shared.command(name, work, |reply| reply);
        match answer {
            Answer::Ready(Some(Ok(snapshot))) if keepers::is_wanted(&snapshot) => {
                Answer::later(with_keepers(Ok(snapshot), self.files.clone()))
            }
            Answer::Later(later) => {
                let files = self.files.clone();
                Answer::later(async move { with_keepers(later.await, files).await })
            }
            ready => ready,
        }
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        let limit = request.limit.clamp(1, MAX_PAGE);
        Answer::later(async move {
            let mut page = ListPage::default();
            let mut from = match &request.after {
                Some(after) => keys::behind(after),
                None => keys::FIRST_NAME.to_vec(),
            };
            from = from.max(request.prefix.as_bytes().to_vec());
            loop {
                let part = self.list_part(from, &request.prefix, limit - page.names.len());
                let (names, next) = part.await?;
                page.names.extend(names);
                match next {
                    None => return Ok(page),
                    Some(_) if page.names.len() == limit => {
                        page.after = page.names.last().map(|last: &Snapshot| last.name.clone());
                        return Ok(page);
                    }
                    Some(next) => from = next,
                }
            }
        })
    }

    fn watch(&self, _name: &LockName, lease_id: LeaseId) -> Hints {
        // Hints that came since the reply are waiting: in the watch itself, which was expected,
        // or in the socket, which nobody has read yet (rule G4).
        let stream = Watches::open(&self.shared.watches, lease_id);
        if !self.shared.room.is_forked() {
            self.shared.inbox.listen();
        }
        Box::pin(stream)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        if let Err(error) = operation.check(ENGINE) {
            return Answer::ready(Err(error));
        }
        let operation = operation.clone();
        let name = match &operation {
            Operation::Revoke { name, .. }
            | Operation::Freeze { name, .. }
            | Operation::Unfreeze { name } => name.clone(),
            Operation::RaiseFence { to } => {
                let to = *to;
                return self.shared.enter(
                    move |_, inside| {
                        inside.check_store()?;
                        inside.change_counter(|counter, _| counter.raise(to))?;
                        Ok((OperationReply::Done, Default::default()))
                    },
                    |done| done.map_err(Fault::into_error),
                );
            }
        };
        let asked = name.clone();
        let work = move |step: &mut Step<'_>| {
            step.check_store_for_others()?;
            step.on(&asked, Look::ForTheDead, |table| match &operation {
                Operation::Revoke { token, reason, now, .. } => table.revoke(*token, reason, *now),
                Operation::Freeze { duration, reason, .. } => table.freeze(*duration, reason),
                Operation::Unfreeze { .. } => table.unfreeze(),
                Operation::RaiseFence { .. } => Ok(Ok(OperationReply::Done)),
            })
        };
        self.shared.command(&name, work, |reply| reply)
    }
}

fn acquire(
    step: &mut Step<'_>,
    request: &AcquireRequest,
) -> Result<Result<AcquireReply, LockError>, Fault> {
    step.check_store_now_and_then().map_err(Fault::gone_for_others)?;
    if request.queue || !matches!(request.hold, Hold::Detached(_)) {
        step.clients.register(request.client)?;
    }
    let look = Look::ForTheDead;
    let mut reply = step.on(&request.name, look, |table| table.acquire(request))?;
    if let Ok(AcquireReply::Granted { token, anchor, .. }) = &mut reply
        && request.hold == Hold::Live
    {
        *anchor = Some(step.clients.anchor(request.lease_id, *token)?);
    }
    Ok(reply)
}

/// Renews a batch. A line whose name holds what is not ours is answered so: the whole is then
/// undone and done again without touching that name.
fn renew_all(
    step: &mut Step<'_>,
    lines: &[RenewRequest],
    foreign: &mut HashMap<LockName, String>,
) -> Result<Vec<Result<RenewReply, LockError>>, Fault> {
    let gone = match step.check_store() {
        Ok(()) => None,
        Err(Fault::StoreGone(what)) => Some(what),
        Err(fault) => return Err(fault),
    };
    let mut replies = Vec::with_capacity(lines.len());
    for line in lines {
        let reply = match (&gone, foreign.get(&line.name)) {
            (Some(what), _) => lost(line, what),
            (None, Some(found)) => Err(Fault::Foreign(found.clone()).about(&line.name)),
            (None, None) => match renew_line(step, line) {
                Err(Fault::Foreign(found)) => {
                    foreign.insert(line.name.clone(), found);
                    return Err(Fault::Again);
                }
                reply => reply?,
            },
        };
        replies.push(reply);
    }
    Ok(replies)
}

fn renew_line(
    step: &mut Step<'_>,
    line: &RenewRequest,
) -> Result<Result<RenewReply, LockError>, Fault> {
    let own_files_stand = match line.purpose {
        Purpose::Keep(Hold::Live) => step.clients.anchor_stands(line.lease_id),
        Purpose::Keep(Hold::Leased(_)) => {
            step.clients.register(line.client)?;
            step.clients.client_stands(line.client)
        }
        Purpose::Keep(Hold::Detached(_)) | Purpose::Wait => true,
    };
    if !own_files_stand {
        // Others take us for dead, and the name may be theirs already.
        return Ok(lost(line, "our liveness file was removed"));
    }
    let look = match line.purpose {
        Purpose::Keep(_) => Look::Not,
        Purpose::Wait => Look::ForTheDead,
    };
    let reply = step.on(&line.name, look, |table| table.renew(line))?;
    if let Ok(reply) = &reply
        && is_over(reply)
    {
        step.is_over(line.lease_id);
    }
    Ok(reply)
}

/// Tells whether nothing stands under the lease id any more.
fn is_over(reply: &RenewReply) -> bool {
    match reply {
        RenewReply::Unknown => true,
        RenewReply::Revoked { left, .. } => left.is_some_and(|left| left.is_zero()),
        _ => false,
    }
}

/// A holder has lost; a contender is in no queue and asks anew.
fn lost(line: &RenewRequest, what: &str) -> Result<RenewReply, LockError> {
    match line.purpose {
        Purpose::Keep(_) => Err(Fault::StoreGone(what.to_owned()).about(&line.name)),
        Purpose::Wait => Ok(RenewReply::Unknown),
    }
}

/// Looks on a thread of its own which processes keep the live grants: it reads all of `/proc`.
async fn with_keepers(
    snapshot: Result<Snapshot, LockError>,
    files: Files,
) -> Result<Snapshot, LockError> {
    let mut snapshot = snapshot?;
    if !keepers::is_wanted(&snapshot) {
        return Ok(snapshot);
    }
    let plain = snapshot.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("holdline-who".into());
    let look = move || {
        keepers::add(&mut snapshot, &files);
        // Whoever asked may have gone away.
        let _ = sender.send(snapshot);
    };
    match thread.spawn(look) {
        Ok(_) => Ok(receiver.await.unwrap_or(plain)),
        Err(_) => Ok(plain),
    }
}

/// Some names of a listing, and where to go on.
type Part = (Vec<Snapshot>, Option<Vec<u8>>);

impl LocalEngine {
    /// Looks at the next few names from a key on. A name that holds what is not ours is stepped
    /// over: it has no state to show, and whoever asks for it by name is told.
    async fn list_part(
        &self,
        from: Vec<u8>,
        prefix: &str,
        wanted: usize,
    ) -> Result<Part, LockError> {
        let prefix = prefix.to_owned();
        let mut work = move |step: &mut Step<'_>| {
            step.check_store_for_others()?;
            let (mut found, mut from) = (Vec::new(), from.clone());
            for _ in 0..PAGE_PART {
                let next = names::first_from(step.rows(), from)?;
                let next = next.filter(|(name, _)| name.as_str().starts_with(&prefix));
                let Some((name, row)) = next else { return Ok((found, None)) };
                from = keys::behind(&name);
                if names::decode(Some(&row)).is_err() {
                    continue;
                }
                let snapshot = step.on(&name, Look::ForTheDead, |table| table.inspect(&name))?;
                if snapshot.is_held() || snapshot.queue_length > 0 || snapshot.freeze.is_some() {
                    found.push(snapshot);
                }
                if found.len() == wanted {
                    break;
                }
            }
            Ok((found, Some(from)))
        };
        let answer = self.shared.enter(
            move |shared, inside| inside.carry_out(&shared.capabilities, shared.now(), &mut work),
            |done| done.map_err(Fault::into_error),
        );
        answer.await
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        if self.shared.room.is_forked() {
            // Closing would end locks and files that still serve the process we were copied
            // from. A count that never reaches zero leaves all of it to the end of this process.
            std::mem::forget(self.shared.clone());
        }
    }
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine")
            .field("directory", &self.files.root)
            .field("identity", &self.shared.capabilities.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{ClientId, Metadata, Mode};

    use super::*;
    use crate::scratch::Scratch;

    fn granted(engine: &LocalEngine, number: u8) -> bool {
        let request = AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: holdline_core::LeaseId::from_bytes([number; 16]),
            client: ClientId::from_u64(u64::from(number)),
            mode: Mode::Exclusive,
            hold: Hold::Leased(holdline_core::lease::DEFAULT_LEASE),
            queue: false,
            known: false,
            claim_window: holdline_core::contract::MIN_CLAIM_WINDOW,
            metadata: Metadata::default(),
        };
        match engine.try_acquire(&request) {
            Answer::Ready(Some(Ok(reply))) => matches!(reply, AcquireReply::Granted { .. }),
            Answer::Ready(Some(Err(error))) => {
                assert!(error.to_string().contains("forked"), "{error}");
                assert_eq!(error.certainty(), Certainty::NotApplied);
                false
            }
            _ => panic!("nobody is inside"),
        }
    }

    #[test]
    fn a_forked_copy_does_nothing_and_its_drop_ends_nothing() {
        let scratch = Scratch::new();
        let options = LocalOptions::default().with_dir(scratch.path());
        let open = || LocalEngine::open(&options).expect("opened");
        let (engine, other) = (open(), open());
        assert!(granted(&engine, 1));
        engine.shared.room.pretend_forked();
        assert!(!granted(&engine, 2));
        assert!(engine.report().is_err());
        drop(engine);
        // The process that it was copied from still holds.
        assert!(!granted(&other, 3));
    }
}
