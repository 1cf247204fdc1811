//! A whole file as people write it, right and wrong.

use oncely::policy_file::PolicyFile;

use super::{Secret, ServeSettings, UnusedTool, unused_tools};

fn read(text: &str) -> Result<ServeSettings, String> {
    let policy = PolicyFile::parse(text, "o.toml").map_err(|e| e.to_string())?;
    ServeSettings::parse(text, "o.toml", &policy).map_err(|e| e.to_string())
}

const ROUTE: &str = "[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\n";

#[test]
fn every_table_is_read_and_secrets_know_where_they_are_named() {
    let settings = read(
        "[otlp]\nendpoint = \"http://collector:4318\"\nheaders_env = \"H\"\nsample = 1\n\
         [encryption]\nkeys_file = \"k\"\n[redact]\njson = [\"/a\"]\nheaders = [\"x-b\"]\n\
         [[admin.tokens]]\nname = \"ci\"\nscope = \"read\"\nfile = \"t\"\n\
         [[provider]]\nname = \"ours\"\nkey = { header = \"X-Key\" }\n\
         [[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\nprovider = \"ours\"\n",
    );
    let settings = settings.unwrap();
    assert_eq!(settings.otlp.headers.unwrap().said_at, "o.toml:3:15: otlp.headers_env");
    assert_eq!(settings.admin.encryption.unwrap().secret, Secret::File("k".into()));
    assert_eq!(settings.admin.tokens[0].secret.said_at, "o.toml:13:8: admin.tokens[0].file");
    assert!(!settings.admin.redaction.is_empty() && settings.gateway.routes[0].provider.is_some());
}

#[test]
fn every_problem_of_every_table_has_its_place_and_says_what_is_allowed() {
    for (text, expected) in [
        (
            "[otlp]\nendpont = \"x\"",
            "o.toml:2:1: otlp: unknown field \"endpont\"; did you mean endpoint? allowed:",
        ),
        ("[otlp]\nendpoint = \"collector:4318\"", "o.toml:2:12: otlp.endpoint: \"collector:4318\""),
        ("[otlp]\nendpoint = \"collector:4318\"", "an address looks like"),
        ("[otlp]\ninterval = 5", "o.toml:2:12: otlp.interval: \"5\" has no unit"),
        ("[otlp]\ninterval = \"1ms\"", "o.toml:2:12: otlp.interval: must be 100ms or longer"),
        ("[otlp]\nsample = 2.0", "o.toml:2:10: otlp.sample: must be a number from 0.0 to 1.0"),
        (
            "[otlp]\nheaders_env = \"A\"\nheaders_file = \"b\"",
            "o.toml:2:15: otlp.headers_env: say where it is once",
        ),
        ("otlp = 5", "o.toml:1:8: otlp: must be a table with endpoint"),
        ("[redact]\njson = [\"a\"]", "o.toml:2:9: redact.json: "),
        ("[redact]\njsn = []", "o.toml:2:1: redact: unknown field \"jsn\"; did you mean json?"),
        ("[redact]\nheaders = [\"a b\"]", "o.toml:2:12: redact.headers: "),
        ("[encryption]", "o.toml:1:1: encryption: say where the keys are"),
        ("[encryption]\nkeys = \"00\"", "o.toml:2:1: encryption: unknown field \"keys\""),
        ("[encryption]\nkeys_env = \"\"", "o.toml:2:12: encryption.keys_env: must not be empty"),
        ("[admin]\ntoken = 1", "o.toml:2:1: admin: unknown field \"token\"; did you mean tokens?"),
        ("[admin]\ntokens = 1", "o.toml:2:10: admin.tokens: must be one table for each token"),
        (
            "[[admin.tokens]]\nname = \"a\"\nscope = \"wirte\"\nenv = \"X\"",
            "o.toml:3:9: admin.tokens[0].scope: \"wirte\" is not allowed; did you mean \"write\"?",
        ),
        (
            "[[admin.tokens]]\nname = \"a\"\nscope = \"read\"",
            "o.toml:1:1: admin.tokens[0]: say where the secret is",
        ),
        ("[[admin.tokens]]\nscope = \"read\"\nenv = \"X\"", "o.toml:1:1: admin.tokens[0]: name is missing"),
        (
            "[[admin.tokens]]\nname = \"a b\"\nscope = \"read\"\nenv = \"X\"",
            "o.toml:2:8: admin.tokens[0].name: ",
        ),
        ("[[provider]]\nnme = \"a\"", "o.toml:2:1: provider[0]: unknown field \"nme\"; did you mean name?"),
        ("[[provider]]\nname = 5\nkey = \"none\"", "o.toml:2:8: provider[0].name: "),
        ("[[provider]]\nname = \"a\"", "o.toml:1:1: provider[0]: missing field `key`"),
        (
            "[[provider]]\nname = \"a\"\nkey = { hedaer = \"b\" }",
            "o.toml:3:7: provider[0].key: a key travels in one way",
        ),
        (
            "[[provider]]\nname = \"a\"\nkey = \"none\"\nretention = \"soon\"",
            "o.toml:4:13: provider[0].retention: ",
        ),
        (
            "[[provider]]\nname = \"a\"\nkey = \"none\"\n[[provider]]\nname = \"a\"\nkey = \"none\"",
            "o.toml:5:8: provider[1].name: the name stands twice",
        ),
        ("provider = 1", "o.toml:1:12: provider: must be one table for each provider: [[provider]]"),
        ("[[route]]\nmatch = \"a\"\nupstream = \"http://a\"", "o.toml:2:9: route[0].match: "),
    ] {
        match read(text) {
            Ok(_) => panic!("{text} was accepted"),
            Err(message) => assert!(message.contains(expected), "{text}\n{message}"),
        }
    }
}

#[test]
fn problems_of_several_tables_are_told_together_and_none_is_made_up() {
    let text = "[otlp]\nx = 1\n[redact]\ny = 1\n[[provider]]\nname = \"ours\"\nz = 1\n[[route]]\nmatch = \"a\"\n\
                upstream = \"http://a\"\nprovider = \"ours\"\n";
    let message = read(text).err().unwrap();
    assert!(message.contains("4 problems"), "{message}");
    let places: Vec<usize> = ["o.toml:2:1", "o.toml:4:1", "o.toml:7:1", "o.toml:9:9"]
        .map(|place| message.find(place).unwrap_or_else(|| panic!("{place}: {message}")))
        .into();
    assert!(places.is_sorted(), "{message}");
    assert_eq!(message.matches("nothing ran").count(), 1, "{message}");
}

#[test]
fn half_a_file_is_no_configuration() {
    use crate::admin::Settings;
    use crate::providers::Providers;
    use crate::telemetry::OtlpSettings;
    for text in ["[encryption]\nkeys_env = \"K", "[[admin.tokens", "a = ["] {
        assert!(Settings::parse(text, "o.toml").is_err(), "{text}");
        assert!(Settings::parse_encryption(text, "o.toml").is_err(), "{text}");
        assert!(OtlpSettings::parse(text, "o.toml").is_err(), "{text}");
        assert!(Providers::builtin().clone().with_config(text, "o.toml").is_err(), "{text}");
        assert!(ServeSettings::parse(text, "o.toml", &PolicyFile::empty()).is_err(), "{text}");
    }
}

#[test]
fn no_line_of_the_file_is_repeated_since_it_may_hold_a_secret() {
    for text in [
        "[otlp]\nheaders = \"k=s3cret\"",
        "[encryption]\nkeys = \"s3cret\"",
        "[[admin.tokens]]\nsecret = \"s3cret\"",
    ] {
        let message = read(text).err().unwrap();
        assert!(!message.contains("s3cret"), "{message}");
    }
}

#[test]
fn a_table_that_was_meant_for_a_route_is_noticed() {
    let unused = |text: &str| {
        let policy = PolicyFile::parse(text, "o.toml").unwrap();
        let settings = ServeSettings::parse(text, "o.toml", &policy).unwrap();
        unused_tools(&policy, &settings.gateway.routes)
    };
    let found = unused(&format!("{ROUTE}tool = \"orders\"\n[tool.ordres]\n"));
    assert_eq!(found, [UnusedTool { name: "ordres".into(), line: 5, near: Some("orders".into()) }]);
    let found = unused(&format!("{ROUTE}tool = \"orders\"\n[tool.payments]\n"));
    assert_eq!(found, [UnusedTool { name: "payments".into(), line: 5, near: None }]);
    assert_eq!(unused(&format!("{ROUTE}[tool.\"http:/a\"]\n")).len(), 1);
    for fine in [
        // Other doors use the file, too.
        format!(
            "{ROUTE}tool = \"orders\"\n[tool.orders]\n[tool.\"cmd:a\"]\n[tool.\"mcp:b/c\"]\n[tool.payments]\n"
        ),
        format!("{ROUTE}[tool.send_mail]\n"),
        format!("{ROUTE}[tool.\"http:/**\"]\n"),
        format!("{ROUTE}tool = \"orders\"\n[tool.orders]\n[tool.\"http:/**\"]\n[tool.\"http:*\"]\n"),
        format!("{ROUTE}tool = \"orders\"\n[tool.\"ord*\"]\n"),
        "[tool.ordres]\n".to_owned(),
    ] {
        assert_eq!(unused(&fine), [], "{fine}");
    }
}
