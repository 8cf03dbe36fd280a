//! Reads the clocks of the machine.

use holdline_core::{ClockKind, Moment};

/// Reads a clock of the machine.
#[cfg(unix)]
pub(super) fn read(kind: ClockKind) -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(match kind {
        #[cfg(target_os = "linux")]
        ClockKind::Boottime => ClockId::Boottime,
        #[cfg(not(target_os = "linux"))]
        ClockKind::Boottime => ClockId::Monotonic,
        ClockKind::Monotonic => ClockId::Monotonic,
    });
    // These clocks start at the boot of the machine and are never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Reads the clock of the machine, from the first reading on.
#[cfg(windows)]
pub(super) fn read(_kind: ClockKind) -> Moment {
    static FIRST: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    Moment::ORIGIN.after(FIRST.elapsed())
}
