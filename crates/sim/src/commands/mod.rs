//! The commands, by family, and the table of them all.
//!
//! Each family has a table of its own. A row has the number of arguments (negative: at least), the
//! flags, and the positions of the keys.

pub(crate) mod client;
pub(crate) mod expiry;
pub(crate) mod hashes;
pub(crate) mod introspection;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod messages;
mod scripting;
pub(crate) mod settings;
pub(crate) mod sorted_sets;
pub(crate) mod streams;
pub(crate) mod strings;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::call::Call;
use crate::errors::{CommandResult, ErrorReply, wrong_count};

pub(crate) const WRITE: u32 = 1;
pub(crate) const READ: u32 = 1 << 1;
/// Rejected when memory is full.
pub(crate) const DENY_OOM: u32 = 1 << 2;
/// Not allowed in scripts.
pub(crate) const NO_SCRIPT: u32 = 1 << 3;
pub(crate) const LOADING: u32 = 1 << 4;
pub(crate) const STALE: u32 = 1 << 5;
pub(crate) const FAST: u32 = 1 << 6;
pub(crate) const NO_AUTH: u32 = 1 << 7;
pub(crate) const ALLOW_BUSY: u32 = 1 << 8;
pub(crate) const PUBSUB: u32 = 1 << 10;
pub(crate) const ADMIN: u32 = 1 << 11;
/// Also stopped by a pause of writes, though it writes no key.
pub(crate) const MAY_REPLICATE: u32 = 1 << 12;

/// The names of the flags in COMMAND INFO.
const FLAGS: &[(u32, &str)] = &[
    (WRITE, "write"),
    (READ, "readonly"),
    (DENY_OOM, "denyoom"),
    (NO_SCRIPT, "noscript"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (MAY_REPLICATE, "may_replicate"),
    (ALLOW_BUSY, "allow_busy"),
];

/// How a command is run.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// By a function on the data and the connections.
    Plain(fn(&mut Call<'_>) -> CommandResult),
    /// By the script engine.
    Script(ScriptVerb),
    /// Has subcommands only.
    Container(&'static [Command]),
}

/// The commands of the script engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptVerb {
    Eval { by_hash: bool, read_only: bool },
    Load,
    Exists,
    Flush,
    Kill,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// In lower case; a subcommand is `container|name`.
    pub(crate) name: &'static str,
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    /// The index of the first key, of the last, and the step.
    pub(crate) keys: (i32, i32, i32),
    pub(crate) run: Run,
}

impl Command {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn takes(&self, count: usize) -> bool {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        if self.arity >= 0 { count == self.arity } else { count >= -self.arity }
    }

    pub(crate) fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        let flags = self.flags;
        FLAGS.iter().filter(move |(flag, _)| flags & flag != 0).map(|(_, name)| *name)
    }
}

/// A row for a command that works on one key.
pub(crate) const fn one(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Call<'_>) -> CommandResult,
) -> Command {
    Command { name, arity, flags, keys: (1, 1, 1), run: Run::Plain(run) }
}

/// A row for a command that works on all its arguments as keys.
pub(crate) const fn many(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Call<'_>) -> CommandResult,
) -> Command {
    Command { name, arity, flags, keys: (1, -1, 1), run: Run::Plain(run) }
}

/// A row for a command without keys.
pub(crate) const fn keyless(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Call<'_>) -> CommandResult,
) -> Command {
    Command { name, arity, flags, keys: (0, 0, 0), run: Run::Plain(run) }
}

/// A row that only has subcommands.
pub(crate) const fn container(name: &'static str, subcommands: &'static [Command]) -> Command {
    Command { name, arity: -2, flags: 0, keys: (0, 0, 0), run: Run::Container(subcommands) }
}

/// All rows, in the order of the families.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    let families: [&'static [Command]; 12] = [
        strings::TABLE,
        expiry::TABLE,
        hashes::TABLE,
        lists::TABLE,
        sorted_sets::TABLE,
        streams::TABLE,
        keys::TABLE,
        messages::TABLE,
        client::TABLE,
        settings::TABLE,
        introspection::TABLE,
        scripting::TABLE,
    ];
    families.into_iter().flatten()
}

fn index() -> &'static HashMap<&'static [u8], &'static Command> {
    static INDEX: OnceLock<HashMap<&'static [u8], &'static Command>> = OnceLock::new();
    INDEX.get_or_init(|| all().map(|command| (command.name.as_bytes(), command)).collect())
}

/// Why a command was not found.
pub(crate) enum Unknown {
    Command,
    Subcommand,
    /// With the full name.
    Count(&'static str),
}

impl Unknown {
    /// Returns the error reply.
    pub(crate) fn refusal(&self, args: &[&[u8]]) -> ErrorReply {
        match self {
            Unknown::Count(name) => wrong_count(name),
            Unknown::Subcommand => {
                let sub = String::from_utf8_lossy(cut(args[1])).into_owned();
                let upper = String::from_utf8_lossy(args[0]).to_ascii_uppercase();
                format!("ERR unknown subcommand '{sub}'. Try {upper} HELP.").into()
            }
            Unknown::Command => {
                let mut text = b"ERR unknown command '".to_vec();
                text.extend_from_slice(cut(args[0]));
                text.extend_from_slice(b"', with args beginning with: ");
                let begun = text.len();
                for argument in &args[1..] {
                    if text.len() - begun >= 128 {
                        break;
                    }
                    let left = 128 - (text.len() - begun);
                    text.push(b'\'');
                    text.extend_from_slice(&argument[..argument.len().min(left)]);
                    text.extend_from_slice(b"' ");
                }
                ErrorReply(text.into())
            }
        }
    }
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(128)]
}

/// Finds the command or subcommand of these arguments.
pub(crate) fn find(args: &[&[u8]]) -> Result<&'static Command, Unknown> {
    let mut lower = [0; 24];
    let name = args.first().ok_or(Unknown::Command)?;
    let place = lower.get_mut(..name.len()).ok_or(Unknown::Command)?;
    place.copy_from_slice(name);
    place.make_ascii_lowercase();
    let command = *index().get(&*place).ok_or(Unknown::Command)?;
    if let (Run::Container(subcommands), Some(wanted)) = (command.run, args.get(1)) {
        let named = |sub: &&Command| {
            let own = sub.name.split_once('|').map_or("", |(_, own)| own);
            wanted.eq_ignore_ascii_case(own.as_bytes())
        };
        let subcommand = subcommands.iter().find(named).ok_or(Unknown::Subcommand)?;
        if !subcommand.takes(args.len()) {
            return Err(Unknown::Count(subcommand.name));
        }
        return Ok(subcommand);
    }
    if command.takes(args.len()) { Ok(command) } else { Err(Unknown::Count(command.name)) }
}
