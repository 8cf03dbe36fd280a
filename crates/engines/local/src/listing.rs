//! Lists names page by page, a few of them in one transaction, so that a listing blocks nobody for
//! long.

use std::sync::Arc;

use holdline_core::{ListPage, ListRequest, LockError, Snapshot};

use crate::command_runner::CommandRunner;
use crate::error::Fault;
use crate::keys;
use crate::names;
use crate::step::{DeadHolders, Step};

/// How many names of a listing are read in one transaction.
const PAGE_PART: usize = 32;

/// Lists one page of names, in the order of their bytes.
pub(crate) async fn page(
    runner: &Arc<CommandRunner>,
    request: &ListRequest,
) -> Result<ListPage, LockError> {
    let limit = request.limit();
    let mut page = ListPage::default();
    let mut from = match &request.after {
        Some(after) => keys::behind(after),
        None => keys::FIRST_NAME.to_vec(),
    };
    from = from.max(request.prefix.as_bytes().to_vec());
    loop {
        let wanted = limit - page.names.len();
        let (names, next) = part(runner, from, &request.prefix, wanted).await?;
        page.names.extend(names);
        match next {
            None => return Ok(page),
            Some(_) if page.names.len() == limit => {
                page.after = page.names.last().map(|last: &Snapshot| last.name.clone());
                return Ok(page);
            }
            Some(next) => from = next,
        }
    }
}

/// Some names of a listing, and where to continue.
type Part = (Vec<Snapshot>, Option<Vec<u8>>);

/// Reads the next few names from a key on. A name with foreign data is skipped: it has no state to
/// show, and a request for it by name gets the error.
async fn part(
    runner: &Arc<CommandRunner>,
    from: Vec<u8>,
    prefix: &str,
    wanted: usize,
) -> Result<Part, LockError> {
    let prefix = prefix.to_owned();
    let mut work = move |step: &mut Step<'_>| {
        step.check_store_without_grant()?;
        let mut found = Vec::new();
        let mut from = from.clone();
        for _ in 0..PAGE_PART {
            let next = names::first_from(step.rows(), from)?;
            let next = next.filter(|(name, _)| name.as_str().starts_with(&prefix));
            let Some((name, row)) = next else { return Ok((found, None)) };
            from = keys::behind(&name);
            if names::decode(Some(&row)).is_err() {
                continue;
            }
            let snapshot = step.on(&name, DeadHolders::Find, |table| table.inspect(&name))?;
            if snapshot.is_used() {
                found.push(snapshot);
            }
            if found.len() == wanted {
                break;
            }
        }
        Ok((found, Some(from)))
    };
    let answer = runner.enter(
        move |runner, inside| inside.carry_out(&runner.capabilities, runner.now(), &mut work),
        |done| done.map_err(Fault::into_error),
    );
    answer.await
}
