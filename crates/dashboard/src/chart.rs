//! Charts as SVG. Each has a table behind it, so a screen reader skips the picture.

use std::time::{Duration, SystemTime};

use maud::{Markup, html};

use crate::history::Hold;
use crate::text::{Text, short};

/// The classes of durations, by their upper ends in milliseconds.
const CLASSES: [(u128, &str); 9] = [
    (10, "< 10 ms"),
    (100, "< 100 ms"),
    (1_000, "< 1 s"),
    (10_000, "< 10 s"),
    (60_000, "< 1 min"),
    (600_000, "< 10 min"),
    (3_600_000, "< 1 h"),
    (86_400_000, "< 1 d"),
    (u128::MAX, "≥ 1 d"),
];
const WIDTH: f64 = 800.0;
const ROW: usize = 26;

/// Counts durations in classes; empty if there are none.
pub(crate) fn classes(durations: impl Iterator<Item = Duration>) -> Vec<(&'static str, usize)> {
    let mut counts = [0_usize; CLASSES.len()];
    for duration in durations {
        let class = CLASSES.iter().position(|(end, _)| duration.as_millis() < *end);
        counts[class.unwrap_or(CLASSES.len() - 1)] += 1;
    }
    match counts.iter().sum() {
        0_usize => Vec::new(),
        _ => CLASSES.iter().zip(counts).map(|((_, label), count)| (*label, count)).collect(),
    }
}

/// Draws counts as bars, with the table behind them.
pub(crate) fn histogram(caption: &str, counts: &[(&str, usize)]) -> Markup {
    if counts.is_empty() {
        return html! { p.muted { (caption) ": none seen yet." } };
    }
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    // Pixels: no precision matters.
    #[allow(clippy::cast_precision_loss)]
    let length = |count: usize| WIDTH * 0.6 * count as f64 / most as f64;
    html! {
        figure {
            figcaption { (caption) }
            svg.chart viewBox=(format!("0 0 {WIDTH} {}", counts.len() * ROW + 8))
                aria-hidden="true" focusable="false" {
                @for (index, (label, count)) in counts.iter().enumerate() {
                    @let y = index * ROW + 6;
                    text x="150" y=(y + 15) text-anchor="end" { (label) }
                    rect.bar x="160" y=(y) height="18" width=(format!("{:.1}", length(*count))) {}
                    @if *count > 0 {
                        text x=(format!("{:.1}", 168.0 + length(*count))) y=(y + 15) { (count) }
                    }
                }
            }
            details {
                summary { "As a table" }
                table {
                    thead { tr { th scope="col" { "Class" } th.number scope="col" { "Count" } } }
                    tbody {
                        @for (label, count) in counts {
                            tr { th scope="row" { (label) } td.number { (count) } }
                        }
                    }
                }
            }
        }
    }
}

/// A row of a timeline: its label, and its holds.
pub(crate) struct Track<'a> {
    pub(crate) label: &'a str,
    pub(crate) holds: Vec<&'a Hold>,
    /// Whether two holders of one exclusive lock were seen at once.
    pub(crate) overlaps: bool,
}

/// Draws holds as bars from `from` to `to`: lost ones in red, waits in grey before them.
pub(crate) fn timeline(rows: &[Track<'_>], (from, to): (SystemTime, SystemTime)) -> Markup {
    let span = to.duration_since(from).unwrap_or_default().as_secs_f64().max(0.001);
    let x = |at: SystemTime| {
        let offset = at.duration_since(from).unwrap_or_default().as_secs_f64();
        200.0 + (WIDTH - 210.0) * (offset / span).min(1.0)
    };
    let height = rows.len() * ROW + 30;
    html! {
        svg.chart viewBox=(format!("0 0 {WIDTH} {height}")) aria-hidden="true" focusable="false" {
            @for quarter in 0..=4_u32 {
                @let left = 200.0 + (WIDTH - 210.0) * f64::from(quarter) / 4.0;
                line.axis x1=(left) x2=(left) y1="0" y2=(height - 22) {}
                @let ago = Duration::from_secs_f64(span * f64::from(4 - quarter) / 4.0);
                @let anchor = if quarter == 4 { "end" } else { "middle" };
                text x=(left) y=(height - 6) text-anchor=(anchor) {
                    @if quarter == 4 { "now" } @else { "−" (short(ago)) }
                }
            }
            @for (index, row) in rows.iter().enumerate() {
                @let y = index * ROW + 4;
                text x="4" y=(y + 14) { (Text(&clipped(row.label))) }
                @for hold in &row.holds {
                    @let end = hold.end.as_ref().map_or(to, |(at, _)| *at);
                    @let (start, end) = (x(hold.from), x(end));
                    @if let Some(before) = hold.waited.and_then(|w| hold.from.checked_sub(w)) {
                        @let left = x(before);
                        rect.waiting x=(format!("{left:.1}")) y=(y + 6) height="6"
                            width=(format!("{:.1}", (start - left).max(0.0))) {}
                    }
                    rect class=(if hold.is_lost() { "lost" } else { "bar" })
                        x=(format!("{start:.1}")) y=(y) height="18"
                        width=(format!("{:.1}", (end - start).max(1.5))) {}
                }
                @if row.overlaps {
                    rect.overlap x="199" y=(y - 2) height="22" width=(WIDTH - 207.0) {}
                }
            }
        }
    }
}

/// Cuts a label to what fits beside the bars.
fn clipped(label: &str) -> String {
    match label.char_indices().nth(26) {
        None => label.to_owned(),
        Some((end, _)) => format!("{}…", &label[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_classes() {
        assert!(classes(std::iter::empty()).is_empty());
        let millis = [0, 9, 10, 999, 1_000, 86_400_000];
        let counts = classes(millis.into_iter().map(Duration::from_millis));
        let counts: Vec<usize> = counts.into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 1, 1, 1, 0, 0, 0, 0, 1]);
    }
}
