//! Snapshots for the tests.

use std::time::{Duration, UNIX_EPOCH};

use holdline_core::{
    FencingToken, GrantState, HolderFields, HolderSummary, HolderView, LeaseId, LockName, Metadata,
    Mode, Snapshot, WaiterView,
};

use super::stores::{Flow, Now, RoundView, StoreView, Stores};

fn metadata(number: u32, program: &str) -> Metadata {
    let fields = HolderFields {
        host: "host".into(),
        pid: Some(number),
        user: "tester".into(),
        program: program.into(),
        ..HolderFields::default()
    };
    Metadata::new(&fields).expect("short")
}

/// A holder whose process id and token are this number.
pub(crate) fn holder(number: u8, program: &str, held_for: u64) -> HolderView {
    HolderView {
        summary: HolderSummary {
            lease_id: LeaseId::from_bytes([number; 16]).short(),
            token: FencingToken::new(number.into()).ok(),
            mode: Mode::Exclusive,
            held_for: Some(Duration::from_secs(held_for)),
            left: Some(Duration::from_secs(30)),
            no_expiry: false,
            metadata: metadata(number.into(), program),
        },
        state: GrantState::Held,
        detached: false,
        live: false,
        pids: Vec::new(),
    }
}

/// A waiter whose process id is this number.
pub(crate) fn waiter(number: u8, program: &str, waited: u64) -> WaiterView {
    WaiterView {
        lease_id: LeaseId::from_bytes([number; 16]).short(),
        mode: Mode::Exclusive,
        waited: Some(Duration::from_secs(waited)),
        metadata: metadata(number.into(), program),
    }
}

/// A name.
pub(crate) fn snapshot(name: &str, holders: Vec<HolderView>, queue: Vec<WaiterView>) -> Snapshot {
    let holder_count = holders.len();
    let queue_length = queue.len();
    let name = LockName::new(name).expect("a good name");
    Snapshot { holders, holder_count, queue, queue_length, ..Snapshot::free(name) }
}

/// A round.
pub(crate) fn round_view(mut names: Vec<Snapshot>) -> RoundView {
    names.sort_by(|one, other| one.name.cmp(&other.name));
    let at = UNIX_EPOCH + Duration::from_secs(1_000_000);
    RoundView { at, took: Duration::from_millis(3), left_out_after: None, names }
}

/// Stores that have shown these names. Each is named by its number.
pub(crate) fn stores(names: Vec<Vec<Snapshot>>) -> Stores {
    let store = |(number, names): (usize, Vec<Snapshot>)| {
        let mut store = StoreView::new(number.to_string(), "local:".to_owned());
        store.round(round_view(names), Flow::default(), Now::read());
        store
    };
    Stores(names.into_iter().enumerate().map(store).collect())
}
