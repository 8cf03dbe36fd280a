//! Elections among processes, whose leaders are stopped past their lease, cut off and killed.
//!
//! Each process writes down whenever it considers itself the leader: the time before and after it
//! has looked. Two leaders at once would have written times that overlap.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdline::clock::{Clock, SystemClock};
use holdline::{Client, Election, LockOptions};
use holdline_core::ClockKind;
use holdline_services::{Fault, FaultProxy, Frames};
use rustix::process::Signal;
use tokio::sync::watch;

use crate::children::{Process, next_command};
use crate::support::{client_at, hasty_url_of, queued, server, soon, url_of};

const URL: &str = "HOLDLINE_TEST_ELECTION_URL";
const NAME: &str = "HOLDLINE_TEST_ELECTION_NAME";
const FILE: &str = "HOLDLINE_TEST_ELECTION_FILE";
const CHILD: &str = "elections::a_candidate_of_the_tests_below";
/// A leader that dies is replaced after this time.
const LEASE: Duration = Duration::from_secs(3);

fn election(client: &Client) -> Election {
    let options = LockOptions::default().with_lease_duration(LEASE);
    client.election_with("e", &options).expect("a good election")
}

/// The clock that all processes share.
fn now(clock: &SystemClock) -> u64 {
    clock.now().as_nanos()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_of_the_tests_below() {
    let Ok(url) = std::env::var(URL) else { return };
    let name = std::env::var(NAME).expect("set by the test");
    let mut file = File::create(std::env::var(FILE).expect("set by the test")).expect("a file");
    let clock = SystemClock::new(ClockKind::Boottime).expect("a clock");
    let client = Client::connect(&url).await.expect("connected");
    let election = election(&client);
    let (commands, mut resign) = watch::channel(());
    tokio::spawn(async move {
        while next_command().await.is_some() {
            commands.send_replace(());
        }
    });
    println!("ready");
    loop {
        // A candidate that is cut off gets an error, and tries again.
        let Ok(leadership) = election.campaign(name.as_str()).await else { continue };
        let term = leadership.term();
        println!("leads {term}");
        resign.mark_unchanged();
        loop {
            let before = now(&clock);
            let leads = leadership.is_valid();
            if leads {
                writeln!(file, "{term} {before} {}", now(&clock)).expect("written");
            }
            let asked = tokio::time::timeout(Duration::from_millis(2), resign.changed()).await;
            if asked.is_ok() || !leads {
                break;
            }
        }
        let _ = leadership.resign().await;
        println!("ended {term}");
    }
}

/// The times in which leaders of one term considered themselves that.
#[derive(Debug)]
struct Believed {
    term: u64,
    /// Before the first and the last look.
    first: u64,
    last: u64,
}

fn believed(file: &Path) -> Vec<Believed> {
    let text = std::fs::read_to_string(file).expect("the candidate wrote it");
    let mut terms: Vec<Believed> = Vec::new();
    for line in text.lines() {
        let mut numbers = line.split(' ').map_while(|number| number.parse::<u64>().ok());
        let look = (numbers.next(), numbers.next(), numbers.next());
        // The last line of a process that was killed may be a part.
        let (Some(term), Some(before), Some(after)) = look else { continue };
        match terms.last_mut() {
            Some(last) if last.term == term => last.last = before,
            _ => terms.push(Believed { term, first: after, last: before }),
        }
    }
    terms
}

/// At most one leader at a time, and a later one has a larger term.
fn judge(files: &[PathBuf], seen: &[u64]) {
    let mut terms: Vec<Believed> = files.iter().flat_map(|file| believed(file)).collect();
    terms.sort_by_key(|believed| believed.term);
    for pair in terms.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        assert!(one.term < next.term && one.last < next.first, "two leaders: {one:?}, {next:?}");
    }
    assert!(seen.is_sorted_by(|one, next| one < next), "observers see older terms: {seen:?}");
    // Twice as long as is promised, for a machine that stands still.
    let long = terms.iter().filter(|term| term.last - term.first > 2_000_000_000);
    for term in long {
        assert!(seen.contains(&term.term), "term {term:?} was not seen: {seen:?}");
    }
    assert!(terms.len() >= 4, "each fault has its leader: {terms:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_leads_whatever_happens_to_the_leaders() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let direct = url_of(server.address());
    let behind = hasty_url_of(proxy.address());
    let directory = std::env::temp_dir().join(format!("hl-election-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let files = ["one", "two", "three"].map(|name| directory.join(name));
    let start = |number: usize, url: &str| {
        let file = files[number].to_str().expect("UTF-8");
        let mut child = Process::start(CHILD, &[(URL, url), (FILE, file), (NAME, "candidate")]);
        child.says("ready");
        child
    };

    let watcher = client_at(server.address()).await;
    let (saw, mut seen) = watch::channel(Vec::<u64>::new());
    let watching = tokio::spawn(async move {
        let mut leaders = election(&watcher).observe();
        while let Some(leader) = leaders.next().await {
            let term = leader.expect("the server answers").term().get();
            saw.send_modify(|seen| seen.push(term));
        }
    });
    let mut observed = async |term: &str| {
        let term: u64 = term.parse().expect("a term");
        let seen = seen.wait_for(|seen| seen.contains(&term));
        soon("the observer sees it", seen).await.expect("it observes");
    };

    let mut one = start(0, &direct);
    let first = one.says("leads ");
    observed(&first).await;
    let mut two = start(1, &behind);
    queued(&server, "e", 1).await;
    let mut three = start(2, &direct);
    queued(&server, "e", 2).await;

    // Stopped past its lease, and continued while another leads.
    one.stop();
    let second = two.says("leads ");
    observed(&second).await;
    one.signal(Signal::CONT);
    assert_eq!(one.says("ended "), first, "it steps down when it resumes");
    queued(&server, "e", 2).await;

    // Cut off: it steps down by its own clock, and the next one leads.
    proxy.inject(Frames::requests(), Fault::Swallow);
    assert_eq!(two.says("ended "), second);
    let third = three.says("leads ");
    observed(&third).await;
    proxy.pass();
    queued(&server, "e", 2).await;

    // Killed.
    three.signal(Signal::KILL);
    let fourth = one.says("leads ");
    observed(&fourth).await;

    // Resigned: the next one leads, without the end of any lease.
    one.send("resign");
    assert_eq!(one.says("ended "), fourth);
    let fifth = two.says("leads ");
    observed(&fifth).await;
    watching.abort();
    drop((one, two, three));
    let seen = watching_seen(&seen);
    judge(&files, &seen);
    std::fs::remove_dir_all(&directory).expect("ours");
}

fn watching_seen(seen: &watch::Receiver<Vec<u64>>) -> Vec<u64> {
    seen.borrow().clone()
}
