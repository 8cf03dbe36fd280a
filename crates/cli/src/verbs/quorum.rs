//! `holdline quorum`: shows, sets up and repairs a quorum of Redis servers.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::failure::Outcome;
use crate::verb::{AtStake, EngineChoice, Verb};

/// Set up, inspect or repair a quorum of Redis servers (redlock://)
#[derive(Debug, Args)]
#[command(after_help = "The URL names all servers of the set: redlock://one,two,three.\n\nExit \
    codes: 0 locks are granted, or init has made a set that waits; 69 they are not, 77 refused, 78 \
    the engine is no quorum.\n\nExamples:\n  holdline quorum init --max-lease 60s\n  \
    holdline quorum status\n  holdline quorum replace old.example:6379 new.example:6379")]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct QuorumArgs {
    #[command(subcommand)]
    verb: QuorumVerb,
}

/// Describes `quorum`.
pub(crate) fn verb() -> Verb {
    Verb::on_engine("quorum", EngineChoice::Used, AtStake::Names, run)
}

#[derive(Debug, Subcommand)]
enum QuorumVerb {
    /// Show each server: whether it votes, and if not, why and what to do. Changes nothing
    Status,
    /// Make servers that belong to no set one set. It grants locks after a wait of 12.5 minutes, or
    /// when you vouch for the servers. An existing set is not changed
    Init(InitArgs),
    /// End a wait whose only reason is that no majority of the servers has its memory: you vouch
    /// that no earlier lock is still held. If that is wrong, two clients hold one lock at once
    Vouch(ConfirmArgs),
    /// Give the slot of one server to another, which the URL names. The old one is evicted
    Replace(ReplaceArgs),
    /// Give each slot whose server is gone to the server at its address: one that has lost its
    /// memory and that no running client has seen before, or one that was replaced. You confirm
    /// that the addresses lead to the right servers
    Rejoin(ConfirmArgs),
}

#[derive(Debug, Args)]
struct ConfirmArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct ReplaceArgs {
    /// OLD: a server of the set, by its address or the first digits of its id. NEW: the address of
    /// the server that gets its slot. More pairs may follow: if most servers of the set have lost
    /// their memory, name a pair for each server that is gone
    #[arg(value_names = ["OLD", "NEW"], num_args = 2.., required = true)]
    servers: Vec<String>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// The longest lease of the set, and how long a server that has lost its memory gives no vote
    /// [default: that of the URL (max_lease_duration_ms), or 60s; at most 10m]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::lease)]
    max_lease: Option<Duration>,
}

/// Carries out a verb on the set.
async fn run(arguments: &QuorumArgs, address: Address, console: &Console) -> Outcome {
    #[cfg(feature = "redis")]
    return set::run(&arguments.verb, &address, console).await;
    #[cfg(not(feature = "redis"))]
    {
        let _ = (&arguments.verb, address, console);
        let message = "this build lacks the cargo feature `redis`";
        Err(crate::failure::Failure::config(message).fix(crate::open_store::install("redis")))
    }
}

#[cfg(all(feature = "redis", feature = "top"))]
pub(crate) use set::{admin, table};

#[cfg(feature = "redis")]
mod set {
    use std::fmt::Write as _;
    use std::io::{self, IsTerminal as _};

    use holdline::redlock::{
        NodeState, NodeStatus, QuorumAdmin, QuorumOptions, QuorumStatus, Replacement, admin_with,
    };
    use holdline_core::snapshot::coarse;
    use holdline_core::{AuditRecord, Escaped, LockError};

    use super::{
        Address, ConfirmArgs, Console, Duration, Outcome, QuorumVerb, ReplaceArgs, duration,
    };
    use crate::exit::Exit;
    use crate::failure::Failure;
    use crate::open_store::url_failure;
    use crate::record;
    use crate::table::{Align, Table};

    pub(super) async fn run(verb: &QuorumVerb, address: &Address, console: &Console) -> Outcome {
        let mut options = options(address)?;
        if let QuorumVerb::Init(arguments) = verb
            && let Some(max_lease) = arguments.max_lease
        {
            options = options.with_max_lease(max_lease);
        }
        let admin = admin_with(&options).map_err(|error| option_failure(error, verb))?;
        let record = Recorder { url: &address.url, console };
        let status = match verb {
            QuorumVerb::Status => admin.status().await,
            QuorumVerb::Init(_) => record.of("quorum_init", "", admin.init().await)?,
            QuorumVerb::Vouch(confirm) => vouch(&admin, confirm, &record).await?,
            QuorumVerb::Replace(arguments) => replace(&admin, arguments, &record).await?,
            QuorumVerb::Rejoin(confirm) => rejoin(&admin, confirm, &record).await?,
        };
        let url = holdline::redact_url(&address.url);
        let mut object = serde_json::to_value(&status).map_err(Failure::internal)?;
        object["url"] = url.as_str().into();
        object["works"] = status.works().into();
        console.print(&object, &text(&url, &status, console))?;
        if matches!(verb, QuorumVerb::Init(_)) && waits(&status) {
            console.info(WAITS_NOTE);
            return Ok(Exit::Success);
        }
        if status.works() { Ok(Exit::Success) } else { Err(failure(&status)) }
    }

    /// Records what was done to a set. No server of it has a trail of all.
    struct Recorder<'a> {
        url: &'a str,
        console: &'a Console,
    }

    impl Recorder<'_> {
        /// Records an action and its outcome. `servers` are those that it is about.
        fn of<T>(
            &self,
            action: &str,
            servers: &str,
            outcome: Result<T, LockError>,
        ) -> Result<T, LockError> {
            let record = AuditRecord::new(action, &record::operator()).because(servers);
            let record = match &outcome {
                Ok(_) => record,
                Err(error) => record.failed(error),
            };
            record::in_file(&record, self.url, self.console);
            outcome
        }
    }

    /// The message about a set that was just created.
    const WAITS_NOTE: &str = "no lock is granted until the wait is over, since a server without \
        data may have lost it; if these servers are new, `holdline quorum vouch` ends the wait";

    async fn vouch(
        admin: &QuorumAdmin,
        confirm: &ConfirmArgs,
        record: &Recorder<'_>,
    ) -> Result<QuorumStatus, Failure> {
        let console = record.console;
        let status = admin.status().await;
        if status.set.is_none() && status.nodes.iter().any(|node| node.state == NodeState::Blank) {
            return Err(failure(&status));
        }
        let waiting = admin.plan_vouch().await?;
        if !waiting.is_empty() {
            let addresses: Vec<&str> = waiting.iter().map(|server| &*server.address).collect();
            let servers = addresses.join(", ");
            let question = format!(
                "you vouch that no earlier lock is held on {servers}: if that is wrong, two \
                 clients hold one lock at once, and a fencing token may be given again",
            );
            confirmed(&question, confirm, console)?;
            let status = record.of("quorum_vouch", &servers, admin.vouch(&waiting).await)?;
            warn_of_later_losses(&status, &addresses, console);
            return Ok(status);
        }
        let status = admin.status().await;
        console.info(&format!("nothing was changed: {}", why_no_wait_ends(&status)));
        Ok(status)
    }

    /// Explains why a vouch ends no wait in this state of the set.
    fn why_no_wait_ends(status: &QuorumStatus) -> String {
        if let Some(problem) = &status.problem {
            return problem.clone();
        }
        let addresses = |nodes: &[&NodeStatus]| -> String {
            nodes.iter().map(|node| &*node.address).collect::<Vec<_>>().join(", ")
        };
        let is_waiting = |node: &&NodeStatus| node.state == NodeState::Quarantined;
        let waiting: Vec<&NodeStatus> = status.nodes.iter().filter(is_waiting).collect();
        if !waiting.is_empty() && status.works() {
            return format!(
                "a majority of the servers has its data, so the wait of {} ends by itself, and \
                 nobody can end it sooner",
                addresses(&waiting)
            );
        }
        if !waiting.is_empty() {
            return format!(
                "the wait of {} began while a majority of the servers had its data, so it lasts to \
                 its end",
                addresses(&waiting)
            );
        }
        let has_no_vote = |node: &&NodeStatus| node.state != NodeState::Votes;
        let others: Vec<&NodeStatus> = status.nodes.iter().filter(has_no_vote).collect();
        if others.is_empty() {
            return "every server votes".to_owned();
        }
        let states: Vec<String> =
            others.iter().map(|node| format!("{}: {}", node.address, node.state)).collect();
        format!("no server waits ({}); see below what to do", states.join(", "))
    }

    /// Warns of servers that have lost their data after the operator was asked.
    fn warn_of_later_losses(status: &QuorumStatus, confirmed: &[&str], console: &Console) {
        let lost = |node: &&NodeStatus| {
            let waits = matches!(node.state, NodeState::Quarantined | NodeState::Forgot);
            waits && confirmed.contains(&&*node.address)
        };
        for node in status.nodes.iter().filter(lost) {
            console.warn(&format!(
                "{}: still in quarantine, since it has lost its data again after the question: \
                 start again",
                node.address
            ));
        }
    }

    /// Gives slots back, after a question if a server loses one.
    async fn rejoin(
        admin: &QuorumAdmin,
        confirm: &ConfirmArgs,
        record: &Recorder<'_>,
    ) -> Result<QuorumStatus, Failure> {
        let planned = admin.plan_rejoin().await?;
        let status = if planned.is_empty() {
            admin.replace(&planned).await?
        } else {
            confirmed(&evictions(&planned), confirm, record.console)?;
            let evicted: Vec<&str> = planned.iter().map(|one| &*one.address).collect();
            let rejoined = admin.replace(&planned).await;
            record.of("quorum_rejoin", &evicted.join(", "), rejoined)?
        };
        warn_of_replaced(&status, record.console);
        Ok(status)
    }

    /// Warns of servers that `rejoin` has not readmitted.
    fn warn_of_replaced(status: &QuorumStatus, console: &Console) {
        for node in status.nodes.iter().filter(|node| node.state == NodeState::Replaced) {
            console.warn(&format!(
                "{}: not readmitted, since the set has no slot of this address: leave it out of \
                 the list, or give it a slot with `holdline quorum replace`",
                node.address
            ));
        }
    }

    async fn replace(
        admin: &QuorumAdmin,
        arguments: &ReplaceArgs,
        record: &Recorder<'_>,
    ) -> Result<QuorumStatus, Failure> {
        let (pairs, rest) = arguments.servers.as_chunks::<2>();
        if !rest.is_empty() {
            let failure = Failure::usage("`quorum replace` takes pairs: OLD NEW");
            return Err(failure.fix("name for each OLD the server that gets its slot"));
        }
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|[old, new]| (&**old, &**new)).collect();
        let all = admin.plan_replace(&pairs).await?;
        confirmed(&evictions(&all), &arguments.confirm, record.console)?;
        let servers = arguments.servers.join(" ");
        Ok(record.of("quorum_replace", &servers, admin.replace(&all).await)?)
    }

    /// Lists the servers that lose a slot.
    fn evictions(all: &[Replacement]) -> String {
        let mut text = "to be evicted from the set:".to_owned();
        for Replacement { address, id, state, by, .. } in all {
            let stands = match state {
                NodeState::Down => "not seen".to_owned(),
                state => state.to_string(),
            };
            let _ = write!(text, "\n  {address} (id {id}, {stands}): its slot goes to {by}");
        }
        text.push_str(
            "\nthe addresses must lead to the right servers from here, as for all clients; and if \
             most servers of the set have lost their data, this cannot be checked: first stop \
             every server of the set that the URL does not reach, or two clients hold one lock",
        );
        text
    }

    /// Asks for confirmation of an action that cannot be undone.
    fn confirmed(question: &str, confirm: &ConfirmArgs, console: &Console) -> Result<(), Failure> {
        if confirm.yes {
            console.info(question);
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            let failure = Failure::usage(format_args!(
                "nothing was changed: there is no terminal to confirm this on\n{question}"
            ));
            return Err(failure.fix("check it again, then add --yes"));
        }
        console.warn(question);
        console.warn("type `yes` to go on");
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(Failure::internal)?;
        match answer.trim() {
            "yes" => Ok(()),
            _ => Err(Failure::usage("not confirmed: nothing was changed")),
        }
    }

    /// Returns whether a set grants locks as soon as its servers have waited.
    fn waits(status: &QuorumStatus) -> bool {
        let waits = |node: &&NodeStatus| node.state == NodeState::Quarantined;
        let waiting = status.nodes.iter().filter(waits).count();
        status.problem.is_none() && !status.works() && status.votes + waiting >= status.majority
    }

    /// Returns an operator's interface to the set; `None` if the engine is no quorum.
    #[cfg(feature = "top")]
    pub(crate) fn admin(address: &Address) -> Result<Option<QuorumAdmin>, Failure> {
        is_quorum(address).then(|| Ok(admin_with(&options(address)?)?)).transpose()
    }

    fn is_quorum(address: &Address) -> bool {
        let scheme = address.url.split("://").next().unwrap_or_default();
        matches!(scheme, "redlock" | "redlocks")
    }

    fn options(address: &Address) -> Result<QuorumOptions, Failure> {
        if is_quorum(address) {
            return QuorumOptions::from_url(&address.url).map_err(url_failure);
        }
        let shown = holdline::redact_url(&address.url);
        let failure = Failure::config(format_args!("{shown} ({}) is no quorum", address.source));
        Err(failure.kind("unsupported").fix("name its servers: --url redlock://one,two,three"))
    }

    /// An error in `--max-lease` is an error of the command line.
    fn option_failure(error: LockError, verb: &QuorumVerb) -> Failure {
        let failure = Failure::from(error);
        if matches!(verb, QuorumVerb::Init(_)) && failure.exit == Exit::Usage {
            return failure.fix("give another --max-lease");
        }
        failure
    }

    fn failure(status: &QuorumStatus) -> Failure {
        let votes = status.votes;
        let blank = status.nodes.iter().all(|node| node.state == NodeState::Blank);
        let kind = match &status.problem {
            _ if blank => "not_initialised",
            None if waits(status) => "quarantined",
            _ => "no_quorum",
        };
        let message = match &status.problem {
            Some(problem) => format!("no lock can be acquired: {problem}"),
            None => format!(
                "no lock can be acquired: {votes} of {} vote, {} must agree",
                status.nodes.len(),
                status.majority
            ),
        };
        let failure = Failure::config(message).kind(kind).exit(Exit::Unavailable);
        match &status.fix {
            Some(fix) => failure.fix(fix),
            None => failure
                .fix("repair the servers that do not vote; the output names the fix for each"),
        }
    }

    fn text(url: &str, status: &QuorumStatus, console: &Console) -> String {
        let mut text = url.to_owned();
        if let (Some(set), Some(epoch)) = (&status.set, status.epoch) {
            let _ = write!(text, " (set {set}, epoch {epoch}");
            if let Some(longest) = status.max_lease_ms {
                let longest = duration::written(Duration::from_millis(longest));
                let _ = write!(text, ", longest lease {longest}");
            }
            text.push(')');
        }
        text.push_str("\n\n");
        let (heading, rows) = table(&status.nodes).lines("");
        text.extend([console.heading(&heading), rows]);
        let with_problem = status.nodes.iter().filter(|node| node.problem.is_some());
        for (at, node) in with_problem.enumerate() {
            let problem = node.problem.as_deref().unwrap_or_default();
            let apart = if at == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{apart}{}: {}", node.address, Escaped(problem));
            if let Some(fix) = &node.fix {
                let _ = writeln!(text, "  to do: {}", Escaped(fix));
            }
        }
        let _ = writeln!(text, "\n{}", status.summary());
        if status.nodes.len().is_multiple_of(2) {
            text.push_str(
                "an even number of servers tolerates no more failures than one server fewer\n",
            );
        }
        text
    }

    /// Returns a table with a row for each server.
    pub(crate) fn table(nodes: &[NodeStatus]) -> Table {
        let mut table = Table::new(&[
            ("NODE", Align::Left),
            ("STATE", Align::Left),
            ("UP", Align::Right),
            ("ROUND TRIP", Align::Right),
            ("CLOCK", Align::Right),
            ("RUN", Align::Left),
            ("EPOCH", Align::Right),
            ("WAITS", Align::Right),
            ("LARGEST TOKEN", Align::Right),
        ]);
        let time = |ms: Option<u64>| ms.map(Duration::from_millis).map(coarse).unwrap_or_default();
        let number = |number: Option<u64>| number.map(|one| one.to_string()).unwrap_or_default();
        for node in nodes {
            table.row(&[
                &node.address,
                &node.state.to_string(),
                &time(node.up_for_ms),
                &node.round_trip_us.map(|trip| thousandths(trip, "", " ms")).unwrap_or_default(),
                &node.clock_offset_us.map(offset).unwrap_or_default(),
                node.marker.as_deref().unwrap_or_default(),
                &number(node.epoch),
                &time(node.quarantine_left_ms),
                &number(node.largest_token),
            ]);
        }
        table
    }

    fn offset(micros: i64) -> String {
        let sign = if micros < 0 { "-" } else { "+" };
        thousandths(micros.unsigned_abs(), sign, " ms")
    }

    /// Writes a number of thousandths: 1234 as `1.234`.
    fn thousandths(number: u64, sign: &str, unit: &str) -> String {
        format!("{sign}{}.{:03}{unit}", number / 1_000, number % 1_000)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn times_are_shown_in_milliseconds() {
            assert_eq!(offset(-12_345), "-12.345 ms");
            assert_eq!(offset(7), "+0.007 ms");
        }
    }
}
