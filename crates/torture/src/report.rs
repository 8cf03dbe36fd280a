//! The result of a run, as one line and in full.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::Fault;
use crate::checker::Event;
use crate::history::{self, Note};

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every promise that can be judged was kept, and the control shows that this means something.
    Kept,
    /// A promise was broken; the witnesses say which.
    Broken,
    /// Nothing was broken, and nothing was shown: too little happened, or the run itself failed.
    ProvesNothing,
}

impl Verdict {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Broken => "broken",
            Verdict::ProvesNothing => "proves-nothing",
        }
    }
}

/// Which assumptions of the promises the faults have left standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumed {
    /// The store did not forget, its deciding clocks did not step, and its acknowledgements are
    /// proof: exclusion (P1) is judged.
    pub exclusion: bool,
    /// The store did not forget while its clock stepped: tokens (P2) are judged.
    pub tokens: bool,
}

/// What a run has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The engine.
    pub engine: &'static str,
    /// The seed that chose the faults.
    pub seed: u64,
    /// The lease of the grants.
    pub lease: Duration,
    /// How many grants workers were given.
    pub acquisitions: u64,
    /// How often each fault came.
    pub faults: BTreeMap<Fault, u64>,
    /// Pairs of holders that were valid at the same time, at most one for each name.
    pub valid_overlaps: usize,
    /// Reads and writes of late holders that the resource refused.
    pub stale_refused: u64,
    /// Writes of late holders that it took.
    pub stale_accepted: usize,
    /// Later grants with tokens that are not larger, at most two for each name.
    pub token_regressions: usize,
    /// Accepted elements that are not in the register that checks tokens.
    pub fenced_lost: usize,
    /// Accepted elements that are not in the other one: the control.
    pub unfenced_lost: usize,
    /// Names under which something is left.
    pub orphans: usize,
    /// Calls and workers that did not come back.
    pub hung: usize,
    /// Leases that were reported lost and then renewed.
    pub resurrected: usize,
    /// Attempts that failed, by kind.
    pub errors: BTreeMap<String, u64>,
    /// Failures that no fault explains.
    pub unexpected: Vec<String>,
    /// What the faults have left to be judged.
    pub assumed: Assumed,
    /// How it went.
    pub verdict: Verdict,
    /// The witnesses of broken promises.
    pub witnesses: Vec<String>,
    /// Why it proves nothing.
    pub reasons: Vec<String>,
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<Note>,
}

impl Report {
    /// Writes what was seen and done as JSON lines, in the order of time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_history(&self, out: &mut dyn io::Write) -> io::Result<()> {
        history::write(out, &self.events, &self.notes)
    }

    /// Returns the columns of the one line: what stands above, and the cell.
    pub fn line(&self) -> Vec<(&'static str, String)> {
        let judged = |found: usize, is: bool| {
            if is {
                found.to_string()
            } else {
                // What the faults allow is shown and not judged.
                format!("({found})")
            }
        };
        let tokens = self.assumed.tokens;
        vec![
            ("ENGINE", self.engine.to_owned()),
            ("ACQUIRED", self.acquisitions.to_string()),
            ("FAULTS", self.faults.values().sum::<u64>().to_string()),
            ("OVERLAPS", judged(self.valid_overlaps, self.assumed.exclusion)),
            ("STALE REFUSED", self.stale_refused.to_string()),
            ("STALE ACCEPTED", judged(self.stale_accepted, tokens)),
            ("TOKENS BACK", judged(self.token_regressions, tokens)),
            ("FENCED LOST", judged(self.fenced_lost, tokens)),
            ("UNFENCED LOST", self.unfenced_lost.to_string()),
            ("ORPHANS", self.orphans.to_string()),
            ("HUNG", self.hung.to_string()),
            ("PROMISES", self.verdict.word().to_owned()),
        ]
    }
}

impl fmt::Display for Report {
    /// Writes the line with its words, the faults, and what is wrong.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<String> = self
            .line()
            .into_iter()
            .map(|(name, cell)| format!("{} {cell}", name.to_lowercase()))
            .collect();
        writeln!(f, "seed {}: {}", self.seed, cells.join(", "))?;
        let faults: Vec<String> =
            self.faults.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
        write!(f, "faults: {}; failed attempts: {:?}", faults.join(", "), self.errors)?;
        for message in self.witnesses.iter().chain(&self.reasons) {
            write!(f, "\n{message}")?;
        }
        Ok(())
    }
}
