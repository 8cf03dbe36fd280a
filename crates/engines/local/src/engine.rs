//! The engine: each command is one step of the lock table in one transaction.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    CountingCommand, CountingReply, Engine, FencingToken, Hints, LatchCommand, LatchReply, LeaseId,
    ListPage, ListRequest, LockError, LockName, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use crate::checked_watch::CheckedWatch;
use crate::clients::Clients;
use crate::command_runner::CommandRunner;
use crate::commands;
use crate::database;
use crate::directory::{self, Directory};
use crate::error::Fault;
use crate::grant_processes;
use crate::housekeeping::Housekeeping;
use crate::keys::Files;
use crate::latch;
use crate::listing;
use crate::liveness::Liveness;
use crate::machine;
use crate::options::LocalOptions;
use crate::reboot;
use crate::report::{self, LocalReport, ReportContext};
use crate::rows::Rows;
use crate::short_lock::ShortLock;
use crate::step::{DeadHolders, Step, StoreState};
use crate::trail;
use crate::transaction_lock::TransactionLock;
use crate::wake_socket::WakeSocket;

/// The one-machine engine. Clones share their connection; engines of all processes that are
/// opened on the same directory share their names.
///
/// Opening blocks on files for a moment, and so does a command while another one is in progress;
/// commands do so on a thread of their own.
#[derive(Clone)]
pub struct LocalEngine {
    runner: Arc<CommandRunner>,
    files: Files,
    report_context: ReportContext,
}

impl LocalEngine {
    /// Opens the engine on the directory of the options, and creates the directory and the database
    /// if they do not exist yet.
    ///
    /// # Errors
    /// - `Invalid`: an option is wrong.
    /// - `Refused`: no permission for the directory, an unsuitable file system, a shifted clock, no
    ///   room on the disk.
    /// - `Foreign`: the database is not ours, or damaged; it was left unchanged.
    /// - `Protocol`: the database is of a newer version.
    /// - `Unavailable`: the files cannot be accessed, or a process has them in a transaction.
    ///
    /// Nothing is held after any of them.
    pub fn open(options: &LocalOptions) -> Result<LocalEngine, LockError> {
        options.validate()?;
        let database = Files::below(&options.directory()?).database;
        open(options).map_err(|fault| fault.in_file(&database).into_error())
    }

    /// Keeps this process outside every transaction while `work` runs. A process that stops itself
    /// inside a transaction would make all others wait.
    pub fn between_transactions<T>(&self, work: impl FnOnce() -> T) -> T {
        self.runner.transaction_lock.exclude(work)
    }

    /// Reports the state of the directory, for people. It counts everything, so call it rarely.
    ///
    /// # Errors
    /// As for any command: `Unavailable`, `Refused`, `Foreign`.
    pub fn report(&self) -> Result<LocalReport, LockError> {
        let made = self
            .runner
            .transaction_lock
            .enter()
            .and_then(|inside| report::make(&inside, &self.report_context));
        made.map_err(|fault| fault.in_file(&self.files.database).into_error())
    }

    fn raise_fence(&self, to: FencingToken) -> Answer<'static, Result<OperationReply, LockError>> {
        self.runner.enter(
            move |_, inside| {
                inside.check_store()?;
                inside.change_counter(|counter, _| counter.raise(to))?;
                Ok((OperationReply::Done, Default::default()))
            },
            |done| done.map_err(Fault::into_error),
        )
    }

    /// Reads or changes the audit trail.
    fn ask_trail<T: Send + Unpin + 'static>(
        &self,
        ask: impl Fn(Rows<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, Result<T, LockError>> {
        let mut work = move |step: &mut Step<'_>| {
            step.check_store_without_grant()?;
            ask(step.rows())
        };
        self.runner.enter(
            move |runner, inside| inside.carry_out(&runner.capabilities, runner.now(), &mut work),
            |done| done.map_err(Fault::into_error),
        )
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
    let wake_socket = WakeSocket::open(&files, modes.file, watches.clone())
        .map_err(|error| Fault::at("opening", &files.wake, error))?;
    let wake_socket = Arc::new(wake_socket);
    let inside = StoreState::new(database, Clients::new(liveness, wake_socket.clone()), boot);
    let runner = CommandRunner {
        capabilities,
        clock,
        transaction_lock: Arc::new(TransactionLock::new(short_lock, inside, limit)),
        wait_thread: Arc::default(),
        watches,
        wake_socket,
        housekeeping: Housekeeping::default(),
    };
    runner.housekeeping.check_at_opening(&runner.transaction_lock);
    let report_context = ReportContext {
        explicit: options.dir().is_some(),
        file_system: file_system.name,
        forgets: file_system.forgets,
    };
    Ok(LocalEngine { runner: Arc::new(runner), files, report_context })
}

impl Engine for LocalEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.runner.capabilities
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        let id = request.lease_id;
        if request.queue {
            // From the commit on a hint may arrive, before the reply is seen and the watch is
            // opened.
            self.runner.watches.expect(id);
        }
        let asked = request.clone();
        let watches = self.runner.watches.clone();
        self.runner.command(
            &request.name,
            move |step| commands::acquire(step, &asked),
            move |reply| {
                watches.acquired(id, &reply);
                reply
            },
        )
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        let Some(first) = batch.first() else { return Answer::ready(Vec::new()) };
        let asked = batch.to_vec();
        let renewals = batch.to_vec();
        let watches = self.runner.watches.clone();
        let mut foreign = HashMap::new();
        self.runner.command(
            &first.name,
            move |step| commands::renew_all(step, &asked, &mut foreign).map(Ok),
            move |done| {
                let replies = done.unwrap_or_else(|error| {
                    let all =
                        renewals.iter().map(|renewal| Err(error.clone().with_name(&renewal.name)));
                    all.collect()
                });
                watches.renewed(&renewals, &replies);
                replies
            },
        )
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        self.runner.watches.forget(request.lease_id);
        let asked = request.clone();
        let work = move |step: &mut Step<'_>| {
            // A holder whose database was removed has lost, even after a short hold.
            match step.check_store() {
                Err(gone @ Fault::StoreGone(_)) => return Ok(Err(gone.about(&asked.name))),
                checked => checked?,
            }
            let reply = step.on(&asked.name, DeadHolders::Ignore, |table| table.release(&asked))?;
            step.is_over(asked.lease_id);
            Ok(Ok(reply))
        };
        self.runner.command(&request.name, work, |reply| reply)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        let asked = name.clone();
        let work = move |step: &mut Step<'_>| {
            step.check_store_without_grant()?;
            step.on(&asked, DeadHolders::Find, |table| table.inspect(&asked)).map(Ok)
        };
        let answer = self.runner.command(name, work, |reply| reply);
        match answer {
            Answer::Ready(Some(Ok(snapshot))) if grant_processes::is_wanted(&snapshot) => {
                Answer::later(grant_processes::with_processes(Ok(snapshot), self.files.clone()))
            }
            Answer::Later(later) => {
                let files = self.files.clone();
                Answer::later(
                    async move { grant_processes::with_processes(later.await, files).await },
                )
            }
            ready => ready,
        }
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        Answer::later(listing::page(&self.runner, request))
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        // Hints for our queue entries that arrived since the reply are kept: in the watch itself,
        // which was expected, or in the unread socket (rule G4 of the contract).
        let expected = self.runner.watches.expects(lease_id);
        let stream = Watches::open(&self.runner.watches, lease_id);
        if !self.runner.transaction_lock.is_forked() {
            self.runner.wake_socket.listen();
        }
        if expected {
            return Box::pin(stream);
        }
        // For a holder, which may never open a watch, no hints are kept, so its lease is checked
        // now.
        let asked = name.clone();
        let work = move |step: &mut Step<'_>| {
            step.on(&asked, DeadHolders::Ignore, |table| table.pending_hint(lease_id)).map(Ok)
        };
        let look = self.runner.command(name, work, |hint| hint);
        Box::pin(CheckedWatch::new(look, stream))
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        if let Err(error) = operation.check(&self.runner.capabilities) {
            return Answer::ready(Err(error));
        }
        let name = match operation {
            Operation::RaiseFence { to } => return self.raise_fence(*to),
            Operation::Revoke { name, .. }
            | Operation::RevokeHolder { name, .. }
            | Operation::RemoveWaiter { name, .. }
            | Operation::Freeze { name, .. }
            | Operation::Unfreeze { name } => name,
        };
        let asked = operation.clone();
        let asked_name = name.clone();
        let work = move |step: &mut Step<'_>| {
            step.check_store_without_grant()?;
            step.on(&asked_name, DeadHolders::Find, |table| table.operate(&asked))
        };
        self.runner.command(name, work, |reply| reply)
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        if let Err(error) = command.check(&self.runner.capabilities) {
            return Answer::ready(Err(error.with_name(name)));
        }
        let asked = name.clone();
        let work = move |step: &mut Step<'_>| {
            step.check_store_without_grant()?;
            latch::ask(step.rows(), &asked, command).map(Ok)
        };
        self.runner.command(name, work, |reply| reply)
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        _: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        Answer::ready(Err(self.runner.capabilities.lacks_counting().with_name(name)))
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        if let Err(error) = record.check(&self.runner.capabilities) {
            return Answer::ready(Err(error));
        }
        let record = record.clone();
        self.ask_trail(move |rows| trail::append(rows, at_ms, &record))
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        let request = *request;
        self.ask_trail(move |rows| trail::read(rows, &request))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::ready(())
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        if self.runner.transaction_lock.is_forked() {
            // Closing would end locks and files that the parent process still uses. A reference
            // that is never dropped leaves them to the end of this process.
            std::mem::forget(self.runner.clone());
        }
    }
}

impl fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEngine")
            .field("directory", &self.files.root)
            .field("identity", &self.runner.capabilities.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{Certainty, ClientId, Hold, Metadata, Mode};

    use super::*;
    use crate::scratch::Scratch;

    fn granted(engine: &LocalEngine, number: u8) -> bool {
        let request = AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: holdline_core::LeaseId::from_bytes([number; 16]),
            client: ClientId::from_u64(u64::from(number)),
            mode: Mode::Exclusive,
            kind: holdline_core::LockKind::Mutex,
            hold: Hold::Leased(holdline_core::lease::DEFAULT_LEASE),
            queue: false,
            known: false,
            hand_off_lease: holdline_core::contract::MIN_HAND_OFF_LEASE,
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
    fn a_forked_engine_does_nothing_and_its_drop_ends_nothing() {
        let scratch = Scratch::new();
        let options = LocalOptions::default().with_dir(scratch.path());
        let open = || LocalEngine::open(&options).expect("opened");
        let engine = open();
        let other = open();
        assert!(granted(&engine, 1));
        engine.runner.transaction_lock.pretend_forked();
        assert!(!granted(&engine, 2));
        assert!(engine.report().is_err());
        drop(engine);
        // The parent process still holds.
        assert!(!granted(&other, 3));
    }

    /// Its token is drawn again, perhaps by another process, which must not find the grant alive.
    #[test]
    fn the_anchor_of_a_rolled_back_transaction_is_released() {
        let scratch = Scratch::new();
        let options = LocalOptions::default().with_dir(scratch.path());
        let open = || LocalEngine::open(&options).expect("opened");
        let engine = open();
        let other = open();
        let id = LeaseId::from_bytes([1; 16]);
        let token = holdline_core::FencingToken::MIN;
        let carry_out = |engine: &LocalEngine, end: fn() -> Result<(), Fault>| {
            let mut work = |step: &mut Step<'_>| {
                step.clients.anchor(id, token)?;
                end()
            };
            let mut inside = engine.runner.transaction_lock.enter().expect("nobody is inside");
            let now = engine.runner.now();
            let done = inside.carry_out(&engine.runner.capabilities, now, &mut work);
            (done.is_ok(), inside.clients.has_anchor(id))
        };
        assert_eq!(carry_out(&engine, || Err(Fault::refused("no room"))), (false, false));
        assert_eq!(carry_out(&other, || Ok(())), (true, true), "the token is free");
        assert_eq!(carry_out(&engine, || Ok(())), (false, false), "and now it is not");
    }
}
