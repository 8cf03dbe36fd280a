//! Commands about the server: TIME, INFO, ROLE, COMMAND.

use super::{Command, FAST, LOADING, NO_SCRIPT, Run, STALE, all, container, keyless};
use crate::call::{Call, is};
use crate::errors::CommandResult;
use crate::options::VERSION;
use crate::resp::Reply;
use crate::state::{ServerCondition, ServerData};

pub(crate) const TABLE: &[Command] = &[
    keyless("time", 1, FAST | LOADING | STALE, time),
    keyless("info", -1, LOADING | STALE, info),
    keyless("role", 1, NO_SCRIPT | LOADING | STALE | FAST, role),
    keyless("wait", 3, NO_SCRIPT, wait),
    Command { run: Run::Plain(command), arity: -1, ..container("command", &[]) },
];

fn time(call: &mut Call<'_>) -> CommandResult {
    let now = call.state.now_us;
    let parts = [now.div_euclid(1_000_000), now.rem_euclid(1_000_000)];
    Ok(Reply::bulks(parts.map(|part| part.to_string().into_bytes())))
}

fn role(call: &mut Call<'_>) -> CommandResult {
    let text = |text: &str| Reply::bulk(text.as_bytes());
    Ok(Reply::Array(if call.state.is_in(ServerCondition::Replica) {
        let link =
            if call.state.is_in(ServerCondition::MasterDown) { "connect" } else { "connected" };
        let port = Reply::Integer(6380);
        vec![text("slave"), text("127.0.0.1"), port, text(link), Reply::Integer(0)]
    } else {
        vec![text("master"), Reply::Integer(0), Reply::Array(Vec::new())]
    }))
}

/// No replicas are simulated, so none acknowledges.
fn wait(call: &mut Call<'_>) -> CommandResult {
    call.integer(1)?;
    let limit = crate::number::strict(call.args[2])
        .ok_or("ERR timeout is not an integer or out of range")?;
    if limit < 0 {
        return Err("ERR timeout is negative".into());
    }
    if call.state.is_in(ServerCondition::Replica) {
        return Err("ERR WAIT cannot be used with replica instances. Please also note that since \
             Redis 4.0 if a replica is configured to be writable (which is not the default) \
             writes to replicas are just local and are not propagated."
            .into());
    }
    Ok(Reply::Integer(0))
}

fn command(call: &mut Call<'_>) -> CommandResult {
    match call.args.get(1) {
        None => Ok(Reply::Array(all().map(row).collect())),
        Some(word) if is(word, "COUNT") => Ok(Reply::count(all().count())),
        Some(word) if is(word, "INFO") => {
            let known = |name: &&[u8]| all().find(|command| is(name, command.name));
            let rows = call.args[2..].iter().map(|name| known(name).map_or(Reply::NullArray, row));
            Ok(Reply::Array(rows.collect()))
        }
        Some(word) if is(word, "DOCS") => Ok(Reply::Map(Vec::new())),
        Some(_) => Err(super::Unknown::Subcommand.refusal(call.args)),
    }
}

fn row(command: &Command) -> Reply {
    let (first, last, step) = command.keys;
    let flags = command.flag_names().map(Reply::status).collect();
    let number = |number: i32| Reply::Integer(i64::from(number));
    let empty = || Reply::Set(Vec::new());
    Reply::Array(vec![
        Reply::bulk(command.name.as_bytes()),
        number(command.arity),
        Reply::Set(flags),
        number(first),
        number(last),
        number(step),
        empty(),
        empty(),
        empty(),
        Reply::Array(Vec::new()),
    ])
}

type Section = fn(&ServerData) -> String;

/// The sections of INFO that clients use.
const SECTIONS: &[(&str, Section)] = &[
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("persistence", persistence),
    ("stats", stats),
    ("replication", replication),
    ("cluster", |_| "cluster_enabled:0\r\n".to_owned()),
    ("keyspace", keyspace),
];

fn info(call: &mut Call<'_>) -> CommandResult {
    call.state.expire_all();
    let wanted: Vec<&[u8]> = call.args[1..].to_vec();
    let everything = ["all", "default", "everything"];
    let asked = |name: &str| {
        wanted.is_empty()
            || wanted.iter().any(|w| is(w, name) || everything.iter().any(|all| is(w, all)))
    };
    let mut text = String::new();
    for (name, write) in SECTIONS.iter().filter(|(name, _)| asked(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let title = name[..1].to_ascii_uppercase() + &name[1..];
        text.push_str(&format!("# {title}\r\n{}", write(call.state)));
    }
    Ok(Reply::Verbatim(*b"txt", text.into_bytes()))
}

fn server(state: &ServerData) -> String {
    let uptime = state.clock.common().now().since(state.started).as_secs();
    format!(
        "redis_version:{}\r\nredis_mode:standalone\r\nprocess_id:1\r\nrun_id:{}\r\n\
         tcp_port:6379\r\nserver_time_usec:{}\r\nuptime_in_seconds:{uptime}\r\n",
        VERSION, state.run_id, state.now_us,
    )
}

fn clients(state: &ServerData) -> String {
    format!(
        "connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:0\r\n",
        state.connections.len(),
        state.config.text("maxclients"),
    )
}

fn memory(state: &ServerData) -> String {
    format!(
        "used_memory:{}\r\nmaxmemory:{}\r\nmaxmemory_policy:{}\r\n",
        state.used_memory(),
        state.config.max_memory(),
        state.config.text("maxmemory-policy"),
    )
}

fn persistence(state: &ServerData) -> String {
    let loading = u8::from(state.is_in(ServerCondition::Loading));
    let saved = if state.is_in(ServerCondition::CannotPersist) { "err" } else { "ok" };
    let file = u8::from(state.config.text("appendonly") == "yes");
    format!(
        "loading:{loading}\r\nrdb_changes_since_last_save:{}\r\nrdb_last_bgsave_status:{saved}\r\n\
         aof_enabled:{file}\r\naof_last_write_status:ok\r\n",
        state.changes,
    )
}

fn stats(state: &ServerData) -> String {
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nexpired_keys:{}\r\n\
         evicted_keys:{}\r\npubsub_channels:{}\r\npubsub_patterns:0\r\n",
        state.next_connection - 1,
        state.commands_run,
        state.expired_keys,
        state.evicted,
        state.channels.plain.len(),
    )
}

fn replication(state: &ServerData) -> String {
    let role = if state.is_in(ServerCondition::Replica) {
        let link = if state.is_in(ServerCondition::MasterDown) { "down" } else { "up" };
        format!(
            "role:slave\r\nmaster_host:127.0.0.1\r\nmaster_port:6380\r\n\
             master_link_status:{link}\r\nslave_read_only:1\r\n"
        )
    } else {
        "role:master\r\n".to_owned()
    };
    format!("{role}connected_slaves:0\r\nmaster_replid:{}\r\n", state.replication_id)
}

fn keyspace(state: &ServerData) -> String {
    let lines = state.databases.iter().enumerate().filter(|(_, space)| space.len() > 0);
    let line = |(db, space): (usize, &crate::data::Keyspace)| {
        let ending = space.iter().filter(|(_, entry)| entry.expires_at.is_some()).count();
        format!("db{db}:keys={},expires={ending},avg_ttl=0\r\n", space.len())
    };
    lines.map(line).collect()
}
