//! `holdline torture`: holders of a real store are stopped, killed and cut off.
//!
//! The crate `holdline-torture` injects the faults and checks the history. This module limits the
//! faults on a store that others may use too: only what a client can do, unless the user declares
//! the store expendable.

#[cfg(feature = "redis")]
mod redis;

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use holdline_core::Escaped;
use holdline_torture::endpoints::Endpoints;
use holdline_torture::{Fault, Nemesis, Plan, Plant, Program, Report, Verdict, WithoutServers};
use serde_json::{Value, json};

use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::url_failure;
use crate::table::{Align, Table};
use crate::verb::{AtStake, EngineChoice, Verb};
use crate::view::millis;

/// The hidden verb of a worker.
const WORKER: &str = "__torture-worker";
/// The longest run: its history is kept in memory.
const MAX_SECONDS: u64 = 3_600;

/// Stop, kill and cut off holders on a real store, and check the promises: exit 0 if all were
/// kept, 1 if not, 2 if the run shows nothing
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all promises were kept, 1 one was broken and the witnesses \
    say which, 2 the run shows nothing.\n\nFaults: pause-holder, pause, kill; by proxies before \
    the servers of redis://, postgres://, mysql://, etcd:// and zk://: cut, cut-requests, \
    cut-replies, reset, delay; with --store-is-expendable, on Redis: script-flush, client-kill, \
    flush-all, and where Sentinels make the master failover.\n\nExample:\n  holdline torture \
    --url redis://localhost --seconds 20 --seed 7")]
pub(crate) struct TortureArgs {
    /// How long faults are injected; the run ends some seconds later, and always within four
    /// minutes
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    seconds: u64,
    /// Choose the faults by this number, which a run prints [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The faults, separated by commas; `all` are those that are possible here
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    nemesis: Vec<String>,
    /// How many processes contend
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=64))]
    workers: u64,
    /// The lease of a holder: short, so that many leases expire
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration::lease)]
    lease: Duration,
    /// Write the history into FILE, as JSON lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    history: Option<PathBuf>,
    /// The store serves nobody else: faults that affect all its users, or erase it, are allowed
    #[arg(long)]
    store_is_expendable: bool,
    /// Plant a bug, which the run must find
    #[arg(long, value_name = "BUG", hide = true, value_parser = plant())]
    plant: Option<Plant>,
}

/// Describes `torture`.
pub(crate) fn verb() -> Verb {
    Verb::on_engine("torture", EngineChoice::Used, AtStake::Nothing, run)
}

fn plant() -> impl TypedValueParser<Value = Plant> {
    let plants = [
        ("accept-stale", Plant::AcceptStale),
        ("believe-for-ever", Plant::BelieveForEver),
        ("split-brain", Plant::SplitBrain),
        ("hang", Plant::Hang),
        ("orphan", Plant::Orphan),
    ];
    PossibleValuesParser::new(plants.map(|(word, _)| word)).try_map(move |typed| {
        let planted = plants.into_iter().find(|(word, _)| *word == typed);
        planted.map(|(_, plant)| plant).ok_or("there is no such bug")
    })
}

/// Runs a worker, if the first argument says so.
pub(crate) fn hidden_verb() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_worker = arguments.next()? == WORKER;
    is_worker.then(|| holdline_torture::work(arguments))
}

/// Injects faults, and reports the result.
async fn run(arguments: &TortureArgs, address: Address, console: &Console) -> Outcome {
    if address.url.starts_with("memory:") {
        let message = "memory: is the memory of one process: workers would share nothing";
        return Err(Failure::config(message).fix("name an engine that other processes reach"));
    }
    let nemesis = nemesis(arguments, &address)?;
    let plan = plan(arguments, &address, nemesis.as_ref())?;
    let history = arguments.history.as_deref().map(create).transpose()?;
    let lasting = duration::written(plan.lasting);
    console
        .info(&format!("seed {}: faults for {lasting}, then a check of what is left", plan.seed));
    let report = Box::pin(holdline_torture::run(&plan, nemesis)).await;
    let report = report.map_err(|error| match error.engine() {
        "torture" => Failure::from(error),
        _ => url_failure(error),
    })?;
    if let Some(file) = history {
        write(file, &report)?;
    }
    console.print(&object(&report), &text(&report, console))?;
    Ok(conclude(&report, console))
}

fn conclude(report: &Report, console: &Console) -> Exit {
    let seed = report.seed;
    match report.verdict {
        Verdict::Kept => Exit::Success,
        Verdict::Broken => {
            console.warn(&format!("a promise was broken; --seed {seed} repeats the same faults"));
            Exit::Negative
        }
        Verdict::ProvesNothing => {
            console.warn(&format!("this shows nothing: {}", report.reasons.join("; ")));
            Exit::Unhealthy
        }
    }
}

/// Returns what can inject faults into the servers: nothing, unless the store is expendable.
fn nemesis(arguments: &TortureArgs, address: &Address) -> Result<Arc<dyn Nemesis>, Failure> {
    if !arguments.store_is_expendable {
        return Ok(Arc::new(WithoutServers));
    }
    #[cfg(feature = "redis")]
    if let Some(servers) = redis::Servers::of(&address.url).map_err(url_failure)? {
        return Ok(Arc::new(servers));
    }
    let url = holdline::redact_url(&address.url);
    let message = format!("--store-is-expendable: there is no fault of the servers of {url}");
    Err(Failure::usage(message).fix("leave it out: nothing here erases that store"))
}

fn plan(
    arguments: &TortureArgs,
    address: &Address,
    nemesis: &dyn Nemesis,
) -> Result<Plan, Failure> {
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
    // The kernel's link to our binary is valid even if the file was replaced meanwhile.
    let program = Program { path: "/proc/self/exe".into(), arguments: vec![WORKER.into()] };
    let mut plan = Plan::new(&address.url, program, seed);
    plan.lasting = Duration::from_secs(arguments.seconds);
    plan.workers = usize::try_from(arguments.workers).map_err(Failure::internal)?;
    plan.lease = arguments.lease;
    plan.plant = arguments.plant;
    plan.faults = faults(&arguments.nemesis, Endpoints::of(&address.url).is_some(), nemesis)?;
    Ok(plan)
}

/// Parses the list of faults. A named fault that is impossible here is refused; `all` omits it.
fn faults(words: &[String], network: bool, nemesis: &dyn Nemesis) -> Result<Vec<Fault>, Failure> {
    let servers = nemesis.faults();
    let possible = |fault: &Fault| {
        let network = !fault.needs_network() || network;
        network && (!fault.needs_servers() || servers.contains(fault))
    };
    let mut faults = Vec::new();
    for word in words {
        if word == "all" {
            faults.extend(Fault::ALL.into_iter().filter(possible));
            continue;
        }
        let fault: Fault =
            word.parse().map_err(|error| Failure::usage(format_args!("--nemesis: {error}")))?;
        if possible(&fault) {
            faults.push(fault);
            continue;
        }
        let failure = Failure::usage(format_args!("--nemesis {word}: cannot be done here"));
        let on_redis = [Fault::ScriptFlush, Fault::ClientKill, Fault::FlushAll, Fault::Failover];
        let on_redis = on_redis.contains(&fault);
        return Err(if fault.needs_network() {
            failure.fix(
                "it needs a proxy, which is impossible for this store: it has no server, is \
                 behind a unix socket, named by Sentinels, or shows a certificate",
            )
        } else if on_redis && servers.is_empty() {
            failure.fix("on a Redis that serves nobody else: --store-is-expendable")
        } else {
            failure.fix(
                "it needs power over the servers: give it to a test of your own by \
                         `holdline_torture::Nemesis`",
            )
        });
    }
    faults.sort_unstable();
    faults.dedup();
    Ok(faults)
}

/// Creates the file before the run, so that a wrong path is reported at once.
fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        let path = path.to_string_lossy();
        let message = format!("--history {}: cannot be written: {error}", Escaped(&path));
        Failure::usage(message).fix("nothing was started; name a file that can be written")
    })
}

fn write(file: File, report: &Report) -> Result<(), Failure> {
    let mut out = BufWriter::new(file);
    let written = report.write_history(&mut out).and_then(|()| out.flush());
    written.map_err(|error| Failure::internal(format_args!("--history: not written: {error}")))
}

/// Formats one line, the faults by kind, and the broken promises.
fn text(report: &Report, console: &Console) -> String {
    let line = report.line();
    let columns: Vec<(&'static str, Align)> =
        line.iter().map(|(name, _)| (*name, Align::Right)).collect();
    let mut table = Table::new(&columns);
    table.row(&line.iter().map(|(_, cell)| cell.as_str()).collect::<Vec<_>>());
    let (heading, row) = table.lines("");
    let mut text = format!("{}\n{row}", console.heading(heading.trim_end()));
    let faults = report.faults.iter().map(|(fault, count)| format!("{fault} {count}"));
    let failed = report.errors.iter().map(|(kind, count)| format!("{kind} {count}"));
    for (what, counted) in
        [("faults", faults.collect::<Vec<_>>()), ("failed attempts", failed.collect::<Vec<_>>())]
    {
        if !counted.is_empty() {
            text.push_str(&format!("{what}: {}\n", counted.join(", ")));
        }
    }
    for said in report.witnesses.iter().chain(&report.reasons) {
        for line in said.lines() {
            text.push_str(&format!("{}\n", Escaped(line)));
        }
    }
    text
}

/// The report as `docs/contributing/torture-report.md` describes it.
fn object(report: &Report) -> Value {
    let faults: serde_json::Map<String, Value> =
        report.faults.iter().map(|(fault, count)| (fault.to_string(), json!(count))).collect();
    json!({
        "engine": report.engine,
        "seed": report.seed,
        "lease_ms": millis(report.lease),
        "verdict": report.verdict.word(),
        "acquisitions": report.acquisitions,
        "faults": faults,
        "valid_overlaps": report.valid_overlaps,
        "stale_refused": report.stale_refused,
        "stale_accepted": report.stale_accepted,
        "token_regressions": report.token_regressions,
        "fenced_lost": report.fenced_lost,
        "unfenced_lost": report.unfenced_lost,
        "orphans": report.orphans,
        "hung": report.hung,
        "resurrected": report.resurrected,
        "errors": report.errors,
        "unexpected": report.unexpected,
        "exclusion_judged": report.assumed.exclusion,
        "tokens_judged": report.assumed.tokens,
        "witnesses": report.witnesses,
        "reasons": report.reasons,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str, network: bool) -> Result<Vec<Fault>, Failure> {
        let words: Vec<String> = words.split(',').map(Into::into).collect();
        faults(&words, network, &WithoutServers)
    }

    #[test]
    fn all_omits_impossible_faults_and_naming_one_is_refused() {
        assert_eq!(read("all", false), Ok(vec![Fault::PauseHolder, Fault::Pause, Fault::Kill]));
        assert_eq!(read("all", true).map(|all| all.len()), Ok(8));
        assert_eq!(read("kill,pause,kill", false), Ok(vec![Fault::Pause, Fault::Kill]));
        for (words, network, expected) in [
            ("cut", false, "proxy"),
            ("flush-all", true, "--store-is-expendable"),
            ("restart-empty", true, "holdline_torture::Nemesis"),
        ] {
            let failure = read(words, network).expect_err(words);
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.fix.is_some_and(|fix| fix.contains(expected)), "{words}");
        }
        let slip = read("kil", false).expect_err("no fault");
        assert!(slip.message.contains("did you mean 'kill'?"), "{}", slip.message);
    }
}
