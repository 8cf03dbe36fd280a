//! `run --metrics-file FILE`: what happened, in the text format of Prometheus, for the node
//! exporter's textfile collector. A cron job has no port to scrape.
//!
//! Invariant F1: a reader finds the file of one whole run: it is written beside and then renamed.
//! Invariant F2: series of two jobs differ by their class: the collector refuses equal ones.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};
use holdline::health::{NodeHealth, QuorumHealth};
use holdline_core::Escaped;

use super::report::{Report, RunOutcome};
use crate::failure::Failure;

/// The outcomes of a run: the one that it had is 1, and all others are 0.
const OUTCOMES: [RunOutcome; 7] = [
    RunOutcome::Finished,
    RunOutcome::Busy,
    RunOutcome::Interrupted,
    RunOutcome::Lost,
    RunOutcome::MaxHold,
    RunOutcome::AlreadyRan,
    RunOutcome::Failed,
];
/// The longest class, in bytes.
const LONGEST_CLASS: usize = 128;

/// Where the metrics of a run go, and what they are labelled with.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MetricsArgs {
    /// Write the metrics of this run to FILE, in the text format of Prometheus: for the node
    /// exporter's textfile collector, which reads *.prom
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "class")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// The label `class` of --metrics-file, another for each job of a machine
    #[arg(long, value_name = "TEXT", value_parser = class, requires = "metrics_file")]
    pub(crate) class: Option<String>,
}

fn class(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("is empty: name the job, such as nightly-backup".to_owned()),
        1..=LONGEST_CLASS => Ok(text.to_owned()),
        bytes => Err(format!("may have {LONGEST_CLASS} bytes, this one has {bytes}")),
    }
}

/// The file of the metrics, checked before the lock is asked for.
#[derive(Debug)]
pub(super) struct MetricsFile<'a> {
    to: Option<(&'a Path, &'a str)>,
}

impl MetricsFile<'_> {
    /// Checks that the file can be replaced.
    ///
    /// # Errors
    /// It cannot. Nothing was started.
    pub(super) fn check(arguments: &MetricsArgs) -> Result<MetricsFile<'_>, Failure> {
        let path = arguments.metrics_file.as_deref();
        let to = path.zip(arguments.class.as_deref());
        if let Some((path, _)) = to {
            let beside = beside(path).map_err(|error| not_written(path, &error))?;
            let tried = fs::write(&beside, "").and_then(|()| fs::remove_file(&beside));
            tried.map_err(|error| not_written(path, &error))?;
        }
        Ok(MetricsFile { to })
    }

    /// Replaces the file by the metrics of this run.
    pub(super) fn write(&self, report: &Report) -> Result<(), Failure> {
        let Some((path, class)) = self.to else { return Ok(()) };
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = text(report, class, ended.as_secs_f64());
        let written = beside(path).and_then(|beside| {
            let replaced = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
            replaced.inspect_err(|_| drop(fs::remove_file(&beside)))
        });
        written.map_err(|error| {
            Failure::internal(format_args!("--metrics-file: not written: {error}"))
        })
    }
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let path = path.to_string_lossy();
    let message = format!("--metrics-file {}: cannot be written: {error}", Escaped(&path));
    Failure::usage(message).fix("nothing was started; name a file in a folder that can be written")
}

/// Names a file in the same folder, which the collector does not read.
fn beside(path: &Path) -> io::Result<PathBuf> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// Writes the last state of the nodes of a quorum.
fn nodes(text: &mut String, labels: &str, quorum: &QuorumHealth) {
    let name = "holdline_quorum_margin";
    let _ = writeln!(text, "# HELP {name} How many nodes more than a majority vote");
    let _ = writeln!(text, "# TYPE {name} gauge\n{name}{{{labels}}} {}", quorum.margin);
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&NodeHealth) -> Option<f64>| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for node in &quorum.nodes {
            if let Some(value) = value(node) {
                let node = label(&node.address);
                let _ = writeln!(text, "{name}{{{labels},node=\"{node}\"}} {value}");
            }
        }
    };
    let yes = |yes: bool| Some(f64::from(u8::from(yes)));
    gauge("holdline_node_up", "Whether a node answers", &|node| yes(node.up));
    gauge("holdline_node_votes", "Whether a node votes", &|node| yes(node.votes));
    let help = "How long a node that lost its data gives no vote yet";
    let quarantine = |node: &NodeHealth| Some(node.quarantine.as_secs_f64());
    gauge("holdline_node_quarantine_seconds", help, &quarantine);
    let help = "How far a node's clock is ahead of the median";
    // Far below 2^53, so it is exact.
    let drift = |node: &NodeHealth| node.clock_drift_us.map(|drift| drift as f64 / 1e6);
    gauge("holdline_clock_drift_seconds", help, &drift);
}

/// Writes the metrics of a run.
fn text(report: &Report, class: &str, ended: f64) -> String {
    let labels = format!(
        "class=\"{}\",engine=\"{}\"",
        label(class),
        label(report.engine.unwrap_or("unknown"))
    );
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        let Some(value) = value else { return };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    };
    gauge("holdline_run_end_timestamp_seconds", "When the last run ended", Some(ended));
    let exit = f64::from(report.exit.code());
    gauge("holdline_run_exit_code", "The exit code of the last run", Some(exit));
    let waited = report.waited.as_secs_f64();
    gauge("holdline_run_wait_seconds", "How long it waited for the lock", Some(waited));
    let held = report.held.map(|held| held.as_secs_f64());
    gauge("holdline_run_hold_seconds", "How long it held the lock; absent if never", held);
    // A token is below 2^53, so it is exact.
    let token = report.token().map(|token| token as f64);
    gauge("holdline_run_fencing_token", "The fencing token of its grant", token);
    let name = "holdline_run_outcome";
    let _ = writeln!(text, "# HELP {name} How the last run ended: 1 for its outcome, 0 for others");
    let _ = writeln!(text, "# TYPE {name} gauge");
    for outcome in OUTCOMES {
        let value = u8::from(report.outcome == outcome);
        let outcome = outcome.word();
        let _ = writeln!(text, "{name}{{{labels},outcome=\"{outcome}\"}} {value}");
    }
    if let Some(quorum) = &report.quorum {
        nodes(&mut text, &labels, quorum);
    }
    text
}

/// Escapes the value of a label.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use holdline_core::{LockName, Mode};

    use super::*;

    #[test]
    fn each_node_of_a_quorum_has_its_series() {
        let node = |address: &str, clock_drift_us: Option<i64>| NodeHealth {
            address: address.to_owned(),
            up: clock_drift_us.is_some(),
            votes: clock_drift_us.is_some(),
            quarantine: std::time::Duration::ZERO,
            clock_drift_us,
        };
        let seen = vec![node("a:1", Some(-1_500)), node("b:2", None)];
        let mut text = String::new();
        nodes(&mut text, "class=\"c\"", &QuorumHealth::new("redlock", -1, seen));
        for line in [
            "holdline_quorum_margin{class=\"c\"} -1",
            "holdline_node_up{class=\"c\",node=\"a:1\"} 1",
            "holdline_node_up{class=\"c\",node=\"b:2\"} 0",
            "holdline_node_votes{class=\"c\",node=\"b:2\"} 0",
            "holdline_clock_drift_seconds{class=\"c\",node=\"a:1\"} -0.0015",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
        assert_eq!(text.matches("holdline_clock_drift_seconds{").count(), 1, "{text}");
    }

    #[test]
    fn the_text_has_one_series_for_each_metric_and_one_outcome() {
        let name = LockName::new("a").expect("a good name");
        let mut report = Report::new(&name, Mode::Exclusive);
        report.engine = Some("redis");
        report.outcome = RunOutcome::Busy;
        let text = text(&report, "a\\b\"c\nd", 1.5);
        let labels = r#"class="a\\b\"c\nd",engine="redis""#;
        let ended = format!("holdline_run_end_timestamp_seconds{{{labels}}} 1.5\n");
        assert!(text.contains(&ended), "{text}");
        assert!(text.contains(&format!("holdline_run_exit_code{{{labels}}} 125\n")), "{text}");
        assert!(!text.contains("hold_seconds") && !text.contains("token"), "{text}");
        let outcomes: Vec<&str> =
            text.lines().filter(|line| line.starts_with("holdline_run_outcome")).collect();
        assert_eq!(outcomes.len(), OUTCOMES.len());
        let had: Vec<&&str> = outcomes.iter().filter(|line| line.ends_with(" 1")).collect();
        assert!(had.len() == 1 && had[0].contains("outcome=\"busy\""), "{outcomes:?}");
    }
}
