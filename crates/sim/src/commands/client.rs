//! Commands about connections: handshake, names, CLIENT.

use std::time::Duration;

use super::{
    ADMIN, ALLOW_BUSY, Command, FAST, LOADING, NO_AUTH, NO_SCRIPT, STALE, container, keyless,
};
use crate::call::{Call, is};
use crate::commands::keys::database;
use crate::errors::{CommandResult, ErrorReply, NOT_INTEGER, SYNTAX, WRONG_PASS, wrong_count};
use crate::number;
use crate::options::VERSION;
use crate::resp::{Protocol, Reply};
use crate::session::{Connection, ConnectionId, ReplyMode};
use crate::state::{Pause, ServerCondition};

const TALK: u32 = NO_SCRIPT | LOADING | STALE;
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
     otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
     and select the RESP protocol version at the same time";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
     default user. Are you sure your configuration is correct?";

pub(crate) const TABLE: &[Command] = &[
    keyless("ping", -1, FAST | LOADING | STALE, ping),
    keyless("echo", 2, FAST | LOADING | STALE, |call| Ok(Reply::bulk(call.args[1]))),
    keyless("hello", -1, TALK | FAST | NO_AUTH | ALLOW_BUSY, hello),
    keyless("auth", -2, TALK | FAST | NO_AUTH | ALLOW_BUSY, auth),
    keyless("select", 2, FAST | LOADING | STALE, select),
    container("client", CLIENT),
];

const CLIENT: &[Command] = &[
    keyless("client|id", 2, TALK, |call| Ok(Reply::Integer(signed(call.connection)))),
    keyless("client|setname", 3, TALK, |call| set_name(call, call.args[2])),
    keyless("client|getname", 2, TALK, |call| {
        let name = call.session().map(|session| session.name.clone());
        Ok(Reply::bulk_or_null(name.filter(|name| !name.is_empty())))
    }),
    keyless("client|list", -2, TALK | ADMIN, list),
    keyless("client|info", 2, TALK, |call| {
        let line = call.session().map(|session| describe(session)).unwrap_or_default();
        Ok(Reply::Verbatim(*b"txt", line.into_bytes()))
    }),
    keyless("client|kill", -3, TALK | ADMIN, kill),
    keyless("client|pause", -3, TALK | ADMIN, pause),
    keyless("client|unpause", 2, TALK | ADMIN, |call| {
        call.state.pause = None;
        Ok(Reply::OK)
    }),
    keyless("client|reply", 3, TALK, reply),
    keyless("client|no-evict", 3, TALK | ADMIN, no_evict),
];

fn signed(id: ConnectionId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

fn ping(call: &mut Call<'_>) -> CommandResult {
    if call.args.len() > 2 {
        return Err(wrong_count("ping"));
    }
    let text = call.args.get(1).copied();
    if call.session().is_some_and(|session| session.is_subscriber_only()) {
        let echoed = Reply::bulk(text.unwrap_or_default());
        return Ok(Reply::Array(vec![Reply::bulk(b"pong"), echoed]));
    }
    Ok(text.map_or(Reply::status("PONG"), Reply::bulk))
}

fn hello(call: &mut Call<'_>) -> CommandResult {
    let protocol = match call.args.get(1).map(|version| number::strict(version)) {
        None => None,
        Some(Some(2)) => Some(Protocol::Resp2),
        Some(Some(3)) => Some(Protocol::Resp3),
        Some(Some(_)) => return Err("NOPROTO unsupported protocol version".into()),
        Some(None) => {
            return Err("ERR Protocol version is not an integer or out of range".into());
        }
    };
    let mut words = call.args.get(2..).unwrap_or_default().iter();
    while let Some(word) = words.next() {
        if is(word, "AUTH") && words.len() >= 2 {
            let user = words.next().ok_or(SYNTAX)?;
            let password = words.next().ok_or(SYNTAX)?;
            log_in(call, user, password)?;
        } else if is(word, "SETNAME") && words.len() >= 1 {
            set_name(call, words.next().ok_or(SYNTAX)?)?;
        } else {
            let mut text = b"ERR Syntax error in HELLO option '".to_vec();
            text.extend_from_slice(word);
            text.push(b'\'');
            return Err(ErrorReply(text.into()));
        }
    }
    if call.session().is_some_and(|session| !session.authenticated) {
        return Err(HELLO_FIRST.into());
    }
    if let (Some(protocol), Some(session)) = (protocol, call.session()) {
        session.protocol = protocol;
    }
    Ok(hello_reply(call))
}

fn hello_reply(call: &mut Call<'_>) -> Reply {
    let new = call.session().is_some_and(|session| session.protocol == Protocol::Resp3);
    let role = if call.state.is_in(ServerCondition::Replica) { "replica" } else { "master" };
    let pair = |name: &str, value: Reply| (Reply::bulk(name.as_bytes()), value);
    Reply::Map(vec![
        pair("server", Reply::bulk(b"redis")),
        pair("version", Reply::bulk(VERSION.as_bytes())),
        pair("proto", Reply::Integer(if new { 3 } else { 2 })),
        pair("id", Reply::Integer(signed(call.connection))),
        pair("mode", Reply::bulk(b"standalone")),
        pair("role", Reply::bulk(role.as_bytes())),
        pair("modules", Reply::Array(Vec::new())),
    ])
}

fn log_in(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), ErrorReply> {
    let wanted = call.state.config.password();
    let right = user == b"default" && wanted.is_none_or(|wanted| wanted.as_bytes() == password);
    if !right {
        return Err(WRONG_PASS.into());
    }
    if let Some(session) = call.session() {
        session.authenticated = true;
    }
    Ok(())
}

fn auth(call: &mut Call<'_>) -> CommandResult {
    let (user, password): (&[u8], &[u8]) = match &call.args[1..] {
        [_] if call.state.config.password().is_none() => return Err(NO_PASSWORD.into()),
        [password] => (b"default", password),
        [user, password] => (user, password),
        _ => return Err(SYNTAX.into()),
    };
    log_in(call, user, password)?;
    Ok(Reply::OK)
}

fn select(call: &mut Call<'_>) -> CommandResult {
    let db = database(call.args[1], NOT_INTEGER)?;
    call.db = db;
    let in_script = call.in_script;
    if let Some(session) = call.session().filter(|_| !in_script) {
        session.db = db;
    }
    Ok(Reply::OK)
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn set_name(call: &mut Call<'_>, name: &[u8]) -> CommandResult {
    if !is_name(name) {
        return Err(BAD_NAME.into());
    }
    if let Some(session) = call.session() {
        session.name = name.to_vec();
    }
    Ok(Reply::OK)
}

/// The client address of a connection.
fn address(id: ConnectionId) -> String {
    format!("127.0.0.1:{}", 10_000 + id.0 % 50_000)
}

fn kind(session: &Connection) -> &'static str {
    if session.is_subscribed() { "pubsub" } else { "normal" }
}

fn describe(session: &Connection) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let flags = if session.is_subscribed() { "P" } else { "N" };
    format!(
        "id={} addr={} laddr=127.0.0.1:6379 fd=8 name={} age=0 idle=0 flags={flags} db={} sub={} \
         psub=0 ssub={} multi=-1 qbuf=0 user={} resp={}\n",
        session.id.0,
        address(session.id),
        text(&session.name),
        session.db,
        session.channels.len(),
        session.shard_channels.len(),
        text(&session.user),
        if session.protocol == Protocol::Resp3 { 3 } else { 2 },
    )
}

fn list(call: &mut Call<'_>) -> CommandResult {
    let wanted = match &call.args[2..] {
        [] => None,
        [word, wanted] if is(word, "TYPE") => Some(*wanted),
        _ => return Err(SYNTAX.into()),
    };
    let all = call.state.connections.values();
    let chosen = all.filter(|session| wanted.is_none_or(|wanted| is(wanted, kind(session))));
    let text: String = chosen.map(describe).collect();
    Ok(Reply::Verbatim(*b"txt", text.into_bytes()))
}

/// The filter of CLIENT KILL.
#[derive(Default)]
struct KillFilter<'a> {
    id: Option<i64>,
    kind: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    address: Option<&'a [u8]>,
    keep_me: bool,
}

impl<'a> KillFilter<'a> {
    fn read(args: &[&'a [u8]]) -> Result<KillFilter<'a>, ErrorReply> {
        let mut filter = KillFilter { keep_me: true, ..KillFilter::default() };
        for pair in args.chunks(2) {
            match pair {
                [word, id] if is(word, "ID") => {
                    let id = number::strict(id).filter(|id| *id > 0);
                    filter.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                [word, kind] if is(word, "TYPE") => filter.kind = Some(kind),
                [word, user] if is(word, "USER") => filter.user = Some(user),
                [word, address] if is(word, "ADDR") => filter.address = Some(address),
                [word, yes] if is(word, "SKIPME") => filter.keep_me = is(yes, "yes"),
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    fn means(&self, session: &Connection, me: ConnectionId) -> bool {
        let own = address(session.id);
        self.id.is_none_or(|id| id == signed(session.id))
            && self.kind.is_none_or(|wanted| is(wanted, kind(session)))
            && self.user.is_none_or(|user| user == session.user)
            && self.address.is_none_or(|address| address == own.as_bytes())
            && !(self.keep_me && session.id == me)
    }
}

fn kill(call: &mut Call<'_>) -> CommandResult {
    let me = call.connection;
    let old_form = call.args.len() == 3;
    let filter = match &call.args[2..] {
        [address] => KillFilter { address: Some(address), ..KillFilter::default() },
        args => KillFilter::read(args)?,
    };
    let all = call.state.connections.values();
    let ids: Vec<_> = all.filter(|session| filter.means(session, me)).map(|s| s.id).collect();
    for id in &ids {
        call.state.kill(*id, *id == me);
    }
    match (old_form, ids.is_empty()) {
        (true, true) => Err("ERR No such client".into()),
        (true, false) => Ok(Reply::OK),
        (false, _) => Ok(Reply::count(ids.len())),
    }
}

fn pause(call: &mut Call<'_>) -> CommandResult {
    let whom = match &call.args[3..] {
        [] => Pause::All,
        [word] if is(word, "ALL") => Pause::All,
        [word] if is(word, "WRITE") => Pause::Writes,
        [_] => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return Err(SYNTAX.into()),
    };
    let wait =
        number::strict(call.args[2]).ok_or("ERR timeout is not an integer or out of range")?;
    let wait = u64::try_from(wait).map_err(|_| ErrorReply::from("ERR timeout is negative"))?;
    let until = call.state.clock.common().now().after(Duration::from_millis(wait));
    call.state.pause = Some((whom, until));
    Ok(Reply::OK)
}

fn reply(call: &mut Call<'_>) -> CommandResult {
    let mode = match call.args[2] {
        word if is(word, "ON") => ReplyMode::On,
        word if is(word, "OFF") => ReplyMode::Off,
        word if is(word, "SKIP") => ReplyMode::SkipNext,
        _ => return Err(SYNTAX.into()),
    };
    if let Some(session) = call.session() {
        session.reply_mode = mode;
    }
    Ok(Reply::OK)
}

fn no_evict(call: &mut Call<'_>) -> CommandResult {
    let yes = is(call.args[2], "ON");
    if !yes && !is(call.args[2], "OFF") {
        return Err(SYNTAX.into());
    }
    if let Some(session) = call.session() {
        session.no_evict = yes;
    }
    Ok(Reply::OK)
}
