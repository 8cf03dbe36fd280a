//! Holdline beside other lock libraries: each in processes of its own, in turn on one server.
//!
//! All drivers speak one protocol, which `interop/peers/go/main.go` describes. They report when
//! each contender asked, was granted, began to release and had released, and [`judge`] computes all
//! figures from that. Holdline is such a driver too.

mod driver;
mod judge;
mod many_names;
mod process;
mod stores;
mod table;
mod usage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use driver::{bare_worker, worker};
pub(crate) use many_names::section as many_names;
pub(crate) use process::spin;
pub(crate) use usage::processor_time;

use crate::rounds::Failure;
use process::{AwakeCores, Driver, Task};
use stores::{Kind, Server, Store, System};
use table::Figures;

const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_millis(2_500);
/// How long a driver runs before the first round. A JVM compiles what it runs for as long.
const WARM_UP: Duration = Duration::from_secs(1);
const WARM_UP_JVM: Duration = Duration::from_secs(6);

/// So many processes with so many contenders, all for one name.
#[derive(Clone, Copy)]
struct Cell {
    title: &'static str,
    processes: usize,
    contenders: usize,
}

const CELLS: [Cell; 3] = [
    Cell { title: "one task", processes: 1, contenders: 1 },
    Cell { title: "16 of one process", processes: 1, contenders: 16 },
    Cell { title: "4 × 4", processes: 4, contenders: 4 },
];

/// The word that keeps the cores awake, and runs the cell of one task only: elsewhere they hardly
/// sleep.
const AWAKE: &str = "awake";

/// Runs these stores, or all of them, and prints a table in Markdown.
pub(crate) fn section(words: &[&str]) -> Result<(), Failure> {
    let place = place().ok_or("run this by `cargo xtask bench peers`, which prepares the peers")?;
    let (awake, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == AWAKE);
    let stores = stores::chosen(stores::ALL.iter(), &words)?;
    let _cores = awake.first().map(|_| AwakeCores::keep()).transpose()?;
    let cells = if awake.is_empty() { &CELLS[..] } else { &CELLS[..1] };
    table::print_head();
    let mut seen = Vec::new();
    let mut overlaps = 0;
    for store in stores {
        let server = Server::start(store)?;
        for kind in store.kinds {
            for cell in cells {
                overlaps +=
                    measure(&Ground { place: &place, server: &server, store }, kind, *cell)?
                        .iter()
                        .inspect(|side| seen.extend(side.version()))
                        .map(|side| side.figures.overlaps())
                        .sum::<usize>();
            }
        }
    }
    println!("\nVersions: {}.", versions(seen));
    match overlaps {
        0 => Ok(()),
        _ => Err(format!("{overlaps} grants began while another contender held the lock").into()),
    }
}

struct Ground<'a> {
    place: &'a std::path::Path,
    server: &'a Server,
    store: &'a Store,
}

/// The processes of one system, and what came of each round.
struct Side {
    system: &'static System,
    drivers: Vec<Driver>,
    name: String,
    figures: Figures,
}

impl Side {
    fn version(&self) -> Option<Version> {
        self.drivers.first().map(|driver| (self.system, driver.version.clone()))
    }
}

/// A system, and the version that its driver printed.
type Version = (&'static System, String);

/// Lists versions, each once.
fn versions(seen: Vec<Version>) -> String {
    let title = |(system, version): Version| format!("{} {version}", system.title);
    let titles: BTreeSet<String> = seen.into_iter().map(title).collect();
    titles.into_iter().collect::<Vec<_>>().join(", ")
}

/// Where `cargo xtask bench` has prepared other libraries.
fn place() -> Option<PathBuf> {
    std::env::var_os("HOLDLINE_PEERS").map(PathBuf::from)
}

/// Runs all systems of a kind in turn, and prints a row for each.
fn measure(ground: &Ground<'_>, kind: &Kind, cell: Cell) -> Result<Vec<Side>, Failure> {
    let mut sides = Vec::new();
    for (number, system) in kind.systems.iter().enumerate() {
        let drivers = (0..cell.processes).map(|_| {
            Driver::start(system.command(ground.place, ground.server, cell.contenders)?)
        });
        let drivers = drivers.collect::<Result<_, Failure>>()?;
        let name = format!("{}-{number}", kind.word);
        let mut side = Side { system, drivers, name, figures: Figures::default() };
        let warm_up = if system.is_jvm() { WARM_UP_JVM } else { WARM_UP };
        let task = Task { name: &side.name, time: warm_up, names: None };
        process::run(&mut side.drivers, task, &[])?;
        sides.push(side);
    }
    let servers = ground.server.pids();
    for _ in 0..ROUNDS {
        for side in &mut sides {
            let task = Task { name: &side.name, time: TIME, names: None };
            let ran = process::run(&mut side.drivers, task, &servers)?;
            let verdict = judge::judge(&ran.grants, &ran.window, cell.processes * cell.contenders);
            side.figures.add(verdict, &ran);
        }
    }
    let title = format!("{}, {}: {}", ground.store.title, kind.title, cell.title);
    let rows: Vec<_> = sides.iter().map(|side| (side.system.title, &side.figures)).collect();
    table::print_rows(&title, &rows, cell.contenders > 1);
    Ok(sides)
}
