//! Classes: what metrics know a lock by, instead of its name.
//!
//! There are as many names as there are orders or invoices, and a metric for each would fill any
//! time-series database. A class is the template of such names, like `invoice:{id}`.
//! Invariant C1: one client has at most [`MAX_CLASSES`] classes of its users; all later ones are
//! [`OTHER`].

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use holdline_core::LockName;
use parking_lot::Mutex;

/// How many classes one client distinguishes.
pub const MAX_CLASSES: usize = 200;
/// The class of locks that were given none.
const DEFAULT: &str = "default";
/// The class of locks whose own would be one too many.
const OTHER: &str = "other";

/// A rule that gives the class of a name; `None` for the class `default`.
pub(crate) type Rule = Box<dyn Fn(&LockName) -> Option<String> + Send + Sync>;

/// The class of a lock: what its metrics are labelled with.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    name: Box<str>,
    index: usize,
}

impl Class {
    /// Returns its name, such as `invoice:{id}`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its number among those of its client: below [`Classes::COUNT`].
    #[cfg(feature = "metrics")]
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The classes of one client.
pub(crate) struct Classes {
    rule: Option<Rule>,
    known: Mutex<HashMap<Box<str>, Arc<Class>>>,
    default: Arc<Class>,
    other: Arc<Class>,
}

impl Classes {
    /// How many there are at most, with `default` and `other`.
    #[cfg(feature = "metrics")]
    pub(crate) const COUNT: usize = MAX_CLASSES + 2;

    pub(crate) fn new(rule: Option<Rule>) -> Classes {
        let class = |name: &str, index| Arc::new(Class { name: name.into(), index });
        let default = class(DEFAULT, 0);
        let other = class(OTHER, 1);
        Classes { rule, known: Mutex::default(), default, other }
    }

    /// Returns the class of a lock: the one that its options name, or the one of the rule.
    pub(crate) fn of(&self, name: &LockName, given: Option<&str>) -> Arc<Class> {
        let by_rule = || self.rule.as_ref().and_then(|rule| rule(name));
        match given.map(str::to_owned).or_else(by_rule) {
            Some(class) => self.named(&class),
            None => self.default.clone(),
        }
    }

    fn named(&self, name: &str) -> Arc<Class> {
        match name {
            DEFAULT => return self.default.clone(),
            OTHER => return self.other.clone(),
            _ => {}
        }
        let mut known = self.known.lock();
        if let Some(class) = known.get(name) {
            return class.clone();
        }
        if known.len() == MAX_CLASSES {
            return self.other.clone();
        }
        let class = Arc::new(Class { name: name.into(), index: known.len() + 2 });
        known.insert(name.into(), class.clone());
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_two_hundred_classes_and_the_rest_are_other() {
        let classes = Classes::new(Some(Box::new(|name| {
            name.as_str().starts_with("invoice:").then(|| "invoice:{id}".to_owned())
        })));
        let class = |name: &str, given: Option<&str>| {
            classes.of(&LockName::new(name).expect("a good name"), given)
        };
        assert_eq!(class("invoice:7", None).name(), "invoice:{id}");
        assert_eq!(class("invoice:7", Some("mine")).name(), "mine", "options come first");
        assert_eq!(class("order", None).name(), "default");
        for number in 2..MAX_CLASSES {
            assert_eq!(class("a", Some(&number.to_string())).index, number + 2);
        }
        assert_eq!(class("a", Some("one too many")).name(), "other");
        assert_eq!(class("invoice:8", None).name(), "invoice:{id}", "known ones stay");
    }
}
