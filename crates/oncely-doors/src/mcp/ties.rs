//! A process beside a server that sees our end, even if we are killed, and then ends everything in the server's group.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long after its server a watcher is started. Some clients start a server for every single call: those do not pay for
/// it, and no server has to share the processors with it while it starts.
const DELAY: Duration = Duration::from_millis(100);
/// How long it may take to end what a server left behind: longer than it gives those that are deaf.
const AFTERMATH: Duration = Duration::from_secs(4);

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
            // Where nobody is left in the group it fails, and is not needed.
            tokio::task::spawn_blocking(move || watcher.spawn().ok()).await.ok().flatten()
        });
        Some(Self { started, needed })
    }

    /// The server has ended: the watcher ends what is left of its group, and itself. It is the one to do so, because it goes
    /// on if we are killed meanwhile. Says whether nobody is left; it may have been killed with the group, or not have
    /// been started yet.
    pub(super) async fn end(self) -> bool {
        let was_there = self.started.is_finished();
        drop(self.needed);
        let Ok(Some(mut child)) = self.started.await else { return false };
        if !was_there {
            // The number of the group may have been given to others since the server ended, and it may be with them.
            let _ = child.kill().await;
            return false;
        }
        if let Some(mut says) = child.stdin.take() {
            // It hears of our end in any case; a word before it says that the server's was first.
            let _ = says.write_all(b"ended\n").await;
        }
        if let Ok(Ok(status)) = tokio::time::timeout(AFTERMATH, child.wait()).await {
            return status.success();
        }
        // Somebody has stopped it.
        let _ = child.kill().await;
        false
    }
}
