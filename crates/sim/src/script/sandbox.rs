//! The environment of a script, and its instruction limit.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use parking_lot::Mutex;

use super::caller::{Failure, ScriptState};
use super::located_error::{LocatedError, place};
use super::random::Random;
use super::redis_table;

/// The number of instructions between two checks of the limit.
const STRIDE: u32 = 10_000;
/// The growth of memory, in percent, before the next garbage collection.
const PAUSE: c_int = 1_000;
const PRELUDE: &str = include_str!("prelude.lua");
const TOO_LONG: &str = "Script killed: it took more instructions than the simulation allows";

/// A Lua of the server's version with the server's globals.
pub(super) struct Sandbox {
    lua: Lua,
    /// The real globals, behind the protected table.
    globals: Table,
    run: Function,
    budget: Arc<Budget>,
}

/// The instruction budget of the running script.
#[derive(Debug)]
struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Sandbox {
    pub(super) fn new(slot: &Arc<Mutex<ScriptState>>, limit: u64) -> mlua::Result<Sandbox> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        // Scripts are short and leave little garbage, while each collection scans the whole
        // library.
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(PAUSE)));
        let random = Arc::new(Random::default());
        let library = lua.create_table()?;
        library.raw_set("redis", redis_table::make(&lua, slot)?)?;
        library.raw_set("math", random.functions(&lua)?)?;
        let unwrap = lua.create_function(|lua, value: Value| unwrap(lua, value))?;
        let handler = lua.create_function(|lua, value: Value| handle(lua, value))?;
        let prelude = lua.load(PRELUDE).set_name("=prelude");
        let (globals, front, run): (Table, Table, Function) =
            prelude.call((library, unwrap, handler))?;
        lua.set_globals(front)?;
        let budget = Arc::new(Budget { limit, used: AtomicU64::new(0) });
        let sandbox = Sandbox { lua, globals, run, budget };
        sandbox.watch(STRIDE)?;
        Ok(sandbox)
    }

    pub(super) fn lua(&self) -> &Lua {
        &self.lua
    }

    /// Counts instructions. Beyond the limit every instruction is an error, so a script cannot
    /// catch it and continue.
    fn watch(&self, stride: u32) -> mlua::Result<()> {
        let budget = self.budget.clone();
        let triggers = HookTriggers::new().every_nth_instruction(stride);
        self.lua.set_global_hook(triggers, move |lua, _| {
            let used = budget.used.fetch_add(u64::from(stride), Ordering::Relaxed);
            if used < budget.limit {
                return Ok(VmState::Continue);
            }
            let every = HookTriggers::new().every_nth_instruction(1);
            lua.set_hook(every, |_, _| Err(too_long()))?;
            Err(too_long())
        })
    }

    /// Runs a script; the first value is whether it succeeded.
    pub(super) fn run(
        &self,
        function: &Function,
        keys: &[&[u8]],
        argv: &[&[u8]],
    ) -> mlua::Result<MultiValue> {
        self.globals.raw_set("KEYS", self.list(keys)?)?;
        self.globals.raw_set("ARGV", self.list(argv)?)?;
        self.budget.used.store(0, Ordering::Relaxed);
        let result = self.run.call(function);
        if self.budget.used.load(Ordering::Relaxed) <= self.budget.limit {
            return result;
        }
        // Even if a coroutine caught the error and the script reached its end.
        self.lua.remove_hook();
        self.watch(STRIDE)?;
        Err(too_long())
    }

    fn list(&self, items: &[&[u8]]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(items.len(), 0)?;
        for item in items {
            table.raw_push(self.lua.create_string(item)?)?;
        }
        Ok(table)
    }
}

fn too_long() -> mlua::Error {
    mlua::Error::external(LocatedError(TOO_LONG.as_bytes().to_vec()))
}

/// Returns the value that a script sees for a caught error.
fn unwrap(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &value else { return Ok(value) };
    if let Some(Failure(text)) = error.downcast_ref::<Failure>() {
        let table = lua.create_table()?;
        table.raw_set("err", lua.create_string(text)?)?;
        return Ok(Value::Table(table));
    }
    let text = match error.downcast_ref::<LocatedError>() {
        Some(LocatedError(text)) => text.clone(),
        None => error.to_string().into_bytes(),
    };
    Ok(Value::String(lua.create_string(text)?))
}

/// Makes the table of an uncaught error: its text and its line.
fn handle(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let place = place(lua);
    let table = match unwrap(lua, value)? {
        Value::Table(table) => table,
        other => {
            let mut text = b"ERR ".to_vec();
            match &other {
                Value::String(words) => text.extend_from_slice(&words.as_bytes()),
                other => text.extend_from_slice(other.to_string()?.as_bytes()),
            }
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
    };
    if let Some(place) = place {
        table.raw_set("source", place.source)?;
        table.raw_set("line", place.line)?;
    }
    Ok(Value::Table(table))
}
