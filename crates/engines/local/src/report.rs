//! What `explain` and `doctor` show about a directory.

use std::path::PathBuf;

use holdline_core::table::Head;
use serde::Serialize;

use crate::error::Fault;
use crate::housekeeping::Log;
use crate::keys;
use crate::names;
use crate::step::StoreState;
use crate::token::Counter;

/// The state of a local engine's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LocalReport {
    /// The directory that processes share.
    pub directory: PathBuf,
    /// Named by the user, and perhaps shared between users; otherwise the user's own.
    pub explicit: bool,
    /// The kind of its file system.
    pub file_system: String,
    /// The database.
    pub database: PathBuf,
    /// The version of its layout.
    pub layout: i32,
    /// The boot of the machine that it belongs to.
    pub boot_id: String,
    /// How many names are held, queued for or remembered.
    pub names: usize,
    /// How many grants and hand-offs there are.
    pub holders: usize,
    /// How many contenders queue.
    pub waiters: usize,
    /// How many names have foreign data.
    pub foreign: usize,
    /// How many client files, and so processes, live.
    pub clients: usize,
    /// How many live grants are kept by a process.
    pub live_grants: usize,
    /// The largest fencing token of a live grant that is kept by a process.
    pub newest_live_token: Option<u64>,
    /// How many files dead processes have left, which the next lock sweeps.
    pub stale_files: usize,
    /// The next fencing token.
    pub next_token: u64,
    /// The limit of the reserved tokens.
    pub reserved_to: u64,
    /// How many pages of the log wait to be moved into the database.
    pub log_pages: i64,
    /// Warnings for operators.
    pub warnings: Vec<String>,
}

/// The part of a report that does not change while the engine is open.
#[derive(Clone, Debug)]
pub(crate) struct ReportContext {
    pub(crate) explicit: bool,
    pub(crate) file_system: String,
    pub(crate) forgets: bool,
}

/// Counts what there is. Inside the short lock.
pub(crate) fn make(
    inside: &StoreState,
    report_context: &ReportContext,
) -> Result<LocalReport, Fault> {
    let rows = inside.database.rows();
    let counter = Counter::decode(rows.get(keys::COUNTER)?.as_deref())?;
    let files_of = inside.clients.liveness.count();
    let files = &inside.clients.liveness.files;
    let mut report = LocalReport {
        directory: files.root.clone(),
        explicit: report_context.explicit,
        file_system: report_context.file_system.clone(),
        database: files.database.clone(),
        layout: keys::LAYOUT,
        boot_id: counter.boot.to_string(),
        names: 0,
        holders: 0,
        waiters: 0,
        foreign: 0,
        clients: files_of.clients,
        live_grants: files_of.grants,
        newest_live_token: files_of.newest,
        stale_files: files_of.stale,
        next_token: counter.next,
        reserved_to: counter.limit,
        log_pages: Log::look(&inside.database.connection)?.pages,
        warnings: Vec::new(),
    };
    let mut from = keys::FIRST_NAME.to_vec();
    while let Some((name, row)) = names::first_from(rows, from)? {
        report.count(names::decode(Some(&row)).ok().as_ref());
        from = keys::behind(&name);
    }
    report.warn(report_context);
    Ok(report)
}

impl LocalReport {
    fn count(&mut self, head: Option<&Head>) {
        self.names += 1;
        match head {
            Some(head) => {
                self.holders += head.holders().len();
                self.waiters += head.queued();
            }
            None => self.foreign += 1,
        }
    }

    fn warn(&mut self, report_context: &ReportContext) {
        if report_context.forgets {
            self.warnings.push(format!(
                "{} loses everything when the machine restarts, the counter of fencing tokens \
                 too: resources that outlive it may refuse later holders, or not refuse earlier \
                 ones",
                self.file_system
            ));
        }
        if self.foreign > 0 {
            self.warnings.push(format!("{} names have foreign data", self.foreign));
        }
    }
}
