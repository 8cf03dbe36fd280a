//! The number that orders the grants of a name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Orders the grants of one lock name: a later exclusive grant has a larger token.
///
/// The lock issues tokens; the *resource* enforces them: it remembers the largest that it has
/// accepted and rejects smaller ones. Tokens of different names are not comparable. A token is
/// between 1 and 2^53 − 1, so that JSON and Lua numbers represent it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FencingToken(u64);

impl FencingToken {
    /// The smallest token.
    pub const MIN: FencingToken = FencingToken(1);
    /// The largest token: 2^53 − 1.
    pub const MAX: FencingToken = FencingToken((1 << 53) - 1);

    /// Makes a token of a number.
    ///
    /// # Errors
    /// [`TokenError`] when the number is 0 or 2^53 or more.
    pub fn new(number: u64) -> Result<FencingToken, TokenError> {
        if (1..1 << 53).contains(&number) { Ok(FencingToken(number)) } else { Err(TokenError) }
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next larger token.
    ///
    /// # Errors
    /// [`TokenError`] when this is [`FencingToken::MAX`]: the store's counter is exhausted.
    pub fn next(self) -> Result<FencingToken, TokenError> {
        FencingToken::new(self.0 + 1)
    }
}

/// The number is not a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token is a whole number from 1 to 9007199254740991")]
pub struct TokenError;

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for FencingToken {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<FencingToken, TokenError> {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !plain {
            return Err(TokenError);
        }
        FencingToken::new(text.parse().map_err(|_| TokenError)?)
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = TokenError;
    fn try_from(number: u64) -> Result<FencingToken, TokenError> {
        FencingToken::new(number)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_range_and_nothing_else() {
        for good in ["1", "42", "9007199254740991"] {
            assert_eq!(good.parse::<FencingToken>().expect("in range").to_string(), good);
        }
        for bad in ["", "0", "-1", "+1", "1.0", "9007199254740992", "18446744073709551616", " 1"] {
            assert_eq!(bad.parse::<FencingToken>(), Err(TokenError), "{bad}");
        }
        assert_eq!(FencingToken::MAX.next(), Err(TokenError));
    }
}
