//! `oncely run` as a job of a real shell on a real terminal.

use std::process::Command;

#[test]
fn a_command_that_is_stopped_by_its_user_gives_the_shell_back_and_goes_on_when_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/job.py"))
        .args([env!("CARGO_BIN_EXE_oncely").as_ref(), directory.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One line for each of the two keys: being stopped is no reason to run again.
    let effects = std::fs::read_to_string(directory.path().join("effects")).unwrap();
    assert_eq!(effects, "once\nonce\n");
}
