//! Rounds in which floor and subject take turns, and their medians.

use std::time::{Duration, Instant};

/// Whatever ends a benchmark early.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many rounds each section runs.
pub(crate) const ROUNDS: usize = 7;

/// The floor's and the subject's figure of one round, in nanoseconds for one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) floor: f64,
    pub(crate) subject: f64,
}

/// Another library: its name, and its figure of each round.
pub(crate) type Peer = (&'static str, Vec<f64>);

/// Returns the middle time of `step`, which is repeated. It gets the number of steps before it.
pub(crate) async fn middle(
    times: usize,
    mut step: impl AsyncFnMut(usize) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut taken = Vec::with_capacity(times);
    for done in 0..times {
        let start = Instant::now();
        step(done).await?;
        taken.push(each(start.elapsed(), 1));
    }
    Ok(median(taken.into_iter()))
}

/// Returns the middle ratio of the rounds.
pub(crate) fn ratio(rounds: &[Round]) -> f64 {
    median(rounds.iter().map(|round| round.subject / round.floor))
}

/// Takes floor and subject in turn, this many times a round; each round has their middle values.
pub(crate) async fn in_turn(
    times: usize,
    mut floor: impl AsyncFnMut() -> Result<(), Failure>,
    mut subject: impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<Vec<Round>, Failure> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut floors = Vec::new();
        let mut subjects = Vec::new();
        for _ in 0..times {
            let start = Instant::now();
            floor().await?;
            floors.push(each(start.elapsed(), 1));
            let start = Instant::now();
            subject().await?;
            subjects.push(each(start.elapsed(), 1));
        }
        let floor = median(floors.into_iter());
        let subject = median(subjects.into_iter());
        rounds.push(Round { floor, subject });
    }
    Ok(rounds)
}

/// Prints one line: medians of both, and the median of the ratios with its range.
pub(crate) fn report(title: &str, rounds: &[Round], budget: &str) {
    report_beside(title, rounds, &[], budget);
}

/// Prints one line as [`report`] does, with the best of the peers and its ratio to the floor.
pub(crate) fn report_beside(title: &str, rounds: &[Round], peers: &[Peer], budget: &str) {
    let floor = median(rounds.iter().map(|round| round.floor));
    let subject = median(rounds.iter().map(|round| round.subject));
    let mut ratios: Vec<f64> = rounds.iter().map(|round| round.subject / round.floor).collect();
    ratios.sort_by(f64::total_cmp);
    let low = ratios.first().copied();
    let high = ratios.last().copied();
    println!(
        "{title:<50} floor {:>10}{}  ours {:>10}  ratio {:.2} [{:.2}..{:.2}]  (to reach: {budget})",
        time(floor),
        best(rounds, peers),
        time(subject),
        median(ratios.iter().copied()),
        low.unwrap_or(0.0),
        high.unwrap_or(0.0),
    );
}

/// Prints how the ratios among many compare with the first one, that among the fewest.
pub(crate) fn flat(ratios: &[f64]) {
    let Some((few, many)) = ratios.split_first() else { return };
    let growth: Vec<String> = many.iter().map(|ratio| format!("{:.2}", ratio / few)).collect();
    println!("{:<50} {}  (to reach: 0.75 to 1.25)", "  many against few", growth.join(", "));
}

/// Reports the peer with the smallest ratio.
fn best(rounds: &[Round], peers: &[Peer]) -> String {
    let shown = peers.iter().filter(|(_, figures)| !figures.is_empty()).map(|(name, figures)| {
        let pairs = figures.iter().zip(rounds);
        let ratio = median(pairs.map(|(figure, round)| figure / round.floor));
        (ratio, name, median(figures.iter().copied()))
    });
    let best = shown.min_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or_else(String::new, |(ratio, name, figure)| {
        format!("  {name} {:>10} ({ratio:.2})", time(figure))
    })
}

/// Returns the middle value.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns nanoseconds for one of `count` operations.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn each(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_nanos() as f64 / count as f64
}

/// Writes nanoseconds as people read them.
pub(crate) fn time(nanos: f64) -> String {
    match nanos {
        _ if nanos < 1e4 => format!("{nanos:.0} ns"),
        _ if nanos < 1e7 => format!("{:.1} us", nanos / 1e3),
        _ => format!("{:.2} ms", nanos / 1e6),
    }
}
