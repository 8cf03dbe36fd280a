//! Holders and contenders that are stopped, killed, copied by `fork` and dropped.

use std::time::Duration;

use futures_util::FutureExt;
use holdline::fence::{Fenced, FencedCell, Proof};
use holdline::{Client, FencingToken, LockOptions, LostReason, Mode, ReleaseOutcome};
use holdline_services::{Fault, FaultProxy, Frames, PrivateNetwork, cut};
use rustix::process::Signal;

use super::ground::{MINUTE, Nodes, client_of, url};
use crate::children::{Process, next_command};
use crate::copies::in_a_copy;
use crate::support::{LONG, behind, lease, let_go, patient, renewed, soon, take, try_take, until};

const URL: &str = "HOLDLINE_TEST_QUORUM_URL";
const LEASE_MS: &str = "HOLDLINE_TEST_QUORUM_LEASE_MS";

/// The process that the tests stop; does nothing when run by itself. It takes the name, and
/// prints what it believes whenever it is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let millis = std::env::var(LEASE_MS).expect("set by the test").parse().expect("a number");
    let client = Client::connect(&url).await.expect("connected");
    let options = LockOptions::default().with_lease_duration(Duration::from_millis(millis));
    // From here on it knows its nodes.
    let first = client.mutex_with("first", &options).expect("a good lock");
    let _ = first.lock().await.expect("free").release().await;
    let mutex = client.mutex_with("a", &options).expect("a good lock");
    println!("\nasks");
    let guard = match mutex.try_lock().await {
        Ok(guard) => guard,
        Err(error) => return println!("not held: {error}"),
    };
    println!("holds {}", guard.fencing_token());
    while next_command().await.as_deref() == Some("valid") {
        println!("believes {}", guard.is_valid());
    }
    println!("released {}", guard.release().await.is_released());
}

struct Holder(Process);

impl Holder {
    fn start(url: &str, lease_ms: u64) -> Holder {
        let variables = [(URL, url), (LEASE_MS, &lease_ms.to_string())];
        Holder(Process::start("quorum::processes::one_holder", &variables))
    }

    fn token(&mut self) -> FencingToken {
        let number = self.0.says("holds ").parse().expect("a number");
        FencingToken::new(number).expect("a token")
    }

    fn believes(&mut self) -> bool {
        self.0.send("valid");
        self.0.says("believes ") == "true"
    }

    fn releases(&mut self) -> bool {
        self.0.send("release");
        self.0.says("released ") == "true"
    }
}

/// Kleppmann's first case: a holder is stopped past its lease, another holds and writes, and the
/// first wakes up and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_stopped_past_its_lease_has_lost_and_the_resource_refuses_it() {
    let nodes = Nodes::start(5, MINUTE).await;
    let client = nodes.client().await;
    let mut holder = Holder::start(&nodes.url(), 4_000);
    let mine = holder.token();
    holder.0.stop();
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > mine);
    let late = Proof::try_from((Mode::Exclusive, mine)).expect("exclusive");
    let resource = FencedCell::new(0);
    let put = |number| {
        resource.check_and_write(&late, |value| {
            *value = number;
            Ok(())
        })
    };
    put(1).expect("while nobody else has come");
    resource.seal(&Proof::exclusive_of(&next).expect("exclusive")).expect("newer");
    holder.0.signal(Signal::CONT);
    assert!(put(2).is_err(), "too late");
    assert_eq!(resource.into_inner(), 1);
    assert!(!holder.believes(), "by its own clock, at once");
    assert!(!holder.releases(), "there is nothing of its own to release");
    nodes.held_on(&next, 5).await;
    renewed(&next).await;
    let_go(next).await;
    nodes.clean(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_stopped_shorter_than_its_lease_keeps_it() {
    let nodes = Nodes::start(5, MINUTE).await;
    let client = nodes.client().await;
    let mut holder = Holder::start(&nodes.url(), 20_000);
    let token = holder.token();
    let left = || behind(&nodes.0[0], "PTTL holdline:{a}").integer();
    until("held there", || left() > Some(0)).await;
    holder.0.stop();
    until("renewals are missing", || left() < Some(12_000)).await;
    holder.0.signal(Signal::CONT);
    until("it is renewed again", || left() > Some(15_000)).await;
    let shown = client.admin().inspect(&holdline::LockName::new("a").expect("a good name")).await;
    let shown = shown.expect("an answer");
    assert_eq!(shown.holders[0].summary.token, Some(token));
    assert!(holder.believes());
    assert!(holder.releases());
    nodes.clean(&[&client]).await;
}

/// It is looked at now and then, by a request that is not to prolong it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_without_renewals_is_valid_until_it_ends() {
    let nodes = Nodes::start(5, MINUTE).await;
    let client = nodes.client().await;
    let fixed = lease(6_000).with_keep(holdline::Keep::Fixed);
    let guard = take(&client, "a", &fixed).await;
    assert_eq!(soon("its end", guard.lost()).await, LostReason::RanOut);
    drop(guard);
    // And it is notified of a loss before its end.
    let guard = take(&client, "a", &lease(30_000).with_keep(holdline::Keep::Fixed)).await;
    for server in &nodes.0 {
        behind(server, "DEL holdline:{a}");
    }
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Missing);
    drop(guard);
    nodes.clean(&[&client]).await;
}

/// Stopped between its requests and the answers, which wait in the kernel: no grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contender_stopped_until_its_grants_have_run_out_holds_nothing() {
    let nodes = Nodes::start(5, MINUTE).await;
    let client = nodes.client().await;
    // Scripts are known by name from here on.
    let_go(take(&client, "a", &patient()).await).await;
    let proxies = nodes.proxies();
    for proxy in &proxies {
        proxy.inject(Frames::replies().containing("holdline:{a}").nth(1), Fault::Hold);
    }
    let addresses: Vec<_> = proxies.iter().map(FaultProxy::address).collect();
    let url = url(&addresses).replace("command_timeout_ms=4000", "command_timeout_ms=60000");
    let mut late = Holder::start(&url, 12_000);
    late.0.says("asks");
    // Of those that it knew when it asked: a majority at least.
    let held = |proxy: &&FaultProxy| proxy.events().iter().any(|event| event.fault.is_some());
    until("they have granted", || proxies.iter().filter(held).count() >= 3).await;
    late.0.stop();
    proxies.iter().for_each(FaultProxy::thaw);
    let next = take(&client, "a", &patient()).await;
    late.0.signal(Signal::CONT);
    late.0.says("not held: ");
    renewed(&next).await;
    assert!(next.is_valid());
    let_go(next).await;
    nodes.clean(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_frees_the_name_at_the_end_of_its_lease() {
    let nodes = Nodes::start(5, MINUTE).await;
    let client = nodes.client().await;
    let mut holder = Holder::start(&nodes.url(), 4_000);
    let token = holder.token();
    holder.0.signal(Signal::KILL);
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > token);
    let_go(next).await;
    nodes.clean(&[&client]).await;
}

/// On one thread, where no answer can come while a poll runs.
#[tokio::test]
async fn an_attempt_and_a_release_can_be_dropped_at_every_await() {
    let nodes = Nodes::start(3, MINUTE).await;
    let client = nodes.client().await;
    let first = take(&client, "a", &patient()).await;
    nodes.held_on(&first, 3).await;
    let_go(first).await;
    let mutex = client.mutex_with("a", &patient()).expect("a good lock");
    let mut cuts = 0;
    for polls in 0.. {
        let done = cut(polls, mutex.lock()).await.map(drop).is_some();
        nodes.nothing_is_left().await;
        if done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 2, "there were awaits to cut at: {cuts}");
    for polls in 0.. {
        let guard = take(&client, "a", &patient()).await;
        let done = cut(polls, guard.release()).await.is_some();
        nodes.nothing_is_left().await;
        if done {
            break;
        }
    }
    nodes.clean(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releasing_a_foreign_lease_changes_nothing() {
    let nodes = Nodes::start(5, MINUTE).await;
    let (holder, other) = (nodes.client().await, nodes.client().await);
    let name = holdline::LockName::new("a").expect("a good name");
    let missing = ReleaseOutcome::Lost { reason: LostReason::Missing };
    let release = async |client: &Client, id| {
        let outcome = client.leases().release_by_id(&name, id).await;
        outcome.expect("an answer")
    };
    let guard = take(&holder, "a", &patient()).await;
    nodes.held_on(&guard, 5).await;
    assert_eq!(release(&other, other.leases().draw_id()).await, missing);
    assert_eq!(nodes.with(&guard), 5);
    let id = guard.lease_id();
    let_go(guard).await;
    assert_eq!(release(&holder, id).await, missing);
    let late = take(&holder, "a", &lease(1_000).with_keep(holdline::Keep::Fixed)).await;
    let next = take(&other, "a", &patient().with_wait(LONG)).await;
    let outcome = soon("a release", late.release()).await;
    assert_eq!(outcome, ReleaseOutcome::Lost { reason: LostReason::RanOut });
    nodes.held_on(&next, 5).await;
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

/// In a process of its own: other tests' threads would be missing in the copy.
#[test]
fn a_copy_of_the_process_costs_its_parent_nothing() {
    let name = "quorum::processes::a_copy_of_the_process_costs_its_parent_nothing";
    let Some(_network) = PrivateNetwork::enter(name) else { return };
    let builder = || tokio::runtime::Builder::new_multi_thread();
    let runtime = builder().worker_threads(2).enable_all().build().expect("a runtime");
    let nodes = runtime.block_on(Nodes::start(3, MINUTE));
    let addresses = nodes.addresses();
    let client = runtime.block_on(nodes.client());
    let held = async || {
        let (one, other) =
            (take(&client, "a", &patient()).await, take(&client, "b", &patient()).await);
        nodes.held_on(&one, 3).await;
        nodes.held_on(&other, 3).await;
        (one, other)
    };
    let mut mine = Some(runtime.block_on(held()));
    let written = in_a_copy(|| {
        let (released, dropped) = mine.take().expect("there");
        let outcome = released.release().now_or_never();
        drop(dropped);
        let alone = tokio::runtime::Builder::new_current_thread().enable_all().build();
        alone.expect("a runtime").block_on(async {
            let own = client_of(&addresses).await;
            let busy = try_take(&own, "a", &patient()).await.expect_err("its parent holds it");
            let_go(take(&own, "c", &patient()).await).await;
            format!("{outcome:?}; {:?}", busy.kind())
        })
    });
    assert!(written.contains("confirmed: false") && written.contains("Busy"), "{written}");
    let (one, other) = mine.take().expect("the copy took its own");
    runtime.block_on(async {
        renewed(&one).await;
        renewed(&other).await;
        assert_eq!((nodes.with(&one), nodes.with(&other)), (3, 3));
        let_go(one).await;
        let_go(other).await;
        nodes.clean(&[&client]).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}
