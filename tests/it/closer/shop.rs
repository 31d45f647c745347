//! A shop with orders, and a daemon whose closer closes them; its sweep is off unless a test says otherwise.

use crate::support::between::{Between, Tables};
use crate::support::consumer::{Inspector, quorum};
use crate::support::daemon::Daemon;
use crate::support::db::Db;
use crate::support::proxy::Mode;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use lapin::BasicProperties;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use std::ops::RangeInclusive;

const ORDERS: &str = "create table orders (id bigint primary key, status text not null, due timestamptz not null); \
    create index on orders (due) where status = 'pending'";

/// Orders are closed two seconds after `due`.
const TIERS: &str = "[tier.now]\ntarget = { queue = \"events\" }\n\
    [tier.unpaid-2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\ntier = \"unpaid-2s\"\nevent = { tier = \"now\", type = \"order.closed\" }\n";

/// The delay of those tiers, in seconds.
pub(super) const AFTER: f64 = 2.0;

/// Long enough ago to be overdue.
pub(super) const LONG_AGO: f64 = 1_000.0;

/// One shop, whose database is migrated.
pub(super) struct Shop {
    pub(super) between: Between,
    pub(super) db: Db,
    pub(super) broker: Inspector,
}

impl Shop {
    pub(super) async fn new(name: &str) -> Self {
        Self::on(Rig::new(name)).await
    }

    pub(super) async fn on(rig: Rig) -> Self {
        let between = Between::new(rig);
        let db = between.rig.db().await;
        db.batch_execute(ORDERS).await.unwrap();
        let grant = format!("grant select, update (status) on orders to {}", between.role());
        db.batch_execute(&grant).await.unwrap();
        let broker = Inspector::connect(&between.rig.amqp_url()).await;
        broker.declare_queue("due", quorum()).await;
        Self { between, db, broker }
    }

    /// Starts a daemon with these lines in `[closer]`, and waits until it consumes.
    pub(super) fn daemon(&self, closer: &str) -> Daemon {
        let daemon = self.launch(closer, "");
        daemon.wait_log("the closer consumes queue 'due'", START);
        daemon
    }

    /// The same with more lines in `[rule.unpaid]`; does not wait.
    pub(super) fn launch(&self, closer: &str, rule: &str) -> Daemon {
        self.launch_with(closer, rule, "enabled = false")
    }

    /// The same with other lines in `[sweep]`.
    pub(super) fn launch_with(&self, closer: &str, rule: &str, sweep: &str) -> Daemon {
        let tiers = format!("{TIERS}{rule}\n[closer]\nenabled = true\n{closer}\n[sweep]\n{sweep}\n");
        self.between.launch(Tables { tiers: &tiers, ..Tables::default() })
    }

    /// Inserts orders `ids`, whose `due` was `ago` seconds ago.
    pub(super) async fn orders(&self, ids: RangeInclusive<i64>, status: &str, ago: f64) {
        const INSERT: &str = "insert into orders \
            select i, $3, now() - $4::float8 * interval '1 s' from generate_series($1::bigint, $2::bigint) i";
        self.db.execute(INSERT, &[ids.start(), ids.end(), &status, &ago]).await.unwrap();
    }

    /// Delivers the message of an order now.
    pub(super) async fn deliver(&self, id: &str) {
        self.publish(b"{}", message(Some("unpaid-2s"), Some(id))).await;
    }

    /// The same for many.
    pub(super) async fn deliver_all(&self, ids: RangeInclusive<i64>) {
        let channel = self.broker.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let mut confirms = Vec::new();
        for id in ids {
            let (options, properties) =
                (BasicPublishOptions::default(), message(Some("unpaid-2s"), Some(&id.to_string())));
            confirms.push(channel.basic_publish("".into(), "due".into(), options, b"{}", properties).await.unwrap());
        }
        for confirm in confirms {
            assert!(confirm.await.unwrap().is_ack(), "the broker refused");
        }
    }

    /// Delivers any message.
    pub(super) async fn publish(&self, body: &[u8], properties: BasicProperties) {
        self.broker.publish("", "due", body, properties).await;
    }

    pub(super) async fn status(&self, id: i64) -> String {
        self.db.query_one("select status from orders where id = $1", &[&id]).await.unwrap().get(0)
    }

    pub(super) async fn count(&self, from: &str) -> i64 {
        self.db.query_one(&format!("select count(*) from {from}"), &[]).await.unwrap().get(0)
    }

    /// How many orders are closed.
    pub(super) async fn closed(&self) -> i64 {
        self.count("orders where status = 'closed'").await
    }

    /// Every closed order has one event, and nothing else has any.
    pub(super) async fn events_fit(&self) {
        let events = "duebox.outbox where type = 'order.closed'";
        let told = "orders o where status = 'closed' and \
            exists (select from duebox.outbox e where e.key = o.id::text and e.type = 'order.closed')";
        let closed = self.closed().await;
        assert_eq!((self.count(events).await, self.count(told).await), (closed, closed));
    }

    /// Messages of the queue that were not acked, delivered or not; asked of the queue itself, as statistics lag. 3.10 has no
    /// overview, and the query of 4.3 does not know the state of a queue that runs an older version of itself.
    pub(super) fn unacked(&self) -> usize {
        let count = format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<\"{}\">>, queue, <<\"due\">>}}), \
             P = amqqueue:get_pid(Q), \
             case erlang:function_exported(ra, member_overview, 1) of \
                 true -> {{ok, #{{machine := #{{num_messages := N}}}}, _}} = ra:member_overview(P), N; \
                 false -> {{ok, {{_, N}}, _}} = ra:leader_query(P, fun rabbit_fifo:query_messages_total/1), N \
             end",
            self.between.rig.name()
        );
        self.between.rig.rabbit().eval(&count).trim().parse().unwrap()
    }

    /// Resets every connection to the broker.
    pub(super) async fn reset_broker(&self) {
        self.between.rabbit.set(Mode::Reset);
        wait_until(secs(10), async || self.between.rabbit.connections() == 0).await;
        self.between.rabbit.set(Mode::Pass);
    }

    /// Waits until every message of the queue is acked.
    pub(super) async fn wait_acked(&self) {
        wait_until(secs(40), async || self.unacked() == 0).await;
    }
}

/// Properties of a message with these two headers of ours.
pub(super) fn message(tier: Option<&str>, key: Option<&str>) -> BasicProperties {
    let mut headers = FieldTable::default();
    let given = [("x-duebox-tier", tier), ("x-duebox-key", key)];
    for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    headers.insert("traceparent".into(), AMQPValue::LongString("00-ab".into()));
    BasicProperties::default()
        .with_headers(headers)
        .with_message_id(uuid::Uuid::new_v4().to_string().as_str().into())
        .with_content_type("application/json".into())
}

/// A refusal of the rule, by reason.
pub(super) fn refused(daemon: &Daemon, reason: &str) -> f64 {
    let name = format!("duebox_rule_refused_total{{rule=\"unpaid\",by=\"closer\",reason=\"{reason}\"}}");
    daemon.metric(&name).unwrap_or(0.0)
}
