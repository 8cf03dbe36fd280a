//! Commands that wait for an element.
//!
//! Who waits longest is served first. In a script or a transaction nothing waits.

use std::time::Duration;

use super::lists::{End, List, move_between};
use super::{BLOCKING, Command, DENY_OOM, NO_SCRIPT, WRITE, one};
use crate::call::Call;
use crate::number;
use crate::options::seconds;
use crate::refusal::{Answer, Refusal};
use crate::resp::Reply;
use crate::session::Blocked;

pub(crate) const TABLE: &[Command] = &[
    Command {
        keys: (1, -2, 1),
        ..one("blpop", -3, WRITE | NO_SCRIPT | BLOCKING, |call| pop(call, End::Left))
    },
    Command {
        keys: (1, -2, 1),
        ..one("brpop", -3, WRITE | NO_SCRIPT | BLOCKING, |call| pop(call, End::Right))
    },
    Command {
        keys: (1, 2, 1),
        ..one("blmove", 6, WRITE | DENY_OOM | NO_SCRIPT | BLOCKING, |call| {
            let (from, to) = (End::read(call.args[3])?, End::read(call.args[4])?);
            moved(call, from, to)
        })
    },
    Command {
        keys: (1, 2, 1),
        ..one("brpoplpush", 4, WRITE | DENY_OOM | NO_SCRIPT | BLOCKING, |call| {
            moved(call, End::Right, End::Left)
        })
    },
];

/// Reads how long to wait; 0 is for ever.
fn limit(call: &Call<'_>) -> Result<Option<Duration>, Refusal> {
    let text = call.args[call.args.len() - 1];
    let number = number::float(text).ok_or("ERR timeout is not a float or out of range")?;
    if number < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    let wait = seconds(number).ok_or("ERR timeout is out of range")?;
    Ok((!wait.is_zero()).then_some(wait))
}

fn pop(call: &mut Call<'_>, end: End) -> Answer {
    let wait = limit(call)?;
    let keys = &call.args[1..call.args.len() - 1];
    for key in keys {
        let Some(list) = call.find::<List>(key)? else { continue };
        let item = end.pop(list);
        call.changed(key);
        return Ok(Reply::bulks([Some(key.to_vec()), item].into_iter().flatten()));
    }
    Ok(block(call, keys, wait, Reply::NullArray))
}

fn moved(call: &mut Call<'_>, from: End, to: End) -> Answer {
    let wait = limit(call)?;
    let reply = move_between(call, from, to)?;
    if reply != Reply::Null {
        return Ok(reply);
    }
    let keys = &call.args[1..2];
    Ok(block(call, keys, wait, Reply::Null))
}

/// Waits, if the connection can; else answers that there is nothing.
fn block(call: &mut Call<'_>, keys: &[&[u8]], wait: Option<Duration>, nothing: Reply) -> Reply {
    let until = wait.map(|wait| call.state.clock.common().now().after(wait));
    let command = call.args.iter().map(|argument| argument.to_vec()).collect();
    let keys = keys.iter().map(|key| key.to_vec()).collect();
    let in_script = call.in_script;
    let since = call.state.commands_run;
    match call.session().filter(|session| !session.in_transaction && !in_script) {
        Some(session) => {
            session.blocked = Some(Blocked { command, keys, until, since });
            call.state.may_wait = true;
            Reply::Array(Vec::new())
        }
        None => nothing,
    }
}
