//! Rows of the table as they are written, and what can be wrong with them.

use oncely::policy_file::parse_duration;
use oncely_core::limits::clip_to;
use oncely_core::policy::WhenUnknown;
use serde::Deserialize;

use super::classify::AnswerRule;
use super::{Carrier, Companion, CompanionValue, Confidence, Encoder, OWN_MAX, Provider, Providers};

/// What is wrong with a table of providers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It is not what a table of providers looks like.
    #[error("the providers cannot be read: {0}")]
    Malformed(String),
    /// One row is wrong.
    #[error("provider {name:?}: {field}: {message}")]
    Row {
        /// Which.
        name: String,
        /// What to change.
        field: &'static str,
        /// What is wrong with it and what is allowed.
        message: String,
    },
    /// There are too many.
    #[error("{0} providers are configured; at most {OWN_MAX} may be")]
    TooMany(usize),
}

/// Whose rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those that come with the program: each says how well it is known.
    Builtin,
    /// Those of a configuration.
    Own,
}

/// One `[[provider]]` as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderRow {
    name: String,
    title: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
    key: KeyRow,
    #[serde(default)]
    also: Vec<AlsoRow>,
    #[serde(default)]
    encoder: EncoderRow,
    chars_min: Option<usize>,
    chars_max: Option<usize>,
    charset: Option<String>,
    scope: Option<String>,
    #[serde(default)]
    per_credential: bool,
    retention: Option<String>,
    when_unknown: Option<String>,
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default)]
    everywhere: bool,
    #[serde(default)]
    account_headers: Vec<String>,
    errors_kept: Option<bool>,
    #[serde(default)]
    answers: Vec<AnswerRule>,
    check: Option<String>,
    notes: Option<String>,
    confidence: Option<ConfidenceRow>,
    #[serde(default)]
    sources: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "a key travels in one way; allowed: \"none\", or one of { header = … }, { json = … }, { form = … }, { query = … }, { by_hand = … }"
)]
enum KeyRow {
    Word(String),
    Carried(CarriedRow),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CarriedRow {
    header: Option<String>,
    #[serde(default)]
    quoted: bool,
    json: Option<String>,
    form: Option<String>,
    query: Option<String>,
    by_hand: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlsoRow {
    header: Option<String>,
    json: Option<String>,
    form: Option<String>,
    query: Option<String>,
    value: serde_json::Value,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EncoderRow {
    #[default]
    Uuid,
    Base64Url22,
    Hex32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ConfidenceRow {
    Documented,
    Sdk,
    Reported,
    Uncertain,
}

/// Reads a whole table.
pub(super) fn table(text: &str, known: Providers, whose: Whose) -> Result<Providers, ProviderError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        #[serde(default)]
        provider: Vec<ProviderRow>,
    }
    let table: Table = toml::from_str(text).map_err(|error| ProviderError::Malformed(error.to_string()))?;
    add(known, table.provider, whose)
}

/// Adds rows to a table; one name may stand only once among them.
pub(super) fn add(
    mut known: Providers,
    rows: Vec<ProviderRow>,
    whose: Whose,
) -> Result<Providers, ProviderError> {
    if rows.len() > OWN_MAX {
        return Err(ProviderError::TooMany(rows.len()));
    }
    let mut names = std::collections::HashSet::new();
    for row in rows {
        let provider = row.check(whose)?;
        if !names.insert(provider.name.clone()) {
            let message = "the name stands twice".to_owned();
            return Err(ProviderError::Row { name: provider.name, field: "name", message });
        }
        known.by_name.insert(provider.name.clone(), provider);
    }
    Ok(known)
}

impl ProviderRow {
    pub(super) fn check(self, whose: Whose) -> Result<Provider, ProviderError> {
        let name = clip_to(self.name.clone(), 80);
        let wrong = |field: &'static str| {
            let name = name.clone();
            move |message: String| ProviderError::Row { name, field, message }
        };
        check_name(&self.name).map_err(wrong("name"))?;
        let key = self.key.carrier().map_err(wrong("key"))?;
        let also: Result<Vec<_>, _> = self.also.into_iter().map(AlsoRow::companion).collect();
        let account_headers: Result<Vec<_>, _> = self.account_headers.into_iter().map(header).collect();
        let methods: Result<Vec<_>, _> = self.methods.into_iter().map(method).collect();
        let provider = Provider {
            title: self.title.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            hosts: self.hosts,
            key,
            also: also.map_err(wrong("also"))?,
            encoder: match self.encoder {
                EncoderRow::Uuid => Encoder::Uuid,
                EncoderRow::Base64Url22 => Encoder::Base64Url22,
                EncoderRow::Hex32 => Encoder::Hex32,
            },
            chars_min: self.chars_min,
            chars_max: self.chars_max,
            charset: self.charset,
            scope: self.scope,
            per_credential: self.per_credential,
            retention_ms: self
                .retention
                .map(|text| parse_duration(&text))
                .transpose()
                .map_err(wrong("retention"))?,
            when_unknown: self.when_unknown.map(halt).transpose().map_err(wrong("when_unknown"))?,
            methods: methods.map_err(wrong("methods"))?,
            everywhere: self.everywhere,
            account_headers: account_headers.map_err(wrong("account_headers"))?,
            errors_kept: self.errors_kept,
            answers: self.answers,
            check: self.check,
            notes: self.notes,
            confidence: confidence(self.confidence, whose).map_err(wrong("confidence"))?,
            sources: self.sources,
        };
        provider.check_key().map_err(wrong("encoder"))?;
        for rule in &provider.answers {
            rule.check().map_err(wrong("answers"))?;
        }
        Ok(provider)
    }
}

impl Provider {
    /// Whether everything that the encoder can make is taken.
    fn check_key(&self) -> Result<(), String> {
        if self.key == Carrier::None {
            return Ok(());
        }
        let (word, chars) = (self.encoder.as_str(), self.encoder.chars());
        if self.chars_max.is_some_and(|most| chars > most) {
            return Err(format!(
                "{word:?} makes {chars} characters, more than chars_max; allowed: uuid (36), hex32 (32), base64url22 (22)"
            ));
        }
        if self.chars_min.is_some_and(|fewest| chars < fewest) {
            return Err(format!("{word:?} makes {chars} characters, fewer than chars_min"));
        }
        if let Some(charset) = &self.charset
            && let Some(bad) = self.encoder.alphabet().chars().find(|c| !charset_has(charset, *c))
        {
            return Err(format!("{word:?} can make {bad:?}, which charset {charset:?} does not have"));
        }
        Ok(())
    }

    /// Whether a key is within the published limits.
    pub fn accepts(&self, key: &str) -> bool {
        let chars = key.chars().count();
        self.chars_min.is_none_or(|fewest| chars >= fewest)
            && self.chars_max.is_none_or(|most| chars <= most)
            && self.charset.as_ref().is_none_or(|charset| key.chars().all(|c| charset_has(charset, c)))
    }
}

/// Whether a set such as `A-Za-z0-9_-` has a character; a hyphen at the end stands for itself.
fn charset_has(charset: &str, wanted: char) -> bool {
    let mut rest = charset.chars().peekable();
    while let Some(first) = rest.next() {
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) => {
                rest = ahead;
                last
            }
            _ => first,
        };
        if (first..=last).contains(&wanted) {
            return true;
        }
    }
    false
}

impl KeyRow {
    fn carrier(self) -> Result<Carrier, String> {
        const ALLOWED: &str = "allowed: \"none\", or one of { header = … }, { json = … }, { form = … }, { query = … }, { by_hand = … }";
        let row = match self {
            Self::Word(word) if word == "none" => return Ok(Carrier::None),
            Self::Word(word) => return Err(format!("{word:?} is not how a key travels; {ALLOWED}")),
            Self::Carried(row) => row,
        };
        if row.quoted && row.header.is_none() {
            return Err("only a header can be quoted".to_owned());
        }
        match (row.header, row.json, row.form, row.query, row.by_hand) {
            (Some(name), None, None, None, None) => {
                Ok(Carrier::Header { name: header(name)?, quoted: row.quoted })
            }
            (None, Some(pointer), None, None, None) => Ok(Carrier::Json { pointer: json_pointer(pointer)? }),
            (None, None, Some(field), None, None) => Ok(Carrier::Form { field: parameter(field)? }),
            (None, None, None, Some(name), None) => Ok(Carrier::Query { name: parameter(name)? }),
            (None, None, None, None, Some(how)) => Ok(Carrier::ByHand { how }),
            _ => Err(format!("a key travels in one way; {ALLOWED}")),
        }
    }
}

impl AlsoRow {
    fn companion(self) -> Result<Companion, String> {
        let Self { header, json, form, query, value } = self;
        let carrier =
            KeyRow::Carried(CarriedRow { header, json, form, query, ..CarriedRow::default() }).carrier()?;
        let value = match value {
            serde_json::Value::String(text) if text == "first sent" => CompanionValue::FirstSent,
            fixed => CompanionValue::Fixed(fixed),
        };
        Ok(Companion { carrier, value })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(good) {
        return Err("must have 1 to 64 lower-case letters, digits and hyphens".to_owned());
    }
    Ok(())
}

fn header(name: String) -> Result<String, String> {
    match http::HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok(name),
        Err(_) => Err(format!("{:?} is not the name of a header", clip_to(name, 80))),
    }
}

fn json_pointer(pointer: String) -> Result<String, String> {
    if pointer.starts_with('/') && pointer.len() > 1 && pointer.len() <= 255 {
        return Ok(pointer);
    }
    Err(format!("{:?} is not a JSON pointer to a member: /name", clip_to(pointer, 80)))
}

fn parameter(name: String) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.[]".contains(&b);
    if !name.is_empty() && name.len() <= 255 && name.bytes().all(good) {
        return Ok(name);
    }
    Err(format!("{:?} is not a field: letters, digits and -_.[]", clip_to(name, 80)))
}

fn method(name: String) -> Result<String, String> {
    if !name.is_empty() && name.len() <= 32 && name.bytes().all(|b| b.is_ascii_uppercase()) {
        return Ok(name);
    }
    Err(format!("{:?} is not a method in capital letters", clip_to(name, 80)))
}

fn halt(word: String) -> Result<WhenUnknown, String> {
    if word == "halt" {
        return Ok(WhenUnknown::Halt);
    }
    Err(format!("{:?} cannot be said of a provider; allowed: \"halt\", or nothing", clip_to(word, 80)))
}

fn confidence(said: Option<ConfidenceRow>, whose: Whose) -> Result<Confidence, String> {
    match (said, whose) {
        (Some(ConfidenceRow::Documented), _) => Ok(Confidence::Documented),
        (Some(ConfidenceRow::Sdk), _) => Ok(Confidence::Sdk),
        (Some(ConfidenceRow::Reported), _) => Ok(Confidence::Reported),
        (Some(ConfidenceRow::Uncertain), _) => Ok(Confidence::Uncertain),
        (None, Whose::Own) => Ok(Confidence::Own),
        (None, Whose::Builtin) => Err("every row of ours says how well it is known".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::charset_has;

    #[test]
    fn a_charset_has_its_ranges_and_a_hyphen_at_its_end() {
        for (set, has, lacks) in [
            ("A-Za-z0-9_-", "AZaz09_-m", " .é"),
            ("a-v0-9", "av05", "w-A"),
            ("A-Za-z0-9_ -", "a- Z", "."),
            ("abc", "abc", "-d"),
            ("-", "-", "a"),
        ] {
            assert!(has.chars().all(|c| charset_has(set, c)), "{set} has {has}");
            assert!(!lacks.chars().any(|c| charset_has(set, c)), "{set} lacks {lacks}");
        }
    }
}
