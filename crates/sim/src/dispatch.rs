//! Dispatch of a command to the code that runs it.

use crate::call::Call;
use crate::checks::{self, Effects};
use crate::commands::{Command, Run, find, find_for};
use crate::errors::ErrorReply;
use crate::resp::Reply;
use crate::server::{FakeRedis, Replies};
use crate::session::ConnectionId;

impl FakeRedis {
    /// Checks a command and runs it, or queues it for EXEC or for the end of a pause.
    pub(crate) fn process(&mut self, id: ConnectionId, args: &[&[u8]]) -> Replies {
        let state = self.state();
        let checked = match find_for(&state.options, args) {
            Err(unknown) => Err(unknown.refusal(args)),
            Ok(command) => {
                let effects = Effects::of(state, id, command);
                checks::check(state, id, command, &effects).map(|()| (command, effects))
            }
        };
        let (command, effects) = match checked {
            Ok(checked) => checked,
            Err(refusal) => {
                return vec![self.refused(id, args, refusal).into()];
            }
        };
        let paused = checks::is_paused(state, &effects);
        let Some(session) = state.connections.get_mut(&id) else { return Vec::new() };
        if paused {
            session.postponed = Some(owned(args));
            return Vec::new();
        }
        if let Some(transaction) = session.transaction.as_mut()
            && checks::is_queued(command)
        {
            transaction.commands.push(owned(args));
            return vec![Reply::QUEUED];
        }
        let db = session.db;
        self.run(command, id, db, args)
    }

    /// Updates the transaction after a rejected command: it fails, or ends if the command was EXEC.
    fn refused(&mut self, id: ConnectionId, args: &[&[u8]], refusal: ErrorReply) -> ErrorReply {
        let state = self.state();
        let Some(session) = state.connections.get_mut(&id) else { return refusal };
        if args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec")) {
            session.transaction = None;
            state.unwatch(id);
            let why = refusal.0.strip_prefix(b"ERR ").unwrap_or(&refusal.0);
            let text = [b"EXECABORT Transaction discarded because of: ".as_slice(), why].concat();
            return ErrorReply(text.into());
        }
        if let Some(transaction) = session.transaction.as_mut() {
            transaction.broken = true;
        }
        refusal
    }

    fn run(
        &mut self,
        command: &'static Command,
        id: ConnectionId,
        db: usize,
        args: &[&[u8]],
    ) -> Replies {
        let state = self.state();
        state.commands_run += 1;
        state.requests += 1;
        match command.run {
            Run::Plain(body) => {
                let (name, in_script, before) = (command.name, false, Vec::new());
                let mut call = Call { state, connection: id, db, name, args, in_script, before };
                let answer = body(&mut call);
                let mut replies = call.before;
                replies.push(answer.unwrap_or_else(Reply::from));
                replies
            }
            Run::Script(verb) => {
                let (state, scripts) = self.lend();
                vec![scripts.run(state, verb, id, db, args)]
            }
            Run::Exec => vec![self.exec(id).unwrap_or_else(Reply::from)],
            Run::Container(_) => vec![crate::errors::wrong_count(command.name).into()],
        }
    }

    fn exec(&mut self, id: ConnectionId) -> Result<Reply, ErrorReply> {
        let state = self.state();
        let Some(session) = state.connections.get_mut(&id) else { return Ok(Reply::Null) };
        let transaction = session.transaction.take().ok_or("ERR EXEC without MULTI")?;
        // A watched key that has expired counts as changed.
        for (db, key) in session.watched.clone() {
            let now = state.now_us.div_euclid(1000);
            if state.databases[db].get(&key).is_some_and(|entry| entry.is_expired(now)) {
                state.expired(db, &key);
            }
        }
        let stale = state.connections.get(&id).is_some_and(|session| session.stale);
        state.unwatch(id);
        if transaction.broken {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        if stale {
            return Ok(Reply::NullArray);
        }
        let mut replies = Vec::new();
        for queued in &transaction.commands {
            let args: Vec<&[u8]> = queued.iter().map(Vec::as_slice).collect();
            let Ok(command) = find(&args) else { continue };
            let Some(db) = self.state().connections.get(&id).map(|session| session.db) else {
                break;
            };
            replies.extend(self.run(command, id, db, &args));
        }
        Ok(Reply::Array(replies))
    }
}

fn owned(args: &[&[u8]]) -> Vec<Vec<u8>> {
    args.iter().map(|argument| argument.to_vec()).collect()
}
