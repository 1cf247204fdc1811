//! The `[[provider]]` tables of a configuration, with every problem at its place.

use oncely::policy_file::PolicyFileError;
use oncely::policy_file::reading::Value;
use serde::Deserialize as _;
use toml::de::ValueDeserializer;

use super::read::{ProviderError, ProviderRow, Whose};
use super::{OWN_MAX, Provider, Providers};
use crate::settings::{Reader, member};

/// The fields of a row. A test holds them against the table that comes with the program.
const FIELDS: [&str; 22] = [
    "name",
    "title",
    "hosts",
    "key",
    "also",
    "encoder",
    "chars_min",
    "chars_max",
    "charset",
    "scope",
    "per_credential",
    "retention",
    "when_unknown",
    "methods",
    "everywhere",
    "account_headers",
    "errors_kept",
    "answers",
    "check",
    "notes",
    "confidence",
    "sources",
];

/// Adds the rows to those that are known; one name may stand only once among them.
pub(super) fn tables_of(
    text: &str,
    file_name: &str,
    mut known: Providers,
) -> Result<Providers, PolicyFileError> {
    let (mut reader, root) = Reader::of(text, file_name);
    let Some(value) = member(&root, "provider") else { return reader.finish(known) };
    let mut own: Vec<Provider> = Vec::new();
    match value.get_ref().as_array() {
        None => {
            reader.note(value.span().start, "provider", "must be one table for each provider: [[provider]]")
        }
        Some(rows) if rows.len() > OWN_MAX => {
            reader.note(value.span().start, "provider", ProviderError::TooMany(rows.len()).to_string());
        }
        Some(rows) => {
            for (at, value) in rows.iter().enumerate() {
                let place = format!("provider[{at}]");
                let Some(provider) = row(value, &place, &mut reader) else { continue };
                if own.iter().any(|other| other.name == provider.name) {
                    note_field(value, &place, "name", "the name stands twice".to_owned(), &mut reader);
                }
                own.push(provider);
            }
        }
    }
    known.by_name.extend(own.into_iter().map(|provider| (provider.name.clone(), provider)));
    reader.finish(known)
}

fn row<'t>(value: &Value<'t>, place: &str, reader: &mut Reader<'t>) -> Option<Provider> {
    let mut strange = value.get_ref().as_table().is_none();
    reader.fields(value, place, &FIELDS, |_, _| Ok(()));
    if let Some(table) = value.get_ref().as_table() {
        strange |= table.keys().any(|name| !FIELDS.contains(&name.get_ref().as_ref()));
    }
    if strange {
        return None;
    }
    let row = match ProviderRow::deserialize(ValueDeserializer::from(value.clone())) {
        Ok(row) => row,
        Err(error) => {
            let offset = error.span().map_or(value.span().start, |span| span.start);
            let within = value.get_ref().as_table()?.iter().find(|(_, item)| item.span().contains(&offset));
            let place =
                within.map_or_else(|| place.to_owned(), |(name, _)| format!("{place}.{}", name.get_ref()));
            reader.note(offset, place, error.message());
            return None;
        }
    };
    match row.check(Whose::Own) {
        Ok(provider) => Some(provider),
        Err(ProviderError::Row { field, message, .. }) => {
            note_field(value, place, field, message, reader);
            None
        }
        Err(error) => {
            reader.note(value.span().start, place, error.to_string());
            None
        }
    }
}

/// Notes a problem at a field; where that is left out, at the row.
fn note_field<'t>(value: &Value<'t>, place: &str, field: &str, message: String, reader: &mut Reader<'t>) {
    let item = value.get_ref().as_table().and_then(|table| member(table, field));
    reader.note(item.unwrap_or(value).span().start, format!("{place}.{field}"), message);
}

#[cfg(test)]
mod tests {
    use crate::providers::Providers;

    #[test]
    fn every_row_of_the_program_could_stand_in_a_configuration() {
        let text = include_str!("providers.toml");
        let read = Providers::builtin().clone().with_config(text, "providers.toml");
        assert_eq!(
            read.unwrap_or_else(|error| panic!("{error}")).iter().count(),
            Providers::builtin().iter().count()
        );
    }
}
