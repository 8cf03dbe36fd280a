//! Renewal of leases: a batch goes to all nodes that vote, and each line is counted for itself. A
//! line that is not to be kept any longer is only looked at: a majority has it, or it is unknown.
//!
//! A majority answers for all; the slower are heard out behind it, since a lease that one of them
//! has lost is taken again there.
//!
//! Read next: `healing` for that.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{Kept, Tally, majority};
use holdline_core::{Certainty, ErrorKind, LockError, Moment, Purpose, RenewReply, RenewRequest};

use super::ENGINE;
use super::attempt::{barred, check_lease, waits};
use super::healing::{self, Healing, Visit};
use super::race::Race;
use super::replies::{self, Admitted, Renewed};
use super::requests::{self, Pass};
use super::roster::{Roster, Seat};
use super::set::Set;

/// What a node answers to a batch.
pub(super) type Answered = Result<Admitted<Vec<Result<Renewed, LockError>>>, LockError>;

/// The lines of one call.
pub(super) struct Batch<'a> {
    set: &'a Set,
    began: Moment,
    lines: Vec<Line<'a>>,
    /// Of each node, why it said nothing of use.
    said: Vec<Option<String>>,
}

/// One line, and what the nodes say of it.
struct Line<'a> {
    request: &'a RenewRequest,
    lease: Duration,
    tally: Tally,
    /// The operator's words, and how long each node keeps the grant still.
    revoked: Option<String>,
    left: Vec<Duration>,
    /// The same of the nodes that keep it as it is.
    kept: Vec<Duration>,
    error: Option<LockError>,
    /// What stands there that is not ours.
    foreign: Option<LockError>,
    keeps: Vec<usize>,
}

/// Renews the lines of one call.
pub(super) async fn renew(
    set: &Arc<Set>,
    lines: &[&RenewRequest],
) -> Vec<Result<RenewReply, LockError>> {
    let began = set.clock.now();
    let roster = match set.roster().await {
        Ok(roster) => roster,
        Err(error) => return lines.iter().map(|_| Err(error.clone())).collect(),
    };
    let longest = roster.configuration.max_lease();
    let mut batch = Batch::new(set, began, lines, longest);
    let deadline = batch.deadline();
    let sent: Arc<[RenewRequest]> = batch.sent().into_iter().cloned().collect();
    // From before the first of them leaves: a release that comes meanwhile has to know.
    let visits: Vec<Option<Visit>> = sent.iter().map(|request| Visit::of(set, request)).collect();
    let mut race = Race::with_room(set.members.len());
    for (node, seat) in roster.seats.iter().enumerate() {
        let Some(pass) = voter(set, node, seat, &mut batch.said) else { continue };
        batch.asked(node);
        let (set, pass, sent) = (set.clone(), pass.clone(), sent.clone());
        race.add(node, async move {
            let call = || requests::renew(&set.asker, &pass, &sent).within(deadline);
            let reply = set.members[node].node().call_of(Some(pass.marker()), call).await;
            reply.and_then(|reply| replies::renewed(&reply, &pass, sent.len()))
        });
    }
    batch.hear(&mut race).await;
    let good = batch.lines.iter().filter(|line| line.error.is_none());
    let healings = good.zip(visits).map(|(line, visit)| line.healing(&roster, visit?)).collect();
    healing::begin(set, roster, race, healings);
    batch.replies()
}

fn voter<'s>(
    set: &Set,
    node: usize,
    seat: &'s Seat,
    said: &mut [Option<String>],
) -> Option<&'s Arc<Pass>> {
    let line = match seat {
        Seat::Votes(pass) => match set.members[node].is_well(pass.marker()) {
            Ok(true) => return Some(pass),
            Ok(false) => set.members[node].excuse(),
            Err(_) => {
                set.ring();
                "was started anew".to_owned()
            }
        },
        Seat::Waits(until) => waits(*until, set.clock.now()),
        Seat::Out(why) => why.to_string(),
    };
    said[node] = Some(line);
    None
}

impl<'a> Batch<'a> {
    /// Begins to count. No lease here is longer than `longest`.
    pub(super) fn new(
        set: &'a Set,
        began: Moment,
        lines: &[&'a RenewRequest],
        longest: Duration,
    ) -> Batch<'a> {
        let nodes = set.members.len();
        let line = |request: &&'a RenewRequest| Line::new(request, nodes, longest);
        Batch { set, began, lines: lines.iter().map(line).collect(), said: vec![None; nodes] }
    }

    /// Returns the lines that are asked for.
    pub(super) fn sent(&self) -> Vec<&'a RenewRequest> {
        let sent = self.lines.iter().filter(|line| line.error.is_none());
        sent.map(|line| line.request).collect()
    }

    /// How long a node may take.
    pub(super) fn deadline(&self) -> Duration {
        let shortest = self.lines.iter().map(|line| line.lease).min();
        self.set.node_deadline(shortest.unwrap_or_default())
    }

    /// Notes that a node is asked now.
    pub(super) fn asked(&mut self, node: usize) {
        let now = self.set.clock.now();
        self.lines.iter_mut().for_each(|line| line.tally.asked(node, now));
    }

    /// Notes why a node is not asked.
    pub(super) fn spared(&mut self, node: usize, why: String) {
        self.said[node] = Some(why);
    }

    /// Hears the nodes until each line is decided: one that is waited for is no reason to leave
    /// another half decided.
    pub(super) async fn hear(&mut self, race: &mut Race<'_, Answered>) {
        while self.is_open()
            && let Some((node, answer)) = race.next().await
        {
            self.note(node, answer);
        }
    }

    fn is_open(&mut self) -> bool {
        let now = self.set.clock.now();
        // All are looked at, so that each decision stays.
        let open =
            |line: &mut Line<'_>| line.error.is_none() && line.tally.decide(now) == Kept::Open;
        self.lines.iter_mut().filter_map(|line| open(line).then_some(())).count() > 0
    }

    fn note(&mut self, node: usize, answer: Answered) {
        let sent = self.lines.iter_mut().filter(|line| line.error.is_none());
        match answer {
            Ok(Ok(replies)) => sent.zip(replies).for_each(|(line, reply)| line.note(node, reply)),
            Ok(Err(why)) => {
                self.said[node] = Some(barred(why));
                self.set.ring();
                sent.for_each(|line| line.tally.unanswered(node));
            }
            Err(error) => {
                self.said[node] = Some(error.kind().to_string());
                sent.for_each(|line| line.tally.unanswered(node));
            }
        }
    }

    pub(super) fn replies(self) -> Vec<Result<RenewReply, LockError>> {
        let Batch { set, began, lines, said } = self;
        lines.into_iter().map(|line| line.reply(set, began, &said)).collect()
    }
}

impl<'a> Line<'a> {
    fn new(request: &'a RenewRequest, nodes: usize, longest: Duration) -> Line<'a> {
        let lease = match request.purpose {
            Purpose::Keep(hold) => hold.duration().unwrap_or_default(),
            // It is only looked whether a majority has it, for however long.
            Purpose::Wait => longest,
        };
        Line {
            request,
            lease,
            tally: Tally::new(nodes, lease, 0),
            revoked: None,
            left: Vec::new(),
            kept: Vec::new(),
            error: check_lease(longest, lease).err(),
            foreign: None,
            keeps: Vec::new(),
        }
    }

    fn note(&mut self, node: usize, reply: Result<Renewed, LockError>) {
        match reply {
            Ok(Renewed::Kept { left }) => {
                self.tally.kept(node);
                self.keeps.push(node);
                self.kept.push(left);
            }
            Ok(Renewed::Gone { free }) => self.tally.gone(node, free),
            Ok(Renewed::Revoked { reason, left }) => {
                self.revoked.get_or_insert(reason);
                self.left.push(left);
                self.tally.gone(node, false);
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Foreign { .. }) {
                    self.foreign.get_or_insert(error);
                }
                self.tally.unanswered(node);
            }
        }
    }

    /// What is to be taken again by and by, if the renewal was good.
    fn healing(&self, roster: &Roster, visit: Visit) -> Option<Healing> {
        if !self.tally.is_good() {
            return None;
        }
        let mut healing = Healing::new(self.request, self.lease, visit);
        self.keeps.iter().for_each(|node| healing.keeps(roster, *node));
        self.tally.to_heal().for_each(|node| healing.lacks(roster, node));
        Some(healing)
    }

    fn reply(
        mut self,
        set: &Set,
        began: Moment,
        said: &[Option<String>],
    ) -> Result<RenewReply, LockError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match self.tally.decide(set.clock.now()) {
            Kept::Yes { .. } if self.request.purpose == Purpose::Wait => {
                self.kept.sort_unstable_by(|one, other| other.cmp(one));
                let claim_within = self.kept.get(majority(said.len()) - 1).copied();
                Ok(RenewReply::Handed { claim_within })
            }
            Kept::Yes { valid_until } => {
                let left = began.until(valid_until).min(self.lease);
                Ok(RenewReply::Renewed { left: Some(left) })
            }
            Kept::No => Ok(match self.revoked {
                Some(reason) => {
                    // A majority keeps it for as long as the last of it does.
                    self.left.sort_unstable_by(|one, other| other.cmp(one));
                    let needed = majority(said.len());
                    let left = self.left.get(needed - 1).copied().unwrap_or_default();
                    RenewReply::Revoked { reason, left: Some(left) }
                }
                None => RenewReply::Unknown,
            }),
            Kept::Open | Kept::Unclear => {
                if let Some(error) = self.foreign {
                    return Err(foreign(&error));
                }
                Err(set.no_quorum(said).with_certainty(Certainty::Unknown))
            }
        }
    }
}

/// What stands there was left as it is, so nothing was done.
pub(super) fn foreign(error: &LockError) -> LockError {
    LockError::new(ENGINE, error.kind().clone(), Certainty::NotApplied)
}
