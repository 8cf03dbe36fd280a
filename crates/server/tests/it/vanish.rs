//! Random clients that vanish at every step, on two servers and one Redis. Afterwards there is no
//! lock that nobody knows, and no client has lost a lock that it had been answered.
//!
//! `HOLDLINE_VANISH_SECONDS` sets for how long, `HOLDLINE_VANISH_SEED` repeats the draws.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::ground::{Connection, DEADLINE, Ground, Response, request};

const CLIENTS: u64 = 40;
const NAMES: u64 = 400;
const DAY: u64 = 86_400_000;
const SECONDS: u64 = 5;

/// Draws numbers: the same seed gives the same ones.
struct Draw(u64);

impl Draw {
    /// A number below this one.
    fn below(&mut self, limit: u64) -> u64 {
        // The constants of Knuth's MMIX.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn id(&mut self) -> String {
        (0..4).map(|_| format!("{:08x}", self.below(1 << 31))).collect()
    }

    /// A pause that is as likely to be very short as rather long.
    async fn pause(&mut self) {
        let most = [1, 300, 3_000, 60_000, 400_000][usize::try_from(self.below(5)).expect("small")];
        sleep(Duration::from_micros(self.below(most))).await; // event: clients are that slow
    }
}

/// What all clients know together.
#[derive(Default)]
struct Known {
    /// The first digits of the leases that a client has read, or asked for by a key.
    leases: BTreeSet<String>,
    /// The servers and ids of sessions that are not closed.
    sessions: BTreeSet<(usize, String)>,
    answered: u64,
    left_unread: u64,
    faults: Vec<String>,
}

struct World {
    grounds: [Ground; 2],
    known: Mutex<Known>,
}

impl World {
    fn know(&self, work: impl FnOnce(&mut Known)) {
        work(&mut self.known.lock().expect("no panic"));
    }
}

/// Closes a connection, now and then with a reset.
fn vanish(connection: Connection, draw: &mut Draw) {
    if draw.below(3) == 0 {
        connection.reset_on_drop();
    }
    drop(connection);
}

/// Sends a request, and reads the answer; vanishes at any step.
async fn ask(
    ground: &Ground,
    draw: &mut Draw,
    (method, path, headers, body): (&str, &str, &str, &str),
) -> Option<Response> {
    let bytes = request(method, path, headers, body);
    let mut connection = ground.open().await;
    match draw.below(10) {
        // In the middle of the request.
        0 => {
            let length = draw.below(bytes.len() as u64);
            connection.send(&bytes[..usize::try_from(length).expect("small")]).await;
            draw.pause().await;
            vanish(connection, draw);
            return None;
        }
        // While it waits, or while the answer is on its way.
        1..=4 => {
            connection.send(&bytes).await;
            if draw.below(2) == 0 {
                connection.send(request("GET", "/healthz", "", "")).await;
            }
            draw.pause().await;
            vanish(connection, draw);
            return None;
        }
        _ => connection.send(&bytes).await,
    }
    let response = connection.response().await;
    if draw.below(3) == 0 {
        vanish(connection, draw);
    }
    Some(response)
}

/// One client: a session or none, a lock, and a proper end or none.
async fn live(world: &World, draw: &mut Draw) {
    let server = usize::try_from(draw.below(2)).expect("small");
    let ground = &world.grounds[server];
    let mut session = None;
    if draw.below(3) == 0 {
        let body = json!({ "duration_ms": DAY }).to_string();
        let opened = ask(ground, draw, ("POST", "/v1/sessions", "", &body)).await;
        let Some(opened) = opened else { return };
        let id = opened.text("session");
        world.know(|known| {
            known.sessions.insert((server, id.clone()));
        });
        session = Some(id);
    }
    let name = format!("n{}", draw.below(NAMES));
    let path = format!("/v1/locks/{name}");
    let key = (draw.below(3) == 0).then(|| draw.id());
    let headers = key.as_ref().map(|key| format!("Idempotency-Key: {key}\r\n"));
    let mut body = json!({ "wait_ms": draw.below(2) * draw.below(3_000) });
    match &session {
        Some(id) => body["session"] = json!(id),
        None => body["lease_duration_ms"] = json!([30_000, DAY][usize::from(draw.below(2) == 0)]),
    }
    if let Some(key) = &key {
        world.know(|known| {
            known.leases.insert(key[..8].to_owned());
        });
    }
    let closing = session.clone().filter(|_| draw.below(3) == 0);
    let body = body.to_string();
    let acquire = ("POST", path.as_str(), headers.as_deref().unwrap_or_default(), body.as_str());
    let acquired = match closing {
        // The session is closed while the request is on its way.
        Some(id) => {
            let mut other = Draw(draw.below(u64::MAX >> 33));
            let (acquired, ()) = tokio::join!(ask(ground, draw, acquire), async {
                other.pause().await;
                close(world, server, &id).await;
            });
            session = None;
            acquired
        }
        None => ask(ground, draw, acquire).await,
    };
    let Some(lease) = acquired.filter(|response| response.status == 200) else {
        world.know(|known| known.left_unread += 1);
        if let Some(id) = session
            && draw.below(2) == 0
        {
            close(world, server, &id).await;
        }
        return;
    };
    let read = Instant::now();
    let (lease_id, json) = (lease.text("lease_id"), lease.json());
    world.know(|known| {
        known.answered += 1;
        known.leases.insert(lease_id[..8].to_owned());
    });
    draw.pause().await;
    end(world, server, draw, Held { name, lease_id, json, read, session }).await;
}

struct Held {
    name: String,
    lease_id: String,
    json: Value,
    read: Instant,
    session: Option<String>,
}

/// A client ends well, as most do: the names would be taken for a day otherwise.
async fn end(world: &World, server: usize, draw: &mut Draw, held: Held) {
    if let Some(id) = held.session {
        close(world, server, &id).await;
        return;
    }
    // Through either server.
    let ground = &world.grounds[usize::try_from(draw.below(2)).expect("small")];
    let path = format!("/v1/locks/{}/leases/{}", held.name, held.lease_id);
    let response = ground.ask("DELETE", &path, "").await;
    let valid = Duration::from_millis(held.json["valid_for_ms"].as_u64().expect("a number"));
    let is_ours = held.json["session"].is_null();
    if response.status != 200 && is_ours && held.read.elapsed() < valid {
        world.know(|known| known.faults.push(format!("lost: {} {response:?}", held.json)));
    }
}

async fn close(world: &World, server: usize, id: &str) {
    let ground = &world.grounds[server];
    let closed = ground.ask("DELETE", &format!("/v1/sessions/{id}"), "").await;
    assert_eq!(closed.status, 204, "{closed:?}");
    world.know(|known| {
        known.sessions.remove(&(server, id.to_owned()));
    });
}

/// The first digits of the leases that the store has, with the time that is left to each.
async fn held(ground: &Ground) -> Vec<(String, u64)> {
    let list = ground.ask("GET", "/v1/locks", "").await.json();
    let mut held = Vec::new();
    for lock in list["locks"].as_array().expect("a list") {
        for holder in lock["holders"].as_array().expect("a list") {
            let id = holder["lease_id"].as_str().expect("digits").to_owned();
            held.push((id, holder["left_ms"].as_u64().unwrap_or(u64::MAX)));
        }
    }
    held
}

/// What clients find by their sessions.
async fn listed(world: &World) -> BTreeSet<String> {
    let sessions = world.known.lock().expect("no panic").sessions.clone();
    let mut leases = BTreeSet::new();
    for (server, id) in sessions {
        let path = format!("/v1/sessions/{id}/heartbeat");
        let beat = world.grounds[server].ask("POST", &path, "").await.json();
        for lease in beat["leases"].as_array().expect("a list") {
            leases.insert(lease["lease_id"].as_str().expect("an id")[..8].to_owned());
        }
    }
    leases
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_vanish_at_every_step_leave_no_lock_that_nobody_knows() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("HOLDLINE_VANISH_SECONDS").unwrap_or(SECONDS);
    let seed = number("HOLDLINE_VANISH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("HOLDLINE_VANISH_SEED={seed}");
    let server = RedisServer::start(RedisConfig::default());
    let store = async || Client::connect(&server.url()).await.expect("connects");
    let grounds = [Ground::on(store().await, "").await, Ground::on(store().await, "").await];
    let world = Arc::new(World { grounds, known: Mutex::default() });
    let until = Instant::now() + Duration::from_secs(seconds);
    let clients = (0..CLIENTS).map(|client| {
        let world = world.clone();
        tokio::spawn(async move {
            let mut draw = Draw(seed.wrapping_mul(CLIENTS).wrapping_add(client));
            while Instant::now() < until {
                live(&world, &mut draw).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }
    let mut unknown = Vec::new();
    let settled = async {
        loop {
            // The store first: what a session lists later is no excuse.
            let held = held(&world.grounds[0]).await;
            let listed = listed(&world).await;
            let known = world.known.lock().expect("no panic").leases.clone();
            unknown = held;
            unknown.retain(|(id, _)| !known.contains(id) && !listed.contains(id));
            assert!(unknown.iter().all(|(_, left)| *left <= 30_000), "long: {unknown:?}");
            if unknown.is_empty() {
                return;
            }
            sleep(Duration::from_millis(200)).await; // event: can only be looked at
        }
    };
    let settled = timeout(DEADLINE, settled).await;
    assert!(settled.is_ok(), "nobody knows: {unknown:?}");
    let held = held(&world.grounds[0]).await.len();
    let known = world.known.lock().expect("no panic");
    println!("{} answered, {} left unread, {held} still held", known.answered, known.left_unread);
    assert!(known.answered > 0 && known.left_unread > 0);
    assert!(known.faults.is_empty(), "{:?}", known.faults);
}
