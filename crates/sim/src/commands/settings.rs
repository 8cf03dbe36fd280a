//! CONFIG and the other commands of an operator.

use super::{ADMIN, Command, LOADING, NO_SCRIPT, STALE, container, keyless};
use crate::call::{Call, is};
use crate::errors::{CommandResult, ErrorReply, SYNTAX, wrong_count};
use crate::options::seconds;
use crate::resp::Reply;

const OPERATE: u32 = ADMIN | NO_SCRIPT | LOADING | STALE;

pub(crate) const TABLE: &[Command] =
    &[container("config", CONFIG), container("acl", ACL), keyless("debug", -2, OPERATE, debug)];

const CONFIG: &[Command] = &[
    keyless("config|get", -3, OPERATE, get),
    keyless("config|set", -4, OPERATE, set),
    keyless("config|resetstat", 2, OPERATE, |call| {
        call.state.evicted = 0;
        call.state.expired_keys = 0;
        Ok(Reply::OK)
    }),
    keyless("config|rewrite", 2, OPERATE, |_| {
        Err("ERR The server is running without a config file".into())
    }),
];

const ACL: &[Command] = &[
    keyless("acl|whoami", 2, NO_SCRIPT | LOADING | STALE, |call| {
        Ok(Reply::bulk_or_null(call.session().map(|session| session.user.clone())))
    }),
    keyless("acl|dryrun", -4, OPERATE, dry_run),
    keyless("acl|users", 2, OPERATE, |_| Ok(Reply::bulks([b"default".to_vec()]))),
];

fn get(call: &mut Call<'_>) -> CommandResult {
    let mut found: Vec<(&str, &String)> = Vec::new();
    for pattern in &call.args[2..] {
        for (name, value) in call.state.config.matching(pattern) {
            if !found.iter().any(|(known, _)| *known == name) {
                found.push((name, value));
            }
        }
    }
    let pair = |(name, value): (&str, &String)| {
        (Reply::bulk(name.as_bytes()), Reply::bulk(value.as_bytes()))
    };
    Ok(Reply::Map(found.into_iter().map(pair).collect()))
}

fn set(call: &mut Call<'_>) -> CommandResult {
    if call.args.len() % 2 == 1 {
        return Err(SYNTAX.into());
    }
    let mut config = call.state.config.clone();
    for pair in call.args[2..].chunks_exact(2) {
        config.set(pair[0], pair[1]).map_err(ErrorReply::from)?;
    }
    call.state.config = config;
    Ok(Reply::OK)
}

fn dry_run(call: &mut Call<'_>) -> CommandResult {
    let user = call.args[2];
    let words = &call.args[3..];
    if user != b"default" {
        let user = String::from_utf8_lossy(user).into_owned();
        return Err(format!("ERR User '{user}' not found").into());
    }
    super::find(words).map_err(|unknown| match unknown {
        super::Unknown::Count(name) => wrong_count(name),
        _ => {
            let name = String::from_utf8_lossy(words[0]).into_owned();
            ErrorReply::from(format!("ERR Command '{name}' not found"))
        }
    })?;
    Ok(Reply::OK)
}

fn debug(call: &mut Call<'_>) -> CommandResult {
    match &call.args[1..] {
        [word, time] if is(word, "SLEEP") => {
            let time = crate::number::float(time).and_then(seconds).ok_or(SYNTAX)?;
            call.state.asleep = Some(call.state.clock.common().now().after(time));
            Ok(Reply::OK)
        }
        // Expired keys never exist here, so the switch has no effect.
        [word, _] if is(word, "SET-ACTIVE-EXPIRE") => Ok(Reply::OK),
        _ => Err("ERR DEBUG subcommand not supported here".into()),
    }
}
