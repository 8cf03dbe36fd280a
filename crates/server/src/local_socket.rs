//! The socket of this machine: a file whose mode says who may connect.
//!
//! - U1: the file never has more rights than the settings give it, not even while it is made.
//! - U2: the socket of a server that runs is never taken; that of a server that is gone is
//!   replaced.
//! - U3: a server that ends removes its own file only.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use crate::config::SocketConfig;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// A socket that accepts connections.
pub(crate) struct LocalSocket {
    pub(crate) listener: UnixListener,
    file: LocalSocketFile,
}

/// The file of a socket; it is removed when the value is dropped.
struct LocalSocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl LocalSocket {
    /// Makes the file and listens.
    pub(crate) fn bind(config: &SocketConfig) -> io::Result<LocalSocket> {
        let path = &config.path;
        remove_stale(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::UNIX;
        let kind = SocketType::STREAM;
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        // The file gets the mode that its socket has: nobody else can connect before the last step.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let about = fs::symlink_metadata(path)?;
        let file = LocalSocketFile { path: path.clone(), device: about.dev(), inode: about.ino() };
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = UnixListener::from_std(socket.into())?;
        fs::set_permissions(path, fs::Permissions::from_mode(config.mode.0))?;
        Ok(LocalSocket { listener, file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }
}

/// Removes the socket of a server that is gone.
fn remove_stale(path: &Path) -> io::Result<()> {
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    if !about.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is there and is no socket"));
    }
    match Probe::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens on it")),
    }
}

impl Drop for LocalSocketFile {
    fn drop(&mut self) {
        let about = fs::symlink_metadata(&self.path);
        let is_ours =
            about.is_ok_and(|about| about.dev() == self.device && about.ino() == self.inode);
        if is_ours {
            // What cannot be removed is replaced by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}
