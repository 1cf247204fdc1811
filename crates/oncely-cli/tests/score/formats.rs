//! The four formats, and the exit code that `--min` decides.

use crate::place::{Place, shop};

fn printed(format: &str, extra: &[&str]) -> (String, i32) {
    let place = Place::new();
    let shop = shop("preview.sh");
    let mut arguments =
        vec!["score", "cli", "--format", format, "--allow-effects", "--count", "wc -l < orders"];
    arguments.extend(extra);
    arguments.extend(["--", &shop, "create-order", "--amount", "100"]);
    let output = place.run(&arguments);
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

#[test]
fn the_least_score_decides_the_exit_code() {
    assert_eq!(printed("json", &[]).1, 0);
    assert_eq!(printed("json", &["--min", "1"]).1, 0);
    assert_eq!(printed("json", &["--min", "2"]).1, 4);
    assert_eq!(printed("json", &["--min", "4"]).1, 2, "there is no such score");
}

#[test]
fn the_table_says_score_evidence_and_what_would_raise_it() {
    let (table, _) = printed("table", &[]);
    for part in ["1 of 3", "CRITERION", "the dry run changes nothing", "holds", "count 0 -> 0", "to 2: "] {
        assert!(table.contains(part), "{part}\n{table}");
    }
}

#[test]
fn markdown_has_a_row_for_every_criterion() {
    let (page, _) = printed("markdown", &[]);
    assert!(page.starts_with("# Safe retries: 1 of 3\n"), "{page}");
    assert_eq!(page.lines().filter(|line| line.starts_with("| ")).count(), 1 + 9, "{page}");
    assert!(page.contains("## What would raise it"));
}

#[test]
fn junit_fails_where_the_exit_code_fails_and_is_well_formed() {
    for (min, failures) in [("1", 0), ("2", 2)] {
        let (xml, code) = printed("junit", &["--min", min]);
        assert_eq!(xml.matches("<failure").count(), failures, "{xml}");
        assert_eq!(code, if failures == 0 { 0 } else { 4 });
        // Python's parser is not ours.
        let script = "import sys, xml.etree.ElementTree as e; r = e.parse(sys.stdin).getroot()\n\
                      s = r.find('testsuite'); assert len(s.findall('testcase')) == int(s.get('tests')) == 9";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), xml.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{xml}");
    }
}
