//! Where things are: the policy file, the ledger, the namespace, and who is asking.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncely::Oncely;
use oncely::policy_file::{FILE_BYTES_MAX, PolicyFile, PolicyFileError};
use oncely_core::{Namespace, Store};
use oncely_doors::admin::Settings;
use oncely_doors::settings::{Secret, SecretSetting};
use oncely_store::sealed::{Keys, Sealed};

use crate::args::Global;
use crate::exit::Failure;
use crate::output;

/// Most of a file with a secret that is read.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Everything that a command needs to begin.
pub struct Context {
    /// What tools declare.
    pub policy: PolicyFile,
    /// The policy file that was read, if any.
    pub policy_path: Option<PathBuf>,
    /// Its text. It is read once: what tools declare and what servers are told never come from two states of a file.
    policy_text: Option<String>,
    /// The tenant.
    pub namespace: Namespace,
    /// The ledger's address.
    pub store_url: String,
    /// Where that address came from, for people.
    pub store_from: &'static str,
}

impl Context {
    /// Reads the policy file and works out the rest; opens nothing.
    pub fn load(global: &Global) -> Result<Self, Failure> {
        let directory = std::env::current_dir()
            .map_err(|e| Failure::usage(format!("the working directory cannot be read: {e}; nothing ran")))?;
        let policy_path = match &global.config {
            Some(path) => Some(path.clone()),
            None => PolicyFile::find(&directory).map(trusted).transpose()?,
        };
        let (policy, policy_text) = match &policy_path {
            Some(path) => read_policy(path).map(|(policy, text)| (policy, Some(text)))?,
            None => (PolicyFile::empty(), None),
        };
        let namespace = match global.namespace.as_deref().or(policy.namespace()) {
            Some(name) => Namespace::parse(name).map_err(|e| Failure::usage(format!("{e}; nothing ran")))?,
            None => Namespace::default(),
        };
        let (store_url, store_from) = match (&global.store, policy.store()) {
            (Some(url), _) => (url.clone(), "--store or ONCELY_STORE"),
            (None, Some(url)) => (url.to_owned(), "the policy file"),
            (None, None) => (default_store()?, "the default"),
        };
        Ok(Self { policy, policy_path, policy_text, namespace, store_url, store_from })
    }

    /// Opens the ledger.
    pub async fn open(&self) -> Result<Oncely, Failure> {
        Ok(Oncely::new(self.open_store().await?))
    }

    /// Opens the ledger for one call.
    pub async fn open_briefly(&self) -> Result<Oncely, Failure> {
        let keys = self.encryption_keys()?;
        Ok(Oncely::new(Arc::new(Sealed::new(oncely_store::open_briefly(&self.store_url).await?, keys))))
    }

    /// Opens the ledger itself. What is encrypted in it is decrypted on its way out, by every command alike; without
    /// the keys such a result is an error, and never told as it lies there.
    pub async fn open_store(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(Arc::new(self.open_sealed().await?))
    }

    /// The same, for one who wants to know about its seals.
    pub async fn open_sealed(&self) -> Result<Sealed, Failure> {
        let keys = self.encryption_keys()?;
        Ok(Sealed::new(oncely_store::open(&self.store_url).await?, keys))
    }

    /// Says what the servers of the ledger could still lose. Once, by commands that stay: not with every call.
    pub async fn say_remarks(&self) {
        for remark in oncely_store::remarks(&self.store_url).await {
            output::say(&format!("oncely: warning: the ledger: {remark}"));
        }
    }

    /// The policy file's name and text, if there is one: tables that tools do not concern are read by others.
    pub fn policy_text(&self) -> Option<(String, &str)> {
        Some((self.policy_path.as_ref()?.display().to_string(), self.policy_text.as_deref()?))
    }

    /// A secret, from where the policy file says that it is.
    pub fn secret(&self, setting: &SecretSetting) -> Result<String, Failure> {
        self.find_secret(setting).map_err(|why| Failure::usage(format!("{why}; nothing ran")))
    }

    /// The same; else what is in the way, with the place in the policy file.
    pub fn find_secret(&self, setting: &SecretSetting) -> Result<String, String> {
        let found = match &setting.secret {
            Secret::Environment(name) => {
                variable(name).ok_or_else(|| format!("the environment variable {name} is not set"))
            }
            Secret::File(file) => read_secret(&self.beside(file)),
        };
        found.map_err(|why| format!("{}: {why}", setting.said_at))
    }

    /// A file that the policy file names, as seen from there.
    pub fn beside(&self, file: &Path) -> PathBuf {
        let directory = self.policy_path.as_deref().and_then(Path::parent);
        directory.map_or_else(|| file.to_owned(), |directory| directory.join(file))
    }

    fn encryption_keys(&self) -> Result<Keys, Failure> {
        let text = match (variable("ONCELY_ENCRYPTION_KEYS"), self.policy_text()) {
            (Some(text), _) => text,
            // Read only where it says something about it: most commands need nothing of this.
            (None, Some((name, text))) if text.contains("encryption") => {
                let place = Settings::parse_encryption(text, &name)
                    .map_err(|error| Failure::usage(error.to_string()))?;
                match place {
                    Some(place) => self.secret(&place)?,
                    None => return Ok(Keys::none()),
                }
            }
            (None, _) => return Ok(Keys::none()),
        };
        Keys::parse(&text).map_err(|error| Failure::usage(format!("{error}; nothing ran")))
    }
}

/// The policy file and its text.
fn read_policy(path: &Path) -> Result<(PolicyFile, String), Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed is enough to know that a file is too large.
    let limit = FILE_BYTES_MAX as u64 + 1;
    let read = std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    let text = read.ok().and_then(|_| String::from_utf8(bytes).ok());
    let bad = |error: PolicyFileError| Failure::usage(error.to_string());
    match text {
        Some(text) => Ok((PolicyFile::parse(&text, &path.display().to_string()).map_err(bad)?, text)),
        None => {
            // It says where the text breaks off, or why there is none.
            PolicyFile::load(path).map_err(bad)?;
            Err(Failure::usage(format!("{} changed while it was read; nothing ran", path.display())))
        }
    }
}

/// The text of a file with a secret.
pub fn read_secret(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(SECRET_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not text", path.display()))
}

/// A policy file can name commands to run, so one that was merely found has to be ours or the system's.
fn trusted(path: PathBuf) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(&path)
        .map_err(|e| Failure::usage(format!("{} cannot be read: {e}; nothing ran", path.display())))?
        .uid();
    if owner == 0 || owner == rustix::process::getuid().as_raw() {
        return Ok(path);
    }
    Err(Failure::usage(format!(
        "{} belongs to another user (uid {owner}) and is not trusted; nothing ran. If you trust it, name it: --config {}",
        path.display(),
        path.display()
    )))
}

/// A file in the user's state directory, after the XDG base directory specification.
fn default_store() -> Result<String, Failure> {
    let state = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local/state")));
    match state {
        Some(state) => Ok(format!("sqlite:{}", state.join("oncely/ledger.db").display())),
        None => Err(Failure::usage(
            "no place for the ledger: neither HOME nor XDG_STATE_HOME is set; nothing ran. Name one with --store PATH",
        )),
    }
}

/// The person or service that asks, for the audit log.
pub fn actor() -> String {
    let user = variable("SUDO_USER").or_else(|| variable("USER")).or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}")
}

/// A set and not empty environment variable. This crate is the one that may ask.
#[allow(clippy::disallowed_methods)]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
