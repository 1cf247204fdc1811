//! File systems made for a test: a small memory disk, a disk whose power can be cut. Unmounted when dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Checked;

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
}

impl Mount {
    /// A memory disk of this size, such as `2m`.
    pub fn memory_disk(point: &Path, size: &str) -> Checked<Self> {
        std::fs::create_dir_all(point)?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(point))?;
        Ok(Self { point: point.to_owned() })
    }

    /// The file system in an image file.
    pub fn image(image: &Path, point: &Path) -> Checked<Self> {
        std::fs::create_dir_all(point)?;
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point))?;
        Ok(Self { point: point.to_owned() })
    }

    /// Where it is.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// From now on nothing can be written.
    pub fn make_read_only(&self) -> Checked<()> {
        run(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.point))
    }

    /// Unmounts; who has just been killed may hold it for a moment.
    pub fn unmount(self) -> Checked<()> {
        for _ in 0..6_000 {
            if Command::new("umount").arg(&self.point).stderr(Stdio::null()).status()?.success() {
                std::mem::forget(self);
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        run(Command::new("umount").arg(&self.point))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: also when a test failed and something still holds it.
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
    }
}

/// Makes an ext4 file system in an image file.
pub fn make_image(image: &Path, mebibytes: u64) -> Checked<()> {
    std::fs::File::create(image)?.set_len(mebibytes << 20)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))
}

/// Cuts the power of mounted file systems: what was not synced is gone. A process of its own that issues
/// `EXT4_IOC_SHUTDOWN` without flushing the journal; one for many cuts, since starting it takes longest.
#[derive(Debug)]
pub struct PowerSwitch {
    process: Child,
    answers: BufReader<ChildStdout>,
}

const SWITCH: &str = "
import fcntl, os, struct, sys
for line in sys.stdin:
    handle = os.open(line.rstrip('\\n'), os.O_RDONLY)
    fcntl.ioctl(handle, 0x8004587d, struct.pack('I', 2))
    os.close(handle)
    print('cut', flush=True)
";

impl PowerSwitch {
    /// Starts it.
    pub fn new() -> Checked<Self> {
        let mut process = Command::new("python3")
            .args(["-c", SWITCH])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = BufReader::new(process.stdout.take().ok_or("the switch has no output")?);
        Ok(Self { process, answers })
    }

    /// Cuts the power of a mounted file system.
    pub fn cut(&mut self, mount: &Mount) -> Checked<()> {
        let input = self.process.stdin.as_mut().ok_or("the switch has no input")?;
        writeln!(input, "{}", mount.point.display())?;
        input.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer == "cut\n" { Ok(()) } else { Err("the power could not be cut".into()) }
    }
}

impl Drop for PowerSwitch {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(command: &mut Command) -> Checked<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
