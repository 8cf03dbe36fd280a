//! The table in Markdown.

use super::judge::Verdict;
use super::process::Ran;
use crate::rounds::{each, median, time};

/// The rounds of one system.
#[derive(Default)]
pub(super) struct Figures(Vec<Round>);

struct Round {
    verdict: Verdict,
    seconds: f64,
    /// Processor time in nanoseconds for a grant.
    clients: f64,
    servers: f64,
}

impl Round {
    fn rate(&self, count: usize) -> f64 {
        real(count) / self.seconds
    }
}

impl Figures {
    pub(super) fn add(&mut self, verdict: Verdict, ran: &Ran) {
        let seconds = real(ran.window.end - ran.window.start) / 1e9;
        let of_each = |time| each(time, ran.grants.len());
        let clients = of_each(ran.clients);
        let servers = of_each(ran.servers);
        self.0.push(Round { verdict, seconds, clients, servers });
    }

    pub(super) fn overlaps(&self) -> usize {
        self.0.iter().map(|round| round.verdict.overlaps).sum()
    }

    fn median(&self, value: impl Fn(&Round) -> f64) -> f64 {
        median(self.0.iter().map(value))
    }

    /// What counts: hand-offs where several contend, otherwise grants; for each round.
    fn rates(&self, contended: bool) -> Vec<f64> {
        let count = |v: &Verdict| if contended { v.hand_offs } else { v.grants };
        self.0.iter().map(|round| round.rate(count(&round.verdict))).collect()
    }
}

pub(super) fn print_head() {
    println!(
        "| store, contenders | client | grants/s | hand-offs/s | beside the best peer | \
         wait p50, p99 | most ÷ least | processor time for a grant: client, server | overlaps |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
}

/// Prints a row for each system. The first one is ours.
pub(super) fn print_rows(title: &str, sides: &[(&str, &Figures)], contended: bool) {
    let ours = sides.first().map_or(Vec::new(), |(_, figures)| figures.rates(contended));
    for (number, (name, figures)) in sides.iter().enumerate() {
        let beside = if number == 0 { best(&ours, &sides[1..], contended) } else { String::new() };
        let hand_offs = figures.median(|round| round.rate(round.verdict.hand_offs));
        let least = figures.median(|round| real(round.verdict.least));
        let spread = figures.median(|round| real(round.verdict.most) / real(round.verdict.least));
        println!(
            "| {title} | {name} | {:.0} | {} | {beside} | {}, {} | {} | {}, {} | {} |",
            figures.median(|round| round.rate(round.verdict.grants)),
            if contended { format!("{hand_offs:.0}") } else { "–".to_owned() },
            time(figures.median(|round| real(round.verdict.wait_p50))),
            time(figures.median(|round| real(round.verdict.wait_p99))),
            match least {
                _ if !contended => "–".to_owned(),
                0.0 => "some had none".to_owned(),
                _ => format!("{spread:.2}"),
            },
            time(figures.median(|round| round.clients)),
            time(figures.median(|round| round.servers)),
            figures.overlaps(),
        );
    }
}

pub(super) fn print_many_names_head() {
    println!(
        "| store | client | names | grants/s | beside the best peer | p50, p99 of a `lock()` | \
         processor time for a grant: client, server |"
    );
    println!("|---|---|---|---|---|---|---|");
}

/// Prints a row for each system; the first one is ours, and only peers are compared with it.
pub(super) fn print_many_names(title: &str, names: usize, sides: &[Row<'_>]) {
    let ours = sides.first().map_or(Vec::new(), |row| row.figures.rates(false));
    let others = sides.iter().skip(1).filter(|row| row.is_peer);
    let peers = others.map(|row| (row.client, row.figures));
    let beside = best(&ours, &peers.collect::<Vec<_>>(), false);
    for (number, Row { client, figures, .. }) in sides.iter().enumerate() {
        println!(
            "| {title} | {client} | {names} | {:.0} | {} | {}, {} | {}, {} |",
            figures.median(|round| round.rate(round.verdict.grants)),
            if number == 0 { &beside } else { "" },
            time(figures.median(|round| real(round.verdict.wait_p50))),
            time(figures.median(|round| real(round.verdict.wait_p99))),
            time(figures.median(|round| round.clients)),
            time(figures.median(|round| round.servers)),
        );
    }
}

/// A system in the table of many names.
pub(super) struct Row<'a> {
    pub(super) client: &'a str,
    pub(super) figures: &'a Figures,
    pub(super) is_peer: bool,
}

/// Our rate ÷ that of the fastest peer: the median of the rounds' ratios.
fn best(ours: &[f64], peers: &[(&str, &Figures)], contended: bool) -> String {
    let rates = peers.iter().map(|(name, figures)| (name, figures.rates(contended)));
    let middle = |rates: &[f64]| median(rates.iter().copied());
    let best = rates.max_by(|(_, one), (_, other)| middle(one).total_cmp(&middle(other)));
    best.map_or_else(String::new, |(name, rates)| {
        let ratio = median(ours.iter().zip(&rates).map(|(ours, peer)| ours / peer));
        format!("**{ratio:.2}** × {name}")
    })
}

#[allow(clippy::cast_precision_loss)]
fn real(count: impl TryInto<u64>) -> f64 {
    count.try_into().map_or(f64::NAN, |count| count as f64)
}
