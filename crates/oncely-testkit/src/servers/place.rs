//! Where servers live: the programs, a user that may run them, folders and free ports.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Trouble, locked};

/// Below the range from which the system takes ports for outgoing connections, so that a server which is started again
/// finds its port free.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

/// A port of 127.0.0.1 that nobody listens on, and that nobody else gets from here while this process lives: not between its
/// choice and its use, and not while the server is away that has it.
pub fn free_port() -> Result<u16, Trouble> {
    static TAKEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let span = u64::from(PORTS.end - PORTS.start);
    for _ in 0..1_000 {
        // Every RandomState has keys of its own.
        let port = PORTS.start + (RandomState::new().hash_one(0) % span) as u16;
        // Nobody here speaks UDP: whoever has the number there, in whichever process, has the port.
        let Ok(taken) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            locked(&TAKEN).push(taken);
            return Ok(port);
        }
    }
    Err(Trouble::new("no free port was found"))
}

/// Finds a program, or names the Debian package that has it.
pub(super) fn program(name: &str, package: &str) -> Result<PathBuf, Trouble> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), "/usr/bin".into(), "/bin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| not_installed(name, package))
}

/// Finds a program of the PostgreSQL server, which Debian keeps off the path; the newest version there is.
pub(super) fn postgres_program(name: &str) -> Result<PathBuf, Trouble> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let file = entry.path().join("bin").join(name);
            file.is_file().then_some((version, file))
        })
        .collect();
    found.sort();
    found.pop().map_or_else(|| program(name, "postgresql"), |(_, file)| Ok(file))
}

fn not_installed(name: &str, package: &str) -> Trouble {
    Trouble::new(format!("the program {name} is not installed: apt-get install {package}"))
}

/// The user `postgres`, under whom servers run that refuse to run as root. `None` where this process is not root.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerUser {
    uid: u32,
    gid: u32,
}

impl ServerUser {
    pub(super) fn if_root() -> Result<Option<Self>, Trouble> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users = std::fs::read_to_string("/etc/passwd")?;
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        for user in fields.filter(|fields| fields.first() == Some(&"postgres")) {
            if let (Some(Ok(uid)), Some(Ok(gid))) =
                (user.get(2).map(|s| s.parse()), user.get(3).map(|s| s.parse()))
            {
                return Ok(Some(Self { uid, gid }));
            }
        }
        Err(Trouble::new("there is no user postgres: apt-get install postgresql"))
    }

    /// A command line that runs a program under this user.
    pub(super) fn line(user: Option<Self>, program: &Path) -> Command {
        let Some(Self { uid, gid }) = user else { return Command::new(program) };
        let mut line = Command::new("setpriv");
        line.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
        line.arg("--clear-groups").arg("--").arg(program);
        line
    }

    pub(super) fn give(user: Option<Self>, path: &Path) -> Result<(), Trouble> {
        if let Some(Self { uid, gid }) = user {
            chown(path, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

/// A temporary folder that only its owner can open; removed when dropped, or when this process dies.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keeper: Child,
}

/// A server that is just dying may still write into the folder, so it is tried for a while.
const REMOVE: &str = r#"
trap '' INT HUP TERM
cat >/dev/null
for i in $(seq 100); do rm -rf -- "$0" && exit; sleep 0.1; done
"#;

impl Folder {
    pub(super) fn new(what: &str, user: Option<ServerUser>) -> Result<Self, Trouble> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("oncely-{what}-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        ServerUser::give(user, &path)?;
        let keeper = Command::new("sh")
            .args(["-c", REMOVE])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { path, keeper })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The end of its input is its sign. There is nobody to tell if it fails.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Writes a file that only its owner may read: servers refuse keys that others can.
pub(super) fn write_private(path: &Path, text: &str, user: Option<ServerUser>) -> Result<(), Trouble> {
    let mut file = std::fs::File::create(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    ServerUser::give(user, path)
}

/// Runs a program to its end; what it printed, or what it said was wrong.
pub(super) fn output(line: &mut Command) -> Result<String, Trouble> {
    let output = line.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned());
    }
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let program = line.get_program().to_string_lossy().into_owned();
    Err(Trouble::new(format!("{program}: {}: {said}{complained}", output.status)))
}
