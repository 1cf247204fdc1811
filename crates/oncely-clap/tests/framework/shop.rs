//! The program of these tests: commands that behave as they are told, and write each effect into a book.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use oncely_clap::{
    Answer, AsyncHandler, AsyncQuery, Check, Cx, Declaration, Failure, Handler, OrFault, Planned, Problems,
    Query, created, deleted, ensure_async, executed, noop, rejected, unknown, updated, would_update,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Parser, oncely_clap::Commands)]
#[command(name = "my-shop", version)]
pub struct Cli {
    /// Where effects are written
    #[arg(long, global = true, default_value = "book")]
    book: PathBuf,
    /// For which region
    #[arg(long)]
    region: Option<String>,
    /// Says more
    #[arg(short, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Option<Commands>,
}

#[derive(Debug, Subcommand, oncely_clap::Commands)]
enum Commands {
    /// Behaves as it is told
    #[oncely(mutating)]
    Buy(Buy),
    /// Known by whom it is for
    #[oncely(mutating)]
    Mail(Mail),
    /// Must not wait
    #[oncely(mutating)]
    Hurry(Hurry),
    /// Tells what has happened
    #[oncely(mutating)]
    Checked(Checked),
    /// Removes the book
    #[oncely(destructive)]
    Burn(Burn),
    /// Later
    #[oncely(mutating, async)]
    Later(Later),
    /// Reads the book
    #[oncely(safe)]
    Read(Read),
    /// Reads the book later
    #[oncely(safe, async)]
    #[command(name = "read-later", alias = "rl")]
    Slow(ReadLater),
    /// Not adopted yet
    #[oncely(mutating, by_hand)]
    Old {
        #[arg(long)]
        number: Option<u32>,
    },
    /// Others
    #[oncely(group)]
    #[command(subcommand)]
    More(More),
    #[oncely(group)]
    #[command(flatten)]
    Flat(Flat),
}

#[derive(Debug, Subcommand, oncely_clap::Commands)]
enum More {
    /// The same, further down
    #[oncely(mutating)]
    Buy(Box<Buy>),
}

#[derive(Debug, Subcommand, oncely_clap::Commands)]
enum Flat {
    /// The same, beside
    #[oncely(mutating)]
    BuyFlat(Buy),
}

/// Writes one effect down.
fn write(book: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).append(true).open(book)?.write_all(b"effect\n")
}

#[derive(Debug, Args)]
pub struct Buy {
    /// How it ends
    #[arg(long, default_value = "created")]
    how: String,
    /// Of no meaning
    #[arg(long)]
    note: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Bought {
    attempt: u32,
    text: String,
}

impl Handler<Cli> for Buy {
    type Data = Bought;

    fn declare() -> Declaration {
        Declaration::creates().ignore(["note"]).max_retries(2)
    }

    fn validate(&self, _app: &Cli, problems: &mut Problems) {
        for bad in self.how.split(',').filter(|how| how.starts_with("bad")) {
            problems.add("--how", format!("{bad} is bad"));
        }
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Bought> {
        let bought = |text: String| Bought { attempt: cx.attempt(), text };
        if self.how == "rejected" {
            return Err(rejected("SOLD_OUT", "there is none left"));
        }
        write(&cx.app().book).or_rejected("NO_BOOK")?;
        match self.how.as_str() {
            "unknown" => Err(unknown("the line went dead")),
            "panic" => panic!("out of tea"),
            "large" => created(bought("x".repeat(2 * 1024 * 1024))),
            "noop" => noop("there is enough"),
            _ => created(bought("tea".to_owned())),
        }
    }
}

#[derive(Debug, Args)]
pub struct Mail {
    #[arg(long)]
    to: String,
    #[arg(long)]
    text: Option<String>,
}

impl Handler<Cli> for Mail {
    type Data = String;

    fn declare() -> Declaration {
        Declaration::creates().key_from(["to"])
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<String> {
        write(&cx.app().book).or_rejected("NO_BOOK")?;
        created(format!("{:?} {:?} {}", cx.app().region, self.text, cx.app().verbose))
    }
}

/// Waits for a file before it ends; another one does not wait for it.
#[derive(Debug, Args)]
pub struct Hurry {
    #[arg(long)]
    until: PathBuf,
    #[arg(long)]
    started: PathBuf,
}

impl Handler<Cli> for Hurry {
    type Data = Value;

    fn declare() -> Declaration {
        Declaration::executes().wait_for(Duration::ZERO)
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Value> {
        write(&cx.app().book).or_rejected("NO_BOOK")?;
        std::fs::write(&self.started, "").or_unknown()?;
        while !self.until.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        executed(Value::Null)
    }
}

/// Does not know how it ended, but can find out.
#[derive(Debug, Args)]
pub struct Checked {
    #[arg(long)]
    found: String,
}

impl Handler<Cli> for Checked {
    type Data = String;

    fn declare() -> Declaration {
        Declaration::updates().check_first()
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<String> {
        write(&cx.app().book).or_rejected("NO_BOOK")?;
        Err(unknown("the line went dead"))
    }

    fn check(&self, cx: &Cx<Cli>) -> Check<String> {
        match (self.found.as_str(), cx.app().book.exists()) {
            ("unsure", _) => Check::Unsure("nobody answers".to_owned()),
            ("there", _) | (_, true) => Check::Holds("found".to_owned()),
            _ => Check::Missing,
        }
    }
}

#[derive(Debug, Args)]
pub struct Burn {}

impl Handler<Cli> for Burn {
    type Data = Value;

    fn declare() -> Declaration {
        Declaration::deletes().require_key()
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Value> {
        std::fs::remove_file(&cx.app().book).or_unknown()?;
        deleted(Value::Null)
    }
}

#[derive(Debug, Args)]
pub struct Later {
    /// How it ends
    #[arg(long, default_value = "updated")]
    how: String,
}

impl AsyncHandler<Cli> for Later {
    type Data = String;

    fn declare() -> Declaration {
        Declaration::updates().idempotent()
    }

    async fn run(&self, cx: &Cx<Cli>) -> Answer<String> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let there = async { cx.app().book.exists().then(|| "there".to_owned()).into() };
        let act = async || {
            write(&cx.app().book).or_rejected("NO_BOOK")?;
            assert!(self.how != "panic", "out of tea");
            updated("now there".to_owned())
        };
        ensure_async(there, act).await
    }

    async fn plan(&self, _app: &Cli) -> Planned {
        would_update().change("the book").into()
    }
}

#[derive(Debug, Args)]
pub struct Read {
    #[arg(long)]
    fail: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Lines {
    lines: Vec<String>,
    total: usize,
}

impl Query<Cli> for Read {
    type Data = Lines;

    fn run(&self, app: &Cli) -> Result<Lines, Failure> {
        if self.fail {
            std::fs::read("/nowhere")?;
        }
        let lines: Vec<String> =
            std::fs::read_to_string(&app.book).unwrap_or_default().lines().map(str::to_owned).collect();
        Ok(Lines { total: lines.len(), lines })
    }
}

#[derive(Debug, Args)]
pub struct ReadLater {}

impl AsyncQuery<Cli> for ReadLater {
    type Data = usize;

    async fn run(&self, _app: &Cli) -> Result<usize, Failure> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(7)
    }

    fn show(data: &Value) -> Option<String> {
        Some(format!("read {data} later"))
    }
}

/// A program that is one command.
#[derive(Debug, Parser, oncely_clap::Commands)]
#[command(name = "single")]
#[oncely(mutating)]
pub struct Single {
    #[arg(long)]
    book: PathBuf,
}

impl Handler<Self> for Single {
    type Data = String;

    fn declare() -> Declaration {
        Declaration::creates()
    }

    fn run(&self, _cx: &Cx<Self>) -> Answer<String> {
        write(&self.book).or_unknown()?;
        created("done".to_owned())
    }
}
