//! Servers that have real effects, called twice.

use std::process::Command;

use serde_json::json;

use crate::plan::{Call, Client, Plan, Told};
use crate::software::installed;
use crate::world::{Server, World, both_ways};

/// The call and its retry.
fn twice(call: &Call) -> Plan {
    Plan::new(&[call.clone(), call.clone()])
}

fn shell(world: &World, line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).current_dir(world.path("")).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_insert_sent_twice_to_mcp_server_sqlite_leaves_one_row() {
    let Some(software) = installed("an insert sent twice") else { return };
    let rows = |way| {
        let world = World::new(&software);
        let file = world.text("orders.db");
        let python = world.software.modern("python");
        let query = |sql: &str| {
            let program =
                format!("import sqlite3; print(sqlite3.connect('{file}').execute('{sql}').fetchall())");
            shell(&world, &format!("{python} -c \"{program}\""))
        };
        query("CREATE TABLE orders (item TEXT)");
        let command = vec![world.software.legacy("mcp-server-sqlite"), "--db-path".to_owned(), file.clone()];
        let insert = Call::new("write_query", json!({ "query": "INSERT INTO orders VALUES ('book')" }));
        let told =
            twice(&insert).run(Client::PythonV1, &world, &world.through(way, Server::Command(command)));
        assert_eq!(told[0].success(), told[1].success());
        query("SELECT item FROM orders").trim().to_owned()
    };
    let [direct, guarded] = both_ways(rows);
    assert_eq!(direct, "[('book',), ('book',)]", "the control shows no double effect");
    assert_eq!(guarded, "[('book',)]");
}

#[test]
fn an_edit_sent_twice_to_server_filesystem_is_made_once() {
    let Some(software) = installed("an edit sent twice") else { return };
    let text = |way| {
        let world = World::new(&software);
        std::fs::write(world.path("note.txt"), "foo").unwrap();
        let server = world.software.package("server-filesystem/dist/index.js");
        let command = vec![world.software.node(), server, world.text("")];
        let edits = json!([{ "oldText": "foo", "newText": "foofoo" }]);
        let edit = Call::new("edit_file", json!({ "path": world.text("note.txt"), "edits": edits }));
        let told =
            twice(&edit).run(Client::TypeScript, &world, &world.through(way, Server::Command(command)));
        assert!(told.iter().all(Told::is_success), "{told:?}");
        std::fs::read_to_string(world.path("note.txt")).unwrap()
    };
    let [direct, guarded] = both_ways(text);
    assert_eq!(direct, "foofoofoo", "the control shows no double effect");
    assert_eq!(guarded, "foofoo");
}

#[test]
fn a_commit_sent_twice_to_mcp_server_git_replays_the_first_success() {
    let Some(software) = installed("a commit sent twice") else { return };
    let told = |way| {
        let world = World::new(&software);
        shell(
            &world,
            "git init -q repository; cd repository; git config user.name A; git config user.email a@b.c",
        );
        shell(&world, "cd repository; echo text > file; git add file");
        let command = vec![world.software.modern("mcp-server-git")];
        let commit =
            Call::new("git_commit", json!({ "repo_path": world.text("repository"), "message": "first" }));
        let told = twice(&commit).run(Client::Python, &world, &world.through(way, Server::Command(command)));
        assert_eq!(shell(&world, "cd repository; git rev-list --count HEAD").trim(), "1");
        told
    };
    let [direct, guarded] = both_ways(told);
    assert!(direct[0].is_success());
    assert_ne!(direct[0], direct[1], "the control shows no trouble");
    assert_eq!(guarded[0].success(), guarded[1].success());
}

#[test]
fn a_branch_created_twice_at_mcp_server_git_replays_the_first_success() {
    let Some(software) = installed("a branch created twice") else { return };
    let told = |way| {
        let world = World::new(&software);
        shell(
            &world,
            "git init -q repository; cd repository; git config user.name A; git config user.email a@b.c",
        );
        shell(&world, "cd repository; git commit -q --allow-empty -m first");
        let command = vec![world.software.modern("mcp-server-git")];
        let arguments = json!({ "repo_path": world.text("repository"), "branch_name": "work" });
        let branch = Call::new("git_create_branch", arguments);
        twice(&branch).reconnecting().run(
            Client::Python,
            &world,
            &world.through(way, Server::Command(command)),
        )
    };
    let [direct, guarded] = both_ways(told);
    assert!(direct[0].is_success() && !direct[1].is_success(), "the control shows no trouble: {direct:?}");
    assert_eq!(guarded[0].success(), guarded[1].success());
}

/// The tool says of itself that it only reads, so the policy file has to say otherwise.
const LONG_OPERATION_IS_A_WRITE: &str = "[tool.trigger-long-running-operation]\nkind = \"write\"\n";

/// Gives up on a long operation, and asks for it again.
fn long_operation(client: Client, world: &World, server: &Server) {
    world.policy(LONG_OPERATION_IS_A_WRITE);
    let operation = Call::new("trigger-long-running-operation", json!({ "duration": 4, "steps": 2 }));
    let plan = Plan::new(&[operation.clone().giving_up_after(1.5), operation]);
    let told = plan.run(client, world, server);
    assert!(matches!(told[0], Told::Failed { .. }), "the client did not give up: {told:?}");
    assert!(told[1].success().starts_with("Long running operation completed"), "{told:?}");
}

/// How many calls reached the server.
fn calls(world: &World) -> usize {
    world.occurrences("tapped", r#""tools/call""#)
}

#[test]
fn a_long_operation_of_server_everything_that_timed_out_is_started_once_over_stdio() {
    let Some(software) = installed("a long operation over stdio") else { return };
    let started = |way| {
        let world = World::new(&software);
        let server = world.software.package("server-everything/dist/index.js");
        let server = world.tapped(vec![world.software.node(), server, "stdio".to_owned()]);
        long_operation(Client::TypeScript, &world, &world.through(way, server));
        calls(&world)
    };
    let [direct, guarded] = both_ways(started);
    assert_eq!(direct, 2, "the control shows no second start");
    assert_eq!(guarded, 1);
}

#[test]
fn a_long_operation_of_server_everything_that_timed_out_is_started_once_over_http() {
    let Some(software) = installed("a long operation over HTTP") else { return };
    let started = |way| {
        let world = World::new(&software);
        world.policy(LONG_OPERATION_IS_A_WRITE);
        let server = world.software.package("server-everything/dist/index.js");
        let port = world.serve_on_port(&[world.software.node(), server, "streamableHttp".to_owned()]);
        let server = world.tapped_port(port);
        long_operation(Client::TypeScript, &world, &world.through(way, server));
        calls(&world)
    };
    let [direct, guarded] = both_ways(started);
    assert_eq!(direct, 2, "the control shows no second start");
    assert_eq!(guarded, 1);
}
