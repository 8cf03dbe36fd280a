//! What is typed before something is done: the filter, and an operator's commands. Pure.

use std::time::Duration;

use holdline_core::{FencingToken, LockName};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::duration;

/// The longest text that a field takes, in characters.
const MAX_FIELD: usize = 200;

/// What the field `how` of a revocation takes: the first one unless it is changed.
const HOW: [&str; 2] = ["polite", "now"];

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Revoke the grant with this token.
    Revoke {
        /// The name.
        name: LockName,
        /// The token that was shown.
        token: FencingToken,
        /// Why.
        reason: String,
        /// Free the name at once, without a word to its holder.
        now: bool,
    },
    /// Freeze the name.
    Freeze {
        /// The name.
        name: LockName,
        /// For how long.
        duration: Duration,
        /// Why.
        reason: String,
    },
    /// End a freeze.
    Unfreeze {
        /// The name.
        name: LockName,
    },
}

impl Action {
    /// Returns what is being done.
    pub(super) fn doing(&self) -> String {
        match self {
            Action::Revoke { name, token, now, .. } => {
                let how = if *now { " now" } else { "" };
                format!("revoking {name}, token {token}{how}")
            }
            Action::Freeze { name, .. } => format!("freezing {name}"),
            Action::Unfreeze { name } => format!("ending the freeze of {name}"),
        }
    }
}

/// A form with one or two fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The store that it is about; that of the filter means nothing.
    pub(crate) store: usize,
    /// What it is for.
    pub(crate) kind: FormKind,
    /// The labels and texts of its fields.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// The field that is typed into.
    pub(crate) at: usize,
    /// Why it was not accepted.
    pub(crate) error: Option<String>,
}

/// What a form is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormKind {
    /// The filter; each character takes effect at once.
    Filter,
    /// To revoke the grant with the token that was shown when the form was opened.
    Revoke { name: LockName, token: FencingToken, holder: String },
    /// To freeze a name.
    Freeze { name: LockName },
    /// To end a freeze.
    Unfreeze { name: LockName },
}

/// What a key in a form has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The form stays open.
    Open,
    /// It is closed without an effect.
    Cancelled,
    /// It is complete.
    Accepted,
}

impl Form {
    /// Makes a form for the filter.
    pub(crate) fn filter(text: &str) -> Form {
        Form::new(0, FormKind::Filter, vec![("filter", text.to_owned())])
    }

    /// Makes a form that asks why a grant is revoked, and how. `now` must be typed in full, because
    /// two may be at work then.
    pub(crate) fn revoke(
        store: usize,
        name: LockName,
        token: FencingToken,
        holder: String,
    ) -> Form {
        let kind = FormKind::Revoke { name, token, holder };
        let fields = vec![("reason", String::new()), ("how", HOW[0].to_owned())];
        Form::new(store, kind, fields)
    }

    /// Makes a form that asks for how long a name is frozen, and why.
    pub(crate) fn freeze(store: usize, name: LockName) -> Form {
        let fields = vec![("for", "10m".to_owned()), ("reason", String::new())];
        Form { at: 1, ..Form::new(store, FormKind::Freeze { name }, fields) }
    }

    /// Makes a form that asks whether to end a freeze.
    pub(crate) fn unfreeze(store: usize, name: LockName) -> Form {
        Form::new(store, FormKind::Unfreeze { name }, Vec::new())
    }

    fn new(store: usize, kind: FormKind, fields: Vec<(&'static str, String)>) -> Form {
        Form { store, kind, fields, at: 0, error: None }
    }

    /// Returns the text of a field.
    pub(crate) fn text(&self, at: usize) -> &str {
        self.fields.get(at).map_or("", |(_, text)| text)
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Typed {
        self.error = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let fields = self.fields.len();
        let text = self.fields.get_mut(self.at).map(|(_, text)| text);
        match (key.code, text) {
            (KeyCode::Esc, _) => return Typed::Cancelled,
            (KeyCode::Enter, _) => return self.accept(),
            (KeyCode::Tab | KeyCode::Down, _) if fields > 0 => self.at = (self.at + 1) % fields,
            (KeyCode::BackTab | KeyCode::Up, _) if fields > 0 => {
                self.at = (self.at + fields - 1) % fields;
            }
            (KeyCode::Backspace, Some(text)) => {
                text.pop();
            }
            (KeyCode::Char('u'), Some(text)) if control => text.clear(),
            (KeyCode::Char(character), Some(text))
                if !control && !character.is_control() && text.chars().count() < MAX_FIELD =>
            {
                text.push(character);
            }
            _ => {}
        }
        Typed::Open
    }

    fn accept(&mut self) -> Typed {
        let wrong = match self.kind {
            FormKind::Revoke { .. } if self.text(0).trim().is_empty() => Some(NO_REASON.to_owned()),
            FormKind::Revoke { .. } if !HOW.contains(&self.text(1).trim()) => {
                Some(format!("how: must be {} or {}", HOW[0], HOW[1]))
            }
            FormKind::Filter | FormKind::Unfreeze { .. } | FormKind::Revoke { .. } => None,
            FormKind::Freeze { .. } => match duration::positive(self.text(0).trim()) {
                Err(error) => Some(format!("for: {error}")),
                Ok(_) if self.text(1).trim().is_empty() => Some(NO_REASON.to_owned()),
                Ok(_) => None,
            },
        };
        self.error = wrong;
        if self.error.is_none() { Typed::Accepted } else { Typed::Open }
    }

    /// Returns the command of an accepted form; `None` for the filter.
    pub(crate) fn action(self) -> Option<Action> {
        let text = |at: usize| self.text(at).trim().to_owned();
        let first = text(0);
        let second = text(1);
        match self.kind {
            FormKind::Filter => None,
            FormKind::Revoke { name, token, .. } => {
                Some(Action::Revoke { name, token, reason: first, now: second == HOW[1] })
            }
            FormKind::Freeze { name } => {
                let duration = duration::positive(&first).ok()?;
                Some(Action::Freeze { name, duration, reason: second })
            }
            FormKind::Unfreeze { name } => Some(Action::Unfreeze { name }),
        }
    }
}

const NO_REASON: &str = "reason: is missing; the holder and those who wait will read it";
