//! A process beside a server that sees our end, even if we are killed, and then ends everything in the server's group.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long after its server a watcher is started. Some clients start a server for every single call: those do not pay for
/// it, and no server has to share the processors with it while it starts.
const DELAY: Duration = Duration::from_millis(100);

/// A watcher of one server.
pub(super) struct Watcher {
    started: JoinHandle<Option<Child>>,
    /// Dropped where none is needed any more.
    needed: oneshot::Sender<()>,
}

impl Watcher {
    /// Starts a watcher in a server's group; `None` if there is no command for it. Being in the group it keeps the group's
    /// number from being given to others. It is started aside and later, so that nobody waits for it.
    pub(super) fn start(command: &[OsString], group: Pid) -> Option<Self> {
        let (program, arguments) = command.split_first()?;
        let mut watcher = Command::new(program);
        watcher
            .args(arguments)
            // Nothing of what the server or we know is kept by it, nor is a directory in use because of it.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(group.as_raw());
        let (needed, not_needed) = oneshot::channel();
        let started = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = not_needed => return None,
                () = tokio::time::sleep(DELAY) => {}
            }
            // Where nobody is left in the group it fails, and is not needed. Should the number have been given to another
            // group of ours in that very moment, nothing comes of it: the watcher acts only if we are killed, and is ended
            // when the server's end is seen.
            tokio::task::spawn_blocking(move || watcher.spawn().ok()).await.ok().flatten()
        });
        Some(Self { started, needed })
    }

    /// Ends the watcher: the server has ended.
    pub(super) async fn end(self) {
        drop(self.needed);
        if let Ok(Some(mut child)) = self.started.await {
            // It may have been killed with the group.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
