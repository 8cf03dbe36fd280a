//! What the screen shows, and what keys do: a state machine without I/O.
//!
//! `(state, event, now)` gives the next state and commands; `now` is for display only.
//!
//! - Invariant A1: what is revoked is the grant whose token was on the screen when `B` was pressed,
//!   in the store of its row. Rounds that arrive while its form is open change nothing about that.
//! - Invariant A2: one command of an operator at a time.
//! - Invariant A3: while it is paused, no round changes what is shown.
//! - Invariant A4: a round that fails changes only the state of its store; its rows stay those of
//!   the last complete round, and the header says how old they are.
//!
//! Read next: `stores`, which has what each store does and has shown.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use holdline_core::{FreezeView, HolderView, LockName, ShortLeaseId, Snapshot};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::process::Signal;

use super::blocking::{self, Node};
use super::form::{Action, Form, FormKind, Typed};
use super::rows::{self, Row, Sort, SortKey};
use super::stores::{Flow, NamePosition, NoNames, Now, RoundView, StoreState, StoreView, Stores};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::Holder;

/// How many events are kept.
const MAX_EVENTS: usize = 1_000;

/// What happens to the screen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size, or time has passed: draw again.
    Redraw,
    /// Something about a store.
    Store {
        /// Which.
        store: usize,
        /// What.
        event: StoreEvent,
    },
    /// This program has failed.
    Failed(Box<Failure>),
    /// A signal asks this process to end.
    Signal(Signal),
}

/// What happens to a store.
#[derive(Debug)]
pub(crate) enum StoreEvent {
    /// A round was complete.
    Round(Box<CompleteRound>),
    /// A round failed, or the store could not be opened.
    Down(String),
    /// There are no names to show.
    NoNames(NoNames),
    /// The state of the servers of a quorum.
    #[cfg(feature = "redis")]
    Quorum(Box<holdline::redlock::QuorumStatus>),
    /// An operator's command has ended.
    Done(Result<String, String>),
    /// The store can never be used.
    Unusable(Box<Failure>),
}

/// A complete round.
#[derive(Debug)]
pub(crate) struct CompleteRound {
    /// What it has shown.
    pub(crate) view: RoundView,
    /// What has changed, as lines of `watch` with the name that each is about.
    pub(crate) changes: Vec<(LockName, String)>,
    /// How many of the changes are grants, ends and new waiters.
    pub(crate) flow: Flow,
}

/// What the state machine wants done.
#[derive(Debug)]
pub(crate) enum Command {
    /// Leave the screen.
    Leave(Result<Exit, Box<Failure>>),
    /// Stop this process until a shell continues it.
    Suspend,
    /// Make no rounds, or go on.
    Pause(bool),
    /// Make a round of this store now.
    Refresh(usize),
    /// Carry out an operator's command in this store, which is answered by [`StoreEvent::Done`].
    Act(usize, Action),
}

/// The pages of the screen, in the order of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    /// The holders.
    #[default]
    Held,
    /// The waiters.
    Waiting,
    /// Who blocks whom.
    Blocking,
    /// The servers.
    Nodes,
    /// What has changed.
    Events,
}

impl Panel {
    /// All pages.
    pub(crate) const ALL: [Panel; 5] =
        [Panel::Held, Panel::Waiting, Panel::Blocking, Panel::Nodes, Panel::Events];

    /// Returns its title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Panel::Held => "held",
            Panel::Waiting => "waiting",
            Panel::Blocking => "blocking",
            Panel::Nodes => "nodes",
            Panel::Events => "events",
        }
    }
}

/// What was done last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The text.
    pub(crate) text: String,
    /// It was refused, or has failed.
    pub(crate) is_error: bool,
}

/// The name in detail, and the holder that was selected with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Its store.
    pub(crate) store: usize,
    /// The name.
    pub(crate) name: LockName,
    /// The first line that is shown.
    pub(crate) scroll: usize,
    lease_id: Option<ShortLeaseId>,
}

/// A line of the page of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastEvent {
    /// The store that it is about.
    store: usize,
    /// The name that it is about, if it is about one.
    name: Option<LockName>,
    /// The text, escaped.
    pub(crate) text: String,
}

/// The selected row, by what it shows: rows move from round to round.
type Identity = (usize, LockName, Option<ShortLeaseId>);

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) stores: Stores,
    /// The pause between two rounds.
    pub(crate) interval: Duration,
    pub(crate) panel: Panel,
    pub(crate) sort: Sort,
    pub(crate) filter: String,
    pub(crate) form: Option<Form>,
    pub(crate) detail: Option<Detail>,
    pub(crate) help: bool,
    pub(crate) paused: bool,
    pub(crate) notice: Option<Notice>,
    /// The operator's command that is being carried out.
    pub(crate) doing: Option<String>,
    pub(crate) events: VecDeque<PastEvent>,
    /// The rows of the present page, for tables of holders and waiters.
    pub(crate) rows: Vec<Row>,
    /// The lines of the tree.
    pub(crate) lines: Vec<blocking::TreeLine>,
    /// The selected row of the present page.
    pub(crate) selected: usize,
    /// The first row that is shown, and how many are; drawing keeps them up to date.
    pub(crate) first: usize,
    pub(crate) page: usize,
    /// How many lines the page of the nodes can be scrolled; drawing keeps it up to date.
    pub(crate) scrolls: usize,
}

impl App {
    /// Makes the state before the first round.
    pub(crate) fn new(stores: Stores, interval: Duration) -> App {
        App {
            stores,
            interval,
            panel: Panel::default(),
            sort: Sort::default(),
            filter: String::new(),
            form: None,
            detail: None,
            help: false,
            paused: false,
            notice: None,
            doing: None,
            events: VecDeque::new(),
            rows: Vec::new(),
            lines: Vec::new(),
            selected: 0,
            first: 0,
            page: 1,
            scrolls: 0,
        }
    }

    /// Handles one event.
    pub(crate) fn handle(&mut self, event: Event, now: Now) -> Vec<Command> {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => {}
            Event::Key(key) => return self.key(key),
            Event::Redraw => {}
            Event::Store { store, event } => return self.event_of(store, event, now),
            Event::Failed(failure) => return vec![Command::Leave(Err(failure))],
            Event::Signal(signal) => {
                let exit = Exit::Job(crate::child::JobExit::before_start(signal));
                return vec![Command::Leave(Ok(exit))];
            }
        }
        Vec::new()
    }

    fn event_of(&mut self, store: usize, event: StoreEvent, now: Now) -> Vec<Command> {
        match event {
            StoreEvent::Round(round) if !self.paused => self.round(store, *round, now),
            StoreEvent::Round(_) => {}
            StoreEvent::Down(message) => self.down(store, message, now),
            StoreEvent::NoNames(why) => self.view(store).state = StoreState::NoNames(why),
            #[cfg(feature = "redis")]
            StoreEvent::Quorum(status) => {
                if !self.paused {
                    self.view(store).quorum = Some(*status);
                }
            }
            StoreEvent::Done(outcome) => {
                self.doing = None;
                let is_error = outcome.is_err();
                let text = outcome.unwrap_or_else(|error| error);
                self.past(store, None, &text, now.time);
                let text = self.stores.labelled(store, &text);
                self.notice = Some(Notice { text, is_error });
                return vec![Command::Refresh(store)];
            }
            // The others are worth a screen.
            StoreEvent::Unusable(failure) if self.stores.are_several() => {
                self.past(store, None, &failure.message, now.time);
                self.view(store).state = StoreState::Unusable(failure.message);
            }
            StoreEvent::Unusable(failure) => return vec![Command::Leave(Err(failure))],
        }
        Vec::new()
    }

    fn view(&mut self, store: usize) -> &mut StoreView {
        &mut self.stores.0[store]
    }

    fn down(&mut self, store: usize, message: String, now: Now) {
        let since = match self.view(store).state {
            StoreState::Down { since, .. } => since,
            _ => {
                self.past(store, None, &format!("store down: {message}"), now.time);
                now.instant
            }
        };
        self.view(store).state = StoreState::Down { message, since };
    }

    fn round(&mut self, store: usize, round: CompleteRound, now: Now) {
        let CompleteRound { view, changes, flow } = round;
        if matches!(self.view(store).state, StoreState::Down { .. }) {
            self.past(store, None, "store up", view.at);
        }
        for (name, text) in changes {
            self.past(store, Some(name), &text, view.at);
        }
        let selected = self.selected_identity();
        self.view(store).round(view, flow, now);
        self.lay_out(selected.as_ref());
    }

    fn past(&mut self, store: usize, name: Option<LockName>, text: &str, at: SystemTime) {
        let text = self.stores.labelled(store, text);
        let text = format!("{} {text}", crate::view::time_of_day(at));
        self.events.push_front(PastEvent { store, name, text });
        self.events.truncate(MAX_EVENTS);
        // What is selected stays selected when lines come in above it.
        if self.panel == Panel::Events && self.selected > 0 {
            self.selected = (self.selected + 1).min(self.events.len() - 1);
        }
    }

    /// Computes the rows of the present page, and finds the selected one again.
    fn lay_out(&mut self, selected: Option<&Identity>) {
        self.rows = Vec::new();
        self.lines = Vec::new();
        match self.panel {
            Panel::Held => self.rows = rows::held(&self.stores, &self.filter, self.sort),
            Panel::Waiting => self.rows = rows::waiting(&self.stores, &self.filter, self.sort),
            Panel::Blocking => self.lines = blocking::tree(&self.stores, &self.filter),
            Panel::Nodes | Panel::Events => {}
        }
        if let Some(identity) = selected
            && self.identity_at(self.selected).as_ref() != Some(identity)
        {
            let found = (0..self.len()).find(|&at| self.identity_at(at).as_ref() == Some(identity));
            self.selected = found.unwrap_or(self.selected);
        }
        self.selected = self.selected.min(self.len().saturating_sub(1));
    }

    /// Returns how many rows the present page has.
    pub(crate) fn len(&self) -> usize {
        match self.panel {
            Panel::Held | Panel::Waiting => self.rows.len(),
            Panel::Blocking => self.lines.len(),
            Panel::Nodes => self.scrolls + 1,
            Panel::Events => self.shown_events().count(),
        }
    }

    /// Returns the events that match the filter, the newest first.
    pub(crate) fn shown_events(&self) -> impl Iterator<Item = &PastEvent> {
        let filter = self.filter.to_lowercase();
        self.events.iter().filter(move |event| event.text.to_lowercase().contains(&filter))
    }

    fn selected_identity(&self) -> Option<Identity> {
        self.identity_at(self.selected)
    }

    fn identity_at(&self, at: usize) -> Option<Identity> {
        let name_of = |position: NamePosition| &self.stores.at(position).name;
        let queue = |name, entry: usize| self.stores.at(name).queue[entry].lease_id;
        let (name, lease_id) = match self.panel {
            Panel::Held => {
                let Row { name, entry } = *self.rows.get(at)?;
                let holder = |entry: usize| self.stores.at(name).holders[entry].summary.lease_id;
                (name, entry.map(holder))
            }
            Panel::Waiting => {
                let Row { name, entry } = *self.rows.get(at)?;
                (name, entry.map(|entry| queue(name, entry)))
            }
            Panel::Blocking => match self.lines.get(at)?.node {
                Node::Waiter { name, waiter } => (name, Some(queue(name, waiter))),
                Node::Name { name, .. } | Node::Again { name } | Node::More { name, .. } => {
                    (name, None)
                }
            },
            Panel::Events => {
                let event = self.shown_events().nth(at)?;
                return Some((event.store, event.name.clone()?, None));
            }
            Panel::Nodes => return None,
        };
        Some((name.store, name_of(name).clone(), lease_id))
    }

    /// Returns the name that is in detail or selected, and the lease of its row.
    fn target(&self) -> Option<Identity> {
        match &self.detail {
            Some(detail) => Some((detail.store, detail.name.clone(), detail.lease_id)),
            None => self.selected_identity(),
        }
    }

    /// Returns the name that is shown in detail; `None` if the last round has not shown it.
    pub(crate) fn detailed(&self) -> Option<&Snapshot> {
        let detail = self.detail.as_ref()?;
        self.stores.0[detail.store].name(&detail.name)
    }
}

/// Keys.
impl App {
    fn key(&mut self, key: KeyEvent) -> Vec<Command> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return vec![Command::Leave(Ok(Exit::Success))],
            KeyCode::Char('z') if control => return vec![Command::Suspend],
            _ => {}
        }
        if let Some(form) = self.form.take() {
            return self.key_of_form(form, key);
        }
        self.notice = None;
        if std::mem::take(&mut self.help) {
            return Vec::new();
        }
        match key.code {
            KeyCode::Char('q') => return vec![Command::Leave(Ok(Exit::Success))],
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                return vec![Command::Pause(self.paused)];
            }
            KeyCode::Char('B') => self.ask_revoke(),
            KeyCode::Char('f') => self.ask(Form::freeze, None),
            KeyCode::Char('u') => self.ask(Form::unfreeze, Some("is not frozen")),
            code if self.detail.is_some() => self.key_of_detail(code),
            code => self.key_of_page(code),
        }
        Vec::new()
    }

    fn key_of_form(&mut self, mut form: Form, key: KeyEvent) -> Vec<Command> {
        let is_filter = form.kind == FormKind::Filter;
        match form.key(key) {
            Typed::Open => {
                if is_filter {
                    form.text(0).clone_into(&mut self.filter);
                    self.show_from_top();
                }
                self.form = Some(form);
            }
            Typed::Cancelled => {
                if is_filter {
                    self.filter.clear();
                    self.show_from_top();
                }
            }
            Typed::Accepted => {
                let store = form.store;
                let Some(action) = form.action() else { return Vec::new() };
                self.doing = Some(self.stores.labelled(store, &action.doing()));
                return vec![Command::Act(store, action)];
            }
        }
        Vec::new()
    }

    fn key_of_detail(&mut self, code: KeyCode) {
        let Some(detail) = &mut self.detail else { return };
        let page = self.page.max(1);
        match code {
            KeyCode::Esc | KeyCode::Enter => self.detail = None,
            KeyCode::Down | KeyCode::Char('j') => detail.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => detail.scroll = detail.scroll.saturating_sub(1),
            KeyCode::PageDown => detail.scroll += page,
            KeyCode::PageUp => detail.scroll = detail.scroll.saturating_sub(page),
            KeyCode::Home => detail.scroll = 0,
            _ => {}
        }
    }

    fn key_of_page(&mut self, code: KeyCode) {
        let last = self.len().saturating_sub(1);
        let page = self.page.max(1);
        match code {
            KeyCode::Char(digit @ '1'..='5') => {
                self.open(Panel::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(Panel::ALL.len() - 1),
            KeyCode::Char('n') => self.sort_by(SortKey::Name),
            KeyCode::Char('s') if self.stores.are_several() => self.sort_by(SortKey::Store),
            KeyCode::Char('t') => self.sort_by(SortKey::Since),
            KeyCode::Char('l') => self.sort_by(SortKey::Left),
            KeyCode::Char('w') => self.sort_by(SortKey::Waiters),
            KeyCode::Char('/') => self.form = Some(Form::filter(&self.filter)),
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.show_from_top();
            }
            KeyCode::Enter => {
                let target = self.selected_identity();
                self.detail = target.map(|(store, name, lease_id)| Detail {
                    store,
                    name,
                    lease_id,
                    scroll: 0,
                });
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + page).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(page),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            _ => {}
        }
    }

    fn turn(&mut self, steps: usize) {
        let at = Panel::ALL.iter().position(|panel| *panel == self.panel).unwrap_or(0);
        self.open(Panel::ALL[(at + steps) % Panel::ALL.len()]);
    }

    fn open(&mut self, panel: Panel) {
        self.panel = panel;
        self.show_from_top();
    }

    fn show_from_top(&mut self) {
        self.selected = 0;
        self.first = 0;
        self.lay_out(None);
    }

    fn sort_by(&mut self, key: SortKey) {
        let reversed = self.sort.key == key && !self.sort.reversed;
        self.sort = Sort { key, reversed };
        self.show_from_top();
    }
}

/// Operators' commands.
impl App {
    fn refuse(&mut self, text: String) {
        self.notice = Some(Notice { text, is_error: true });
    }

    fn is_busy(&mut self) -> bool {
        if let Some(doing) = &self.doing {
            let text = format!("wait: {doing}");
            self.refuse(text);
        }
        self.doing.is_some()
    }

    /// Opens a form for the selected name. `unless_frozen` is what to say if it must be frozen and
    /// is not.
    fn ask(&mut self, form: fn(usize, LockName) -> Form, unless_frozen: Option<&str>) {
        if self.is_busy() {
            return;
        }
        let Some((store, name, _)) = self.target() else {
            return self.refuse("select a name first".to_owned());
        };
        let snapshot = self.stores.0[store].name(&name);
        let freeze: Option<&FreezeView> = snapshot.and_then(|snapshot| snapshot.freeze.as_ref());
        match unless_frozen {
            Some(says) if freeze.is_none() => self.refuse(format!("{name}: {says}")),
            _ => self.form = Some(form(store, name)),
        }
    }

    fn ask_revoke(&mut self) {
        if self.is_busy() {
            return;
        }
        let Some((store, name, lease_id)) = self.target() else {
            return self.refuse("select a holder first".to_owned());
        };
        let snapshot = self.stores.0[store].name(&name);
        let holders = snapshot.map_or(&[][..], |snapshot| &snapshot.holders);
        let of_row = |holder: &&HolderView| Some(holder.summary.lease_id) == lease_id;
        let holder = match holders {
            // The row of a waiter, or a name: its only holder is meant.
            [only] => Some(only),
            _ => holders.iter().find(of_row),
        };
        let refusal = match (holder, holders.len()) {
            (Some(holder), _) => match holder.summary.token {
                Some(token) => {
                    let holder = Holder::inspected(holder).to_string();
                    self.form = Some(Form::revoke(store, name, token, holder));
                    return;
                }
                None => format!(
                    "{name}: its holder has no fencing token, so it cannot be named with certainty"
                ),
            },
            (None, 0) => format!("{name}: nobody holds it, as of the last round"),
            (None, count) => format!("{name}: has {count} holders: select one on page 1"),
        };
        self.refuse(refusal);
    }
}

#[cfg(test)]
mod tests;
