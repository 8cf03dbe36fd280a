//! `math.random` as on the server: one sequence from the start of the process.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value};
use parking_lot::Mutex;

use super::located_error::raise;

/// The start of the sequence.
const START: u64 = 0x1234_abcd_330e;
const MASK: u64 = (1 << 48) - 1;
const LARGEST: u64 = (1 << 31) - 1;

/// The generator of POSIX `lrand48`, 48 bits wide.
#[derive(Debug)]
pub(super) struct Random(Mutex<u64>);

impl Default for Random {
    fn default() -> Random {
        Random(Mutex::new(START))
    }
}

impl Random {
    fn seed(&self, seed: u32) {
        *self.0.lock() = (u64::from(seed) << 16) + 0x330e;
    }

    fn next_u64(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & MASK;
        *state >> 17
    }

    /// A number from 0 to below 1.
    #[allow(clippy::cast_precision_loss)]
    fn share(&self) -> f64 {
        (self.next_u64() % LARGEST) as f64 / LARGEST as f64
    }

    /// `random` and `randomseed`.
    pub(super) fn functions(self: Arc<Random>, lua: &Lua) -> mlua::Result<Table> {
        let table = lua.create_table()?;
        let random = self.clone();
        table.raw_set(
            "random",
            lua.create_function(move |lua, args: MultiValue| random.pick(lua, &args))?,
        )?;
        table.raw_set(
            "randomseed",
            lua.create_function(move |_, seed: f64| {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                self.seed(seed as i64 as u32);
                Ok(())
            })?,
        )?;
        Ok(table)
    }

    fn pick(&self, lua: &Lua, args: &MultiValue) -> mlua::Result<f64> {
        let share = self.share();
        let number = |at: usize| match args.get(at) {
            #[allow(clippy::cast_precision_loss)]
            Some(Value::Integer(number)) => Ok(*number as f64),
            Some(Value::Number(number)) => Ok(number.trunc()),
            _ => {
                Err(raise(lua, &format!("bad argument #{} to 'random' (number expected)", at + 1)))
            }
        };
        let empty = |at: usize| {
            Err(raise(lua, &format!("bad argument #{at} to 'random' (interval is empty)")))
        };
        match args.len() {
            0 => Ok(share),
            1 => {
                let high = number(0)?;
                if high < 1.0 { empty(1) } else { Ok((share * high).floor() + 1.0) }
            }
            2 => {
                let low = number(0)?;
                let high = number(1)?;
                if low > high { empty(2) } else { Ok((share * (high - low + 1.0)).floor() + low) }
            }
            _ => Err(raise(lua, "wrong number of arguments")),
        }
    }
}
