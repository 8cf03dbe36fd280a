//! The atomic steps on a file: lock, read, decide, replace.
//!
//! Invariant F6: the file is never changed in place. The next content is written beside it, synced,
//! and renamed in one step. So mark and data belong to one version at any instant, also for readers
//! without a lock.
//! Invariant F7: nothing is acknowledged before the directory was synced after the rename of the
//! version on which the answer depends, even if another process renamed it and died.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use holdline_core::FencingToken;

use super::disk::{Content, Disk, Owner};
use super::format::{Header, LONGEST};
use super::paths::{FilePaths, shown};
use crate::{Access, FenceError, Proof, Rules};

/// How long an atomic step waits for another process to finish its own, unless set.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A file with its rules, and the disk that it is on.
#[derive(Clone, Debug)]
pub(super) struct AtomicFile<D> {
    pub(super) disk: D,
    pub(super) paths: FilePaths,
    pub(super) rules: Rules,
    pub(super) lock_wait: Duration,
}

/// One version of the file.
struct Version {
    mark: FencingToken,
    data: Vec<u8>,
    owner: Owner,
}

impl<D: Disk> AtomicFile<D> {
    pub(super) fn on(disk: D, path: &Path) -> Result<AtomicFile<D>, FenceError> {
        let paths = FilePaths::of(path)?;
        Ok(AtomicFile { disk, paths, rules: Rules::default(), lock_wait: LOCK_WAIT })
    }

    pub(super) fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        let Some(mut content) = self.disk.open(&self.paths)? else { return Ok(None) };
        Ok(Some(self.header(&mut content)?.0.mark))
    }

    pub(super) fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError> {
        self.reported(self.rules.check(self.mark()?, proof))
    }

    pub(super) fn read<A: Access>(&self, proof: &Proof<A>) -> Result<Vec<u8>, FenceError> {
        let version = self.load()?;
        self.reported(self.rules.check(version.as_ref().map(|v| v.mark), proof))?;
        Ok(version.map(|v| v.data).unwrap_or_default())
    }

    /// Seals, and excludes all others until the returned lock is dropped.
    pub(super) fn seal(&self, proof: &Proof) -> Result<D::Lock, FenceError> {
        let (lock, version) = self.enter(proof)?;
        let mark = self.reported(self.rules.raise(version.as_ref().map(|v| v.mark), proof))?;
        match version {
            // The mark exists, but the process that wrote it may have died before it was durable.
            Some(version) if version.mark == mark => self.sync_directory()?,
            Some(version) => self.replace(&lock, mark, &version.data, Some(version.owner))?,
            None => self.replace(&lock, mark, &[], None)?,
        }
        Ok(lock)
    }

    pub(super) fn write<R>(
        &self,
        proof: &Proof,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<R>,
    ) -> Result<R, FenceError> {
        let (lock, version) = self.enter(proof)?;
        let mark = self.reported(self.rules.raise(version.as_ref().map(|v| v.mark), proof))?;
        let (mut data, owner) = version.map_or((Vec::new(), None), |v| (v.data, Some(v.owner)));
        let answer = write(&mut data).map_err(FenceError::write)?;
        self.replace(&lock, mark, &data, owner)?;
        Ok(answer)
    }

    /// Acquires the lock and reads the file under it.
    fn enter(&self, proof: &Proof) -> Result<(D::Lock, Option<Version>), FenceError> {
        // A stale holder stays stale. So it is refused without waiting, even while a newer holder
        // has the lock.
        self.check(proof)?;
        let lock = self.disk.lock(&self.paths, self.lock_wait)?;
        let version = self.load()?;
        Ok((lock, version))
    }

    fn reported<T>(&self, answer: Result<T, FenceError>) -> Result<T, FenceError> {
        self.rules.report(&self.paths.file.display(), answer)
    }

    fn foreign(&self, what: impl std::fmt::Display) -> FenceError {
        FenceError::Foreign { found: format!("{}: {what}", shown(&self.paths.file)) }
    }

    /// Reads the header of an open version, and the data that was read with it.
    fn header(&self, content: &mut Content) -> Result<(Header, Vec<u8>), FenceError> {
        let mut start = Vec::with_capacity(LONGEST);
        let ahead = content.reader.by_ref().take(LONGEST as u64).read_to_end(&mut start);
        ahead.map_err(|error| self.failed("reading", error))?;
        let (header, length) = Header::parse(&start).map_err(|what| self.foreign(what))?;
        let data = content.bytes.saturating_sub(length as u64);
        if data != header.bytes {
            let says = header.bytes;
            let what = format!("{data} bytes of data, but the first line says {says}");
            return Err(self.foreign(what));
        }
        Ok((header, start.split_off(length)))
    }

    fn load(&self) -> Result<Option<Version>, FenceError> {
        let Some(mut content) = self.disk.open(&self.paths)? else { return Ok(None) };
        let (header, mut data) = self.header(&mut content)?;
        let rest = content.reader.read_to_end(&mut data);
        rest.map_err(|error| self.failed("reading", error))?;
        if data.len() as u64 != header.bytes {
            return Err(self.foreign("it was changed in place while we read it"));
        }
        Ok(Some(Version { mark: header.mark, data, owner: content.owner }))
    }

    fn replace(
        &self,
        lock: &D::Lock,
        mark: FencingToken,
        data: &[u8],
        like: Option<Owner>,
    ) -> Result<(), FenceError> {
        let header = Header { mark, bytes: data.len() as u64 }.line();
        let prepared = self.prepare(header.as_bytes(), data, like);
        if let Err(error) = prepared {
            self.disk.remove_next(&self.paths);
            return Err(self.failed("writing the next content of", error));
        }
        if let Err(error) = self.disk.rename(&self.paths, lock) {
            self.disk.remove_next(&self.paths);
            // A broken disk may have made the change although it reported an error.
            let broken = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
            let doing = format!("replacing {}", shown(&self.paths.file));
            return Err(if broken {
                FenceError::unsure(doing, error)
            } else {
                FenceError::failed(doing, error)
            });
        }
        self.sync_directory()
    }

    fn prepare(&self, header: &[u8], data: &[u8], like: Option<Owner>) -> io::Result<()> {
        let mut next = self.disk.create(&self.paths, like)?;
        self.disk.write(&mut next, header)?;
        self.disk.write(&mut next, data)?;
        self.disk.sync(&next)
    }

    fn sync_directory(&self) -> Result<(), FenceError> {
        self.disk.sync_directory(&self.paths).map_err(|error| {
            let doing = format!("making {} safe against power loss", shown(&self.paths.file));
            FenceError::unsure(doing, error)
        })
    }

    fn failed(&self, doing: &str, error: io::Error) -> FenceError {
        FenceError::failed(format!("{doing} {}", shown(&self.paths.file)), error)
    }
}
