//! Many names at once: tasks of one process, each with a lock of its own, on every store.
//!
//! Nobody waits for another, so the figures are those of the client, the connection and the store.
//! Client and server share the machine's cores. Other libraries run beside ours if `cargo xtask
//! bench` has prepared them; on Redis the bare commands do too.

use std::time::Duration;

use super::process::{self, Driver, Task};
use super::stores::{self, BARE, Kind, Server, Store, System};
use super::table::{self, Figures, Row};
use super::{WARM_UP_JVM, judge, place, versions};
use crate::rounds::Failure;

/// How many tasks there are at once.
const NAMES: [usize; 4] = [1, 8, 64, 512];
const MOST: usize = 512;
const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_millis(500);
/// Before the rounds of each number: names are made, connections opened.
const WARM_UP: Duration = Duration::from_millis(150);
/// These locks have no lease, so they are no peers here.
const SESSION: &str = "session";

/// Runs these stores, or all of them, and prints a table in Markdown.
pub(crate) fn section(words: &[&str]) -> Result<(), Failure> {
    let stores = stores::chosen(stores::OTHERS.iter().chain(stores::ALL), words)?;
    table::print_many_names_head();
    let mut seen = Vec::new();
    for store in stores {
        let server = Server::start(store)?;
        for kind in store.kinds.iter().filter(|kind| kind.word != SESSION) {
            let sides = measure(store, kind, &server)?;
            seen.extend(sides.iter().map(|side| (side.system, side.driver.version.clone())));
        }
    }
    println!("\nVersions: {}.", versions(seen));
    Ok(())
}

/// A system, its one process, and what came of the rounds with so many names.
struct Side {
    system: &'static System,
    driver: Driver,
    name: String,
    figures: Figures,
}

impl Side {
    fn start(system: &'static System, name: String, server: &Server) -> Result<Side, Failure> {
        let contenders = system.most().min(MOST);
        let place = place().unwrap_or_default();
        let driver = Driver::start(system.command(&place, server, contenders)?)?;
        let mut side = Side { system, driver, name, figures: Figures::default() };
        if system.is_jvm() {
            side.run(contenders, WARM_UP_JVM, &[])?;
        }
        Ok(side)
    }

    fn row(&self) -> Row<'_> {
        let is_peer = self.system.is_peer();
        Row { client: self.system.title, figures: &self.figures, is_peer }
    }

    fn run(&mut self, names: usize, time: Duration, servers: &[u32]) -> Result<(), Failure> {
        let task = Task { name: &self.name, time, names: Some(names) };
        let ran = process::run(std::slice::from_mut(&mut self.driver), task, servers)?;
        let verdict = judge::judge(&ran.grants, &ran.window, names);
        self.figures.add(verdict, &ran);
        Ok(())
    }
}

/// Runs all systems of a kind in turn with each number of names, and prints a row for each.
fn measure(store: &Store, kind: &'static Kind, server: &Server) -> Result<Vec<Side>, Failure> {
    let bare = (store.word == "redis" && kind.word == "plain").then_some(&BARE);
    let with_peers = place().is_some();
    let systems = kind.systems.iter().filter(|system| with_peers || !system.is_peer());
    let mut sides = Vec::new();
    for (number, system) in systems.chain(bare).enumerate() {
        sides.push(Side::start(system, format!("{}-many-{number}", kind.word), server)?);
    }
    let servers = server.pids();
    for names in NAMES {
        let mut taking_part: Vec<&mut Side> =
            sides.iter_mut().filter(|side| side.system.most() >= names).collect();
        for side in &mut taking_part {
            side.run(names, WARM_UP, &[])?;
            side.figures = Figures::default();
        }
        for _ in 0..ROUNDS {
            for side in &mut taking_part {
                side.run(names, TIME, &servers)?;
            }
        }
        let title = format!("{}, {}", store.title, kind.title);
        let rows: Vec<Row<'_>> = taking_part.iter().map(|side| side.row()).collect();
        table::print_many_names(&title, names, &rows);
    }
    Ok(sides)
}
