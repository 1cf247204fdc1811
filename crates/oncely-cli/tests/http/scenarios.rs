//! Conversations as data: each file holds what one dialect promises, step by step.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::client::{self, Answer};
use crate::gateway::Gateway;
use crate::upstream::Upstream;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Put into the table of the route, for every scenario.
    #[serde(default)]
    route: String,
    scenario: Vec<Scenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    #[serde(default)]
    route: String,
    step: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default = "post")]
    method: String,
    #[serde(default = "orders")]
    path: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default = "body")]
    body: String,
    #[serde(default)]
    part: Part,
    expect: Expect,
}

/// Which part of a request a step is.
#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// All of it: it is sent and answered.
    #[default]
    Whole,
    /// It is sent with `x-act: hold go`, and has arrived; it stays under way.
    Begins,
    /// The one that is under way goes on, and is answered.
    Ends,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    #[serde(default)]
    status: u16,
    /// Members of a JSON answer.
    #[serde(default)]
    json: BTreeMap<String, serde_json::Value>,
    /// Headers; an empty text for one that must not be there.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// What the body must not hold.
    #[serde(default)]
    hides: Vec<String>,
    /// What the body must hold.
    #[serde(default)]
    shows: Vec<String>,
    /// The step, from 1, whose body this is equal to.
    same_as: Option<usize>,
    /// Effects counted by the upstream so far.
    effects: u32,
}

fn post() -> String {
    "POST".into()
}

fn orders() -> String {
    "/orders".into()
}

fn body() -> String {
    r#"{"item":"tea","card":"4242"}"#.into()
}

fn run(text: &str) {
    let file: File = toml::from_str(text).unwrap();
    for scenario in &file.scenario {
        let home = tempfile::tempdir().unwrap();
        let upstream = Upstream::start();
        let gateway = Gateway::start(home.path(), &upstream, &format!("{}\n{}", file.route, scenario.route));
        let mut answers: Vec<Answer> = Vec::new();
        let mut under_way = None;
        for (at, step) in scenario.step.iter().enumerate() {
            let headers: Vec<(&str, &str)> =
                step.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let request = client::request(&step.method, &step.path, &headers, &step.body);
            let answer = match step.part {
                Part::Whole => gateway.send(&request),
                Part::Begins => {
                    under_way = Some(client::open(gateway.address, &request));
                    upstream.wait_for_total(step.expect.effects);
                    answers.push(Answer { status: 0, headers: Vec::new(), body: Vec::new() });
                    continue;
                }
                Part::Ends => {
                    upstream.release("go");
                    client::read_answer(under_way.as_mut().unwrap()).unwrap()
                }
            };
            let place = format!("{:?}, step {}: {answer:?}\n{}", scenario.name, at + 1, answer.text());
            check(&step.expect, &answer, &answers, &place);
            assert_eq!(upstream.total(), step.expect.effects, "effects in {place}");
            answers.push(answer);
        }
    }
}

fn check(expect: &Expect, answer: &Answer, earlier: &[Answer], place: &str) {
    assert_eq!(answer.status, expect.status, "{place}");
    for (name, value) in &expect.headers {
        assert_eq!(answer.header(name).unwrap_or(""), value, "{name} in {place}");
    }
    for (name, value) in &expect.json {
        assert_eq!(&answer.json()[name], value, "{name} in {place}");
    }
    for text in &expect.hides {
        let shown = format!("{:?} {}", answer.headers, answer.text());
        assert!(!shown.contains(text.as_str()), "{text} in {place}");
    }
    for text in &expect.shows {
        assert!(answer.text().contains(text.as_str()), "no {text} in {place}");
    }
    if let Some(step) = expect.same_as {
        assert_eq!(answer.body, earlier[step - 1].body, "{place}");
    }
    if answer.status == 409 && answer.header("content-type") == Some("application/problem+json") {
        for field in ["type", "title", "detail", "instance", "code", "retryable", "documentation"] {
            assert!(answer.json().get(field).is_some(), "{field} in {place}");
        }
    }
}

#[test]
fn the_default_dialect_holds() {
    run(include_str!("scenarios/default.toml"));
}

#[test]
fn the_dialect_of_the_draft_holds() {
    run(include_str!("scenarios/ietf.toml"));
}

#[test]
fn the_dialect_of_stripe_holds() {
    run(include_str!("scenarios/stripe.toml"));
}
