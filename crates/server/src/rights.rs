//! What somebody may do.

/// What somebody may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    view: bool,
    lock: bool,
    operate: bool,
    admin: bool,
}

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// See names, holders and events.
    View,
    /// Take, renew and release locks.
    Lock,
    /// Revoke grants; freeze and unfreeze names.
    Operate,
    /// Change what concerns the whole store.
    Admin,
}

impl Rights {
    pub(crate) const ALL: Rights = Rights { view: true, lock: true, operate: true, admin: true };

    /// Adds a right by its name; `None`: there is none of that name. `admin` includes all.
    pub(crate) fn with(self, name: &str) -> Option<Rights> {
        Some(match name {
            "view" => Rights { view: true, ..self },
            "lock" => Rights { lock: true, ..self },
            "operate" => Rights { operate: true, ..self },
            "admin" => Rights::ALL,
            _ => return None,
        })
    }

    /// The rights that both have.
    pub(crate) fn and(self, other: Rights) -> Rights {
        Rights {
            view: self.view && other.view,
            lock: self.lock && other.lock,
            operate: self.operate && other.operate,
            admin: self.admin && other.admin,
        }
    }

    /// Returns whether a right is among them.
    pub(crate) fn has(self, right: Right) -> bool {
        match right {
            Right::View => self.view,
            Right::Lock => self.lock,
            Right::Operate => self.operate,
            Right::Admin => self.admin,
        }
    }
}
