//! The result of a health check of an engine, for operators.
//!
//! Every engine has its own checks; they share this format. Each finding says what was found, why
//! it matters to a lock, and what to do. An engine's crate makes it, and the command line prints
//! it.

use std::fmt;

/// The health of what was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// As it should be.
    Ok,
    /// Locks work, but a promise is weaker than it could be, or soon will be.
    Warning,
    /// Locks do not work, or a promise is broken.
    Error,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Ok => "ok",
            Health::Warning => "warning",
            Health::Error => "error",
        })
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    check: &'static str,
    health: Health,
    found: String,
    matters: &'static str,
    fix: Option<String>,
}

impl Finding {
    /// Makes a finding without a problem. `matters` says why the checked thing matters to a lock.
    pub fn ok(check: &'static str, matters: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, health: Health::Ok, found: found.into(), matters, fix: None }
    }

    /// Marks a problem that should be fixed: `fix` says how.
    #[must_use]
    pub fn warn(mut self, fix: impl Into<String>) -> Finding {
        self.health = Health::Warning;
        self.fix = Some(fix.into());
        self
    }

    /// Marks a problem that must be fixed: `fix` says how.
    #[must_use]
    pub fn fail(mut self, fix: impl Into<String>) -> Finding {
        self.health = Health::Error;
        self.fix = Some(fix.into());
        self
    }

    /// Adds where it was found, before what was found.
    #[must_use]
    pub fn at(&self, place: &str) -> Finding {
        Finding { found: format!("{place}: {}", self.found), ..self.clone() }
    }

    /// Returns the check's name, which never changes.
    pub fn check(&self) -> &'static str {
        self.check
    }

    /// Returns the health.
    pub fn health(&self) -> Health {
        self.health
    }

    /// Returns what was found. It may hold text from outside: escape it where it is shown.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Returns why the checked thing matters to a lock.
    pub fn matters(&self) -> &'static str {
        self.matters
    }

    /// Returns what to do; `None` if there is no problem.
    pub fn fix(&self) -> Option<&str> {
        self.fix.as_deref()
    }
}

/// The results of all checks of one engine, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkup {
    engine: &'static str,
    findings: Vec<Finding>,
}

impl Checkup {
    /// Starts a checkup of the engine with this short name.
    pub fn new(engine: &'static str) -> Checkup {
        Checkup { engine, findings: Vec::new() }
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Returns the engine's short name.
    pub fn engine(&self) -> &'static str {
        self.engine
    }

    /// Returns the findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the worst health of all findings; [`Health::Ok`] if there are none.
    pub fn health(&self) -> Health {
        self.findings.iter().map(Finding::health).max().unwrap_or(Health::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_counts() {
        let mut checkup = Checkup::new("x");
        assert_eq!(checkup.health(), Health::Ok);
        let finding = |found| Finding::ok("check", "it matters", found);
        for (finding, worst) in [
            (finding("fine"), Health::Ok),
            (finding("so so").warn("fix it"), Health::Warning),
            (finding("bad").fail("fix it now"), Health::Error),
            (finding("so so").warn("fix it"), Health::Error),
        ] {
            checkup.add(finding);
            assert_eq!(checkup.health(), worst);
        }
        assert_eq!(checkup.findings()[0].fix(), None);
        assert_eq!(checkup.findings()[2].fix(), Some("fix it now"));
    }
}
