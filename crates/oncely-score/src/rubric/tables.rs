//! The three tables. The documentation shows the same sentences, and a test compares them.

use super::{Criterion, Need, Rubric, Rule};

const fn criterion(id: &'static str, title: &'static str, holds_when: &'static str) -> Criterion {
    Criterion { id, title, holds_when }
}

const fn rule(score: u8, any_of: &'static [(&'static str, Need)]) -> Rule {
    Rule { score, any_of }
}

/// For a command.
pub const CLI: Rubric = Rubric {
    surface: "cli",
    meanings: [
        "a retry may act again, and nothing tells beforehand",
        "some protection: a dry run, or a repeat without a second effect",
        "a dry run and a repeat without a second effect, and some answers say what changed",
        "retries are safe by construction: also in a race, after a kill and when a key is misused; every answer says what \
         changed; every mutating command has both flags",
    ],
    criteria: &[
        criterion(
            "dry_run",
            "the dry run changes nothing",
            "called with its dry-run flag, the command exits 0 and the count stays as it was",
        ),
        criterion(
            "repeat",
            "a repeat has no second effect",
            "the same call (with the same key, if it takes one) exits 0 and the count stays as the first call left it; \
             partly, if the count stays but the repeat is an error",
        ),
        criterion(
            "effect",
            "answers say what changed",
            "every answer with exit 0 is a JSON object with a string `effect`, and none says other than what was counted; partly, if some are, or have a boolean `changed`",
        ),
        criterion(
            "replay_told",
            "a repeat says that it is one",
            "the repeat exits 0 and answers `effect` = `noop`, or `changed` = false, and the first call did not",
        ),
        criterion(
            "key",
            "a key can be given",
            "the help or the manifest names a key flag (or the user does), and a call with it has its effect",
        ),
        criterion(
            "mismatch",
            "a key reused for something else is refused",
            "the same key with another payload exits with a code other than 0 and the count stays, while that payload with a key of its own succeeds",
        ),
        criterion(
            "at_once",
            "two at once have one effect",
            "of two calls started together with one new key, both end by themselves, one at least with exit 0, and the count moves as by one call, in every race",
        ),
        criterion(
            "killed",
            "a retry after a kill has no second effect",
            "after `kill -9` at different moments and a retry with the same key, the count has never moved by more than one call, and no retry hangs, crashes, or exits 0 without any effect; partly, if no kill came after the effect could be seen",
        ),
        criterion(
            "every_command",
            "every mutating command has both flags",
            "the help of every command that is not taken for read-only names a key flag and a dry-run flag",
        ),
    ],
    rules: &[
        rule(1, &[("dry_run", Need::Holds), ("repeat", Need::Partly)]),
        rule(2, &[("repeat", Need::Holds)]),
        rule(2, &[("dry_run", Need::Holds)]),
        rule(2, &[("effect", Need::Partly)]),
        rule(3, &[("effect", Need::Holds)]),
        rule(3, &[("replay_told", Need::Holds)]),
        rule(3, &[("key", Need::Holds)]),
        rule(3, &[("mismatch", Need::Holds)]),
        rule(3, &[("at_once", Need::Holds)]),
        rule(3, &[("killed", Need::Holds)]),
        rule(3, &[("every_command", Need::Holds)]),
    ],
};

/// For an HTTP endpoint.
pub const HTTP: Rubric = Rubric {
    surface: "http",
    meanings: [
        "a repeat with the same key acts again",
        "a repeat with the same key has no second effect",
        "also in a race, and a key reused for something else is refused; a repeat gets the first answer",
        "the whole contract of the dialect",
    ],
    criteria: &[
        criterion(
            "repeat",
            "a repeat has no second effect",
            "the same request with the same key leaves the count as the first left it; without a count: it gets the same \
             bytes, where a request with another key gets others",
        ),
        criterion(
            "same_answer",
            "a repeat gets the first answer",
            "status and body of the repeat are those of the first",
        ),
        criterion(
            "mismatch",
            "a key reused for something else is refused",
            "the same key with another payload has no effect and gets the dialect's status, while that payload with a key of its own succeeds; partly, with another 4xx, or if nothing was counted",
        ),
        criterion(
            "at_once",
            "two at once have one effect",
            "of two requests sent together with one new key, one is executed, and the other gets 409 or the same answer, in every race; partly, if the other gets another error, or if nothing was counted",
        ),
        criterion(
            "missing_key",
            "a request without a key is refused",
            "it has no effect and gets 400; partly, with another 4xx, or if nothing was counted (the stripe dialect lets the key be optional)",
        ),
        criterion(
            "malformed_key",
            "malformed keys are refused",
            "an empty key, one of 256 characters, one outside ASCII, one with a blank inside and two keys at once have no effect and get 400; partly, with another 4xx, or if nothing was counted (stripe: the long one)",
        ),
        criterion(
            "replay_told",
            "a repeat says that it is one",
            "the repeat carries `Idempotent-Replayed: true`, and the first does not (the ietf dialect asks for none)",
        ),
        criterion(
            "problem",
            "refusals can be read by programs",
            "every refusal is `application/problem+json` with `type` and `title` (stripe: JSON with `error.type`); \
             partly, if some are",
        ),
    ],
    rules: &[
        rule(1, &[("repeat", Need::Holds)]),
        rule(2, &[("same_answer", Need::Holds)]),
        rule(2, &[("mismatch", Need::Partly)]),
        rule(2, &[("at_once", Need::Partly)]),
        rule(3, &[("mismatch", Need::Holds)]),
        rule(3, &[("at_once", Need::Holds)]),
        rule(3, &[("missing_key", Need::Holds)]),
        rule(3, &[("malformed_key", Need::Holds)]),
        rule(3, &[("replay_told", Need::Holds)]),
        rule(3, &[("problem", Need::Holds)]),
    ],
};

/// For an MCP server.
pub const MCP: Rubric = Rubric {
    surface: "mcp",
    meanings: [
        "a client cannot tell which tools are safe to repeat, or is told wrongly",
        "every tool says whether it is safe to repeat, and none was seen to lie",
        "what was called bore out what is said, and every write that is not idempotent takes a key",
        "every tool that says it is safe to repeat was called twice, and was",
    ],
    criteria: &[
        criterion(
            "annotated",
            "every tool says what it does",
            "every tool sets `readOnlyHint: true`, or both `destructiveHint` and `idempotentHint`; partly, if some do",
        ),
        criterion(
            "read_only",
            "what says read-only changes nothing",
            "every tool with `readOnlyHint: true` was called and the state stayed as it was; partly, if some were called",
        ),
        criterion(
            "idempotent",
            "what says idempotent is",
            "every write with `idempotentHint: true` was called twice and the second call left the state as it was; \
             partly, if some were called",
        ),
        criterion(
            "key",
            "other writes take a key",
            "the input schema of every tool that is neither read-only nor idempotent has a property for a key; partly, if \
             some have",
        ),
        criterion(
            "keyed",
            "a repeat with the same key has no second effect",
            "every tool with a key was called twice with one key and the second call left the state as it was; partly, if \
             some were called",
        ),
        criterion(
            "description",
            "nothing tells a model to mint a new key for a retry",
            "no description asks for a key that is new for every request, call or attempt",
        ),
    ],
    rules: &[
        rule(1, &[("annotated", Need::Holds)]),
        rule(1, &[("read_only", Need::NotFailing)]),
        rule(1, &[("idempotent", Need::NotFailing)]),
        rule(1, &[("keyed", Need::NotFailing)]),
        rule(2, &[("read_only", Need::Partly)]),
        rule(2, &[("idempotent", Need::Partly)]),
        rule(2, &[("key", Need::Holds)]),
        rule(2, &[("keyed", Need::Partly)]),
        rule(2, &[("description", Need::Holds)]),
        rule(3, &[("read_only", Need::Holds)]),
        rule(3, &[("idempotent", Need::Holds)]),
        rule(3, &[("keyed", Need::Holds)]),
    ],
};
