//! The engine: each command is one script, which is one step of the lock table.

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Certainty, Clock, ClockKind, ErrorKind, Hints,
    LeaseId, ListPage, ListRequest, LockError, LockName, Moment, Operation, OperationReply,
    Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot, Verbs,
};

use crate::ears::Ears;
use crate::error::{ENGINE, protocol};
use crate::keys::Layout;
use crate::listing::{Ahead, Listings, Steps};
use crate::native::{self, Asker};
use crate::node::{Node, ServerFacts};
use crate::options::{Dialect, Group, RedisOptions, Replicas};
use crate::sentinel::Copies;

/// The longest page of a listing.
const MAX_PAGE: usize = 1_000;
/// How many keys one step of a scan looks at.
const SCAN_COUNT: &str = "1000";
/// How many names of a listing are looked at in one call.
const SHOWN_AT_ONCE: usize = 32;
/// How many holders and waiters of a name are shown.
const MAX_SHOWN: usize = holdline_core::snapshot::MAX_VIEWS;
/// How many lines one call renews.
pub(crate) const MOST_LINES: usize = 128;
/// How much later than its lease a dead holder's name may become free: the server keeps whole
/// milliseconds, and a key lives through its last one.
pub(crate) const LAG: Duration = Duration::from_millis(5);

/// The engine of one Redis server. Clones share its connection.
#[derive(Clone)]
pub struct RedisEngine(Arc<Inner>);

struct Inner {
    capabilities: Capabilities,
    node: Node,
    asker: Asker,
    watches: Arc<Watches>,
    ears: Ears,
    listings: Listings,
    clock: Arc<dyn Clock>,
    /// Who tells how many replicas have a grant, where that counts.
    copies: Option<Copies>,
}

impl RedisEngine {
    /// Makes an engine. It connects with its first command; [`RedisEngine::connect`] does it now.
    /// `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or the dialect is another.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<RedisEngine, LockError> {
        options.must_be(Dialect::Native, "make a `PlainEngine` of it")?;
        let node = Node::new(options, clock.clone())?;
        let layout = Layout::new(options.key_template(), options.prefix());
        // Never all zeros, which is the inbox of those who hear nothing.
        let inbox = format!("{:08x}{:08x}", node.random(), node.random() | 1);
        let watches = Arc::new(Watches::default());
        let channel = layout.inbox(&inbox);
        let ears = Ears::new(node.clone(), clock.clone(), channel, watches.clone());
        let listings = Listings::new(clock.clone());
        let copies = copies_of(options, &node, &layout)?;
        let asker = Asker { layout, inbox, deadline: options.command_timeout() };
        let capabilities = capabilities(options);
        let inner = Inner { capabilities, node, asker, watches, ears, listings, clock, copies };
        Ok(RedisEngine(Arc::new(inner)))
    }

    /// Makes an engine and waits until it has a connection.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `Refused`: it
    /// does not let us in. Nothing is held after any of them.
    pub async fn connect(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<RedisEngine, LockError> {
        let engine = RedisEngine::new(options, clock)?;
        engine.0.node.ready().await?;
        Ok(engine)
    }
}

fn copies_of(
    options: &RedisOptions,
    node: &Node,
    layout: &Layout,
) -> Result<Option<Copies>, LockError> {
    let wanted = options.group().map_or(Replicas::None, Group::replicas);
    let Some(watcher) = node.watcher().filter(|_| wanted != Replicas::None) else {
        return Ok(None);
    };
    let deadline = options.command_timeout();
    Ok(Some(Copies::new(node.beside()?, watcher.clone(), wanted, layout.reign(), deadline)))
}

fn capabilities(options: &RedisOptions) -> Capabilities {
    let mut identity = match options.group() {
        Some(group) => format!("{group}/{}", options.db()),
        None => format!("{}/{}", options.address(), options.db()),
    };
    // Other keys are other locks.
    let usual = RedisOptions::default();
    for (key, usual) in
        [(options.key_template(), usual.key_template()), (options.prefix(), usual.prefix())]
    {
        if key != usual {
            identity.push(' ');
            identity.push_str(key);
        }
    }
    let mut capabilities = Capabilities::reference(ENGINE, identity);
    capabilities.lag = LAG;
    capabilities.clock = ClockKind::Boottime;
    capabilities.max_waiters = options.max_waiters();
    capabilities.max_batch = MOST_LINES;
    if let Some(group) = options.group() {
        capabilities.lease.max = group.max_lease();
    }
    capabilities
}

impl Verbs for RedisEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, lines: &[&RenewRequest]) -> Renewed {
        self.0.renew(lines).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.watches.forget(request.lease_id);
        native::released(&self.0.node.call(|| native::release(&self.0.asker, request)).await?)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.0.inspect(name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.0.list(request).await
    }

    fn watch(&self, _name: &LockName, lease_id: LeaseId) -> Hints {
        let stream = Watches::open_or_ask(&self.0.watches, lease_id);
        self.0.ears.open();
        Box::pin(stream)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }
}

impl Inner {
    /// Returns the run of the server that may grant now; `None` where it need not be a known one.
    async fn granting_run(&self) -> Result<Option<Arc<ServerFacts>>, LockError> {
        if self.node.watcher().is_none() {
            return Ok(None);
        }
        let facts = self.node.ready_within(self.asker.deadline).await?;
        let until = facts.quarantined_until.unwrap_or(Moment::ORIGIN);
        let left = self.clock.now().until(until);
        if !left.is_zero() {
            let kind = ErrorKind::Quarantined { left };
            return Err(LockError::new(ENGINE, kind, Certainty::NotApplied));
        }
        Ok(Some(facts))
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let facts = match operation {
            // A freeze is a grant too.
            Operation::Freeze { .. } => self.granting_run().await?,
            _ => None,
        };
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        let reply = self.node.call_of(run, || native::operate(&self.asker, operation)).await;
        native::operated(&reply?)
    }

    /// Waits until enough replicas have what this run of the server has granted.
    async fn confirm(&self, run: Option<&str>) -> Result<(), LockError> {
        match &self.copies {
            Some(copies) => copies.confirm(run).await,
            None => Ok(()),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let id = request.lease_id;
        let facts = self.granting_run().await?;
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        if request.queue {
            // From the script on a hint may come, before the reply is seen and watched for.
            self.watches.expect(id);
        }
        // Who has a place already may have to claim it, and has no time to wait for messages.
        let hears = match request.queue && !request.known {
            true => self.ears.hears_within(self.asker.deadline).await,
            false => self.ears.hears(),
        };
        let limit = self.capabilities.max_waiters;
        let ask = || native::acquire(&self.asker, request, hears, limit);
        let reply = self.node.call_of(run, ask).await;
        let mut reply = reply.and_then(|reply| native::acquired(&reply, request, limit));
        if matches!(reply, Ok(AcquireReply::Granted { .. }))
            && let Err(error) = self.confirm(run).await
        {
            // Whoever asked gives the lease id up, or asks again.
            reply = Err(error);
        }
        let may_come_yet = match &reply {
            Ok(reply) => matches!(reply, AcquireReply::Queued { .. }),
            Err(error) => error.certainty() == Certainty::Unknown,
        };
        if !may_come_yet {
            self.watches.forget(id);
        }
        reply
    }

    async fn renew(&self, lines: &[&RenewRequest]) -> Renewed {
        let replies = self.renew_lines(lines, self.ears.hears()).await?;
        for (line, reply) in iter::zip(lines, &replies) {
            if reply.as_ref().is_ok_and(RenewReply::is_over) {
                self.watches.forget(line.lease_id);
            }
        }
        Ok(replies)
    }

    async fn renew_lines(&self, lines: &[&RenewRequest], hears: bool) -> Renewed {
        let facts = match &self.copies {
            Some(_) => Some(self.node.ready_within(self.asker.deadline).await?),
            None => None,
        };
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        let reply = self.node.call_of(run, || native::renew(&self.asker, lines, hears)).await;
        let replies = native::renewed(&reply?, lines.len())?;
        if lines.iter().any(|line| matches!(line.purpose, Purpose::Keep(_))) {
            self.confirm(run).await?;
        }
        Ok(replies)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let mut shown = self.inspect_all(std::slice::from_ref(name)).await?;
        shown.pop().unwrap_or_else(|| Err(protocol("a name was asked for and not shown")))
    }

    async fn inspect_all(
        &self,
        names: &[LockName],
    ) -> Result<Vec<Result<Snapshot, LockError>>, LockError> {
        let reply = self.node.call(|| native::inspect(&self.asker, names, MAX_SHOWN)).await;
        let shown = native::inspected(&reply?, names)?;
        let about = |(one, name): (Result<Snapshot, LockError>, &LockName)| {
            one.map_err(|error| error.with_name(name))
        };
        Ok(iter::zip(shown, names).map(about).collect())
    }

    /// Lists a page: of the names that an earlier page has found, or of all keys.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        let limit = request.limit.clamp(1, MAX_PAGE);
        let mut page = ListPage::default();
        let mut after = request.after.clone();
        let mut kept = self.listings.take(&request.prefix, after.as_ref());
        let mut steps = Steps::of_a_page();
        loop {
            let ahead = match kept.take() {
                Some(ahead) => ahead,
                None => self.names_after(&request.prefix, after.as_ref(), &mut steps).await?,
            };
            let next: Vec<LockName> = ahead.names.iter().cloned().collect();
            for part in next.chunks(SHOWN_AT_ONCE) {
                if self.fill(&mut page, part, limit).await? {
                    page.after = page.names.last().map(|last| last.name.clone());
                    if let Some(last) = &page.after {
                        self.listings.keep(&request.prefix, last, ahead);
                    }
                    return Ok(page);
                }
            }
            if !ahead.more {
                return Ok(page);
            }
            after = next.into_iter().next_back();
        }
    }

    /// Adds those of the names that are listed; tells whether the page is full before the last.
    async fn fill(
        &self,
        page: &mut ListPage,
        names: &[LockName],
        limit: usize,
    ) -> Result<bool, LockError> {
        for snapshot in self.inspect_all(names).await? {
            // A name that holds what is not ours is stepped over: whoever asks for it by name is
            // told.
            let snapshot = match snapshot {
                Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => continue,
                other => other?,
            };
            if !is_listed(&snapshot) {
                continue;
            }
            if page.names.len() == limit {
                return Ok(true);
            }
            page.names.push(snapshot);
        }
        Ok(false)
    }

    /// Looks at all keys, and returns the first names behind `after`.
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        steps: &mut Steps,
    ) -> Result<Ahead, LockError> {
        let pattern = self.asker.layout.pattern(prefix);
        let mut ahead = Ahead::default();
        let mut cursor = b"0".to_vec();
        loop {
            steps.take()?;
            let words = [
                b"SCAN".to_vec(),
                cursor,
                b"MATCH".to_vec(),
                pattern.clone(),
                b"COUNT".to_vec(),
                SCAN_COUNT.into(),
            ];
            let reply = self.node.command(words.to_vec(), None, self.asker.deadline).await?;
            let (next, keys) = native::listed(&reply)?;
            for key in keys {
                let name = key.as_bytes().and_then(|key| self.asker.layout.name_of(key));
                let behind = |name: &LockName| after.is_none_or(|after| name > after);
                if let Some(name) =
                    name.filter(|name| name.as_str().starts_with(prefix) && behind(name))
                {
                    ahead.add(name);
                }
            }
            if next == b"0" {
                return Ok(ahead);
            }
            cursor = next;
        }
    }
}

/// Tells whether a listing shows the name: it is held, waited for, or frozen.
fn is_listed(snapshot: &Snapshot) -> bool {
    snapshot.is_held() || snapshot.queue_length > 0 || snapshot.freeze.is_some()
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
