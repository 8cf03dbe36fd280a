//! Messages that are lost, held up, cut in pieces or replaced by rubbish.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream;
use holdline::{Certainty, Client, Guard, LockOptions};
use holdline_services::{Event, Fault, FaultProxy, Frames, RedisServer, Traffic};

use crate::support::{
    LONG, Referee, clean, client, hasty_url_of, leftovers, patient, queued, server, soon, take,
    unspoilt, until, url_of,
};

/// How many cases run at the same time.
const BESIDE: usize = 6;
/// The fewest requests of a run: two of acquire, two of renew, two of release.
const LEAST: usize = 6;

/// What happens to one message of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is lost, and its connection with it.
    Lost,
    /// It and all behind it are held up until its sender has lost patience, and come late.
    Late,
    /// It alone is lost, and the connection goes on, as no network would do it.
    Swallowed,
}

/// Two contenders for a name, each with a client of its own behind one proxy.
struct Run {
    server: Arc<RedisServer>,
    proxy: FaultProxy,
    name: String,
    clients: [Client; 2],
    referee: Referee,
    fate: Option<Fate>,
}

impl Run {
    async fn new(server: &Arc<RedisServer>, name: String, fate: Option<Fate>) -> Run {
        let proxy = FaultProxy::start(server.address());
        let url = match fate {
            // Behind a message that is swallowed all answers are out of step until that is noticed.
            Some(Fate::Swallowed) => hasty_url_of(proxy.address()),
            _ => url_of(proxy.address()),
        };
        let clients = [client(&url).await, client(&url).await];
        Run { server: server.clone(), proxy, name, clients, referee: Referee::default(), fate }
    }

    /// The key of the name, which stands in every request about it.
    fn key(&self) -> String {
        format!("holdline:{{{}}}", self.name)
    }

    /// Takes the name. Who was answered out of step asks once more.
    async fn take(&self, place: usize, options: &LockOptions) -> Guard {
        let client = &self.clients[place];
        if self.fate != Some(Fate::Swallowed) {
            return take(client, &self.name, options).await;
        }
        let mutex = client.mutex_with(&self.name, options).expect("a good lock");
        for _ in 0..3 {
            match soon("the lock", mutex.lock()).await {
                Ok(guard) => return guard,
                Err(error) => assert_ne!(error.certainty(), Certainty::Applied, "{error:?}"),
            }
        }
        panic!("one message cost three attempts");
    }

    /// Waits, holds until the lease was renewed, releases.
    async fn contend(&self, place: usize, options: &LockOptions) {
        let guard = self.take(place, options).await;
        self.referee.granted(&guard);
        let first = guard.valid_until();
        until("a renewal", || guard.valid_until() > first || !guard.is_valid()).await;
        assert!(guard.is_valid(), "one message cost a lease");
        let outcome = soon("a release", guard.release()).await;
        assert!(!outcome.is_lost(), "one message cost a lock: {outcome:?}");
    }

    /// The first takes the name, the second queues behind it; both hold it and release.
    async fn go(&self) {
        let options = patient();
        let first = async {
            let guard = self.take(0, &options).await;
            self.referee.granted(&guard);
            let begun = guard.valid_until();
            queued(&self.server, &self.name, 1).await;
            until("a renewal", || guard.valid_until() > begun).await;
            let outcome = soon("a release", guard.release()).await;
            assert!(!outcome.is_lost(), "one message cost a lock: {outcome:?}");
        };
        let second = async {
            let key = self.key();
            until("the first holds", || {
                let held = self.server.raw().send(&["EXISTS", &key]).expect("an answer");
                held.integer() == Some(1)
            })
            .await;
            self.contend(1, &options).await;
        };
        futures_util::future::join(first, second).await;
        assert_eq!(self.referee.grants(), 2);
    }

    /// The requests about the name, as the scripts that they call.
    fn scripts(&self) -> Vec<String> {
        let key = self.key();
        let seen = self.proxy.events();
        let about = seen.iter().filter(|event| event.is_frame(Traffic::Requests, &key));
        about.map(|event| script_of(&event.bytes)).collect()
    }
}

/// The third line of a request `EVALSHA …` and the two after it: the script's name.
fn script_of(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    text.lines().nth(4).unwrap_or_default().chars().take(8).collect()
}

fn frames(traffic: Traffic, key: &str, k: usize) -> Frames {
    let all = match traffic {
        Traffic::Requests => Frames::requests(),
        Traffic::Replies => Frames::replies(),
        Traffic::Pushes => Frames::pushes(),
    };
    all.containing(key).nth(k as u64)
}

/// One run in which one message meets its fate; returns which script it belonged to, if the run
/// had this many messages.
async fn with_fate(
    server: &Arc<RedisServer>,
    traffic: Traffic,
    k: usize,
    fate: Fate,
) -> Option<String> {
    println!("{fate:?}: {k} of {traffic:?}");
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let run = Run::new(server, format!("{fate:?}-{traffic:?}-{k}-{number}"), Some(fate)).await;
    let fault = match fate {
        Fate::Lost => Fault::SwallowThenReset,
        Fate::Late => Fault::Hold,
        Fate::Swallowed => Fault::Swallow,
    };
    run.proxy.inject(frames(traffic, &run.key(), k), fault);
    let late = async {
        let hit = |run: &Run| run.proxy.events().into_iter().find(|event| event.fault.is_some());
        until("it was held", || hit(&run).is_some()).await;
        let on = hit(&run).expect("just seen").connection;
        // A client that lost patience sends a ping behind the request that hangs.
        let is_ping =
            |event: &Event| event.connection == on && event.is_frame(Traffic::Requests, "PING");
        until("a ping", || run.proxy.events().iter().any(is_ping)).await;
        run.proxy.thaw();
        std::future::pending::<()>().await;
    };
    if fate == Fate::Late {
        tokio::select! {
            () = run.go() => {}
            () = late => {}
        }
    } else {
        run.go().await;
    }
    run.proxy.thaw();
    for client in &run.clients {
        let report = client.shutdown(LONG).await;
        assert!(report.is_clean(), "{fate:?} {k} of {traffic:?}: {report:?}");
    }
    let key = run.key();
    until("nothing is left of the name", || {
        !leftovers(server).iter().any(|left| left.starts_with(&key))
    })
    .await;
    let hit = run.proxy.events().iter().any(|event| event.fault.is_some());
    hit.then(|| run.scripts().into_iter().nth(k - 1)).flatten()
}

/// Every request and every reply of acquire, hand-off, renew and release, one at a time.
async fn each_message(fate: Fate) {
    let server = Arc::new(server());
    let first = Run::new(&server, "first".into(), None).await;
    let good = Run::new(&server, "good".into(), None).await;
    // The server learns the scripts, and from then on knows them by name.
    first.go().await;
    good.go().await;
    let scripts = good.scripts();
    let all: BTreeSet<String> = scripts.iter().cloned().collect();
    assert!(all.len() >= 3, "acquire, renew, release: {scripts:?}");
    let (server, verbs) = (&server, &mut BTreeSet::new());
    // A run may have a heartbeat or a renewal more or less, so that a place is now of one verb and
    // now of another.
    unspoilt("every verb is hit", async || {
        let cases = [Traffic::Requests, Traffic::Replies]
            .into_iter()
            .flat_map(|traffic| (1..=LEAST + 4).map(move |k| (traffic, k)));
        let runs = stream::iter(cases)
            .map(|(traffic, k)| with_fate(server, traffic, k, fate))
            .buffer_unordered(BESIDE);
        let hit: Vec<String> = runs.filter_map(std::future::ready).collect().await;
        assert!(hit.len() >= 2 * LEAST, "{} were hit", hit.len());
        verbs.extend(hit);
        verbs.is_superset(&all)
    })
    .await;
    clean(server, &first.clients.iter().chain(&good.clients).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_can_be_lost_with_its_connection() {
    each_message(Fate::Lost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_can_come_late() {
    each_message(Fate::Late).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_can_be_swallowed_alone() {
    each_message(Fate::Swallowed).await;
}
