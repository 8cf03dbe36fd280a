//! Charts as SVG. Each has its figures in a table, so a screen reader skips the picture.

use std::ops::Range;
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
/// The height of a track of a timeline: its label, and its bars below.
const TRACK: usize = 42;
/// The lines of a timeline's axis, and where their labels stand beside them.
const QUARTERS: [(f64, &str, i32); 5] = [
    (0.0, "start", 4),
    (0.25, "middle", 0),
    (0.5, "middle", 0),
    (0.75, "middle", 0),
    (1.0, "end", -4),
];

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

/// Shows counts as a table with bars.
pub(crate) fn histogram(caption: &str, counts: &[(&str, usize)]) -> Markup {
    if counts.is_empty() {
        return html! { p.muted { (caption) ": none seen yet." } };
    }
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    // Pixels: no precision matters.
    #[allow(clippy::cast_precision_loss)]
    let share = |count: usize| count as f64 / most as f64;
    html! {
        figure {
            figcaption { (caption) }
            table.bars {
                thead {
                    tr {
                        th scope="col" { "Class" }
                        th.number scope="col" { "Count" }
                        td {}
                    }
                }
                tbody {
                    @for (label, count) in counts {
                        tr {
                            th scope="row" { (label) }
                            td.number { (count) }
                            td { (bar(share(*count))) }
                        }
                    }
                }
            }
        }
    }
}

/// Draws a bar beside a figure, for a share of the longest one.
pub(crate) fn bar(share: f64) -> Markup {
    html! {
        svg.chart.length height="14" aria-hidden="true" focusable="false" {
            rect.bar height="14" width=(percent(share)) {}
        }
    }
}

/// A length of what is as wide as the window allows, so that texts keep their size.
fn percent(share: f64) -> String {
    format!("{:.2}%", share.clamp(0.0, 1.0) * 100.0)
}

/// A row of a timeline: its label, and its holds.
pub(crate) struct Track<'a> {
    pub(crate) label: &'a str,
    pub(crate) holds: Vec<&'a Hold>,
    /// Whether two holders of one exclusive lock were seen at once.
    pub(crate) overlaps: bool,
}

/// Draws holds as bars from `from` to `to`: lost ones in red, the waits before them in
/// grey below.
pub(crate) fn timeline(rows: &[Track<'_>], window: Range<SystemTime>) -> Markup {
    let Range { start: from, end: to } = window;
    let span = to.duration_since(from).unwrap_or_default().as_secs_f64().max(0.001);
    let x = |at: SystemTime| {
        let offset = at.duration_since(from).unwrap_or_default().as_secs_f64();
        (offset / span).min(1.0)
    };
    let height = rows.len() * TRACK + 30;
    html! {
        svg.chart height=(height) aria-hidden="true" focusable="false" {
            @for (quarter, (part, anchor, beside)) in QUARTERS.iter().enumerate() {
                line.axis x1=(percent(*part)) x2=(percent(*part)) y1="0" y2=(height - 22) {}
                @let ago = Duration::from_secs_f64(span * (1.0 - part));
                text.quarter[quarter % 2 == 1] x=(percent(*part)) y=(height - 7)
                    dx=(beside) text-anchor=(anchor) {
                    @if quarter == 4 { "now" } @else { "−" (short(ago)) }
                }
            }
            @for (index, row) in rows.iter().enumerate() {
                @let y = index * TRACK + 4;
                text.label x="4" y=(y + 13) { (Text(row.label)) }
                @for hold in &row.holds {
                    @let end = hold.end.as_ref().map_or(to, |(at, _)| *at);
                    @let (start, end) = (x(hold.from), x(end));
                    @if let Some(before) = hold.waited.and_then(|w| hold.from.checked_sub(w)) {
                        rect.waiting x=(percent(x(before))) y=(y + 33) height="5"
                            width=(percent(start - x(before))) {}
                    }
                    // A short hold can still be seen.
                    rect class=(if hold.is_lost() { "lost" } else { "bar" })
                        x=(percent(start)) y=(y + 18) height="14"
                        width=(percent((end - start).max(0.002))) {}
                }
                @if row.overlaps {
                    rect.overlap x="1" y=(y + 16) height="18" width="99.8%" {}
                }
            }
        }
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
