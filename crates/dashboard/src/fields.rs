//! The fields of a query or a form: each once, each known, each with its own check.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use holdline_core::LockName;
use http::StatusCode;

use crate::fault::Fault;

/// Fields that were not read yet.
#[derive(Debug, Default)]
pub(crate) struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Reads `name=value` pairs as browsers write them.
    pub(crate) fn read(text: &[u8]) -> Result<Fields, Fault> {
        let mut fields = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text) {
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(Fault::invalid(&name, "it is not UTF-8", "percent-encode UTF-8"));
            }
            if fields.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(Fault::invalid(&name, "it occurs twice", "leave one of them out"));
            }
        }
        Ok(Fields(fields))
    }

    /// Takes a field; an empty one counts as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).filter(|value| !value.is_empty())
    }

    /// Takes a field that must be there.
    pub(crate) fn need(&mut self, name: &str) -> Result<String, Fault> {
        self.take(name).ok_or_else(|| Fault::invalid(name, "it is missing", "fill it in"))
    }

    /// Takes the lock name.
    pub(crate) fn lock_name(&mut self) -> Result<LockName, Fault> {
        self.parsed("name", "follow a link of the page Locks")
    }

    /// Takes a value that must be there; `fix` says where it comes from.
    pub(crate) fn parsed<T>(&mut self, name: &str, fix: &str) -> Result<T, Fault>
    where
        T: FromStr<Err: Display>,
    {
        let value = self.need(name)?.parse();
        value.map_err(|error: T::Err| Fault::invalid(name, error.to_string(), fix))
    }

    /// Takes a number within bounds.
    pub(crate) fn number<T>(
        &mut self,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, Fault>
    where
        T: FromStr + PartialOrd + Display + Copy,
    {
        let Some(text) = self.take(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let fix = format!("use a whole number from {} to {}", range.start(), range.end());
            Fault::invalid(name, format!("`{text}` is no number in the range"), fix)
        })
    }

    /// Takes one word of a list.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Fault> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        found.map(Some).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let fix = format!("use one of {}", words.join(", "));
            Fault::invalid(name, format!("`{text}` is none of the choices"), fix)
        })
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => {
                let fault = Fault::new(StatusCode::BAD_REQUEST, "The request cannot be read", {
                    format!("there is no field `{name}` here")
                });
                Err(fault.fix("leave it out"))
            }
        }
    }
}
