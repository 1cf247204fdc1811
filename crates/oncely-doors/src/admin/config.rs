//! What a configuration says of the admin API, of redaction and of encryption. Secrets are named, never written there.

use oncely::policy_file::PolicyFileError;
use oncely::policy_file::reading::{Read, Value, fault, list, one_of, text};

use super::auth::{Scope, TOKENS_MAX, TokenError, check_name};
use crate::redact::Redaction;
use crate::settings::{Reader, SecretSetting, member};

const TOKEN_FIELDS: [&str; 4] = ["name", "scope", "file", "env"];

/// The tables `[admin]`, `[redact]` and `[encryption]` of a configuration; what else stands in it is for others.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Who may ask.
    pub tokens: Vec<TokenSetting>,
    /// What is taken out of results before they are stored.
    pub redaction: Redaction,
    /// Where the keys are that results are encrypted with.
    pub encryption: Option<SecretSetting>,
}

/// A token, by where its secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSetting {
    /// Its name in the audit log.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// Where its secret is.
    pub secret: SecretSetting,
}

impl Settings {
    /// Reads the tables of a whole configuration; `file_name` is what messages call it.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, PolicyFileError> {
        let (mut reader, root) = Reader::of(text, file_name);
        let mut settings = Self::default();
        if let Some(value) = member(&root, "admin") {
            settings.tokens = tokens(value, &mut reader);
        }
        if let Some(value) = member(&root, "redact") {
            settings.redaction = redaction(value, &mut reader);
        }
        if let Some(value) = member(&root, "encryption") {
            settings.encryption = encryption(value, &mut reader);
        }
        reader.finish(settings)
    }

    /// Where the keys are that results are encrypted with; nothing else of the configuration is looked at.
    pub fn parse_encryption(text: &str, file_name: &str) -> Result<Option<SecretSetting>, PolicyFileError> {
        let (mut reader, root) = Reader::of(text, file_name);
        let found = member(&root, "encryption").and_then(|value| encryption(value, &mut reader));
        reader.finish(found)
    }
}

fn encryption<'t>(value: &Value<'t>, reader: &mut Reader<'t>) -> Option<SecretSetting> {
    const FIELDS: [&str; 2] = ["keys_file", "keys_env"];
    reader.fields(value, "encryption", &FIELDS, |_, value| text(value).map(drop));
    let nowhere = value.get_ref().as_table().is_some_and(|table| table.is_empty());
    if nowhere {
        let message = "say where the keys are, with either keys_file or keys_env";
        reader.note(value.span().start, "encryption", message);
    }
    reader.secret(value, "encryption", FIELDS)
}

fn redaction<'t>(value: &Value<'t>, reader: &mut Reader<'t>) -> Redaction {
    let (mut pointers, mut headers) = (Vec::new(), Vec::new());
    reader.fields(value, "redact", &["json", "headers"], |field, value| match field {
        "json" => list(value, "a list of JSON pointers such as [\"/card/number\"]", pointer)
            .map(|read| pointers = read),
        _ => list(value, "a list of headers such as [\"X-Secret\"]", header).map(|read| headers = read),
    });
    Redaction::new(&borrowed(&pointers), &borrowed(&headers)).unwrap_or_else(|message| {
        reader.note(value.span().start, "redact", message);
        Redaction::default()
    })
}

fn borrowed(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn pointer(value: &Value<'_>) -> Read<String> {
    let text = text(value)?;
    Redaction::new(&[&text], &[]).map(|_| text).or_else(|message| fault(value, message))
}

fn header(value: &Value<'_>) -> Read<String> {
    let text = text(value)?;
    Redaction::new(&[], &[&text]).map(|_| text).or_else(|message| fault(value, message))
}

fn tokens<'t>(value: &Value<'t>, reader: &mut Reader<'t>) -> Vec<TokenSetting> {
    reader.fields(value, "admin", &["tokens"], |_, _| Ok(()));
    let Some(rows) = value.get_ref().as_table().and_then(|table| member(table, "tokens")) else {
        return Vec::new();
    };
    let Some(list) = rows.get_ref().as_array() else {
        let message = "must be one table for each token: [[admin.tokens]]";
        reader.note(rows.span().start, "admin.tokens", message);
        return Vec::new();
    };
    if list.len() > TOKENS_MAX {
        reader.note(rows.span().start, "admin.tokens", TokenError::TooMany.to_string());
        return Vec::new();
    }
    let mut tokens: Vec<TokenSetting> = Vec::new();
    for (at, row) in list.iter().enumerate() {
        let place = format!("admin.tokens[{at}]");
        let Some(token) = token(row, &place, reader) else { continue };
        if tokens.iter().any(|other| other.name == token.name) {
            reader.note(row.span().start, place, TokenError::Twice(token.name).to_string());
            continue;
        }
        tokens.push(token);
    }
    tokens
}

fn token<'t>(row: &Value<'t>, place: &str, reader: &mut Reader<'t>) -> Option<TokenSetting> {
    let (mut name, mut scope) = (None, None);
    reader.fields(row, place, &TOKEN_FIELDS, |field, value| match field {
        "name" => token_name(value).map(|read| name = Some(read)),
        "scope" => {
            one_of(value, &[("read", Scope::Read), ("write", Scope::Write)]).map(|read| scope = Some(read))
        }
        _ => text(value).map(drop),
    });
    let table = row.get_ref().as_table()?;
    for needed in ["name", "scope"] {
        if member(table, needed).is_none() {
            reader.note(
                row.span().start,
                place,
                format!("{needed} is missing; a token needs a name and a scope"),
            );
        }
    }
    if member(table, "file").is_none() && member(table, "env").is_none() {
        reader.note(row.span().start, place, "say where the secret is, with either file or env");
    }
    let secret = reader.secret(row, place, ["file", "env"]);
    Some(TokenSetting { name: name?, scope: scope?, secret: secret? })
}

fn token_name(value: &Value<'_>) -> Read<String> {
    let name = text(value)?;
    check_name(&name).map_or_else(|error| fault(value, error.to_string()), |()| Ok(name))
}
