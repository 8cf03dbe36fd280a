//! The engine that a verb works on, and the only place that opens one.

use std::cell::Cell;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions, Guard, LockOptions, Observer, ReleaseOutcome};
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::{
    Capabilities, Certainty, ErrorKind, Escaped, HolderFields, HolderSummary, LeaseId, ListPage,
    ListRequest, LockError, LockName, Mode, Operation, OperationReply, Purpose, RenewReply,
    RenewRequest, Snapshot,
};
use holdline_local::{LocalEngine, LocalOptions, LocalReport};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::address::has_password;
use crate::child::Signals;
use crate::config::{Address, Source};
use crate::console::Console;
use crate::duration;
use crate::failure::Failure;
use crate::held;
use crate::holder::{self, Holder, cut};
use crate::user;
use crate::verbs::common::TRY;

/// How long the end of a verb that was given nothing waits for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a verb that held a name goes on after its job, for a store that does not answer.
const AFTER_JOB: Duration = Duration::from_secs(1);

/// How long a verb that asks one thing waits for the answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How long after it a store without a master is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// What is left to wait when all of it was used up to connect: enough to ask once.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// An open engine.
pub(crate) struct Session {
    client: Client,
    address: Address,
    /// The same engine again where it is the local one.
    local: Option<LocalEngine>,
    /// When it began to be opened.
    since: Instant,
    /// By when all is to be over, once a name was released.
    ends_by: Cell<Option<Instant>>,
}

/// The local store that is not there yet, because nobody has taken a name in it.
pub(crate) struct NoStore {
    directory: PathBuf,
    /// What the engine will be able to do.
    pub(crate) capabilities: Capabilities,
}

impl NoStore {
    /// Looks whether the store of an address is still to be made. Those who only look must not
    /// make it: a misspelt directory would be there from then on and look like a good one.
    pub(crate) fn at(address: &Address) -> Result<Option<NoStore>, Failure> {
        if !address.url.starts_with("local:") {
            return Ok(None);
        }
        let options = LocalOptions::from_url(&address.url).map_err(url_failure)?;
        if options.is_made()? {
            return Ok(None);
        }
        let (directory, capabilities) = (options.directory()?, options.capabilities());
        Ok(Some(NoStore { directory, capabilities }))
    }
}

impl fmt::Display for NoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.to_string_lossy();
        write!(f, "there is no store yet in {}: nobody has locked there", Escaped(&directory))
    }
}

/// Who asks, and who is told what happens.
#[derive(Default)]
pub(crate) struct Asker<'a> {
    /// What is told while a verb waits.
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The program that the lock is for; this one unless set.
    pub(crate) program: Option<String>,
    /// Tied to no process, so that none is named.
    pub(crate) detached: bool,
    /// How long the verb may wait, for a connection too; as long as the engine allows unless set.
    pub(crate) wait: Option<Duration>,
    /// Where it is said that the verb waits; none of one that does not.
    pub(crate) waits: Option<&'a Console>,
    /// The verb only looks: nothing of a quorum's set is changed.
    pub(crate) only_looks: bool,
}

/// The proof that this process is in no transaction, which whatever may stop it asks for.
#[derive(Debug)]
pub(crate) struct Idle(());

impl Session {
    /// Opens the engine.
    pub(crate) async fn open(address: Address, asker: Asker<'_>) -> Result<Session, Failure> {
        let since = Instant::now();
        let holder = holder(asker.program.clone(), asker.detached);
        let options = || {
            let options = ClientOptions::default().with_holder(holder.clone());
            match &asker.observer {
                Some(observer) => options.with_observer(observer.clone()),
                None => options,
            }
        };
        if address.url.starts_with("local:") {
            let mut place = None;
            let local = LocalOptions::from_url(&address.url)
                .and_then(|options| {
                    let open = LocalEngine::open(&options);
                    open.inspect_err(|_| place = options.directory().ok())
                })
                .map_err(|error| open_failure(error, place))?;
            // A store on a disk that stands still blocks the thread that uses it. Leases are
            // renewed on another one, so that this one can stop a job in time (supervise, S4).
            let options = options().with_own_thread(true);
            let client = Client::with_options(Arc::new(local.clone()), options)?;
            return Ok(Session {
                client,
                address,
                local: Some(local),
                since,
                ends_by: Cell::default(),
            });
        }
        let client = connect(&address, options, &asker).await;
        let client = client.map_err(|error| connect_failure(error, &address))?;
        Ok(Session { client, address, local: None, since, ends_by: Cell::default() })
    }

    /// Opens the engine, unless a signal comes first that ends the verb.
    pub(crate) async fn open_unless_ended(
        address: Address,
        asker: Asker<'_>,
        signals: &mut Signals,
    ) -> Result<Result<Session, Failure>, Signal> {
        let suspend = |signals: &mut Signals| signals.suspend(&Idle(()));
        let opened = signals.unless_ended(Session::open(address, asker), suspend).await?;
        // The local engine is opened, or refused, before any signal is looked for.
        if let Ok(session) = &opened {
            let suspend = |signals: &mut Signals| session.while_idle(|idle| signals.suspend(idle));
            signals.catch_up(suspend).await?;
        }
        Ok(opened)
    }

    /// Waits for what `work` comes to, unless a signal comes first that ends the verb.
    pub(crate) async fn unless_ended<T>(
        &self,
        work: impl Future<Output = T>,
        signals: &mut Signals,
    ) -> Result<T, Signal> {
        let suspend = |signals: &mut Signals| self.while_idle(|idle| signals.suspend(idle));
        signals.unless_ended(work, suspend).await
    }

    /// Tells what is left of the time that the verb may wait, which has run since the engine
    /// began to be opened.
    pub(crate) fn left_of(&self, wait: Duration) -> Duration {
        wait.saturating_sub(self.since.elapsed()).max(LEAST_WAIT)
    }

    /// Tells how long the verb has waited, from where its limit runs too.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Tells how the local engine's directory stands, if it is that engine.
    pub(crate) fn local_report(&self) -> Result<Option<LocalReport>, LockError> {
        self.local.as_ref().map(LocalEngine::report).transpose()
    }

    /// Does what stops this process, when nobody would wait for it: stopped inside a transaction
    /// of the local engine, it would keep all others out.
    pub(crate) fn while_idle<T>(&self, stop: impl FnOnce(&Idle) -> T) -> T {
        let stop = || stop(&Idle(()));
        match &self.local {
            Some(local) => local.between_transactions(stop),
            None => stop(),
        }
    }

    /// Returns where the engine is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns what the engine can do.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.client.capabilities()
    }

    /// Returns the default lease: 30 s, or the longest that the store keeps if that is less.
    pub(crate) fn usual_lease(&self) -> Duration {
        DEFAULT_LEASE.min(self.capabilities().lease.max)
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Takes a name. A try of a store that does not answer ends with its limit.
    pub(crate) async fn acquire(
        &self,
        name: &LockName,
        mode: Mode,
        options: &LockOptions,
        only_try: bool,
    ) -> Result<Guard, LockError> {
        let attempt = self.take(name, mode, options, only_try);
        // The local engine has limits of its own, and names who stands in the way.
        if !only_try || self.local.is_some() {
            return attempt.await;
        }
        tokio::time::timeout(self.left_of(TRY), attempt).await.unwrap_or_else(|_| {
            let message = format!("no answer within {}", duration::written(TRY));
            let kind = ErrorKind::Unavailable { message };
            let error = LockError::new(self.capabilities().engine, kind, Certainty::Unknown);
            Err(error.with_name(name))
        })
    }

    async fn take(
        &self,
        name: &LockName,
        mode: Mode,
        options: &LockOptions,
        only_try: bool,
    ) -> Result<Guard, LockError> {
        let name = name.as_str();
        match (mode, only_try) {
            (Mode::Exclusive, true) => self.client.mutex_with(name, options)?.try_lock().await,
            (Mode::Exclusive, false) => self.client.mutex_with(name, options)?.lock().await,
            (Mode::Shared, true) => self.client.rwlock_with(name, options)?.try_read().await,
            (Mode::Shared, false) => self.client.rwlock_with(name, options)?.read().await,
            (Mode::Permits { count, of }, only_try) => {
                let semaphore = self.client.semaphore_with(name, of, options)?;
                if only_try {
                    semaphore.try_acquire_many(count).await
                } else {
                    semaphore.acquire_many(count).await
                }
            }
        }
    }

    /// Shows how a name stands.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.client.inspect(name).await
    }

    /// Looks who keeps the grant of a holder, if the process that asked for it is gone.
    pub(crate) async fn look_at(&self, name: &LockName, told: HolderSummary) -> Holder {
        if self.local.is_none() || !holder::is_gone(&told.metadata.fields(), &[]) {
            return Holder::told(told);
        }
        let snapshot = self.inspect(name).await.ok();
        let mut holders = snapshot.into_iter().flat_map(|snapshot| snapshot.holders);
        match holders.find(|holder| holder.summary.lease_id == told.lease_id) {
            Some(view) => Holder::seen(&view),
            None => Holder { summary: told, keepers: Some(Vec::new()) },
        }
    }

    /// Tells why a name was not given, and who has it.
    pub(crate) async fn failure(&self, error: LockError) -> Failure {
        let error = self.with_whole_wait(error);
        let (ErrorKind::Busy { holder } | ErrorKind::TimedOut { holder, .. }) = error.kind() else {
            return error.into();
        };
        match (holder, error.name()) {
            (Some(holder), Some(name)) => {
                let seen = self.look_at(name, HolderSummary::clone(holder)).await;
                Failure::of(&error, Some(seen))
            }
            _ => error.into(),
        }
    }

    /// The client was given what was left of the limit, so it tells of a shorter wait than the
    /// limit; the user asked for all of it.
    fn with_whole_wait(&self, error: LockError) -> LockError {
        let ErrorKind::TimedOut { waited, holder } = error.kind() else { return error };
        let waited = self.waited().max(*waited);
        let kind = ErrorKind::TimedOut { waited, holder: holder.clone() };
        let whole = LockError::new(error.engine(), kind, error.certainty());
        match error.name() {
            Some(name) => whole.with_name(name),
            None => whole,
        }
    }

    /// Lists names.
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.client.list(request).await
    }

    /// Asks what stands under a lease id. To wait changes nothing, nor does to keep a live grant.
    pub(crate) async fn ask_after(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        purpose: Purpose,
    ) -> Result<RenewReply, LockError> {
        let line = RenewRequest { name: name.clone(), lease_id, client: self.client.id(), purpose };
        let batch = [line];
        let answer = tokio::time::timeout(ANSWER, self.client.engine().renew(&batch)).await;
        answer.ok().and_then(|replies| replies.into_iter().next()).unwrap_or_else(|| {
            let message = format!("nothing for {ANSWER:?}");
            Err(self.error(ErrorKind::Unavailable { message }).with_name(name))
        })
    }

    /// Carries out an operator's command.
    pub(crate) async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.client.operate(operation).await
    }

    /// Draws a number, to spread what many do at once.
    pub(crate) fn random(&self) -> u32 {
        let id = self.client.draw_lease_id();
        id.as_bytes()[..4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    /// Makes an error of something that was not asked of the store.
    pub(crate) fn error(&self, kind: ErrorKind) -> LockError {
        LockError::new(self.capabilities().engine, kind, Certainty::NotApplied)
    }

    /// Releases a lease of which only the id is known.
    ///
    /// # Errors
    /// The store did not confirm it, and why; the end of the lease frees the name at the latest.
    pub(crate) async fn release_by_id(
        &self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        let outcome = self.client.release_by_id(name, lease_id).await?;
        let ReleaseOutcome::Released { confirmed: false, failure, .. } = outcome else {
            return Ok(outcome);
        };
        let message = || "the store did not confirm".to_owned();
        let kind = failure.unwrap_or_else(|| ErrorKind::Unavailable { message: message() });
        let error = LockError::new(self.capabilities().engine, kind, Certainty::Unknown);
        Err(error.with_name(name))
    }

    /// Releases; `None` when the store does not answer in time. The request is repeated until the
    /// store answers, or [`Session::close`] returns, within the same second.
    pub(crate) async fn release(&self, guard: Guard) -> Option<ReleaseOutcome> {
        let end = Instant::now() + AFTER_JOB;
        self.ends_by.set(Some(end));
        tokio::time::timeout_at(end, guard.release()).await.ok()
    }

    /// Begins anew after a release: the verb goes on, and its end is as far away as ever.
    pub(crate) fn hold_anew(&self) {
        self.ends_by.set(None);
    }

    /// Waits until the store has all that the verb's requests still owe it, for a short time.
    pub(crate) async fn flush(&self) {
        self.client.engine().flush().await;
    }

    /// Waits until what was given up is out of the store, or for as long as it may take to answer.
    pub(crate) async fn close(&self) {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.client.shutdown(self.ends_by.get().map_or(PATIENCE, left)).await;
    }
}

/// Connects, for no longer than the verb may wait. Whoever waits outlasts a store that has no
/// master for a while, as a client that is connected does.
async fn connect(
    address: &Address,
    options: impl Fn() -> ClientOptions,
    asker: &Asker<'_>,
) -> Result<Client, LockError> {
    let Asker { wait, waits, .. } = *asker;
    let mut heard = None;
    let connecting = async {
        loop {
            let error = match client_of(&address.url, options(), asker.only_looks).await {
                Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }) => error,
                outcome => return outcome,
            };
            let Some(console) = waits else { return Err(error) };
            if heard.replace(error.clone()).is_none() {
                console.info(&format!("waiting to connect: {}", error.kind()));
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    let Some(wait) = wait else { return connecting.await };
    let outcome = tokio::time::timeout(wait, connecting).await;
    outcome.unwrap_or_else(|_| Err(heard.unwrap_or_else(|| no_answer_within(wait, address))))
}

async fn client_of(
    url: &str,
    options: ClientOptions,
    only_looks: bool,
) -> Result<Client, LockError> {
    #[cfg(feature = "redis")]
    if only_looks && (url.starts_with("redlock://") || url.starts_with("redlocks://")) {
        let engine = holdline::redlock::only_looking(url).await?;
        return Client::with_options(Arc::new(engine), options);
    }
    let _ = only_looks;
    Client::connect_with(url, options).await
}

fn no_answer_within(wait: Duration, address: &Address) -> LockError {
    let url = holdline::redact_url(&address.url);
    let message = format!("{url}: no answer to connecting within {}", duration::written(wait));
    LockError::new("holdline", ErrorKind::Unavailable { message }, Certainty::NotApplied)
}

/// What this process tells about itself.
fn holder(program: Option<String>, detached: bool) -> HolderFields {
    HolderFields {
        host: holder::host(),
        pid: (!detached).then(std::process::id),
        user: cut(&user::name(), 32),
        program: cut(&program.unwrap_or_else(|| "holdline".into()), 64),
        ..HolderFields::default()
    }
}

/// A place that is no directory is a matter of configuration: it will be none tomorrow either.
fn open_failure(error: LockError, place: Option<PathBuf>) -> Failure {
    let unavailable = matches!(error.kind(), ErrorKind::Unavailable { .. });
    let refused = matches!(error.kind(), ErrorKind::Refused { .. });
    let source = std::error::Error::source(&error).map(ToString::to_string);
    match (source, place) {
        (Some(why), Some(place)) if unavailable && !place.is_dir() => {
            let why = if place.exists() { "it is not a directory".to_owned() } else { why };
            let place = place.to_string_lossy();
            let message = format!("{}: cannot be the directory of locks: {why}", Escaped(&place));
            Failure::config(message)
                .fix("name a directory of this machine: --url local:///DIRECTORY, or HOLDLINE_URL")
        }
        (Some(why), Some(place)) if is_kept_from_us(&place, &why) => {
            url_failure(error).fix(format_args!(
                "{} is sticky, as /tmp is, and there the kernel keeps users from files of each \
                 other (fs.protected_regular): name a directory in it of mode 0700, or of mode \
                 2770 for a group",
                Escaped(&place.to_string_lossy())
            ))
        }
        (Some(_), Some(place)) if refused => {
            let place = place.to_string_lossy();
            if error.to_string().contains("ulimit") {
                return url_failure(error);
            }
            if is_full(&error) {
                let fix = format_args!("make room on the disk of {}", Escaped(&place)).to_string();
                return url_failure(error).fix(fix);
            }
            url_failure(error).fix(format_args!(
                "make {} usable for this user, or name another: --url local:///DIRECTORY",
                Escaped(&place)
            ))
        }
        _ if unavailable && !Path::new("/proc/self").exists() => {
            url_failure(error).fix("mount /proc: it tells who lives, and which boot this is")
        }
        _ => url_failure(error),
    }
}

/// Tells whether the kernel keeps us from a file of another user that its mode would let us open.
fn is_kept_from_us(place: &Path, why: &str) -> bool {
    let us = rustix::process::geteuid().as_raw();
    let owned = |about: std::fs::Metadata| (about.mode(), about.uid());
    let Ok(directory) = std::fs::metadata(place).map(owned) else { return false };
    let Ok(files) = std::fs::read_dir(place) else { return false };
    let files = files.filter_map(|file| file.ok()?.metadata().ok());
    let mut files = files.filter(std::fs::Metadata::is_file).map(owned);
    let denied = why.contains("ermission denied") || why.contains("unable to open");
    denied && files.any(|file| is_protected(directory, file, us))
}

/// The rule of `fs.protected_regular`: in a sticky directory that others may write to, a file is
/// opened for making it by its own owner, and where it is the directory's owner's. Each is a mode
/// and an owner.
fn is_protected(directory: (u32, u32), file: (u32, u32), us: u32) -> bool {
    let (sticky, open_to_others) = (directory.0 & 0o1000 != 0, directory.0 & 0o022 != 0);
    let (mode_lets_us, foreign) = (file.0 & 0o006 == 0o006, file.1 != us);
    sticky && open_to_others && mode_lets_us && foreign && file.1 != directory.1
}

/// Tells whether an error says that there is no room.
fn is_full(error: &LockError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let Some(source) = std::error::Error::source(error) else { return false };
    match source.downcast_ref::<std::io::Error>() {
        Some(error) => matches!(error.kind(), StorageFull | QuotaExceeded),
        // SQLite's own words.
        None => source.to_string().contains("disk is full"),
    }
}

/// In a job of `run` the URL of the environment has lost its password.
fn connect_failure(error: LockError, address: &Address) -> Failure {
    let refused = matches!(error.kind(), ErrorKind::Refused { .. });
    let failure = url_failure(error);
    let in_job = std::env::var_os(held::VARIABLE).is_some();
    let keeps_none = !has_password(&address.url) && !address.url.contains("password_");
    if !(refused && in_job && keeps_none && address.source == Source::Environment) {
        return failure;
    }
    failure.fix(
        "`holdline run` takes a password out of the HOLDLINE_URL of its job: name a file that \
         holds it there, by password_file",
    )
}

/// A URL that cannot be used is a matter of configuration, not of the command line.
pub(crate) fn url_failure(error: LockError) -> Failure {
    let is_url = matches!(error.kind(), ErrorKind::Invalid { .. });
    let failure = Failure::from(error);
    if is_url {
        failure
            .exit(crate::exit::Exit::Config)
            .fix("give --url or HOLDLINE_URL; `holdline explain` shows what is used")
    } else {
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own setting is of the whole machine, so no test switches it on.
    #[test]
    fn a_file_of_another_in_a_sticky_directory_is_protected() {
        let (root, ann, bob) = (0, 1, 2);
        let tmp = (0o041_777, root);
        for (directory, file, us, protected) in [
            (tmp, (0o100_666, ann), bob, true),
            (tmp, (0o100_666, bob), bob, false),
            (tmp, (0o100_666, root), bob, false),
            (tmp, (0o100_600, ann), bob, false),
            ((0o040_777, root), (0o100_666, ann), bob, false),
            ((0o041_755, root), (0o100_666, ann), bob, false),
            ((0o041_770, ann), (0o100_666, bob), ann, true),
        ] {
            assert_eq!(is_protected(directory, file, us), protected, "{directory:?} {file:?}");
        }
    }
}
