//! The closer's part of each fault: an order that is overdue, and its message.

use super::{Case, PATIENCE, Side};
use crate::support::consumer::Inspector;
use crate::support::db::Row;
use crate::support::rig::Rig;
use crate::support::wait::wait_until;
use lapin::BasicProperties;
use std::time::{Duration, Instant};

/// The sweep would close what the closer is measured by.
pub(super) const TABLES: &str = "[tier.now]\ntarget = { queue = \"due\" }\n[tier.orders]\ntarget = { queue = \"orders\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"1s\"\ntier = \"orders\"\nid_pointer = \"/id\"\n\
    [closer]\nenabled = true\n[sweep]\nenabled = false\n";

/// Makes the table of orders.
pub(super) fn prepare(rig: &Rig, role: &str) {
    let table = format!(
        "create table orders (id bigint primary key, status text not null, due timestamptz not null); \
         grant select, update (status) on orders to {role}; grant all on orders to {}",
        rig.name()
    );
    rig.postgres().sql(rig.name(), &table);
}

impl Case {
    /// Inserts an order that is overdue, and says nothing of it yet.
    pub(super) async fn place_order(&self) -> i64 {
        let insert =
            "insert into orders select count(*) + 1, 'pending', now() - interval '1 h' from orders returning id";
        self.rig.db().await.query_one(insert, &[]).await.unwrap().get(0)
    }

    /// Delivers the message of an order while the database is away.
    pub(super) async fn deliver(&self, order: i64) {
        let broker = Inspector::connect(&self.rig.amqp_url()).await;
        broker.publish("", "orders", format!("{{\"id\": {order}}}").as_bytes(), BasicProperties::default()).await;
    }

    /// How long it takes from now until the order is closed.
    pub(super) async fn closed(&self, order: i64) -> Duration {
        let (db, begun) = (self.rig.db().await, Instant::now());
        if self.side != Side::Postgres {
            db.insert(&Row { payload: serde_json::json!({ "id": order }), ..Row::new("orders") }).await;
        }
        let closed = "select status = 'closed' from orders where id = $1";
        wait_until(PATIENCE, async || db.query_one(closed, &[&order]).await.unwrap().get(0)).await;
        begun.elapsed()
    }
}
