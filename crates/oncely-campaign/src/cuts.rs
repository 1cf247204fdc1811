//! Power cuts under many writers: what was acknowledged must be there afterwards, byte for byte.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use oncely_testkit::sim::Rng;

use crate::Checked;
use crate::mounts::{Mount, PowerSwitch, make_image};
use crate::programs::Programs;

/// After so many cuts a new ledger is begun, so that its making is cut too.
const CUTS_PER_LEDGER: u64 = 10;
const IMAGE_MIB: u64 = 64;
const WRITERS: u64 = 2;

/// How the writers keep what they acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As oncely does.
    Oncely,
    /// With SQLite's `synchronous=NORMAL`, wrong on purpose.
    Normal,
}

impl Way {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Oncely => "oncely",
            Self::Normal => "normal",
        }
    }
}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Power cuts.
    pub cuts: u64,
    /// What the moments follow from.
    pub seed: u64,
    /// How the writers keep what they acknowledge.
    pub way: Way,
}

/// Figures, and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Power cuts.
    pub cuts: u64,
    /// Cuts before anything had been acknowledged: while the ledger was being made or opened.
    pub cuts_while_opening: u64,
    /// Claims that were acknowledged.
    pub claims: u64,
    /// Ends that were acknowledged.
    pub ends: u64,
    /// Acknowledged claims and ends that were gone.
    pub lost: u64,
    /// Every broken promise, in words.
    pub broken: Vec<String>,
}

/// What was acknowledged for a key: a claim, or also its result.
type Acknowledged = BTreeMap<String, Option<String>>;

/// Runs the cuts in a directory of our own.
pub fn run(programs: &Programs, directory: &Path, plan: Plan) -> Checked<Report> {
    let (image, point) = (directory.join("disk.img"), directory.join("disk"));
    make_image(&image, IMAGE_MIB)?;
    let mut switch = PowerSwitch::new()?;
    let mut rng = Rng::new(plan.seed);
    let mut report = Report::default();
    let mut expected = Acknowledged::new();
    let mut mount = Mount::image(&image, &point)?;
    for cut in 0..plan.cuts {
        if cut % CUTS_PER_LEDGER == 0 {
            remove_ledgers(&point)?;
            expected.clear();
        }
        let ledger = point.join(format!("ledger-{}.db", cut / CUTS_PER_LEDGER));
        let acknowledged = write_until_killed(programs, &ledger, plan.way, cut, &mut rng)?;
        switch.cut(&mount)?;
        mount.unmount()?;
        mount = Mount::image(&image, &point)?;
        report.cuts += 1;
        report.cuts_while_opening += u64::from(acknowledged.is_empty());
        report.claims += acknowledged.len() as u64;
        report.ends += acknowledged.values().flatten().count() as u64;
        expected.extend(acknowledged);
        compare(programs, &ledger, plan.way, cut, &mut expected, &mut report)?;
    }
    mount.unmount()?;
    Ok(report)
}

fn remove_ledgers(point: &Path) -> Checked<()> {
    for entry in std::fs::read_dir(point)? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Lets the writers write for a random while, kills them, and returns what they had acknowledged.
fn write_until_killed(
    programs: &Programs,
    ledger: &Path,
    way: Way,
    cut: u64,
    rng: &mut Rng,
) -> Checked<Acknowledged> {
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        writers.push(Writer::start(programs, ledger, way, &format!("{cut}-{number}"))?);
    }
    // Some cuts are to meet the opening of the ledger, most of them work at full speed.
    if rng.chance(800) {
        writers.iter().try_for_each(Writer::wait_for_the_first)?;
    }
    thread::sleep(Duration::from_micros(rng.below(120_000)));
    // All are dead before the first is asked, so that nobody writes after the cut.
    for writer in &mut writers {
        writer.process.kill()?;
    }
    let mut acknowledged = Acknowledged::new();
    for writer in writers {
        acknowledged.extend(writer.end()?);
    }
    Ok(acknowledged)
}

struct Writer {
    process: Child,
    lines: Option<JoinHandle<Checked<Acknowledged>>>,
    first: Receiver<()>,
}

impl Writer {
    fn start(programs: &Programs, ledger: &Path, way: Way, prefix: &str) -> Checked<Self> {
        let mut process = Command::new(&programs.cut_writer)
            .args(["write", way.word()])
            .arg(ledger)
            .arg(prefix)
            .stdout(Stdio::piped())
            .spawn()?;
        let out = process.stdout.take().ok_or("a writer has no output")?;
        let (say, first) = channel();
        let lines = thread::spawn(move || {
            let mut lines = BufReader::new(out);
            let nothing_came = lines.fill_buf()?.is_empty();
            if !nothing_came {
                // Nobody listens where the cut does not wait.
                let _ = say.send(());
            }
            collect(lines)
        });
        Ok(Self { process, lines: Some(lines), first })
    }

    fn wait_for_the_first(&self) -> Checked<()> {
        Ok(self.first.recv_timeout(Duration::from_secs(180))?)
    }

    fn end(mut self) -> Checked<Acknowledged> {
        self.process.wait()?;
        let lines = self.lines.take().ok_or("a writer was ended twice")?;
        lines.join().map_err(|_| "a reader panicked")?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Usually it has ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads `claimed KEY` and `succeeded KEY RESULT`; a last line without its end was not acknowledged.
fn collect(mut lines: impl BufRead) -> Checked<Acknowledged> {
    let mut acknowledged = Acknowledged::new();
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.strip_suffix('\n').map(|l| l.split(' ').collect()).unwrap_or_default();
        match words.as_slice() {
            ["claimed", key] => {
                acknowledged.entry((*key).to_owned()).or_default();
            }
            ["succeeded", key, result] => {
                acknowledged.insert((*key).to_owned(), Some((*result).to_owned()));
            }
            [] => {}
            _ => return Err(format!("a writer says {line:?}").into()),
        }
        line.clear();
    }
    Ok(acknowledged)
}

/// Looks at the ledger through a process that ends before the next cut.
fn compare(
    programs: &Programs,
    ledger: &Path,
    way: Way,
    cut: u64,
    expected: &mut Acknowledged,
    report: &mut Report,
) -> Checked<()> {
    let output = Command::new(&programs.cut_writer).args(["survivors", way.word()]).arg(ledger).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        report.broken.push(format!("cut {cut}: the ledger cannot be read: {said}"));
        return Ok(());
    }
    let found = collect(BufReader::new(output.stdout.as_slice()))?;
    for (key, result) in expected.iter() {
        let what = match (found.get(key), result) {
            (None, _) => "an acknowledged claim is gone",
            (Some(there), Some(_)) if there != result => "an acknowledged end is gone",
            _ => continue,
        };
        report.lost += 1;
        report.broken.push(format!("cut {cut}: {key}: {what}"));
    }
    // What is gone is counted once.
    expected.retain(|key, result| found.get(key).is_some_and(|there| result.is_none() || there == result));
    Ok(())
}
