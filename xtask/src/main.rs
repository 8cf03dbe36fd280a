//! The repository's own tasks.
//!
//! `cargo xtask check` is what every change must pass and what `./check` and continuous
//! integration run; the other verbs are parts of it, for the hand. Nothing here depends on a
//! crate of the workspace, so that style can be checked while a crate does not compile.
//!
//! Read next: [`check`] for the steps, [`tidy`] for the style rules.

mod bench;
mod book;
mod cargo;
mod check;
mod evidence;
mod grafana;
mod interop;
mod lines;
mod markdown;
mod metadata;
mod packages;
mod portable;
mod process;
mod processes;
mod rust_source;
mod screenshots;
mod services;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB

  check [STEP...]   every step in order, or only those named
  check --list      the steps
  tidy              style as a test
  tidy --list       the rules
  lines             code lines by crate, without tests, comments and blank lines
  book              the pages of docs as HTML with a search, in target/book/html
  guarantees        write the tables of docs/guarantees from the evidence
  grafana           write ops/grafana.json from the tables of docs/metrics.md
  screenshots       write docs/images, pictures of the dashboard over a busy store
  services redis [--count N] [--flavour debian|valkey|redis8]
  services redis-cluster [--count N] [--flavour debian|valkey|redis8]
  services sentinel | postgres | mariadb | etcd | etcd-cluster | zookeeper |
           zookeeper-ensemble [--count N]
                    real servers, until the end of the input or ^C
  demo [--for SECONDS]
                    the dashboard with contenders, a paused holder and a killed server, until ^C
  bench [SECTION]   figures beside their floors: memory, cycle, hand-off, run, etcd, zookeeper,
                    etcd-costs (what its server counts),
                    zookeeper-costs (what its servers count),
                    mysql, postgres, postgres-readers (processor time of the server),
                    redis, redisson, and redis-leases, which takes a minute; or
                    python, the package beside Python's other locks on Redis
  bench peers [STORE...]
                    beside lock libraries of Go, Java and Node: redis, node (Redis from Node),
                    redlock, etcd, zookeeper, postgres, mariadb; with `awake`, one task on cores
                    that do not sleep
  package           every crate from a clean clone, compiled, and the .deb, installed and removed
  package deb       the .deb only: target/deb/holdline.deb
  package wheel     the Python package with the command line in it: target/python/dist
  package node      the Node package with the addon in it: target/node
  dist              a static binary with its pages and completions: target/static
  portable          library, Python and Node package without `local`, checked for other systems
  interop prepare   the other libraries that the interop tests run, from their registries";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["check", "--list"] => {
            check::list();
            Ok(true)
        }
        ["check", steps @ ..] => check::run(steps),
        ["services", words @ ..] => services::run(words),
        ["demo", options @ ..] => services::demo(options),
        ["bench", sections @ ..] => bench::run(sections),
        ["package"] => packages::package().map(|()| true),
        ["package", "deb"] => packages::package_deb().map(|()| true),
        ["dist"] => packages::dist().map(|()| true),
        ["package", "wheel"] => check::python::package().map(|()| true),
        ["package", "node"] => check::node::package().map(|()| true),
        ["portable"] => portable::check().map(|()| true),
        ["interop", "prepare"] => interop::prepare().map(|()| true),
        ["book"] => book::build().map(|page| {
            println!("{}", page.display());
            true
        }),
        ["guarantees"] => evidence::write(),
        ["grafana"] => grafana::write(),
        ["screenshots"] => screenshots::write(),
        ["lines"] => lines::print().map(|()| true),
        ["tidy"] => tidy::run(),
        ["tidy", "--list"] => {
            tidy::list();
            Ok(true)
        }
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
