//! What a tool's name says where nothing else does. A name is the weakest of all hints, so it is believed only where it
//! starts with a word of reading and holds no word of acting.

/// Words of reading that a name may start with.
const READING: [&str; 12] = [
    "count", "describe", "fetch", "find", "get", "list", "lookup", "query", "read", "search", "show", "view",
];
/// Words of reading that say nothing when they stand alone: `query` may be an INSERT, `fetch` a POST.
const NOT_ALONE: [&str; 2] = ["fetch", "query"];
/// Words of acting. Those that mostly name a thing (`get_commit`, `get_post`, `get_run`, `get_charge`) are not among them:
/// what is asked for again and again must be seen as it is now.
const ACTING: [&str; 58] = [
    "ack",
    "acknowledge",
    "acquire",
    "add",
    "and",
    "append",
    "apply",
    "approve",
    "buy",
    "cancel",
    "claim",
    "clear",
    "consume",
    "create",
    "delete",
    "deploy",
    "dequeue",
    "drop",
    "edit",
    "enqueue",
    "exec",
    "execute",
    "increment",
    "insert",
    "invoke",
    "lease",
    "lock",
    "make",
    "mark",
    "modify",
    "move",
    "mutate",
    "next",
    "or",
    "pay",
    "pop",
    "publish",
    "purchase",
    "purge",
    "put",
    "remove",
    "rename",
    "replace",
    "reserve",
    "reset",
    "sale",
    "save",
    "sell",
    "send",
    "set",
    "submit",
    "take",
    "then",
    "unlock",
    "update",
    "upsert",
    "withdraw",
    "write",
];

/// Whether a name (`get_user`, `list-files`, `searchIssues`) starts with a word of reading and holds none of acting.
pub(super) fn is_named_like_a_read(name: &str) -> bool {
    let words = words(name);
    let Some(first) = words.first().map(String::as_str) else { return false };
    let says_too_little = words.len() == 1 && NOT_ALONE.contains(&first);
    READING.contains(&first) && !says_too_little && words.iter().all(|word| !ACTING.contains(&word.as_str()))
}

/// The words of a name in lower case: split at what is no letter or digit, before a capital after another letter, and
/// before the last of several capitals (`GETUser`).
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (at, c) in chars.iter().enumerate() {
        if !c.is_alphanumeric() {
            continue;
        }
        let before = at.checked_sub(1).map_or(' ', |before| chars[before]);
        let next_is_small = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins =
            !before.is_alphanumeric() || (c.is_uppercase() && (!before.is_uppercase() || next_is_small));
        match words.last_mut() {
            Some(word) if !begins => word.extend(c.to_lowercase()),
            _ => words.push(c.to_lowercase().collect()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{ACTING, NOT_ALONE, READING, is_named_like_a_read, words};

    #[test]
    fn a_name_is_split_into_words() {
        assert_eq!(words("findOneAndUpdate"), ["find", "one", "and", "update"]);
        assert_eq!(words("GETUser-by_id.v2/now"), ["get", "user", "by", "id", "v2", "now"]);
        assert_eq!(words("getOrCREATEUser"), ["get", "or", "create", "user"]);
        assert!(words("_-").is_empty() && words("").is_empty());
    }

    #[test]
    fn a_name_is_that_of_a_read_if_it_starts_so() {
        for name in [
            "get_user",
            "list-files",
            "searchIssues",
            "read_query",
            "list",
            "query.rows",
            "describe_table",
            "GetURL",
            "lookup/order",
            "count_rows",
            "fetch_page",
            "query_rows",
            "_get",
            "get_workflow_run",
            "get_commit",
            "get_post",
            "list_charges",
            "get_merge_request",
            "find",
            "read_text_file",
            "get_updates",
        ] {
            assert!(is_named_like_a_read(name), "{name}");
        }
        for name in
            ["getaway", "budget_get", "listen_in", "create_list", "", "é", "pay", "GETTY", "query", "fetch"]
        {
            assert!(!is_named_like_a_read(name), "{name}");
        }
    }

    #[test]
    fn a_name_that_also_speaks_of_acting_is_no_read() {
        for name in [
            "read_and_delete",
            "get-and-set",
            "findOneAndUpdate",
            "findAndModify",
            "get_or_create_customer",
            "find_or_create",
            "search_replace",
            "find_replace",
            "read_write_query",
            "list_item_for_sale",
            "fetch_next_job",
            "GetOrCreate",
            "list.delete",
            "get_next_invoice_number",
            "fetchThenSend",
        ] {
            assert!(!is_named_like_a_read(name), "{name}");
        }
    }

    #[test]
    fn the_documentation_lists_every_word() {
        let page = include_str!("../../../../docs/policy.md");
        let listed = |heading: &str| -> Vec<&str> {
            let line =
                page.lines().find(|line| line.starts_with(heading)).unwrap_or_else(|| panic!("{heading}"));
            let rest = page[page.find(line).unwrap() + heading.len()..].split("\n\n").next().unwrap();
            rest.split('`').skip(1).step_by(2).collect()
        };
        assert_eq!(listed("Words of reading:"), READING);
        assert_eq!(listed("Of these, not alone:"), NOT_ALONE);
        assert_eq!(listed("Words of acting:"), ACTING);
    }
}
