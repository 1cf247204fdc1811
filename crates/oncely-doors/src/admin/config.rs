//! What a configuration says of the admin API, of redaction and of encryption. Secrets are named, never written there.

use std::path::PathBuf;

use serde::Deserialize;

use super::auth::Scope;
use crate::redact::Redaction;

/// The tables `[admin]`, `[redact]` and `[encryption]` of a configuration; what else stands in it is for others.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Who may ask.
    pub tokens: Vec<TokenSetting>,
    /// What is taken out of results before they are stored.
    pub redaction: Redaction,
    /// Where the keys are that results are encrypted with.
    pub encryption: Option<Secret>,
}

/// A token, by where its secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSetting {
    /// Its name in the audit log.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// Where its secret is.
    pub secret: Secret,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// In a file.
    File(PathBuf),
    /// In the environment, under this name.
    Environment(String),
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    admin: AdminTable,
    #[serde(default)]
    redact: Redaction,
    encryption: Option<EncryptionTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminTable {
    #[serde(default)]
    tokens: Vec<TokenRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRow {
    name: String,
    scope: String,
    file: Option<PathBuf>,
    env: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EncryptionTable {
    keys_file: Option<PathBuf>,
    keys_env: Option<String>,
}

impl Settings {
    /// Reads the tables of a whole configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut tokens = Vec::new();
        for row in written.admin.tokens {
            let place = format!("admin.tokens {:?}", row.name);
            let scope = row.scope.parse::<Scope>().map_err(|error| format!("{place}: {error}"))?;
            let secret = secret(row.file, row.env)
                .ok_or_else(|| format!("{place}: say where the secret is, with either file or env"))?;
            tokens.push(TokenSetting { name: row.name, scope, secret });
        }
        let encryption = match written.encryption {
            None => None,
            Some(table) => Some(
                secret(table.keys_file, table.keys_env)
                    .ok_or("encryption: say where the keys are, with either keys_file or keys_env")?,
            ),
        };
        Ok(Self { tokens, redaction: written.redact, encryption })
    }
}

fn secret(file: Option<PathBuf>, env: Option<String>) -> Option<Secret> {
    match (file, env) {
        (Some(file), None) => Some(Secret::File(file)),
        (None, Some(name)) => Some(Secret::Environment(name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Secret, Settings};

    #[test]
    fn tables_of_others_are_passed_over_and_wrong_ones_are_named() {
        let good = "[server]\nlisten = \"x\"\n[redact]\njson = [\"/a\"]\n[encryption]\nkeys_env = \"K\"\n\
                    [[admin.tokens]]\nname = \"ci\"\nscope = \"read\"\nfile = \"t\"\n";
        let settings = Settings::parse(good).unwrap();
        assert_eq!(settings.tokens[0].secret, Secret::File("t".into()));
        assert_eq!(settings.encryption, Some(Secret::Environment("K".into())));
        assert!(!settings.redaction.is_empty());
        for (text, part) in [
            ("[admin]\ntoken = 1", "token"),
            ("[[admin.tokens]]\nname = \"a\"\nscope = \"all\"\nenv = \"X\"", "not a scope"),
            ("[[admin.tokens]]\nname = \"a\"\nscope = \"read\"", "either file or env"),
            (
                "[[admin.tokens]]\nname = \"a\"\nscope = \"read\"\nenv = \"X\"\nfile = \"y\"",
                "either file or env",
            ),
            ("[[admin.tokens]]\nname = \"a\"\nscope = \"read\"\nsecret = \"X\"", "secret"),
            ("[encryption]\nkeys = \"0011\"", "keys"),
            ("[encryption]", "keys_file"),
            ("[redact]\njson = [\"a\"]", "JSON pointer"),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
