//! The processor time of processes and of all that they have started.

use std::collections::HashMap;
use std::fs::{read_dir, read_to_string};
use std::time::Duration;

use crate::rounds::Failure;

/// What one process has used, with its children that have ended.
struct Process {
    parent: u32,
    ticks: u64,
}

/// The processor time of these processes and their descendants so far, in user mode and the kernel.
pub(crate) fn processor_time(roots: &[u32]) -> Result<Duration, Failure> {
    let mut processes = HashMap::new();
    for entry in read_dir("/proc")?.flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        // A process may end meanwhile; its parent has its time then.
        let text = id.and_then(|id| Some((id, read_to_string(entry.path().join("stat")).ok()?)));
        if let Some((id, process)) = text.and_then(|(id, text)| Some((id, parse(&text)?))) {
            processes.insert(id, process);
        }
    }
    let belongs = |mut id: u32| loop {
        if roots.contains(&id) {
            break true;
        }
        match processes.get(&id) {
            Some(process) if process.parent != 0 => id = process.parent,
            _ => break false,
        }
    };
    let of_roots = processes.iter().filter(|(id, _)| belongs(**id));
    let ticks: u64 = of_roots.map(|(_, process)| process.ticks).sum();
    Ok(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
}

/// Reads `/proc/PID/stat`. The name of the program may have spaces and brackets.
fn parse(text: &str) -> Option<Process> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: Option<Vec<u64>> = fields.get(11..15)?.iter().map(|f| f.parse().ok()).collect();
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks: ticks?.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_look_like_fields() {
        let text = "42 (a) b) S 7 1 1 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5";
        let process = parse(text).expect("a process");
        assert_eq!((process.parent, process.ticks), (7, 100));
        assert!(parse("42 (short) S 7").is_none());
    }
}
