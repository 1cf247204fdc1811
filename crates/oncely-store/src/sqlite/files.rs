//! The files of a ledger: made private, on a file system that processes can share, and watched for being replaced.

use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use oncely_core::{Link, StoreError, StoreErrorKind};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::errors::kind_of_errno;

/// Network and user-space file systems: their locks and shared memory do not hold between machines, or at all.
const UNSUITABLE: [(u32, &str); 16] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x1983_0326, "BeeGFS"),
    (0x786f_4256, "VirtualBox shared folder"),
];

/// Where the files of one ledger are, and which they were when it was opened.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    turn: PathBuf,
    lock: PathBuf,
    opened: Option<[Identity; 3]>,
    /// When it was first seen that too little space is left.
    short_since: Mutex<Option<Instant>>,
}

/// Tells a file from another one that took its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Files {
    /// Makes what is missing and checks the ground. The database file itself is only ever touched by name: to close a
    /// second handle on it would drop the locks that SQLite holds.
    pub(crate) fn prepare(path: &Path) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(|e| refuse(path, "cannot be named", errno(&e)))?;
        let Some(directory) = path.parent() else {
            let message = format!("{} is not a file name; write sqlite:PATH", path.display());
            return Err(StoreError::before(StoreErrorKind::BadAddress, message));
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|e| refuse(directory, "cannot be made", errno(&e)))?;
        check_file_system(directory)?;
        create_private(&path)?;
        let beside = |suffix: &str| {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        Ok(Self {
            turn: beside("-turn"),
            lock: beside("-lock"),
            path,
            opened: None,
            short_since: Mutex::default(),
        })
    }

    /// The database file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the two side files that processes take turns with.
    pub(crate) fn open_side_files(&self) -> Result<(OwnedFd, OwnedFd), StoreError> {
        let open = |path: &Path| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|e| refuse(path, "cannot be opened", e))
        };
        Ok((open(&self.turn)?, open(&self.lock)?))
    }

    /// Remembers which files are open.
    pub(crate) fn remember(&mut self) -> Result<(), StoreError> {
        self.opened = Some(self.identities().map_err(|e| refuse(&self.path, "cannot be looked at", e))?);
        Ok(())
    }

    /// Fails if any of the files was deleted or replaced: what is written now would reach nobody.
    pub(crate) fn still_the_same(&self) -> Result<(), StoreError> {
        match self.identities() {
            Ok(now) if Some(now) == self.opened => Ok(()),
            Err(e) if e != Errno::NOENT => Err(refuse(&self.path, "cannot be looked at", e)),
            _ => Err(StoreError::before(
                StoreErrorKind::Unavailable,
                format!(
                    "the ledger {} or one of its side files was deleted or replaced while it was open; nothing was \
                     written; put it back or restart this process",
                    self.path.display()
                ),
            )),
        }
    }

    /// Fails if less space is free than this.
    pub(crate) fn has_free(&self, min_bytes: u64) -> Result<(), StoreError> {
        let room =
            rustix::fs::statvfs(&self.path).map_err(|e| refuse(&self.path, "cannot be looked at", e))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free >= min_bytes {
            return Ok(());
        }
        Err(StoreError::before(
            StoreErrorKind::Full,
            format!(
                "only {} MiB are free for the ledger {} and {} MiB are kept for attempts under way; nothing was \
                 started; free some space, or lower min_free",
                free >> 20,
                self.path.display(),
                min_bytes >> 20
            ),
        ))
    }

    /// How the way to the ledger is: always open, but it leads nowhere for new attempts while too little space is free.
    pub(crate) fn link(&self, min_bytes: u64) -> Link {
        let mut since = self.short_since.lock().unwrap_or_else(PoisonError::into_inner);
        match self.has_free(min_bytes) {
            Ok(()) => {
                *since = None;
                Link::Local
            }
            Err(error) => Link::lost(&error, since.get_or_insert_with(Instant::now).elapsed()),
        }
    }

    fn identities(&self) -> Result<[Identity; 3], Errno> {
        let look = |path: &Path| {
            let stat = rustix::fs::stat(path)?;
            Ok(Identity { device: stat.st_dev as u64, inode: stat.st_ino as u64 })
        };
        Ok([look(&self.path)?, look(&self.turn)?, look(&self.lock)?])
    }
}

/// Creates the file for its owner alone, before SQLite could create it for everybody. SQLite gives its own side files
/// the same permissions.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(()),
        Err(Errno::EXIST) if path.is_dir() => Err(StoreError::before(
            StoreErrorKind::BadAddress,
            format!("{} is a directory; name a file in it", path.display()),
        )),
        Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(refuse(path, "cannot be made", e)),
    }
}

fn check_file_system(directory: &Path) -> Result<(), StoreError> {
    let kind = rustix::fs::statfs(directory).map_err(|e| refuse(directory, "cannot be looked at", e))?.f_type;
    match unsuitable(kind as u32) {
        None => Ok(()),
        Some(name) => Err(StoreError::before(
            StoreErrorKind::Unsuitable,
            format!(
                "{} is on {name}, where processes cannot share a ledger safely; nothing was written; name a file on a \
                 local disk",
                directory.display()
            ),
        )),
    }
}

fn unsuitable(kind: u32) -> Option<&'static str> {
    UNSUITABLE.into_iter().find(|(magic, _)| *magic == kind).map(|(_, name)| name)
}

fn refuse(path: &Path, what: &str, errno: Errno) -> StoreError {
    let message = format!("{} {what}: {errno}; nothing was written", path.display());
    StoreError::before(kind_of_errno(errno), message)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::unsuitable;

    #[test]
    fn network_file_systems_are_named_and_local_ones_pass() {
        assert_eq!(unsuitable(0x6969), Some("NFS"));
        assert_eq!(unsuitable(0xff53_4d42), Some("CIFS"));
        assert_eq!(unsuitable(0x6573_5546), Some("FUSE"));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert_eq!(unsuitable(local), None, "{local:x}");
        }
    }
}
