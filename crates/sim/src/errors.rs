//! The error replies of the server, with its own messages.

use std::borrow::Cow;

use crate::resp::Reply;

/// An error reply; its first word is the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorReply(pub(crate) Cow<'static, [u8]>);

/// The result of a command.
pub(crate) type CommandResult = Result<Reply, ErrorReply>;

impl From<&'static str> for ErrorReply {
    fn from(text: &'static str) -> ErrorReply {
        ErrorReply(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for ErrorReply {
    fn from(text: String) -> ErrorReply {
        ErrorReply(Cow::Owned(text.into_bytes()))
    }
}

impl From<ErrorReply> for Reply {
    fn from(refusal: ErrorReply) -> Reply {
        // An error is one line: line breaks become spaces.
        let text = refusal.0;
        let text = if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            let calm = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
            Cow::Owned(text.iter().map(calm).collect())
        } else {
            text
        };
        Reply::Error(text)
    }
}

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub(crate) const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub(crate) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
pub(crate) const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL \
     or SHUTDOWN NOSAVE.";
pub(crate) const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's \
     currently unable to persist to disk. Commands that may modify the data set are disabled, \
     because this instance is configured to report errors during writes if RDB snapshotting fails \
     (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
     error.";
pub(crate) const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
pub(crate) const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and \
     replica-serve-stale-data is set to 'no'.";
pub(crate) const NO_AUTH: &str = "NOAUTH Authentication required.";
pub(crate) const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const MAX_CLIENTS: &str = "ERR max number of clients reached";

/// Makes the error for a wrong number of arguments of a command or subcommand.
pub(crate) fn wrong_count(name: &str) -> ErrorReply {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// Makes the error for an invalid expiry.
pub(crate) fn invalid_expire(name: &str) -> ErrorReply {
    format!("ERR invalid expire time in '{name}' command").into()
}
