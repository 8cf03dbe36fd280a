//! `holdline quorum`: how a quorum of Redis servers stands, is set up and mended.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::failure::Outcome;

/// What `quorum` takes.
#[derive(Debug, Args)]
#[command(after_help = "The URL names all servers of the set: redlock://one,two,three.\n\nExit \
    codes: 0 locks can be had, 69 they cannot, 78 the engine is no quorum.\n\nExamples:\n  \
    holdline quorum init --max-lease 60s\n  holdline quorum status")]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct QuorumArgs {
    #[command(subcommand)]
    verb: QuorumVerb,
}

#[derive(Debug, Subcommand)]
enum QuorumVerb {
    /// Show each server: whether it votes, and if not, why and what to do. Changes nothing
    Status,
    /// Make servers that hold nothing yet one set that is used at once; or end the wait of a set
    /// in which nobody remembers. You vouch that no lock of before is held on them
    Init(InitArgs),
    /// Take servers in again that were replaced, and do at once what clients do for servers that
    /// have lost their memory
    Rejoin,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// The longest lease of the set, and how long a server that has lost its memory keeps still
    /// [default: 60s; at most 10m]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(value_parser = duration::lease)]
    max_lease: Option<Duration>,
}

/// Does what is asked of the set.
pub(crate) async fn run(arguments: &QuorumArgs, address: &Address, console: &Console) -> Outcome {
    #[cfg(feature = "redis")]
    return set::run(&arguments.verb, address, console).await;
    #[cfg(not(feature = "redis"))]
    {
        let _ = (&arguments.verb, address, console);
        let feature = "the engine `redlock` (cargo feature `redis`)";
        Err(holdline_core::LockError::unsupported("holdline", feature).into())
    }
}

#[cfg(feature = "redis")]
mod set {
    use std::fmt::Write as _;

    use holdline::redlock::{NodeState, NodeStatus, QuorumOptions, QuorumStatus, admin_with};
    use holdline_core::snapshot::coarse;
    use holdline_core::{Escaped, LockError};

    use super::{Address, Console, Duration, Outcome, QuorumVerb, duration};
    use crate::exit::Exit;
    use crate::failure::Failure;
    use crate::session::url_failure;
    use crate::table::{Align, Table};

    pub(super) async fn run(verb: &QuorumVerb, address: &Address, console: &Console) -> Outcome {
        let mut options = options(address)?;
        if let QuorumVerb::Init(arguments) = verb
            && let Some(max_lease) = arguments.max_lease
        {
            options = options.with_max_lease(max_lease);
        }
        let admin = admin_with(&options).map_err(|error| wrong(error, verb))?;
        let status = match verb {
            QuorumVerb::Status => admin.status().await,
            QuorumVerb::Init(_) => admin.init().await?,
            QuorumVerb::Rejoin => admin.rejoin().await?,
        };
        let url = holdline::redact_url(&address.url);
        if console.is_json() {
            let mut object = serde_json::to_value(&status).map_err(Failure::internal)?;
            object["url"] = url.into();
            object["works"] = status.works().into();
            console.object(&object)?;
        } else {
            console.data(&text(&url, &status, console))?;
        }
        if status.works() { Ok(Exit::Success) } else { Err(failure(&status)) }
    }

    fn options(address: &Address) -> Result<QuorumOptions, Failure> {
        let scheme = address.url.split("://").next().unwrap_or_default();
        if matches!(scheme, "redlock" | "redlocks") {
            return QuorumOptions::from_url(&address.url).map_err(url_failure);
        }
        let shown = holdline::redact_url(&address.url);
        let failure = Failure::config(format_args!("{shown} ({}) is no quorum", address.source));
        Err(failure.kind("unsupported").fix("name its servers: --url redlock://one,two,three"))
    }

    /// What `--max-lease` says is a matter of the command line.
    fn wrong(error: LockError, verb: &QuorumVerb) -> Failure {
        let failure = Failure::from(error);
        if matches!(verb, QuorumVerb::Init(_)) && failure.exit == Exit::Usage {
            return failure.fix("give another --max-lease");
        }
        failure
    }

    fn failure(status: &QuorumStatus) -> Failure {
        let votes = status.votes;
        let waits = |node: &&NodeStatus| node.state == NodeState::Quarantined;
        let blank = status.nodes.iter().all(|node| node.state == NodeState::Blank);
        let waiting = status.nodes.iter().filter(waits).count();
        let kind = match &status.problem {
            _ if blank => "not_initialised",
            None if votes + waiting >= status.majority => "quarantined",
            _ => "no_quorum",
        };
        let message = match &status.problem {
            Some(problem) => format!("no lock can be had: {problem}"),
            None => format!(
                "no lock can be had: {votes} of {} vote, {} must agree",
                status.nodes.len(),
                status.majority
            ),
        };
        let failure = Failure::config(message).kind(kind).exit(Exit::Unavailable);
        match &status.fix {
            Some(fix) => failure.fix(fix),
            None => failure.fix("see to the servers that do not vote, as is said of each"),
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
        let told = status.nodes.iter().filter(|node| node.problem.is_some());
        for (at, node) in told.enumerate() {
            let problem = node.problem.as_deref().unwrap_or_default();
            let apart = if at == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{apart}{}: {}", node.address, Escaped(problem));
            if let Some(fix) = &node.fix {
                let _ = writeln!(text, "  to do: {}", Escaped(fix));
            }
        }
        let QuorumStatus { votes, majority, may_lose, nodes, .. } = status;
        let _ = write!(text, "\n{votes} of {} vote, {majority} must agree: ", nodes.len());
        text.push_str(&match (status.works(), may_lose) {
            (true, 0) => "none more may be lost\n".to_owned(),
            (true, more) => format!("{more} more may be lost\n"),
            (false, _) => "no lock can be had\n".to_owned(),
        });
        if nodes.len().is_multiple_of(2) {
            text.push_str("an even number of servers survives no more losses than one less\n");
        }
        text
    }

    fn table(nodes: &[NodeStatus]) -> Table {
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
                word(node.state),
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

    fn word(state: NodeState) -> &'static str {
        match state {
            NodeState::Votes => "votes",
            NodeState::Quarantined => "quarantined",
            NodeState::Forgot => "forgot",
            NodeState::Replaced => "replaced",
            NodeState::Blank => "blank",
            NodeState::Behind => "behind",
            NodeState::Mislisted => "mislisted",
            NodeState::Down => "down",
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn times_are_told_in_milliseconds() {
            assert_eq!(offset(-12_345), "-12.345 ms");
            assert_eq!(offset(7), "+0.007 ms");
        }
    }
}
