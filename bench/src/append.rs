//! The floor: appending 4 KiB to a file and `fdatasync`, nothing else.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::stats::Sample;

/// Appends in pairs for a while: two appends are what begin + complete cannot do without.
pub(crate) fn run(path: &Path, duration: Duration) -> Result<Sample> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let block = [0x5a_u8; 4096];
    let (mut pairs, mut begins) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while start.elapsed() < duration {
        let pair = Instant::now();
        append(&mut file, &block)?;
        begins.push(pair.elapsed());
        append(&mut file, &block)?;
        pairs.push(pair.elapsed());
    }
    Ok(Sample::of(start.elapsed(), pairs, begins))
}

fn append(file: &mut File, block: &[u8]) -> Result<()> {
    file.write_all(block)?;
    file.sync_data()?;
    Ok(())
}
