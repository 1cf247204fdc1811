//! An order and its record in one transaction, killed at every point between them: neither is there, or both.
//!
//! ```text
//! cargo run -p oncely --example one_transaction -- sqlite:orders.db
//! cargo run -p oncely --example one_transaction -- postgres://postgres@127.0.0.1/shop
//! cargo run -p oncely --example one_transaction -- sqlx:postgres://postgres@127.0.0.1/shop
//! ```
//!
//! What a program of your own needs is `call` and one of the three functions after it, without `die_if`. The rest is the
//! demonstration: the program starts itself again as a child, which kills itself (`kill -9`) at the named point; then again
//! without, as a retry would. However often that is done, there is one order.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example says what it does")]

use std::process::Command;

use oncely::within::{self, Begun};
use oncely::{Answer, Call, Key, ToolName, outcome};
use oncely_store::{PostgresWithin, SqliteOptions, SqliteStore, SqlxWithin};
use serde_json::json;
use sqlx_core::connection::Connection;
use sqlx_core::query::query;
use sqlx_postgres::{PgConnection, Postgres};

type Failed = Box<dyn std::error::Error>;

/// The call: which order, under which key.
fn call(key: &str) -> Result<Call, Failed> {
    let payload = serde_json::to_vec(&json!({ "key": key }))?;
    Ok(Call { key: Some(Key::explicit(key)?), ..Call::new(ToolName::parse("create_order")?, payload) })
}

/// With rusqlite: the ledger lends its turn at writing, and stands for the connection meanwhile.
async fn in_sqlite(address: &str, key: &str, point: &str) -> Result<(), Failed> {
    let path = address.strip_prefix("sqlite:").unwrap_or(address);
    let ledger = SqliteStore::open(SqliteOptions::new(path))?;
    let mut connection = rusqlite::Connection::open(path)?;
    die_if(point, "before");
    let mut tx = ledger.transaction(&mut connection)?;
    match within::begin(&mut tx, &call(key)?).await? {
        Begun::Run(pending) => {
            die_if(point, "after begin");
            tx.execute("INSERT INTO orders (key) VALUES (?1)", [key])?;
            die_if(point, "after the order");
            pending.complete(&mut tx, outcome::created(&json!({ "order": key }))).await?;
            die_if(point, "after complete");
            tx.commit()?;
            die_if(point, "after commit");
            Ok(())
        }
        Begun::Answered(Answer::Replayed(_)) => Ok(()),
        Begun::Answered(answer) => Err(format!("{answer:?}").into()),
    }
}

/// With tokio-postgres: the ledger writes through your transaction.
async fn in_postgres(address: &str, key: &str, point: &str) -> Result<(), Failed> {
    let mut client = connect(address).await?;
    die_if(point, "before");
    let transaction = client.transaction().await?;
    let mut ledger = PostgresWithin::new(&transaction, "oncely");
    match within::begin(&mut ledger, &call(key)?).await? {
        Begun::Run(pending) => {
            die_if(point, "after begin");
            transaction.execute("INSERT INTO orders (key) VALUES ($1)", &[&key]).await?;
            die_if(point, "after the order");
            pending.complete(&mut ledger, outcome::created(&json!({ "order": key }))).await?;
            die_if(point, "after complete");
            transaction.commit().await?;
            die_if(point, "after commit");
            Ok(())
        }
        Begun::Answered(Answer::Replayed(_)) => Ok(()),
        Begun::Answered(answer) => Err(format!("{answer:?}").into()),
    }
}

/// With sqlx: the same, and your own statements run on the connection that the ledger lends back.
async fn in_sqlx(address: &str, key: &str, point: &str) -> Result<(), Failed> {
    let mut connection = PgConnection::connect(address).await?;
    die_if(point, "before");
    let mut transaction = connection.begin().await?;
    let mut ledger = SqlxWithin::new(&mut transaction, "oncely");
    match within::begin(&mut ledger, &call(key)?).await? {
        Begun::Run(pending) => {
            die_if(point, "after begin");
            let insert = query::<Postgres>("INSERT INTO orders (key) VALUES ($1)").bind(key);
            insert.execute(ledger.connection()).await?;
            die_if(point, "after the order");
            pending.complete(&mut ledger, outcome::created(&json!({ "order": key }))).await?;
            die_if(point, "after complete");
            transaction.commit().await?;
            die_if(point, "after commit");
            Ok(())
        }
        Begun::Answered(Answer::Replayed(_)) => Ok(()),
        Begun::Answered(answer) => Err(format!("{answer:?}").into()),
    }
}

/// Where the child can be killed, in the order of the program.
const POINTS: [&str; 5] = ["before", "after begin", "after the order", "after complete", "after commit"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [address] => parent(address).await,
        [address, key, point] if address.starts_with("sqlx:") => in_sqlx(server(address), key, point).await,
        [address, key, point] if address.starts_with("postgres") => in_postgres(address, key, point).await,
        [address, key, point] => in_sqlite(address, key, point).await,
        _ => Err("name a ledger: sqlite:PATH, postgres://USER@HOST/DATABASE or sqlx:postgres://…".into()),
    }
}

/// Kills a child at every point, and looks what is there.
async fn parent(address: &str) -> Result<(), Failed> {
    make_tables(address).await?;
    for point in POINTS {
        let key = format!("order-{}", point.replace(' ', "-"));
        let child =
            |point: &str| Command::new(std::env::current_exe()?).args([address, &key, point]).status();
        let killed = child(point)?;
        let (orders, records) = (count_orders(address, &key).await?, count_records(address, &key).await?);
        println!("killed {point}: {orders} orders, {records} records");
        let retried = child("never")?;
        let after = count_orders(address, &key).await?;
        println!("  retried: {after} orders");
        if killed.success() || !retried.success() || orders != records || after != 1 {
            return Err(format!("{point}: the order and its record are not there together").into());
        }
    }
    println!("neither or both, every time");
    Ok(())
}

/// No destructor runs, nothing is flushed: as if the machine had done it.
fn die_if(point: &str, here: &str) {
    if point == here {
        let me = std::process::id().to_string();
        let _ = Command::new("kill").args(["-9", &me]).status();
        std::process::abort();
    }
}

/// The ledger's address, whichever driver is used.
fn server(address: &str) -> &str {
    address.strip_prefix("sqlx:").unwrap_or(address)
}

async fn connect(address: &str) -> Result<tokio_postgres::Client, Failed> {
    let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The ledger's tables, and one of our own beside them.
async fn make_tables(address: &str) -> Result<(), Failed> {
    let address = server(address);
    drop(oncely_store::open(address).await?);
    let table = "CREATE TABLE IF NOT EXISTS orders (key TEXT NOT NULL)";
    match address.strip_prefix("sqlite:") {
        Some(path) => rusqlite::Connection::open(path)?.execute_batch(table)?,
        None => connect(address).await?.batch_execute(table).await?,
    }
    Ok(())
}

async fn count_orders(address: &str, key: &str) -> Result<i64, Failed> {
    let address = server(address);
    let sql = "SELECT count(*) FROM orders WHERE key = ";
    match address.strip_prefix("sqlite:") {
        Some(path) => {
            let connection = rusqlite::Connection::open(path)?;
            Ok(connection.query_row(&format!("{sql}?1"), [key], |row| row.get(0))?)
        }
        None => Ok(connect(address).await?.query_one(&format!("{sql}$1"), &[&key]).await?.get(0)),
    }
}

async fn count_records(address: &str, key: &str) -> Result<i64, Failed> {
    let address = server(address);
    let store = oncely_store::open(address).await?;
    let filter = oncely::core::Filter { key: Some(key.to_owned()), ..Default::default() };
    Ok(i64::try_from(store.scan(filter, 0, 10).await?.items.len())?)
}
