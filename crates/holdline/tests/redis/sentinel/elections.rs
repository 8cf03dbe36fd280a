//! Elections over a failover.

use holdline::Client;

use super::ground::{Group, patient};
use crate::support::{Referee, queued, renewed, soon, unspoilt};

fn election(client: &Client) -> holdline::Election {
    client.election_with("e", &patient()).expect("a good election")
}

/// The leader that the new master knows goes on leading, observers see no older term, and a
/// candidate that waited leads after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_leads_on_over_a_failover_and_hands_on_to_who_waited() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        let clients = [group.client("").await, group.client("").await, group.client("").await];
        let [one, two, watcher] = clients.each_ref().map(election);
        let referee = Referee::default();
        let first = soon("a leader", one.campaign("one")).await.expect("nobody leads");
        referee.granted(first.guard());
        let mut leaders = watcher.observe();
        let mut next = async || {
            let leader = soon("a leader is seen", leaders.next()).await.expect("it goes on");
            leader.expect("what passes is waited out")
        };
        assert_eq!(next().await.term(), first.term());
        let waiter = tokio::spawn(async move { two.campaign("two").await });
        queued(group.server(0), "e", 1).await;
        group.0.await_replicated();
        group.server(0).kill();
        group.0.await_promotion(0);
        if !first.is_valid() {
            return false;
        }
        renewed(first.guard()).await;
        let outcome = soon("it resigns", first.resign()).await;
        assert!(!outcome.is_lost(), "{outcome:?}");
        let second = soon("the next", waiter).await.expect("no panic").expect("it leads");
        referee.granted(second.guard());
        let leader = next().await;
        assert_eq!((leader.term(), leader.value()), (second.term(), "two"));
        let _ = soon("it resigns", second.resign()).await;
        true
    })
    .await;
}
