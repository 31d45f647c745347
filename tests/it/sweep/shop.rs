//! A shop with orders, and sweeps over them.

use crate::support::db::Db;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use duebox::admin::health::{Health, Part};
use duebox::admin::metrics::Metrics;
use duebox::config::{Action, Event, Mode, Rule};
use duebox::outbox::connect::{self, Settings};
use duebox::rule::Sweep;
use duebox::stop::Stop;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A table that most tests use.
const ORDERS: &str = "create table orders (id bigint primary key, status text not null, due timestamptz not null); \
    create index on orders (due) where status = 'pending'";

/// One shop, whose database is migrated.
pub(super) struct Shop {
    pub(super) rig: Rig,
    pub(super) db: Db,
    pub(super) rule: Rule,
    role: String,
}

/// A sweep that runs until it is stopped.
pub(super) struct Running {
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    stop: Stop,
    task: JoinHandle<()>,
}

impl Shop {
    /// With the usual table of orders.
    pub(super) async fn new(name: &str) -> Self {
        let shop = Self::empty(name).await;
        shop.db.batch_execute(ORDERS).await.unwrap();
        shop
    }

    /// Without any table.
    pub(super) async fn empty(name: &str) -> Self {
        let rig = Rig::new(name);
        rig.migrate(&[]);
        let (db, role) = (rig.db().await, rig.name().to_owned());
        Self { rig, db, rule: rule(), role }
    }

    /// Sweeps as this role from now on.
    pub(super) fn sweep_as(&mut self, role: &str) {
        role.clone_into(&mut self.role);
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            url: self.rig.postgres_url_as(&self.role).into(),
            password: None,
            schema: "duebox".into(),
            connect_timeout: secs(5),
            statement_timeout: secs(10),
        }
    }

    /// Inserts orders `ids`, due `ago` seconds ago.
    pub(super) async fn orders(&self, ids: std::ops::RangeInclusive<i64>, status: &str, ago: f64) {
        const INSERT: &str = "insert into orders \
            select i, $3, now() - $4::float8 * interval '1 s' from generate_series($1::bigint, $2::bigint) i";
        self.db.execute(INSERT, &[ids.start(), ids.end(), &status, &ago]).await.unwrap();
    }

    /// How many rows of a table satisfy a predicate.
    pub(super) async fn count(&self, from: &str) -> i64 {
        self.db.query_one(&format!("select count(*) from {from}"), &[]).await.unwrap().get(0)
    }

    /// The status of an order.
    pub(super) async fn status(&self, id: i64) -> String {
        self.db.query_one("select status from orders where id = $1", &[&id]).await.unwrap().get(0)
    }

    /// Starts a sweep.
    pub(super) fn sweep(&self) -> Running {
        let (health, metrics, stop) = (Arc::<Health>::default(), Arc::<Metrics>::default(), Stop::default());
        let sweep = Sweep {
            db: connect::Db::new(self.settings(), 3).unwrap(),
            name: "unpaid".into(),
            rule: self.rule.clone(),
            batch: 500,
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            stop: stop.clone(),
        };
        Running { health, metrics, stop, task: tokio::spawn(async move { sweep.run().await }) }
    }

    /// One pass from beginning to end, whenever the last one was; the trouble it had.
    pub(super) async fn pass(&self) -> Option<String> {
        self.db.execute("delete from duebox.state where name = 'sweep.unpaid'", &[]).await.unwrap();
        let running = self.sweep();
        self.wait_pass().await;
        running.stop().await
    }

    /// Waits until a pass has ended.
    pub(super) async fn wait_pass(&self) {
        let ended = "duebox.state where name = 'sweep.unpaid' and not info ? 'by'";
        wait_until(secs(20), async || self.count(ended).await == 1).await;
    }
}

impl Running {
    /// The trouble it has.
    pub(super) fn problem(&self) -> Option<String> {
        self.health.parts().get(&Part::Rule("unpaid".into())).cloned().flatten()
    }

    /// Stops it, which must not take long.
    pub(super) async fn stop(self) -> Option<String> {
        self.stop.raise();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.expect("stops promptly").unwrap();
        self.health.parts().get(&Part::Rule("unpaid".into())).cloned().flatten()
    }
}

/// Closing sets this status and nothing else.
pub(super) fn to(status: &str) -> Action {
    Action::Update { to: Some(status.into()), set: BTreeMap::new() }
}

/// Closing sets these columns and no status.
pub(super) fn set<const N: usize>(columns: [(&str, &str); N]) -> Action {
    Action::Update { to: None, set: columns.map(|(column, value)| (column.to_owned(), value.to_owned())).into() }
}

/// Orders that are pending half an hour after `due` are closed a minute later; one pass only unless the test waits long.
fn rule() -> Rule {
    Rule {
        table: "orders".into(),
        id: "id".into(),
        status: "status".into(),
        from: vec!["pending".into()],
        due: "due".into(),
        time_zone: None,
        after: secs(1800),
        guard: None,
        not_before: None,
        mode: Mode::Enforce,
        action: to("closed"),
        tier: None,
        checks: Vec::new(),
        id_pointer: None,
        event: Some(Event { tier: "now".into(), type_: "order.closed".into(), routing_key: None, payload: None }),
        every: secs(3600),
        grace: secs(60),
    }
}
