//! The program's own arguments, which every verb takes too.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

use crate::console::{Color, Console};

/// Hold a lock, run a program, release.
///
/// `holdline run NAME -- COMMAND` waits for NAME, runs COMMAND while it holds it, and ends with
/// COMMAND's own exit code. Without --url, locks are local to this machine and user; no server is
/// needed.
#[derive(Clone, Debug, Parser)]
#[command(name = "holdline", version, max_term_width = 100, arg_required_else_help = true)]
#[command(infer_subcommands = false)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
#[command(
    after_help = "Exit codes: COMMAND's own, 128+n when signal n ended it, 75 busy, 79 lease \
    lost, 69 engine unreachable, 64 usage, 77 refused, 78 configuration, 65 foreign data, 76 \
    protocol, 124 --max-hold, 125 our failure, 126 cannot run, 127 not found."
)]
// The comment above is the help of the program.
pub(crate) struct Global {
    /// The engine: local:, local:///directory, redis://host:port,
    /// redis+sentinel://host,host/SERVICE, redis-cluster://host,host,
    /// redlock://host,host,host, postgres://user@host/database, mysql://user@host/database
    /// (MariaDB; MySQL is not tested), etcd://host,host,host, zk://host,host,host or
    /// https://host (a Holdline server)
    /// [default: HOLDLINE_URL, a configuration file, or local:]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) url: Vec<String>,
    /// Read this configuration file instead of ./holdline.toml, the user's and the system's
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Refuse local: and memory:, so that a missing URL is an error; HOLDLINE_REQUIRE_SERVER=1 and
    /// require_server = true in a configuration file do the same
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) require_server: bool,
    /// Print JSON: data on stdout, messages on stderr, one object per line
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_possible_values = true, help_heading = "Global options")]
    #[arg(help = "When to use colours: auto, always or never")]
    pub(crate) color: Color,
    /// Print nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    #[arg(help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Print more
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
}

impl Global {
    pub(crate) fn console(&self) -> Console {
        Console::new(self.json, self.quiet, self.verbose, self.color)
    }
}
