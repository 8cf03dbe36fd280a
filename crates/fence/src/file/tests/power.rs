//! Loss of power at every step, on a disk that keeps no more than it must.
//!
//! The model: what was written to a file is safe once the file was synced, before that any part
//! of it may be there; what was changed in the directory is safe once the directory was synced,
//! before that any of the changes may be there. A rename is there or not, never half.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use crate::file::atomic_file::AtomicFile;
use crate::file::disk::{Content, Disk, Owner};
use crate::file::paths::FilePaths;
use crate::tests::proof;
use crate::{FenceError, Rules};

/// More than any scenario has; the test fails if it is not enough.
const MANY: usize = 60;

/// What a disk may do wrong, so that the test is seen to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Files are not made safe.
    NoSync,
    /// Directories are not made safe.
    NoSyncDirectory,
    /// Directories are made safe only by a process that renamed something itself, as if a seal
    /// that finds its token in place did nothing.
    OnlyAfterOwnRename,
    /// The next content is written in the place of the old one.
    InPlace,
}

#[derive(Clone, Default)]
struct Inode {
    written: Vec<u8>,
    synced: bool,
}

/// A change of the directory: which file has which of the two names afterwards.
#[derive(Clone, Copy)]
enum Change {
    Create(usize),
    /// The next content takes the file's name.
    Rename(usize),
    Remove,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Names {
    file: Option<usize>,
    next: Option<usize>,
}

impl Names {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Create(inode) => self.next = Some(inode),
            Change::Rename(inode) => *self = Names { file: Some(inode), next: None },
            Change::Remove => self.next = None,
        }
    }
}

#[derive(Clone, Default)]
struct World {
    inodes: Vec<Inode>,
    /// As processes see them.
    names: Names,
    /// As a power loss leaves them at least.
    safe_names: Names,
    unsafe_changes: Vec<Change>,
    renamed_by_this_process: bool,
}

impl World {
    fn change(&mut self, change: Change) {
        self.names.apply(change);
        self.unsafe_changes.push(change);
    }

    /// The file's contents that a loss of power may leave, `None` for no file.
    fn after_power_loss(&self) -> Vec<Option<Vec<u8>>> {
        let mut contents = Vec::new();
        for kept in 0..1_usize << self.unsafe_changes.len() {
            let mut names = self.safe_names;
            for (index, change) in self.unsafe_changes.iter().enumerate() {
                if kept & (1 << index) != 0 {
                    names.apply(*change);
                }
            }
            match names.file {
                None => contents.push(None),
                Some(inode) => contents.extend(self.inodes[inode].remains().map(Some)),
            }
        }
        contents
    }
}

impl Inode {
    /// What may be left of it: all, if it was synced; else nothing, a half, zeros, or all.
    fn remains(&self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let whole = self.written.clone();
        let (half, zeros) = (whole[..whole.len() / 2].to_vec(), vec![0; whole.len()]);
        let lossy = if self.synced { vec![] } else { vec![vec![], half, zeros] };
        lossy.into_iter().chain([whole])
    }
}

/// The steps that a disk still makes, and what it holds.
struct ModelDisk {
    world: RefCell<World>,
    steps_left: RefCell<usize>,
    fault: Fault,
}

impl ModelDisk {
    /// After the last step the process is dead: nothing that it still does has an effect.
    fn step(&self) -> io::Result<()> {
        let mut left = self.steps_left.borrow_mut();
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("dead"))?;
        Ok(())
    }
}

impl Disk for ModelDisk {
    type Lock = ();
    type Writer = usize;

    fn lock(&self, _: &FilePaths, _: Duration) -> Result<(), FenceError> {
        Ok(())
    }

    fn open(&self, _: &FilePaths) -> Result<Option<Content>, FenceError> {
        let world = self.world.borrow();
        Ok(world.names.file.map(|inode| {
            let bytes = world.inodes[inode].written.clone();
            let owner = Owner { user: 0, group: 0, mode: 0o600 };
            let length = bytes.len() as u64;
            Content { reader: Box::new(io::Cursor::new(bytes)), bytes: length, owner }
        }))
    }

    fn create(&self, _: &FilePaths, _: Option<Owner>) -> io::Result<usize> {
        self.step()?;
        let mut world = self.world.borrow_mut();
        if world.names.next.is_some() {
            world.change(Change::Remove);
        }
        if self.fault == Fault::InPlace
            && let Some(inode) = world.names.file
        {
            world.inodes[inode] = Inode::default();
            return Ok(inode);
        }
        world.inodes.push(Inode::default());
        let inode = world.inodes.len() - 1;
        world.change(Change::Create(inode));
        Ok(inode)
    }

    fn write(&self, inode: &mut usize, bytes: &[u8]) -> io::Result<()> {
        self.step()?;
        let inode = &mut self.world.borrow_mut().inodes[*inode];
        inode.written.extend(bytes);
        inode.synced = false;
        Ok(())
    }

    fn sync(&self, inode: &usize) -> io::Result<()> {
        self.step()?;
        self.world.borrow_mut().inodes[*inode].synced = self.fault != Fault::NoSync;
        Ok(())
    }

    fn rename(&self, _: &FilePaths, (): &()) -> io::Result<()> {
        self.step()?;
        let mut world = self.world.borrow_mut();
        world.renamed_by_this_process = true;
        let next = world.names.next;
        next.into_iter().for_each(|inode| world.change(Change::Rename(inode)));
        Ok(())
    }

    fn sync_directory(&self, _: &FilePaths) -> io::Result<()> {
        self.step()?;
        let mut world = self.world.borrow_mut();
        let forgotten = match self.fault {
            Fault::NoSyncDirectory => true,
            Fault::OnlyAfterOwnRename => !world.renamed_by_this_process,
            Fault::None | Fault::NoSync | Fault::InPlace => false,
        };
        if !forgotten {
            world.safe_names = world.names;
            world.unsafe_changes.clear();
        }
        Ok(())
    }

    fn remove_next(&self, _: &FilePaths) {
        if self.step().is_ok() {
            let mut world = self.world.borrow_mut();
            if world.names.next.is_some() {
                world.change(Change::Remove);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Seal(u64),
    Write(u64, &'static str),
}

/// What the file holds: mark and data.
type Held = Option<(u64, String)>;

impl Verb {
    fn run(self, atomic_file: &AtomicFile<ModelDisk>) -> Result<(), FenceError> {
        match self {
            Verb::Seal(number) => atomic_file.seal(&proof(number)),
            Verb::Write(number, data) => atomic_file.write(&proof(number), |content| {
                *content = data.into();
                Ok(())
            }),
        }
    }

    fn applied_to(self, held: &Held) -> Held {
        Some(match self {
            Verb::Seal(number) => (number, held.clone().map(|h| h.1).unwrap_or_default()),
            Verb::Write(number, data) => (number, data.to_owned()),
        })
    }
}

/// The place is never used: the model has one file.
fn atomic_file(fault: Fault) -> AtomicFile<ModelDisk> {
    let path = std::path::PathBuf::from("/model");
    let paths =
        FilePaths { file: path.clone(), lock: path.clone(), next: path.clone(), directory: path };
    let world = RefCell::default();
    let disk = ModelDisk { world, steps_left: RefCell::new(0), fault };
    AtomicFile { disk, paths, rules: Rules::default(), lock_wait: Duration::ZERO }
}

/// What processes would read after a power loss; an error if it is no whole version.
fn reread(content: Option<Vec<u8>>) -> Result<Held, String> {
    let fresh = atomic_file(Fault::None);
    if let Some(written) = content {
        let mut world = fresh.disk.world.borrow_mut();
        world.inodes.push(Inode { written, synced: true });
        world.names.file = Some(0);
    }
    let Some(mark) = fresh.mark().map_err(|error| error.to_string())? else { return Ok(None) };
    let data = fresh.read(&proof(mark.get())).map_err(|error| error.to_string())?;
    Ok(Some((mark.get(), String::from_utf8_lossy(&data).into_owned())))
}

/// What was seen over all deaths and power losses.
#[derive(Debug, Default)]
struct Seen {
    /// What was wrong: an acknowledged version that was gone, or no whole version.
    wrong: BTreeSet<String>,
    /// Deaths in the middle of a verb that a later verb repaired.
    deaths: usize,
    kept: usize,
    changed: usize,
}

/// Runs the verbs, each by a process of its own. The process of verb `which` dies after `steps`
/// steps and its verb is run again; the power goes after `power` steps of the last process.
fn run(fault: Fault, verbs: &[Verb], which: usize, steps: usize, power: usize, seen: &mut Seen) {
    let atomic_file = atomic_file(fault);
    let mut acknowledged: Held = None;
    let (last, before) = verbs.split_last().expect("some verbs");
    for (index, verb) in before.iter().enumerate() {
        if index == which {
            *atomic_file.disk.steps_left.borrow_mut() = steps;
            if verb.run(&atomic_file).is_ok() {
                return; // There are fewer steps than that.
            }
            seen.deaths += 1;
        }
        *atomic_file.disk.steps_left.borrow_mut() = MANY;
        atomic_file.disk.world.borrow_mut().renamed_by_this_process = false;
        if let Err(error) = verb.run(&atomic_file) {
            seen.wrong.insert(format!("{verb:?} after a death at {steps}: {error}"));
            return;
        }
        acknowledged = verb.applied_to(&acknowledged);
    }
    atomic_file.disk.world.borrow_mut().renamed_by_this_process = false;
    *atomic_file.disk.steps_left.borrow_mut() = power;
    let reported = last.run(&atomic_file);
    let may_be = last.applied_to(&acknowledged);
    for content in atomic_file.disk.world.borrow().after_power_loss() {
        match reread(content) {
            Ok(held) if held == may_be => seen.changed += 1,
            Ok(held) if held == acknowledged && reported.is_err() => seen.kept += 1,
            other => {
                let saw = format!("{last:?} after {power} steps: {other:?}");
                seen.wrong.insert(saw);
            }
        }
    }
}

fn run_all(fault: Fault) -> Seen {
    let histories: [&[Verb]; 6] = [
        &[Verb::Write(33, "first")],
        &[Verb::Seal(33)],
        &[Verb::Seal(33), Verb::Write(33, "a longer text"), Verb::Seal(34)],
        &[Verb::Write(33, "old"), Verb::Write(34, "new")],
        &[Verb::Write(33, "old"), Verb::Seal(34), Verb::Seal(34)],
        &[Verb::Seal(34), Verb::Seal(34), Verb::Write(34, "new"), Verb::Write(34, "")],
    ];
    let mut seen = Seen::default();
    for verbs in histories {
        for which in 0..verbs.len() {
            for steps in 0..12 {
                for power in 0..12 {
                    run(fault, verbs, which, steps, power, &mut seen);
                }
            }
        }
    }
    seen
}

#[test]
fn power_may_go_at_any_step() {
    let seen = run_all(Fault::None);
    assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    assert!(seen.deaths > 100 && seen.kept > 100 && seen.changed > 100, "{seen:?}");
}

#[test]
fn each_missing_step_is_found() {
    for fault in [Fault::NoSync, Fault::NoSyncDirectory, Fault::OnlyAfterOwnRename, Fault::InPlace]
    {
        let seen = run_all(fault);
        assert!(!seen.wrong.is_empty(), "{fault:?} is as good as a whole disk");
    }
}
