//! `holdline ls [PREFIX]`.

use clap::Args;
use holdline_core::snapshot::coarse;
use holdline_core::{ListRequest, Snapshot};

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::open_store::OpenStore;
use crate::table::{Align, Table};
use crate::verb::{StoreUse, Verb};
use crate::view;

/// How many names one request lists.
const PAGE: usize = 500;

/// List the names that are held or waited for
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline ls deploy/")]
pub(crate) struct LsArgs {
    /// Only names that begin with this text
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

/// Describes `ls`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("ls", StoreUse::Reads(|_, _| Ok(Exit::Success)), run)
}

/// Lists the names page by page, so that a long list is printed as it arrives.
pub(crate) async fn run(arguments: &LsArgs, store: &OpenStore, console: &Console) -> Outcome {
    let mut request = ListRequest { prefix: arguments.prefix.clone(), after: None, limit: PAGE };
    let mut first = true;
    loop {
        let page = store.list(&request).await?;
        if console.is_json() {
            for snapshot in &page.names {
                console.object(&view::object(snapshot))?;
            }
        } else if !page.names.is_empty() {
            let names = page.names.iter().map(|snapshot| ("", snapshot));
            let (head, rows) = table(names).lines("");
            let head = if first { console.heading(&head) } else { String::new() };
            console.data(&(head + &rows))?;
        }
        first = false;
        match page.after {
            // Pages are ordered by name, so each page ends after the one before.
            Some(after) if request.after.as_ref().is_none_or(|before| *before < after) => {
                request.after = Some(after);
            }
            _ => return Ok(Exit::Success),
        }
    }
}

/// Returns a table with a row for each name, behind the name of its store if that is not empty.
pub(crate) fn table<'a>(names: impl Iterator<Item = (&'a str, &'a Snapshot)>) -> Table {
    let mut table = Table::new(&[
        ("STORE", Align::Left),
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Right),
        ("LEFT", Align::Right),
        ("WAITING", Align::Right),
        ("HOLDER", Align::Left),
        ("REASON", Align::Left),
    ]);
    for (store, snapshot) in names {
        let eldest = snapshot.holders.first().map(|holder| &holder.summary);
        let fields = eldest.map(|holder| holder.metadata.fields()).unwrap_or_default();
        let freeze = snapshot.freeze.as_ref().filter(|freeze| freeze.active);
        let left = match freeze {
            Some(freeze) => coarse(freeze.left),
            None => eldest.map(view::left).unwrap_or_default(),
        };
        let pid = snapshot
            .holders
            .first()
            .and_then(view::pid)
            .map(|pid| format!(" (pid {pid})"))
            .unwrap_or_default();
        table.row(&[
            store,
            snapshot.name.as_str(),
            &view::summary(snapshot),
            &eldest.and_then(|holder| holder.held_for).map(coarse).unwrap_or_default(),
            &left,
            &snapshot.queue_length.to_string(),
            &format!("{}{pid}", fields.program),
            freeze.map_or(&fields.reason, |freeze| &freeze.reason),
        ]);
    }
    table
}
