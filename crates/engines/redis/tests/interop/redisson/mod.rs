//! The dialect of Redisson with Redisson itself, an old version and a new one: on one server, with
//! Sentinels and on a cluster, each object in both directions.
//!
//! All cases of a row share one Java process, and run in turn, each on names of its own.

mod fair;
mod faults;
mod history;
mod java;
mod locks;
mod redlock;
mod servers;
mod shared;
mod storms;
mod world;

use std::sync::Mutex;
use std::time::Duration;

use servers::Servers;
use world::World;

use crate::table::{self, Outcome, TableRow};

/// The time limit of a case.
const LIMIT: Duration = Duration::from_secs(150);
/// The major versions.
const VERSIONS: [&str; 2] = ["3", "4"];

/// What a row has shown beside its outcomes.
type Figures = String;

/// Runs cases in turn.
macro_rules! cases {
    ($world:ident: $($title:literal => $case:path),+ $(,)?) => {
        vec![$(($title, {
            let name = $world.name(stringify!($case));
            let done = tokio::time::timeout(LIMIT, $case(&$world, &name)).await;
            match done.unwrap_or_else(|_| Err(format!("not within {LIMIT:?}"))) {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Failed(why),
            }
        })),+]
    };
}

async fn objects(world: &World<'_>) -> Vec<(&'static str, Outcome)> {
    cases![
        world:
        "lock" => locks::both_ways,
        "fenced" => locks::fenced,
        "spin" => locks::spin,
        "no re-entry" => locks::once,
        "re-entry" => locks::re_entry,
        "our end" => locks::our_lease_ends,
        "its end" => locks::its_lease_ends,
        "renewals" => locks::renewals,
        "Java forces" => locks::java_forces_ours,
        "we revoke" => locks::we_revoke_java,
        "we revoke by id" => locks::we_revoke_java_by_its_id,
        "tokens" => locks::one_history_of_tokens,
        "given up" => locks::waiters_give_up,
        "foreign" => locks::another_kind_is_foreign,
        "readers" => shared::readers,
        "writers" => shared::writers,
        "readers end" => shared::readers_expire,
        "permits" => shared::permits,
        "permits end" => shared::permits_expire,
        "latch" => shared::latch,
        "several" => shared::several_names,
        "opposite" => shared::opposite_orders,
        "fair" => fair::in_order,
        "fair, end" => fair::expiry,
        "counting" => fair::counting,
    ]
}

async fn storms(world: &World<'_>) -> Vec<(&'static str, Outcome)> {
    cases![
        world:
        "8 + 8" => storms::locks,
        "8 + 8 fenced" => storms::fenced,
        "8 + 8 fair" => storms::fair,
        "6 + 6 rw" => storms::readers_and_writers,
        "8 + 8 permits" => storms::permits,
    ]
}

/// Runs the cases of one row.
fn row(
    servers: &Servers,
    major: &str,
    cases: &impl AsyncFn(&World<'_>) -> Vec<(&'static str, Outcome)>,
) -> (TableRow, Figures) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match World::open(servers, major).await {
            Ok(world) => {
                let outcomes = cases(&world).await;
                (TableRow { title: world.title(), outcomes }, world.figures())
            }
            Err(why) => {
                let title = format!("Redisson {major}, {}", servers.title());
                let outcomes = vec![("start", Outcome::Failed(why))];
                (TableRow { title, outcomes }, Figures::new())
            }
        }
    })
}

/// Runs the cases for both versions on all servers, at once, and prints the table and the figures.
fn run(
    title: &str,
    cases: impl AsyncFn(&World<'_>) -> Vec<(&'static str, Outcome)> + Copy + Send + Sync,
) {
    let all = std::thread::scope(|scope| {
        [Servers::single, Servers::sentinels, Servers::cluster]
            .map(|start| scope.spawn(start))
            .map(|started| started.join().expect("the servers start"))
    });
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, servers) in all.iter().enumerate() {
            for major in VERSIONS {
                let done = &done;
                scope.spawn(move || {
                    let line = row(servers, major, &cases);
                    done.lock().expect("no panic holds it").push((at, major, line));
                });
            }
        }
    });
    let mut done = done.into_inner().expect("no panic held it");
    done.sort_by_key(|(at, major, _)| (*at, *major));
    let (lines, figures): (Vec<_>, Vec<_>) = done.into_iter().map(|(_, _, line)| line).unzip();
    print!("{}", figures.concat());
    table::conclude(title, &lines);
}

#[test]
fn every_object_both_ways() {
    run("redisson", async |world: &World<'_>| objects(world).await);
}

#[test]
fn contenders_of_both_sides_never_overlap() {
    run("redisson, storms", async |world: &World<'_>| storms(world).await);
}
