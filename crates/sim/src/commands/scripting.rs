//! The commands of scripts. `script` runs them.

use super::{
    ALLOW_BUSY, Command, MAY_REPLICATE, NO_SCRIPT, READ, Run, STALE, ScriptVerb, container,
};

const RUNS: u32 = NO_SCRIPT | STALE | MAY_REPLICATE;
const ASKS: u32 = NO_SCRIPT;

const fn row(name: &'static str, arity: i32, flags: u32, verb: ScriptVerb) -> Command {
    Command { name, arity, flags, keys: (0, 0, 0), run: Run::Script(verb) }
}

const fn eval(by_hash: bool, read_only: bool) -> ScriptVerb {
    ScriptVerb::Eval { by_hash, read_only }
}

pub(crate) const TABLE: &[Command] = &[
    row("eval", -3, RUNS, eval(false, false)),
    row("evalsha", -3, RUNS, eval(true, false)),
    row("eval_ro", -3, NO_SCRIPT | STALE | READ, eval(false, true)),
    row("evalsha_ro", -3, NO_SCRIPT | STALE | READ, eval(true, true)),
    container("script", SCRIPT),
];

const SCRIPT: &[Command] = &[
    row("script|load", 3, ASKS | STALE, ScriptVerb::Load),
    row("script|exists", -3, ASKS, ScriptVerb::Exists),
    row("script|flush", -2, ASKS | MAY_REPLICATE, ScriptVerb::Flush),
    row("script|kill", 2, ASKS | ALLOW_BUSY, ScriptVerb::Kill),
];
