//! Random clients that vanish at every step, on two servers and one Redis. One of the servers is a
//! process that is killed and started again. Afterwards there is no lock that nobody knows, and no
//! client has lost a lock that it had been answered.
//!
//! `HOLDLINE_VANISH_SECONDS` sets for how long, `HOLDLINE_VANISH_SEED` repeats the draws.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
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
/// How long the killed server runs at most, in milliseconds.
const RUN: u64 = 4_000;
/// The store of the process that serves.
const STORE: &str = "HOLDLINE_VANISH_STORE";
const SAYS: &str = "serves at ";
/// All clients are one to the server, and many leave sessions of a day behind.
const LIMITS: &str = "[server.limits]\nsessions_per_client = 100000\n";

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
    /// The runs of servers and the ids of sessions that are not closed.
    sessions: BTreeSet<(Run, String)>,
    answered: u64,
    together: u64,
    left_unread: u64,
    /// Answers of the server that is killed.
    of_killed: u64,
    kills: u64,
    faults: Vec<String>,
}

/// A server from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    address: SocketAddr,
    /// It may be killed at any moment.
    is_mortal: bool,
}

/// A server that is a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(store: &str) -> Process {
        let this_test = std::env::current_exe().expect("this test");
        let mut command = Command::new(this_test);
        command.args(["--exact", "vanish::a_process_that_serves", "--nocapture"]);
        command.env(STORE, store).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = output.lines().find_map(|line| {
            let line = line.expect("text");
            line.split_once(SAYS).map(|(_, address)| address.parse().expect("an address"))
        });
        Process { child, address: said.expect("it serves") }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct World {
    /// Lives as long as the world.
    ground: Ground,
    process: Mutex<Process>,
    known: Mutex<Known>,
}

impl World {
    fn know(&self, work: impl FnOnce(&mut Known)) {
        work(&mut self.known.lock().expect("no panic"));
    }

    fn immortal(&self) -> Run {
        Run { address: self.ground.address, is_mortal: false }
    }

    fn mortal(&self) -> Run {
        let process = self.process.lock().expect("no panic");
        Run { address: process.address, is_mortal: true }
    }

    /// One of the two servers.
    fn draw(&self, draw: &mut Draw) -> Run {
        if draw.below(2) == 0 { self.immortal() } else { self.mortal() }
    }

    /// Sends a request, and reads the answer; `None` if the server was killed before.
    async fn ask(&self, server: Run, method: &str, path: &str, body: &str) -> Option<Response> {
        let answer = async {
            let mut connection = Connection::try_open(server.address).await?;
            connection.try_send(request(method, path, "", body)).await;
            connection.try_response().await
        };
        let answer = answer.await;
        assert!(answer.is_some() || server.is_mortal, "no answer: {method} {path}");
        answer
    }

    /// Kills the mortal server again and again.
    async fn kill(&self, store: &str, draw: &mut Draw, until: Instant) {
        while Instant::now() < until {
            let lives = Duration::from_millis(RUN / 4 + draw.below(RUN * 3 / 4));
            sleep(lives).await; // event: a server runs for a while
            self.process.lock().expect("no panic").kill();
            let store = store.to_owned();
            let next = tokio::task::spawn_blocking(move || Process::start(&store));
            *self.process.lock().expect("no panic") = next.await.expect("no panic");
            self.know(|known| known.kills += 1);
        }
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
    server: Run,
    draw: &mut Draw,
    (method, path, headers, body): (&str, &str, &str, &str),
) -> Option<Response> {
    let bytes = request(method, path, headers, body);
    let connection = Connection::try_open(server.address).await;
    assert!(connection.is_some() || server.is_mortal, "it refuses connections");
    let mut connection = connection?;
    match draw.below(10) {
        // In the middle of the request.
        0 => {
            let length = draw.below(bytes.len() as u64);
            connection.try_send(&bytes[..usize::try_from(length).expect("small")]).await;
            draw.pause().await;
            vanish(connection, draw);
            return None;
        }
        // While it waits, or while the answer is on its way.
        1..=4 => {
            connection.try_send(&bytes).await;
            if draw.below(2) == 0 {
                connection.try_send(request("GET", "/healthz", "", "")).await;
            }
            draw.pause().await;
            vanish(connection, draw);
            return None;
        }
        _ => connection.try_send(&bytes).await,
    };
    let response = connection.try_response().await;
    assert!(response.is_some() || server.is_mortal, "no answer: {method} {path}");
    if draw.below(3) == 0 {
        vanish(connection, draw);
    }
    response
}

/// What a client asks for.
struct Asked {
    path: String,
    headers: String,
    body: Value,
}

impl Asked {
    /// One name, perhaps under an id of the client, or several together.
    fn draw(world: &World, draw: &mut Draw, session: Option<&str>) -> Asked {
        let mut body = json!({ "wait_ms": draw.below(2) * draw.below(3_000) });
        match session {
            Some(id) => body["session"] = json!(id),
            None => {
                body["lease_duration_ms"] = json!([30_000, DAY][usize::from(draw.below(2) == 0)]);
            }
        }
        if draw.below(3) == 0 {
            let names: BTreeSet<String> =
                (0..3).map(|_| format!("n{}", draw.below(NAMES))).collect();
            body["count"] = json!(1 + draw.below(names.len() as u64));
            body["names"] = json!(names);
            return Asked { path: "/v1/locks".to_owned(), headers: String::new(), body };
        }
        let path = format!("/v1/locks/n{}", draw.below(NAMES));
        let key = (draw.below(3) == 0).then(|| draw.id());
        let headers = key.as_ref().map(|key| format!("Idempotency-Key: {key}\r\n"));
        if let Some(key) = key {
            world.know(|known| {
                known.leases.insert(key[..8].to_owned());
            });
        }
        Asked { path, headers: headers.unwrap_or_default(), body }
    }
}

/// One client: a session or none, a lock or several, and a proper end or none.
async fn live(world: &World, draw: &mut Draw) {
    let server = world.draw(draw);
    let mut session = None;
    if draw.below(3) == 0 {
        let body = json!({ "duration_ms": DAY }).to_string();
        let opened = ask(server, draw, ("POST", "/v1/sessions", "", &body)).await;
        let Some(opened) = opened else { return };
        let id = opened.text("session");
        world.know(|known| {
            known.sessions.insert((server, id.clone()));
        });
        session = Some(id);
    }
    let Asked { path, headers, body } = Asked::draw(world, draw, session.as_deref());
    let closing = session.clone().filter(|_| draw.below(3) == 0);
    let body = body.to_string();
    let acquire = ("POST", path.as_str(), headers.as_str(), body.as_str());
    let acquired = match closing {
        // The session is closed while the request is on its way.
        Some(id) => {
            let mut other = Draw(draw.below(u64::MAX >> 33));
            let (acquired, _) = tokio::join!(ask(server, draw, acquire), async {
                other.pause().await;
                close(world, server, &id).await
            });
            session = None;
            acquired
        }
        None => ask(server, draw, acquire).await,
    };
    let Some(answer) = acquired.filter(|response| response.status == 200) else {
        world.know(|known| known.left_unread += 1);
        if let Some(id) = session
            && draw.below(2) == 0
        {
            close(world, server, &id).await;
        }
        return;
    };
    let read = Instant::now();
    let answer = answer.json();
    let leases = match answer["leases"].as_array() {
        Some(leases) => leases.clone(),
        None => vec![answer],
    };
    world.know(|known| {
        known.answered += 1;
        known.together += u64::from(leases.len() > 1);
        known.of_killed += u64::from(server.is_mortal);
        known.leases.extend(leases.iter().map(|lease| id_of(lease)[..8].to_owned()));
    });
    draw.pause().await;
    end(world, server, draw, AnsweredLeases { leases, read, session }).await;
}

fn id_of(lease: &Value) -> &str {
    lease["lease_id"].as_str().expect("an id")
}

struct AnsweredLeases {
    leases: Vec<Value>,
    read: Instant,
    session: Option<String>,
}

/// A client ends well, as most do: the names would be taken for a day otherwise.
async fn end(world: &World, server: Run, draw: &mut Draw, held: AnsweredLeases) {
    if let Some(id) = held.session
        && close(world, server, &id).await
    {
        return;
    }
    // Through either server; the session may have gone with its own.
    for lease in held.leases {
        let path = format!(
            "/v1/locks/{}/leases/{}",
            lease["name"].as_str().expect("a name"),
            id_of(&lease)
        );
        let first = world.draw(draw);
        let Some(response) = world.ask(first, "DELETE", &path, "").await else {
            // It may be released.
            world.ask(world.immortal(), "DELETE", &path, "").await;
            continue;
        };
        let valid = Duration::from_millis(lease["valid_for_ms"].as_u64().expect("a number"));
        let is_ours = lease["session"].is_null();
        if response.status != 200 && is_ours && held.read.elapsed() < valid {
            world.know(|known| known.faults.push(format!("lost: {lease} {response:?}")));
        }
    }
}

/// Closes a session; returns whether its server has done it.
async fn close(world: &World, server: Run, id: &str) -> bool {
    let closed = world.ask(server, "DELETE", &format!("/v1/sessions/{id}"), "").await;
    let is_closed = closed.as_ref().is_some_and(|closed| closed.status == 204);
    // Another program may have the address of a server that was killed.
    assert!(is_closed || server.is_mortal, "{closed:?}");
    world.know(|known| {
        known.sessions.remove(&(server, id.to_owned()));
    });
    is_closed
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

/// What clients find by their sessions, as far as the servers of these run.
async fn listed(world: &World) -> BTreeSet<String> {
    let sessions = world.known.lock().expect("no panic").sessions.clone();
    let running = [world.immortal(), world.mortal()];
    let mut leases = BTreeSet::new();
    for (server, id) in sessions.into_iter().filter(|(server, _)| running.contains(server)) {
        let path = format!("/v1/sessions/{id}/heartbeat");
        let beat = world.ask(server, "POST", &path, "").await.expect("it runs").json();
        for lease in beat["leases"].as_array().expect("a list") {
            leases.insert(id_of(lease)[..8].to_owned());
        }
    }
    leases
}

/// The server that is killed: a process of its own, until then or until the end of the test.
#[tokio::test]
async fn a_process_that_serves() {
    let Ok(store) = std::env::var(STORE) else { return };
    let store = Client::connect(&store).await.expect("connects");
    let ground = Ground::on(store, LIMITS).await;
    println!("{SAYS}{}", ground.address);
    let until_end = || std::io::stdin().read_line(&mut String::new());
    let ended = tokio::task::spawn_blocking(until_end).await.expect("no panic");
    assert_eq!(ended.expect("a pipe"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_vanish_at_every_step_leave_no_lock_that_nobody_knows() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("HOLDLINE_VANISH_SECONDS").unwrap_or(SECONDS);
    let seed = number("HOLDLINE_VANISH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("HOLDLINE_VANISH_SEED={seed}");
    let redis = RedisServer::start(RedisConfig::default());
    let url = redis.url();
    let ground = Ground::on(Client::connect(&url).await.expect("connects"), LIMITS).await;
    let process = Mutex::new(Process::start(&url));
    let world = Arc::new(World { ground, process, known: Mutex::default() });
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
    let clients: Vec<_> = clients.collect();
    world.kill(&url, &mut Draw(seed), until).await;
    for client in clients {
        client.await.expect("no panic");
    }
    let mut unknown = Vec::new();
    let settled = async {
        loop {
            // The store first: what a session lists later is no excuse.
            let held = held(&world.ground).await;
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
    let held = held(&world.ground).await.len();
    let known = world.known.lock().expect("no panic");
    println!(
        "{} answered, {} of them for several names, {} by the server that was killed {} times; {} \
         left unread, {held} still held",
        known.answered, known.together, known.of_killed, known.kills, known.left_unread
    );
    assert!(known.answered > 0 && known.together > 0 && known.left_unread > 0);
    assert!(known.of_killed > 0 && known.kills > 0);
    assert!(known.faults.is_empty(), "{:?}", known.faults);
}
