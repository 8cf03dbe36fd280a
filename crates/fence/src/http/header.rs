//! The header: a token in digits, followed by `;shared` for a shared holder.
//!
//! It is not a structured field of RFC 9651, whose integers have at most fifteen digits; tokens
//! have up to sixteen.

use ::http::{HeaderMap, HeaderName, HeaderValue};
use holdline_core::{Escaped, FencingToken, TokenError};

use crate::{Exclusive, Proof, Shared};

/// The header that carries a fencing token: `Holdline-Fencing-Token`.
pub const HEADER: HeaderName = HeaderName::from_static("holdline-fencing-token");

/// The suffix of a shared holder's token.
const SHARED: &str = "shared";
/// The most of a wrong value that a message shows.
const SHOWN: usize = 64;

/// The sender of a request, by its header.
#[derive(Clone, Debug)]
pub enum Holder {
    /// An exclusive holder: it may read and write.
    Exclusive(Proof<Exclusive>),
    /// A shared holder: it may read.
    Shared(Proof<Shared>),
}

impl Holder {
    /// Reads the header, if there is one.
    ///
    /// # Errors
    /// [`MalformedToken`]: it is not as described, or there are several.
    ///
    /// # Examples
    /// ```
    /// use holdline_fence::Proof;
    /// use holdline_fence::http::{HEADER, Holder};
    /// use holdline_fence::FencingToken;
    ///
    /// let proof = Proof::exclusive(FencingToken::new(34)?);
    /// let request = http::Request::put("/stock/17").header(HEADER, &proof).body("9 apples")?;
    /// assert_eq!(request.headers()["holdline-fencing-token"], "34");
    ///
    /// let holder = Holder::of(request.headers())?.expect("there is one");
    /// assert_eq!(holder.token(), proof.token());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(headers: &HeaderMap) -> Result<Option<Holder>, MalformedToken> {
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(MalformedToken("there is more than one".to_owned()));
        }
        Holder::parse(value.as_bytes()).map(Some)
    }

    fn parse(value: &[u8]) -> Result<Holder, MalformedToken> {
        let text = String::from_utf8_lossy(value);
        let wrong = |why: &str| {
            let start: String = text.chars().take(SHOWN).collect();
            MalformedToken(format!("\"{}\": {why}", Escaped(&start)))
        };
        let blanks = [' ', '\t'];
        let (digits, kind) = match text.split_once(';') {
            Some((digits, kind)) => (digits, Some(kind.trim_matches(blanks))),
            None => (&*text, None),
        };
        let token: FencingToken = digits
            .trim_matches(blanks)
            .parse()
            .map_err(|error: TokenError| wrong(&error.to_string()))?;
        match kind {
            None => Ok(Holder::Exclusive(Proof::exclusive(token))),
            Some(SHARED) => Ok(Holder::Shared(Proof::shared(token))),
            Some(_) => Err(wrong("only `;shared` may follow the token")),
        }
    }

    /// Returns the token.
    pub fn token(&self) -> FencingToken {
        match self {
            Holder::Exclusive(proof) => proof.token(),
            Holder::Shared(proof) => proof.token(),
        }
    }

    /// Returns the proof of an exclusive holder, which a handler needs to write.
    pub fn exclusive(&self) -> Option<&Proof> {
        match self {
            Holder::Exclusive(proof) => Some(proof),
            Holder::Shared(_) => None,
        }
    }
}

/// The header is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header Holdline-Fencing-Token is wrong: {0}")]
pub struct MalformedToken(String);

impl From<&Proof<Exclusive>> for HeaderValue {
    fn from(proof: &Proof<Exclusive>) -> HeaderValue {
        HeaderValue::from(proof.token().get())
    }
}

impl From<&Proof<Shared>> for HeaderValue {
    fn from(proof: &Proof<Shared>) -> HeaderValue {
        let text = format!("{};{SHARED}", proof.token());
        // Digits and letters are always allowed.
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from(proof.token().get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&[u8]]) -> Result<Option<(u64, bool)>, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).expect("allowed bytes"));
        }
        let holder = Holder::of(&headers).map_err(|error| error.to_string())?;
        Ok(holder.map(|holder| (holder.token().get(), holder.exclusive().is_some())))
    }

    #[test]
    fn a_token_is_read_as_it_is_written() {
        assert_eq!(of(&[]), Ok(None));
        for (value, token, exclusive) in [
            ("34", 34, true),
            ("34;shared", 34, false),
            (" 34 ; shared ", 34, false),
            ("9007199254740991", FencingToken::MAX.get(), true),
        ] {
            assert_eq!(of(&[value.as_bytes()]), Ok(Some((token, exclusive))), "{value}");
        }
        let token = FencingToken::MAX;
        for value in
            [HeaderValue::from(&Proof::exclusive(token)), HeaderValue::from(&Proof::shared(token))]
        {
            let shared = value.as_bytes().ends_with(b"shared");
            assert_eq!(of(&[value.as_bytes()]), Ok(Some((token.get(), !shared))));
        }
    }

    #[test]
    fn all_else_is_malformed_and_shown_in_part() {
        let long = "9".repeat(5_000);
        for value in [
            "",
            "0",
            "-1",
            "+34",
            "34.0",
            "0x22",
            "34,35",
            "34;",
            "34;exclusive",
            "34;shared;x",
            "34;SHARED",
            "9007199254740992",
            "99999999999999999999",
            "\"34\"",
            "34 35",
        ] {
            let result = of(&[value.as_bytes()]);
            assert!(
                result.as_ref().is_err_and(|says| says.contains("is wrong")),
                "{value}: {result:?}"
            );
        }
        assert!(of(&[b"34", b"34"]).is_err_and(|says| says.contains("more than one")));
        assert!(of(&["\u{202e}34".as_bytes()]).is_err_and(|says| says.contains("\\u{202e}")));
        assert!(of(&[long.as_bytes()]).is_err_and(|says| says.len() < 300));
    }
}
