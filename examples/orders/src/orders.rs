//! Orders: created after a check, deleted after a confirmation.

use clap::Args;
use oncely_clap::{
    Answer, Check, Cx, Declaration, Failure, Handler, OrFault, Planned, Problems, Query, created, deleted,
    ensure, would_create, would_delete, would_noop,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::Cli;

#[derive(Debug, Args)]
pub struct CreateOrder {
    /// Who orders
    #[arg(long)]
    customer: String,
    /// For how much, in cents
    #[arg(long)]
    amount: i64,
}

/// An order.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Order {
    id: i64,
    customer: String,
    amount: i64,
}

impl Handler<Cli> for CreateOrder {
    type Data = Order;

    fn declare() -> Declaration {
        Declaration::creates().check_first()
    }

    fn validate(&self, _app: &Cli, problems: &mut Problems) {
        if self.customer.trim().is_empty() {
            problems.add("--customer", "must not be empty");
        }
        if self.amount <= 0 {
            problems.add("--amount", "must be more than 0");
        }
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Order> {
        let mut db = cx.app().open().or_rejected("DATABASE_UNAVAILABLE")?;
        let insert = "INSERT INTO orders (customer, amount, request) VALUES (?1, ?2, ?3)";
        // Until it is committed nothing has happened; a commit that fails proves nothing.
        let transaction = db.transaction().or_rejected("DATABASE_UNAVAILABLE")?;
        transaction
            .execute(insert, params![self.customer, self.amount, cx.downstream_key()])
            .or_rejected("DATABASE_UNAVAILABLE")?;
        let id = transaction.last_insert_rowid();
        transaction.commit().or_unknown()?;
        created(Order { id, customer: self.customer.clone(), amount: self.amount })
    }

    fn check(&self, cx: &Cx<Cli>) -> Check<Order> {
        let made = cx.app().look().and_then(|db| {
            let select = "SELECT id, customer, amount FROM orders WHERE request = ?1";
            db.query_row(select, [cx.downstream_key()], order_of).optional()
        });
        made.into()
    }

    fn plan(&self, _app: &Cli) -> Planned {
        would_create().change(json!({ "order": { "customer": self.customer, "amount": self.amount } })).into()
    }
}

#[derive(Debug, Args)]
pub struct ListOrders {}

/// All orders.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Orders {
    orders: Vec<Order>,
}

impl Query<Cli> for ListOrders {
    type Data = Orders;

    fn run(&self, app: &Cli) -> Result<Orders, Failure> {
        let db = app.look()?;
        let mut select = db.prepare("SELECT id, customer, amount FROM orders ORDER BY id")?;
        let orders = select.query_map([], order_of)?.collect::<rusqlite::Result<_>>()?;
        Ok(Orders { orders })
    }
}

#[derive(Debug, Args)]
pub struct CancelOrder {
    /// Which order
    #[arg(long)]
    id: i64,
}

/// An order that is gone.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Cancelled {
    id: i64,
}

impl Handler<Cli> for CancelOrder {
    type Data = Cancelled;

    fn declare() -> Declaration {
        Declaration::deletes().idempotent()
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Cancelled> {
        let db = cx.app().open().or_rejected("DATABASE_UNAVAILABLE")?;
        let gone = || match find(&db, self.id) {
            Ok(None) => Check::Holds(Cancelled { id: self.id }),
            Ok(Some(_)) => Check::Missing,
            Err(error) => Check::Unsure(error.to_string()),
        };
        ensure(gone, || {
            db.execute("DELETE FROM orders WHERE id = ?1", [self.id]).or_unknown()?;
            deleted(Cancelled { id: self.id })
        })
    }

    fn plan(&self, app: &Cli) -> Planned {
        match find(&app.look()?, self.id)? {
            Some(order) => would_delete().change(json!({ "order": order })).into(),
            None => would_noop("there is no such order").into(),
        }
    }
}

fn find(db: &Connection, id: i64) -> rusqlite::Result<Option<Order>> {
    db.query_row("SELECT id, customer, amount FROM orders WHERE id = ?1", [id], order_of).optional()
}

fn order_of(row: &Row<'_>) -> rusqlite::Result<Order> {
    Ok(Order { id: row.get(0)?, customer: row.get(1)?, amount: row.get(2)? })
}
