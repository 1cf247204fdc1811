//! The OpenAPI document names every route there is, and no other; the copy in docs/ is the one that is served.

use std::path::Path;

use oncely_doors::admin::{OPENAPI, documented_routes};
use serde_json::Value;

#[test]
fn every_route_is_documented_and_every_documented_route_is_there() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut documented: Vec<(String, String, bool)> = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let secured = !operation["security"].as_array().unwrap().is_empty();
            documented.push((method.clone(), path.clone(), secured));
        }
    }
    let mut routes: Vec<_> = documented_routes()
        .into_iter()
        .map(|(method, path, secured)| (method, path.to_owned(), secured))
        .collect();
    documented.sort();
    routes.sort();
    assert_eq!(documented, routes);
}

#[test]
fn the_copy_in_the_documentation_is_the_one_that_is_served() {
    let copy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    assert!(std::fs::read_to_string(&copy).unwrap() == OPENAPI, "docs/openapi.json is not a link to it");
}

#[test]
fn every_code_of_a_problem_is_explained_on_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin.md");
    let page = std::fs::read_to_string(page).unwrap();
    for code in [
        "bad_request",
        "bad_body",
        "not_json",
        "body_too_large",
        "body_too_slow",
        "unauthorized",
        "forbidden",
        "stranger",
        "not_yours",
        "no_route",
        "no_method",
        "no_record",
        "moved",
        "running",
        "not_in_doubt",
        "key_reused",
        "in_progress",
        "outcome_unknown",
        "token_used",
        "superseded",
        "not_running",
        "undeclared",
        "read_only",
        "key_required",
        "bad_name",
        "bad_payload",
        "bad_policy",
        "overloaded",
        "store_unavailable",
        "timed_out",
        "internal",
    ] {
        assert!(page.contains(&format!("`{code}`")), "docs/admin.md does not explain {code}");
    }
}
