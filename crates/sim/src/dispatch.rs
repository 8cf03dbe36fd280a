//! Dispatch of a command to the code that runs it.

use crate::call::Call;
use crate::checks::{self, Effects};
use crate::commands::{Command, Run, find};
use crate::resp::Reply;
use crate::server::{FakeRedis, Replies};
use crate::session::ConnectionId;

impl FakeRedis {
    /// Checks a command and runs it, or keeps it for the end of a pause.
    pub(crate) fn process(&mut self, id: ConnectionId, args: &[&[u8]]) -> Replies {
        let state = self.state();
        let checked = match find(args) {
            Err(unknown) => Err(unknown.refusal(args)),
            Ok(command) => {
                let effects = Effects::of(command);
                checks::check(state, id, command, &effects).map(|()| (command, effects))
            }
        };
        let (command, effects) = match checked {
            Ok(checked) => checked,
            Err(refusal) => return vec![refusal.into()],
        };
        let paused = checks::is_paused(state, &effects);
        let Some(session) = state.connections.get_mut(&id) else { return Vec::new() };
        if paused {
            session.postponed = Some(owned(args));
            return Vec::new();
        }
        let db = session.db;
        self.run(command, id, db, args)
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
                let name = command.name;
                let in_script = false;
                let before = Vec::new();
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
            Run::Container(_) => vec![crate::errors::wrong_count(command.name).into()],
        }
    }
}

fn owned(args: &[&[u8]]) -> Vec<Vec<u8>> {
    args.iter().map(|argument| argument.to_vec()).collect()
}
