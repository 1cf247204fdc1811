//! Looking at a PostgreSQL ledger without making or changing it.

use oncely_core::StoreError;

use super::connect::Door;
use super::options::PostgresOptions;
use super::schema::{Found, Ledger, SCHEMA_VERSION, look};
use crate::check::{Check, Health};

/// What is seen of the server and the ledger on it.
pub(crate) async fn check(options: &PostgresOptions) -> Vec<Check> {
    let found = match find(options).await {
        Ok(found) => found,
        Err(error) => return vec![Check::new("server", Health::Fail, error.message)],
    };
    let settings = "its settings lose nothing that was acknowledged, or the address accepts the risk";
    let (health, message) = match found {
        Found::Nothing => (
            Health::Warn,
            match options.names_several() {
                true => "there are none yet; `oncely store migrate` makes them".to_owned(),
                false => "there are none yet; `oncely store migrate` or the first call makes them".to_owned(),
            },
        ),
        Found::Ledger(Ledger { version, .. }) if version < SCHEMA_VERSION => {
            let message = format!("version {version}; `oncely store migrate` makes it {SCHEMA_VERSION}");
            (Health::Warn, message)
        }
        Found::Ledger(Ledger { version, .. }) => (Health::Ok, format!("version {version}")),
    };
    vec![Check::new("durability", Health::Ok, settings), Check::new("tables", health, message)]
}

/// Whether there is certainly no ledger.
pub(crate) async fn is_absent(options: &PostgresOptions) -> Result<bool, StoreError> {
    Ok(find(options).await? == Found::Nothing)
}

async fn find(options: &PostgresOptions) -> Result<Found, StoreError> {
    let door = Door::new(options.clone())?;
    let link = door.open().await?;
    look(&link.client, options).await
}
