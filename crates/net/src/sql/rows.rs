//! A row of a reply, read by the names of its columns. A value of another shape is a `Protocol`
//! error.

use std::time::Duration;

use holdline_core::{
    Certainty, ErrorKind, FencingToken, LeaseId, LockError, Metadata, Mode, ShortLeaseId,
};

/// A row of a server's reply. An engine reads the four kinds of values; the other methods convert
/// them.
pub trait Row {
    /// The engine's short name.
    const ENGINE: &'static str;

    /// Reads a whole number, whatever its size.
    fn number(&self, column: &str) -> Result<Option<i64>, LockError>;

    /// Reads text that our functions and procedures write.
    fn word(&self, column: &str) -> Result<Option<&str>, LockError>;

    /// Reads bytes.
    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, LockError>;

    /// Returns a value that must not be null.
    fn required<T>(&self, column: &str, value: Option<T>) -> Result<T, LockError> {
        value.ok_or_else(|| self.protocol(format!("an answer has nothing in column `{column}`")))
    }

    /// A reply of an unexpected shape: the command was applied.
    fn protocol(&self, message: impl Into<String>) -> LockError {
        let kind = ErrorKind::Protocol { message: message.into() };
        LockError::new(Self::ENGINE, kind, Certainty::Unknown)
    }

    /// Reads a number that must not be null.
    fn sure_number(&self, column: &str) -> Result<i64, LockError> {
        self.required(column, self.number(column)?)
    }

    /// Reads text that must not be null.
    fn sure_word(&self, column: &str) -> Result<&str, LockError> {
        self.required(column, self.word(column)?)
    }

    /// Reads bytes that must not be null.
    fn sure_bytes(&self, column: &str) -> Result<&[u8], LockError> {
        self.required(column, self.bytes(column)?)
    }

    /// Reads microseconds.
    fn duration(&self, column: &str) -> Result<Option<Duration>, LockError> {
        let micros = self.number(column)?;
        Ok(micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    /// Reads microseconds that must not be null.
    fn sure_duration(&self, column: &str) -> Result<Duration, LockError> {
        self.required(column, self.duration(column)?)
    }

    /// Reads how many there are.
    fn count(&self, column: &str) -> Result<usize, LockError> {
        Ok(usize::try_from(self.sure_number(column)?).unwrap_or(0))
    }

    /// Reads a fencing token.
    fn token(&self, column: &str) -> Result<Option<FencingToken>, LockError> {
        let Some(number) = self.number(column)? else { return Ok(None) };
        let token = u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok());
        token.map(Some).ok_or_else(|| self.protocol("an answer has a fencing token that is none"))
    }

    /// Reads what a user wrote, such as a reason.
    fn text(&self, column: &str) -> Result<Option<String>, LockError> {
        let bytes = self.bytes(column)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// Reads the metadata of a holder or waiter.
    fn metadata(&self, column: &str) -> Result<Metadata, LockError> {
        // Longer text was not written by us and is ignored.
        let text = self.text(column)?.unwrap_or_default();
        Ok(Metadata::from_encoded(&text).unwrap_or_default())
    }

    /// Reads the first four bytes of a lease id.
    fn short(&self, column: &str) -> Result<ShortLeaseId, LockError> {
        let mut whole = [0; 16];
        match self.sure_bytes(column)? {
            first @ [_, _, _, _] => whole[..4].copy_from_slice(first),
            _ => return Err(self.protocol("an answer has a lease id of another length")),
        }
        Ok(LeaseId::from_bytes(whole).short())
    }

    /// Reads a mode from the columns of its letter, its permits, and their total.
    fn mode(&self, letter: &str, permits: &str, total: &str) -> Result<Mode, LockError> {
        let odd = || self.protocol("an answer has an unknown mode");
        match self.sure_word(letter)? {
            "x" => Ok(Mode::Exclusive),
            "s" => Ok(Mode::Shared),
            "p" => {
                let number = |n: i64| u32::try_from(n).map_err(|_| odd());
                let count = number(self.sure_number(permits)?)?;
                Mode::permits(count, number(self.sure_number(total)?)?).map_err(|_| odd())
            }
            _ => Err(odd()),
        }
    }
}
