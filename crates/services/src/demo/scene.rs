//! Who plays what, and what to look at.

/// Where an actor's locks are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    /// PostgreSQL: queues, live tables, a frozen name.
    Database,
    /// Five Redis servers.
    Quorum,
}

/// A job of so many seconds that dies with its parent.
macro_rules! job {
    ($seconds:literal) => {
        concat!("echo begins; exec setpriv --pdeathsig KILL -- sleep ", $seconds)
    };
}

type Group = (Store, usize, &'static [&'static str]);

/// The contenders: where, how many, and what each runs, again and again.
pub(super) const CONTENDERS: &[Group] = &[
    (
        Store::Database,
        4,
        &["run", "--reason", "release 42", "deploy/production", "--", "sh", "-c", job!("8")],
    ),
    (
        Store::Database,
        2,
        &["run", "--shared", "--reason", "reading", "report/nightly", "--", "sh", "-c", job!("5")],
    ),
    (
        Store::Database,
        3,
        &["run", "--permits", "1/2", "--label", "model=large", "gpu", "--", "sh", "-c", job!("6")],
    ),
    (
        Store::Database,
        1,
        &["run", "--reason", "the books of November", "billing/close", "--", "sh", "-c", job!("3")],
    ),
    (
        Store::Quorum,
        3,
        &["run", "--reason", "cold cache", "cache/rebuild", "--", "sh", "-c", job!("4")],
    ),
    (Store::Quorum, 1, &["run", "search/index", "--", "sh", "-c", job!("10")]),
];

/// The job that is paused past its lease, and lasts longer than the pause.
pub(super) const PAUSED_JOB: &[&str] = &[
    "run",
    "--lease",
    "5s",
    // A short lease leaves time for a short grace only.
    "--grace",
    "1s",
    "--reason",
    "paused by the demo",
    "backup/orders",
    "--",
    "sh",
    "-c",
    job!("60"),
];

/// The name that nobody gets.
pub(super) const FREEZE: &[&str] =
    &["freeze", "--for", "1h", "--reason", "the audit has not signed", "billing/close"];

/// What to look at, for the dashboard at `url`.
pub(super) fn script(url: &str) -> String {
    let server = url.strip_suffix("/dashboard").unwrap_or(url);
    let pages = [
        ("", "figures, and what needs attention: the frozen name"),
        ("/locks", "who holds what, on which host, for how long and why"),
        (
            "/lock?name=deploy%2Fproduction",
            "a queue: three wait for one, in order; revoke or freeze it",
        ),
        (
            "/lock?name=backup%2Forders",
            "a holder is paused for 20 s, its lease of 5 s expires; then it learns that it is lost",
        ),
        ("/timeline?lost=yes", "the same as bars: the lost hold is red"),
        ("/contention", "which names and holders make others wait"),
    ];
    let pages = pages.iter().map(|(path, shows)| format!("  {url}{path}\n      {shows}\n"));
    let quorum = [
        (
            "lock?name=cache%2Frebuild",
            "a lock on five Redis servers, which cannot list their names",
        ),
        (
            "quorum",
            "one server is killed, the locks go on; after 30 s it is back without its memory",
        ),
    ];
    let quorum = quorum
        .map(|(page, shows)| format!("  {server}/stores/quorum/dashboard/{page}\n      {shows}\n"));
    pages.chain(quorum).collect()
}
