//! Scores of other people's tools, as packaged by Debian, npm and PyPI. Each expected score is argued from what the tool does;
//! the rows show that it was seen. `./test` installs the packages at fixed versions under `target/tools`.

mod installed;

use installed::installed;

use crate::place::{Place, Report};

/// Measures a command in a folder that was set up by a script.
fn measured(needs: &[&str], setup: &str, count: &str, options: &[&str], command: &[&str]) -> Option<Report> {
    let tools = installed(needs)?;
    let place = Place::new();
    place.sh(setup, &tools);
    let options = [&["cli", "--allow-effects", "--count", count][..], options].concat();
    Some(place.report_with(&[&options[..], &["--"], command].concat(), &tools))
}

#[test]
fn debian_taskwarrior_add_earns_0() {
    // Every `task add` is a new task, on purpose: no key, no dry run, and the repeat was counted as a second task.
    let count = "task rc.verbose=nothing rc.confirmation=no count";
    let add = ["task", "add", "buy milk {n}"];
    let Some(report) = measured(&["task"], "touch .taskrc", count, &["--races", "1"], &add) else { return };
    report.expect(0, &[("dry_run", "fails"), ("repeat", "fails"), ("at_once", "fails")]);
}

#[test]
fn debian_todotxt_add_earns_0() {
    // It appends a line for every call. `todo-txt add --help` would add the task "--help": its help does not offer
    // `--help`, so no command is asked for it, and the count shows that asking was safe.
    let setup = "printf 'export TODO_DIR=%s TODO_FILE=%s/todo.txt DONE_FILE=%s/d REPORT_FILE=%s/r' . . . . > cfg; : > todo.txt";
    let add = ["todo-txt", "-d", "cfg", "add", "milk {n}"];
    let Some(report) = measured(&["todo-txt"], setup, "wc -l < todo.txt", &["--races", "1"], &add) else {
        return;
    };
    report.expect(0, &[("dry_run", "fails"), ("repeat", "fails")]);
    assert!(report.evidence("repeat").contains("count 0 -> 1"), "nothing but the calls was counted");
}

#[test]
fn debian_rsync_earns_1() {
    // Its dry run copies nothing, and copying again what is there changes nothing, also in a race and after a kill. But no
    // answer says in a form for programs what changed, and that is what a 2 needs.
    let setup = "mkdir from to; echo 1 > from/file";
    let copy = ["rsync", "-a", "from/", "to/{n}/"];
    let Some(report) = measured(&["rsync"], setup, "ls to | wc -l", &[], &copy) else { return };
    report.expect(1, &[("dry_run", "holds"), ("repeat", "holds"), ("effect", "fails"), ("at_once", "holds")]);
}

#[test]
fn debian_git_branch_earns_1() {
    // A branch exists once, so a repeat does no harm; but it ends with 128, and an agent that lost the first answer cannot
    // tell success from failure. There is no dry run.
    let setup = "git init -q .; git -c user.name=a -c user.email=b commit -q --allow-empty -m first";
    let branch = ["git", "branch", "b{n}"];
    let Some(report) = measured(&["git"], setup, "git branch --list | wc -l", &["--kills", "2"], &branch)
    else {
        return;
    };
    report.expect(1, &[("dry_run", "fails"), ("repeat", "partly"), ("at_once", "holds")]);
    assert!(report.evidence("repeat").contains("exit 128"));
}

#[test]
fn npm_mkdirp_earns_1() {
    // A folder that is there stays: upsert by nature. No dry run, no answer at all.
    let made = ["mkdirp", "made/{n}"];
    let Some(report) = measured(&["mkdirp"], "mkdir made", "ls made | wc -l", &["--kills", "0"], &made)
    else {
        return;
    };
    report.expect(1, &[("dry_run", "fails"), ("repeat", "holds"), ("at_once", "holds"), ("effect", "fails")]);
}

#[test]
fn npm_taskbook_earns_0() {
    // The same as Taskwarrior: a repeat is a second task.
    let count = "cat .taskbook/storage/storage.json 2>/dev/null | grep -o '\"_isTask\": *true' | wc -l";
    let add = ["tb", "--task", "milk{n}"];
    let Some(report) = measured(&["tb"], ":", count, &["--races", "0"], &add) else { return };
    report.expect(0, &[("dry_run", "fails"), ("repeat", "fails")]);
}

#[test]
fn npm_commit_and_tag_version_earns_1() {
    // An honest dry run, the one way to a 1 that is open: a repeat makes a second release.
    let setup = "git init -q .; git config user.name a; git config user.email b\n\
                 echo '{\"name\":\"x\",\"version\":\"1.0.0\"}' > package.json; git add package.json; git commit -qm first";
    let release = ["commit-and-tag-version", "-r", "patch"];
    let count = "git rev-list --count HEAD";
    let Some(report) = measured(&["commit-and-tag-version", "git"], setup, count, &[], &release) else {
        return;
    };
    report.expect(1, &[("dry_run", "holds"), ("repeat", "fails"), ("killed", "fails")]);
}

#[test]
fn pypi_sqlite_utils_insert_earns_0_and_upsert_earns_1() {
    // One tool, two commands: `insert` without a primary key adds the row again; `upsert` with one does not. Neither has a
    // dry run or says what changed.
    let setup = "echo '{\"id\": 1, \"a\": 2}' > row.json; sqlite-utils create-database db\n\
                 sqlite-utils create-table db t id integer a integer; sqlite-utils create-table db u id integer --pk id";
    for (command, score, repeat) in [
        (["sqlite-utils", "insert", "db", "t", "row.json"].to_vec(), 0, "fails"),
        (["sqlite-utils", "upsert", "db", "u", "row.json", "--pk", "id", "--alter"].to_vec(), 1, "holds"),
    ] {
        let count = format!("sqlite-utils rows db {} | grep -c id", command[3]);
        let Some(report) = measured(&["sqlite-utils"], setup, &count, &[], &command) else { return };
        report.expect(score, &[("dry_run", "fails"), ("repeat", repeat), ("key", "fails")]);
    }
}

#[test]
fn pypi_bump_my_version_earns_1() {
    // An honest dry run; a repeat bumps the version once more.
    let setup = "echo 1.0.0 > VERSION\n\
                 printf '[tool.bumpversion]\\ncurrent_version = \"1.0.0\"\\n[[tool.bumpversion.files]]\\nfilename = \"VERSION\"\\n' \
                 > .bumpversion.toml";
    let bump = ["bump-my-version", "bump", "patch"];
    let Some(report) = measured(&["bump-my-version"], setup, "cut -d. -f3 VERSION", &[], &bump) else {
        return;
    };
    report.expect(1, &[("dry_run", "holds"), ("repeat", "fails"), ("every_command", "fails")]);
}

/// Measures a server in a sandbox that was set up by a script.
fn served(needs: &[&str], setup: &str, calls: &[&str], command: &[&str]) -> Option<Report> {
    let tools = installed(needs)?;
    let place = Place::new();
    place.sh(&format!("mkdir sandbox; cd sandbox; {setup}"), &tools);
    let mut options = vec!["mcp", "--allow-effects", "--sandbox", "sandbox"];
    calls.iter().for_each(|call| options.extend(["--call", call]));
    Some(place.report_with(&[&options[..], &["--"], command].concat(), &tools))
}

#[test]
fn pypi_mcp_server_time_earns_3() {
    // Both tools say that they only read, both were called, and nothing changed: there is nothing that a retry could harm.
    let calls = [
        r#"get_current_time {"timezone": "Etc/UTC"}"#,
        r#"convert_time {"source_timezone": "Etc/UTC", "time": "10:00", "target_timezone": "Asia/Tokyo"}"#,
    ];
    let Some(report) = served(&["mcp-server-time"], ":", &calls, &["mcp-server-time"]) else { return };
    report.expect(3, &[("annotated", "holds"), ("read_only", "holds"), ("key", "not_applicable")]);
}

#[test]
fn npm_mcp_server_filesystem_earns_1() {
    // It says of every tool what a client has to know, and what was called bore it out. But `edit_file` replaced foo by
    // foofoo a second time: it says that it is not idempotent, rightly, and takes no key, which a 2 needs.
    let calls = [
        r#"write_file {"path": "{sandbox}/a{n}", "content": "x"}"#,
        r#"create_directory {"path": "{sandbox}/d{n}"}"#,
        r#"edit_file {"path": "{sandbox}/f", "edits": [{"oldText": "foo", "newText": "foofoo"}]}"#,
        r#"read_text_file {"path": "{sandbox}/f"}"#,
    ];
    let command = ["mcp-server-filesystem", "{sandbox}"];
    let Some(report) = served(&["mcp-server-filesystem"], "echo foo > f", &calls, &command) else { return };
    report.expect(
        1,
        &[("annotated", "holds"), ("idempotent", "holds"), ("read_only", "partly"), ("key", "fails")],
    );
    let notes = report.0["notes"].to_string();
    assert!(notes.contains("`edit_file` called twice: ok") && notes.contains("ok (3 entries"), "{notes}");
}

#[test]
fn npm_mcp_server_memory_earns_1() {
    // Annotated throughout. `create_entities` says that it is not idempotent, so a client will not repeat it, and it takes
    // no key; that a repeat was seen to do no harm does not help a client that cannot know.
    let calls =
        [r#"create_entities {"entities": [{"name": "e{n}", "entityType": "t", "observations": []}]}"#];
    let command = ["env", "MEMORY_FILE_PATH={sandbox}/memory.json", "mcp-server-memory"];
    let Some(report) = served(&["mcp-server-memory"], ":", &calls, &command) else { return };
    report.expect(1, &[("annotated", "holds"), ("idempotent", "not_measured"), ("key", "fails")]);
}

#[test]
fn pypi_mcp_server_sqlite_earns_0() {
    // No tool says anything, so a client has to take every one for destructive and not idempotent; and an INSERT that was
    // called twice is two rows.
    let calls = [
        r#"create_table {"query": "CREATE TABLE t (a)"}"#,
        r#"write_query {"query": "INSERT INTO t VALUES (1)"}"#,
    ];
    let command = ["mcp-server-sqlite", "--db-path", "{sandbox}/db"];
    let Some(report) = served(&["mcp-server-sqlite"], ":", &calls, &command) else { return };
    report.expect(0, &[("annotated", "fails"), ("key", "fails")]);
    assert!(report.0["notes"].to_string().contains("`write_query` called twice: ok"), "{report:#?}");
}
