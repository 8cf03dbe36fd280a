//! What the pages cost the store.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use holdline_services::{RedisConfig, RedisServer};

use crate::ground::Ground;

const MANY: usize = 50;

/// How many commands the server has carried out that no observer of a test sends.
fn calls(server: &RedisServer) -> u64 {
    let stats = server.raw().send(&["INFO", "commandstats"]).expect("the server answers");
    let stats = stats.text().expect("a text");
    let ours = ["info", "auth", "hello", "client", "ping"];
    let lines = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
    let lines = lines.filter_map(|line| line.split_once(":calls="));
    let lines = lines.filter(|(name, _)| !ours.iter().any(|one| name.starts_with(one)));
    lines.filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok()).sum()
}

/// Lets so many viewers load pages and follow the stream for a few rounds. Returns how many
/// commands the store had, and in how many rounds.
async fn cost(ground: &Ground, server: &RedisServer, viewers: usize) -> (u64, u64) {
    let (before, mut rounds) = (calls(server), BTreeSet::new());
    while rounds.len() < 4 {
        let views = (0..viewers).map(async |_| {
            for page in ["/dashboard", "/dashboard/locks", "/dashboard/timeline"] {
                assert_eq!(ground.get(page).await.status, 200);
            }
            ground.follow("/dashboard/live", "event: changed\ndata: ").await
        });
        for text in join_all(views).await {
            let number = text.rsplit("data: ").next().and_then(|rest| rest.lines().next());
            rounds.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
    }
    let (first, last) = (rounds.first().expect("one"), rounds.last().expect("one"));
    // Rounds that have begun before the first and after the last one may count too.
    (calls(server) - before, last - first + 2)
}

#[tokio::test]
async fn many_viewers_cost_the_store_no_more_than_one() {
    let server = RedisServer::start(RedisConfig::default());
    let ground = Ground::of_urls(&[("default", &server.url())], "").await;
    let guard = ground.client.mutex("job").expect("a name").lock().await.expect("free");
    ground.until("/dashboard/locks", "job").await;
    let (one, rounds) = cost(&ground, &server, 1).await;
    let a_round = one.div_ceil(rounds - 1);
    let (many, rounds) = cost(&ground, &server, MANY).await;
    // The keeper of the lock renews it meanwhile.
    assert!(many <= 2 * a_round * rounds, "{many} commands in {rounds} rounds of {a_round}");
    let _ = guard.release().await;
}
