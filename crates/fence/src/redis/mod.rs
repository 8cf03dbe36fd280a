//! A key of a Redis or Valkey server that accepts no late writer, with any client.
//!
//! The mark is a separate key beside the data, in the same slot of a cluster: a string of digits.
//! One script checks it, raises it and writes. A [`RedisCall`] has the script and its arguments;
//! its answer is one string.
//!
//! Invariant F12: no script changes anything before all its checks. The mark is written first and
//! the data second; if the server refuses the second write, the first is undone.
//! Invariant F13: numbers in answers are the stored text, because Lua prints large numbers with
//! fewer digits.

mod slot;

use std::borrow::Cow;
use std::time::Duration;

use holdline_core::{Escaped, FencingToken};

use super::{Access, FenceError, Proof, Rules, StaleToken};
use slot::{slot, tag};

/// The Lua text at the start of your own scripts, to write something else than one string: a hash,
/// a list, several keys of one slot.
///
/// It defines `holdline_fence(mark, token, limit)`, which raises the mark or returns why not, for
/// [`RedisCall::outcome`]. Write only if it returned nothing.
pub const GUARD: &str = include_str!("guard.lua");

const SEAL: &str = concat!(include_str!("guard.lua"), include_str!("seal.lua"));
const CHECK: &str = concat!(include_str!("guard.lua"), include_str!("check.lua"));
const WRITE: &str = concat!(include_str!("guard.lua"), include_str!("write.lua"));

/// The longest expiry of a value, in milliseconds: the server adds the time of day, and refuses an
/// overflow.
const LONGEST: i64 = (1 << 53) - 1;

/// A string key of a Redis server, and the key of its mark.
///
/// It makes calls and reads their answers; you send them with your own client.
///
/// | your key | its mark |
/// |---|---|
/// | `stock/17` | `{stock/17}:fence` |
/// | `{stock}/17` | `{stock}/17:fence` |
///
/// # Guarantees
/// They are those of the server. If the mark is lost, late holders are accepted again: by eviction
/// (an `allkeys-…` policy; other policies keep it, as it has no expiry), a flush, a restart without
/// persistence, or a failover to a replica that lacks it. The data may expire, the mark must not,
/// because a pause can be arbitrarily long. One mark stays for each key that was ever fenced.
///
/// # Examples
/// ```no_run
/// use holdline_fence::{Proof, RedisFence};
/// use holdline_fence::FencingToken;
///
/// # async fn example(mut redis: redis::aio::MultiplexedConnection)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let stock = RedisFence::new("stock/17")?;
/// let mine = Proof::exclusive(FencingToken::new(34)?);
/// let call = stock.check_and_set(&mine, "9 apples")?;
/// let answer: String = redis::Script::new(call.script())
///     .key(call.keys())
///     .arg(call.arguments())
///     .invoke_async(&mut redis)
///     .await?;
/// call.outcome(&answer)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisFence {
    key: Vec<u8>,
    mark: Vec<u8>,
    rules: Rules,
}

impl RedisFence {
    /// Names the guarded key; the mark is beside it, as the table above shows.
    ///
    /// # Errors
    /// `Failed`: the key is empty, or contains a `}` but no `{tag}`, so that no mark can be in its
    /// slot.
    pub fn new(key: impl Into<Vec<u8>>) -> Result<RedisFence, FenceError> {
        let key = key.into();
        let tagged = tag(&key).len() < key.len();
        let parts: [&[u8]; 3] =
            if tagged { [b"", &key, b":fence"] } else { [b"{", &key, b"}:fence"] };
        let mark = parts.concat();
        RedisFence { key, mark, rules: Rules::default() }.checked()
    }

    /// Names the key of the mark, which must be in the slot of the data.
    ///
    /// # Errors
    /// `Failed`: it is the data's own key, empty, or in another slot.
    pub fn with_mark(mut self, mark: impl Into<Vec<u8>>) -> Result<RedisFence, FenceError> {
        self.mark = mark.into();
        self.checked()
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> RedisFence {
        self.rules = rules;
        self
    }

    /// Returns the key of the mark.
    pub fn mark_key(&self) -> &[u8] {
        &self.mark
    }

    /// Makes the call that raises the mark to the holder's token: before the first read.
    ///
    /// # Errors
    /// `OtherName`. Nothing was sent.
    pub fn seal(&self, proof: &Proof) -> Result<RedisCall, FenceError> {
        let limit = self.limit();
        self.call(SEAL, &[&self.mark], proof, &[limit.as_bytes()])
    }

    /// Makes the call that checks that no newer holder was here, and does not raise the mark.
    ///
    /// # Errors
    /// `OtherName`. Nothing was sent.
    pub fn check<A: Access>(&self, proof: &Proof<A>) -> Result<RedisCall, FenceError> {
        self.call(CHECK, &[&self.mark], proof, &[])
    }

    /// Makes the call that refuses a smaller token, or raises the mark and sets the value, which
    /// then has no expiry.
    ///
    /// # Errors
    /// `OtherName`. Nothing was sent.
    pub fn check_and_set(
        &self,
        proof: &Proof,
        value: impl AsRef<[u8]>,
    ) -> Result<RedisCall, FenceError> {
        self.write(proof, b"set", value.as_ref())
    }

    /// As [`check_and_set`](RedisFence::check_and_set), with a value that expires after `lasts`, in
    /// whole milliseconds; the mark stays.
    ///
    /// # Errors
    /// `OtherName`, or `Failed` for less than a millisecond or more than 285 000 years. Nothing was
    /// sent.
    pub fn check_and_set_for(
        &self,
        proof: &Proof,
        value: impl AsRef<[u8]>,
        lasts: Duration,
    ) -> Result<RedisCall, FenceError> {
        let millis = i64::try_from(lasts.as_millis()).ok();
        let Some(millis) = millis.filter(|millis| (1..=LONGEST).contains(millis)) else {
            let says = format!("{lasts:?} is out of range: from 1 ms to {LONGEST} ms");
            return Err(FenceError::failed("setting how long a value lasts", says));
        };
        self.write(proof, millis.to_string().as_bytes(), value.as_ref())
    }

    /// Makes the call that refuses a smaller token, or raises the mark and deletes the data.
    ///
    /// # Errors
    /// `OtherName`. Nothing was sent.
    pub fn check_and_delete(&self, proof: &Proof) -> Result<RedisCall, FenceError> {
        self.write(proof, b"delete", b"")
    }

    /// Makes a call of your own script, which starts with [`GUARD`].
    ///
    /// Its keys are the mark and then those of `keys`, all in one slot; its arguments are the
    /// token, the limit of jumps (`''` for none) and then those of `arguments`. It returns `'ok'`,
    /// or what `holdline_fence` returned. Redis does not undo a script that fails half-way, and
    /// then the mark may be raised: check the types of your keys before the fence, and use a user
    /// who may write all of them.
    ///
    /// # Errors
    /// `OtherName`, or `Failed` for a key in another slot. Nothing was sent.
    pub fn call_script(
        &self,
        script: impl Into<Cow<'static, str>>,
        proof: &Proof,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<RedisCall, FenceError> {
        if let Some(other) = keys.iter().find(|key| slot(key) != slot(&self.mark)) {
            return Err(elsewhere(other, &self.mark));
        }
        let limit = self.limit();
        let keys = [&[self.mark.as_slice()], keys].concat();
        self.call(script, &keys, proof, &[&[limit.as_bytes()], arguments].concat())
    }

    fn write(&self, proof: &Proof, how: &[u8], value: &[u8]) -> Result<RedisCall, FenceError> {
        let limit = self.limit();
        self.call(WRITE, &[&self.mark, &self.key], proof, &[limit.as_bytes(), how, value])
    }

    fn call<A: Access>(
        &self,
        script: impl Into<Cow<'static, str>>,
        keys: &[&[u8]],
        proof: &Proof<A>,
        arguments: &[&[u8]],
    ) -> Result<RedisCall, FenceError> {
        let resource = String::from_utf8_lossy(&self.key).into_owned();
        self.rules.report(&resource, self.rules.check(None, proof))?;
        let token = proof.token().to_string();
        let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
        let script = script.into();
        Ok(RedisCall {
            is_ours: matches!(script, Cow::Borrowed(SEAL | CHECK | WRITE)),
            script,
            keys: owned(keys),
            arguments: owned(&[&[token.as_bytes()], arguments].concat()),
            mine: proof.token(),
            rules: self.rules.clone(),
            resource,
        })
    }

    fn limit(&self) -> String {
        self.rules.jump_limit().map_or_else(String::new, |limit| limit.to_string())
    }

    fn checked(self) -> Result<RedisFence, FenceError> {
        let wrong = |says: &str| {
            let what = format!("naming the mark of {}", shown(&self.key));
            Err(FenceError::failed(what, says))
        };
        if self.key.is_empty() || self.mark.is_empty() {
            return wrong("a key must have at least one byte");
        }
        if self.key == self.mark {
            return wrong("the mark is a key of its own, not that of the data");
        }
        if slot(&self.key) != slot(&self.mark) {
            return Err(elsewhere(&self.mark, &self.key));
        }
        Ok(self)
    }
}

/// A script with its keys and arguments, which also reads the answer.
///
/// Send `EVAL script count keys… arguments…`, or `EVALSHA` as your client does. Sending it twice is
/// harmless unless a newer holder came in between: then the second answer is stale although the
/// first call was applied.
#[derive(Clone, Debug)]
#[must_use = "a call does nothing until you send it"]
pub struct RedisCall {
    script: Cow<'static, str>,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    mine: FencingToken,
    rules: Rules,
    resource: String,
    /// Whether the script is one of ours, which is atomic.
    is_ours: bool,
}

impl RedisCall {
    /// Returns the Lua text. There are three scripts of ours, so that servers cache them.
    pub fn script(&self) -> &str {
        &self.script
    }

    /// Returns the keys, all of one slot.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Returns the arguments.
    pub fn arguments(&self) -> &[Vec<u8>] {
        &self.arguments
    }

    /// Returns the whole command, for clients that send raw commands: `EVAL`, the text, the number
    /// of keys, the keys, the arguments.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let head =
            [b"EVAL".to_vec(), self.script.as_bytes().to_vec(), self.keys.len().to_string().into()];
        head.into_iter().chain(self.keys.clone()).chain(self.arguments.clone()).collect()
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// `Stale`, `TooFar`: refused. `Foreign`: the mark or the data has the wrong type or content.
    /// Nothing was changed after any of them, nor after `Failed` if the server refused to write the
    /// data. `Failed` with unknown outcome: the answer is not one of ours.
    pub fn outcome(&self, answer: &str) -> Result<(), FenceError> {
        let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
        let seen = || rest.parse::<FencingToken>();
        let outcome = match (word, seen(), self.rules.jump_limit()) {
            ("ok", ..) => Ok(()),
            ("stale", Ok(seen), _) => Err(StaleToken { mine: self.mine, seen }.into()),
            ("far", Ok(seen), Some(limit)) => {
                Err(FenceError::TooFar { mine: self.mine, seen, limit: limit.get() })
            }
            ("refused", ..) if self.is_ours => {
                let doing = format!("writing the data of {}", Escaped(&self.resource));
                Err(FenceError::failed(doing, Escaped(rest).to_string()))
            }
            ("foreign", ..) => Err(FenceError::Foreign { found: self.foreign(rest) }),
            _ => {
                let says = format!("the script answered \"{}\"", Escaped(answer));
                Err(FenceError::unsure("reading the answer of the fence", says))
            }
        };
        self.rules.report(&self.resource, outcome)
    }

    /// Reads an error of the server, such as `WRONGTYPE …`, as your client shows it. Do not use it
    /// for connection errors, whose outcome is unknown. The outcome is unknown too if a script of
    /// your own may have raised the mark already.
    pub fn server_error(&self, words: &str) -> FenceError {
        let doing = format!("asking the fence of {}", Escaped(&self.resource));
        let says = words.to_owned();
        match words.split([' ', ':']).next().unwrap_or_default() {
            // Our scripts have changed nothing then; a script of the user may have.
            "WRONGTYPE" | "NOPERM" | "CROSSSLOT" if !self.is_ours => {
                FenceError::unsure(doing, says)
            }
            "WRONGTYPE" => FenceError::Foreign { found: format!("{doing}: {says}") },
            "BUSY" | "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => {
                FenceError::Busy { what: format!("{doing}: {says}") }
            }
            "NOAUTH" | "NOPERM" | "NOSCRIPT" | "CROSSSLOT" | "MOVED" | "ASK" | "READONLY"
            | "MISCONF" | "OOM" | "NOREPLICAS" => FenceError::failed(doing, says),
            _ => FenceError::unsure(doing, says),
        }
    }

    fn foreign(&self, what: &str) -> String {
        let key = |at: usize| self.keys.get(at).map_or_else(String::new, |key| shown(key));
        match what.split_once(' ') {
            Some(("mark", "text")) => format!("{} holds no fencing token", key(0)),
            Some(("mark", kind)) => format!("{} is a {kind}, not a string", key(0)),
            Some((_, kind)) => format!("{} is a {kind}, not a string", key(1)),
            None => what.to_owned(),
        }
    }
}

fn elsewhere(one: &[u8], other: &[u8]) -> FenceError {
    let says = format!(
        "{} is in slot {} and {} in slot {}: what is written in one step must be in one slot, so \
         give both the same part in braces, such as {{stock}}",
        shown(one),
        slot(one),
        shown(other),
        slot(other),
    );
    FenceError::failed("naming the keys of a fence", says)
}

fn shown(key: &[u8]) -> String {
    Escaped(&String::from_utf8_lossy(key)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::proof;

    #[test]
    fn a_mark_is_in_the_slot_of_its_data() {
        for (key, mark) in [
            ("stock/17", "{stock/17}:fence"),
            ("{stock}/17", "{stock}/17:fence"),
            ("a{b", "{a{b}:fence"),
            ("a{b}}c", "a{b}}c:fence"),
        ] {
            let fence = RedisFence::new(key).expect("a good key");
            assert_eq!(fence.mark_key(), mark.as_bytes());
            assert_eq!(slot(fence.mark_key()), slot(key.as_bytes()));
        }
        for key in ["", "a}b", "a{}b", "}"] {
            let result = RedisFence::new(key).expect_err(key).to_string();
            assert!(
                result.contains("at least one byte") || result.contains("in braces"),
                "{result}"
            );
        }
    }

    #[test]
    fn keys_of_two_slots_are_refused_before_anything_is_sent() {
        let fence = RedisFence::new("stock/17").expect("a good key");
        let result = fence.clone().with_mark("marks:stock/17").expect_err("elsewhere").to_string();
        assert!(result.contains("in slot") && result.contains("marks:stock/17"), "{result}");
        let result = fence.clone().with_mark("stock/17").expect_err("the same").to_string();
        assert!(result.contains("a key of its own"), "{result}");
        fence.clone().with_mark("{stock/17}:mine").expect("the same slot");
        let result = fence.call_script(GUARD, &proof(34), &[b"other"], &[]);
        assert!(result.expect_err("elsewhere").to_string().contains("in slot"));
    }

    #[test]
    fn answers_are_read_and_an_unknown_answer_is_uncertain() {
        let limit = std::num::NonZeroU64::new(10).expect("not zero");
        let fence = RedisFence::new("stock").expect("a good key");
        let fence = fence.with_rules(Rules::default().max_jump(limit));
        let call = fence.check_and_set(&proof(33), "9").expect("a call");
        for (answer, says) in [
            ("ok", "yes"),
            ("stale 34", "fencing token 33 is stale: the resource has accepted 34"),
            ("far 1", "fencing token 33 is 32 above the mark 1, more than the limit of 10"),
            ("foreign mark list", "left as it is: {stock}:fence is a list, not a string"),
            ("foreign mark text", "left as it is: {stock}:fence holds no fencing token"),
            ("foreign value hash", "left as it is: stock is a hash, not a string"),
            ("stale", "the script answered \"stale\" (whether mark and data were changed"),
            ("stale 9007199254740992", "the script answered"),
            ("refused NOPERM del", "writing the data of stock: NOPERM del"),
            ("malformed", "the script answered \"malformed\""),
            ("", "the script answered \"\""),
        ] {
            let outcome = call.outcome(answer);
            let result = outcome.map_or_else(|error| error.to_string(), |()| "yes".to_owned());
            assert!(result.contains(says), "{answer}: {result}");
        }
    }

    #[test]
    fn server_errors_have_the_right_certainty() {
        use holdline_core::Certainty::{NotApplied, Unknown};
        let call = RedisFence::new("stock").expect("a key").seal(&proof(33)).expect("a call");
        for (words, certainty, foreign, busy) in [
            ("WRONGTYPE Operation against a key", NotApplied, true, false),
            ("LOADING Redis is loading", NotApplied, false, true),
            ("CROSSSLOT Keys in request", NotApplied, false, false),
            ("ERR something new", Unknown, false, false),
        ] {
            let error = call.server_error(words);
            assert_eq!(error.certainty(), certainty, "{error}");
            assert_eq!(matches!(error, FenceError::Foreign { .. }), foreign, "{error}");
            assert_eq!(matches!(error, FenceError::Busy { .. }), busy, "{error}");
        }
    }

    #[test]
    fn an_expiry_out_of_range_is_refused() {
        let fence = RedisFence::new("stock").expect("a key");
        let longest = Duration::from_millis(LONGEST.unsigned_abs());
        let counted = fence.check_and_set_for(&proof(33), "9", longest);
        assert!(counted.is_ok(), "{counted:?}");
        let too_long = longest + Duration::from_millis(1);
        for lasts in [Duration::ZERO, Duration::from_micros(999), too_long, Duration::MAX] {
            assert!(fence.check_and_set_for(&proof(33), "9", lasts).is_err(), "{lasts:?}");
        }
    }
}
