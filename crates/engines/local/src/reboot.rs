//! The first use of the database in a boot of the machine.
//!
//! No process of an earlier boot lives, so everything that depends on one is removed. Detached
//! leases and freezes start again, and tokens continue after every token that may have been
//! granted. Before that, liveness files are checked: if one is still locked, a process of the
//! "earlier boot" lives (a container with another boot id), and nothing may be removed.

use std::path::Path;

use holdline_core::Moment;

use crate::database::{Database, Flush};
use crate::error::Fault;
use crate::keys;
use crate::liveness::Liveness;
use crate::machine::BootId;
use crate::names;
use crate::token::Counter;

/// Returns whether the database belongs to a boot already.
pub(crate) fn is_of(database: &Database, boot: BootId) -> Result<bool, Fault> {
    Ok(Counter::decode(database.rows().get(keys::COUNTER)?.as_deref())?.boot == boot)
}

/// Takes the database over if it belongs to another boot. The caller is inside the short lock.
pub(crate) fn take_over(
    database: &Database,
    liveness: &Liveness,
    boot: BootId,
    now: Moment,
) -> Result<(), Fault> {
    if is_of(database, boot)? {
        return Ok(());
    }
    if let Some(file) = liveness.some_locked()? {
        return Err(still_locked(&file, is_of(database, BootId::NONE)?));
    }
    database.transaction(Flush::Yes, |rows| {
        let mut counter = Counter::decode(rows.get(keys::COUNTER)?.as_deref())?;
        counter.reserve(boot);
        rows.update(keys::COUNTER, &counter.encode())?;
        let mut from = keys::FIRST_NAME.to_vec();
        while let Some((name, row)) = names::first_from(rows, from)? {
            // Foreign data stays unchanged; a request for the name gets the error.
            if let Ok(mut head) = names::decode(Some(&row)) {
                head.restart(now);
                rows.delete_between(&keys::entries(&name).0, &keys::behind(&name))?;
                names::save(rows, &name, Some(&row), &head)?;
            }
            from = keys::behind(&name);
        }
        Ok(())
    })?;
    liveness.clear();
    Ok(())
}

fn still_locked(file: &Path, is_new: bool) -> Fault {
    let file = file.display();
    Fault::refused(if is_new {
        format!(
            "the database is new, yet {file} is still locked: a process holds locks of a database \
             that was removed here; it is notified at its next renewal, and excludes you until it \
             has closed its client or ended"
        )
    } else {
        format!(
            "the database belongs to another boot of the machine, yet {file} is still locked: a \
             process that sees another boot id, perhaps in a container, uses this directory"
        )
    })
}
