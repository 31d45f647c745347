//! Health, readiness and metrics tell the truth while things go wrong.

use crate::support::consumer::Inspector;
use crate::support::daemon::Daemon;
use crate::support::db::{Db, Row};
use crate::support::proxy::{Mode, Proxy};
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::{eventually, secs};
use std::time::Duration;

/// O7, and the counting beside it every 5 s.
const TOLD: Duration = secs(20);

const TIERS: &str = "[relay]\nmax_attempts = 1\n[tier.now]\ntarget = { queue = \"now\" }\n\
    [tier.events]\ntarget = { exchange = \"amq.topic\" }\n[tier.full]\ntarget = { queue = \"full\" }\n";

#[track_caller]
fn reaches(daemon: &Daemon, metric: &str, least: f64) {
    eventually(&format!("{metric} >= {least}"), TOLD, || daemon.metric(metric).is_some_and(|value| value >= least));
}

#[track_caller]
fn assert_answers(daemon: &Daemon, ready: u16, part: &str) {
    eventually(&format!("/readyz says {part}"), TOLD, || {
        daemon.get("/readyz").is_some_and(|(code, text)| code == ready && text.contains(part))
    });
    assert_eq!(daemon.get("/healthz"), Some((200, "ok\n".to_owned())), "an outage is not ill health");
}

async fn full_queue(rig: &Rig) {
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let mut arguments = lapin::types::FieldTable::default();
    arguments.insert("x-max-length".into(), lapin::types::AMQPValue::LongInt(0));
    arguments.insert("x-overflow".into(), lapin::types::AMQPValue::LongString("reject-publish".into()));
    broker.declare_queue("full", arguments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_number_moves_when_it_should_and_what_is_unknown_is_absent() {
    let rig = Rig::new("metrics");
    let role = rig.migrated();
    full_queue(&rig).await;
    let (postgres, rabbit) = (Proxy::new(rig.postgres().port()), Proxy::new(rig.rabbit().port()));
    let (postgres_port, rabbit_port) = (postgres.port(), rabbit.port());
    let base = Base { postgres_port, rabbit_port, ..rig.relay_base(&role) };
    let daemon = Daemon::start(&rig, &format!("{}{TIERS}", base.render()));
    daemon.wait_ready(START);
    assert_answers(&daemon, 200, "ready");
    let db = rig.db().await;

    waiting_rows_are_counted(&daemon, &db).await;
    each_outcome_is_counted(&daemon, &db).await;
    a_lost_broker_is_told(&daemon, &db, &rabbit).await;
    a_lost_database_makes_the_backlog_unknown(&daemon, &postgres);
}

async fn waiting_rows_are_counted(daemon: &Daemon, db: &Db) {
    eventually("zero is known", TOLD, || daemon.metric("duebox_backlog{tier=\"now\"}") == Some(0.0));
    db.execute("insert into duebox.state (name) values ('pause.relay')", &[]).await.unwrap();
    db.insert_rows("now", 3).await;
    db.execute(
        "insert into duebox.outbox (tier, payload, available_at) values ('now', '{}', now() + interval '1 h')",
        &[],
    )
    .await
    .unwrap();
    eventually("the backlog is counted", TOLD, || daemon.metric("duebox_backlog{tier=\"now\"}") == Some(3.0));
    assert_eq!(daemon.metric("duebox_held{tier=\"now\"}"), Some(1.0), "held rows are no backlog");
    let age = || daemon.metric("duebox_oldest_age_seconds{tier=\"now\"}").unwrap_or_default();
    let before = age();
    eventually("the oldest row grows older", TOLD, || age() > before + 1.0);
    db.insert_rows("nwo", 1).await;
    db.execute("delete from duebox.state where name = 'pause.relay'", &[]).await.unwrap();
    eventually("it is gone when it is gone", TOLD, || daemon.metric("duebox_backlog{tier=\"now\"}") == Some(0.0));
    reaches(daemon, "duebox_unknown_tier{tier=\"nwo\"}", 1.0);
    assert_answers(daemon, 200, "did the application mean 'now'?");
}

async fn each_outcome_is_counted(daemon: &Daemon, db: &Db) {
    for name in ["duebox_published_total", "duebox_confirmed_total"] {
        assert_eq!(daemon.metric(&format!("{name}{{tier=\"now\"}}")), Some(3.0), "{name}");
    }
    assert_eq!(daemon.metric("duebox_lag_seconds_count{tier=\"now\"}"), Some(3.0));
    let lag = daemon.metric("duebox_lag_seconds_sum{tier=\"now\"}").unwrap();
    assert!(lag > 3.0, "three rows that waited for more than a second: {lag}");
    for phase in ["claim", "confirm", "settle"] {
        let figure = |figure| daemon.metric(&format!("duebox_batch_seconds_{figure}{{phase=\"{phase}\"}}")).unwrap();
        assert!(figure("count") > 0.0 && figure("sum") > 0.0, "{phase}");
    }
    assert_eq!(daemon.metric("duebox_returned_total{tier=\"events\"}"), Some(0.0));
    db.insert(&Row { routing_key: Some("nowhere".into()), ..Row::new("events") }).await;
    reaches(daemon, "duebox_returned_total{tier=\"events\"}", 1.0);
    reaches(daemon, "duebox_parked_total{tier=\"events\"}", 1.0);
    db.insert_rows("full", 2).await;
    reaches(daemon, "duebox_nacked_total{tier=\"full\"}", 2.0);
    assert_answers(daemon, 503, "queue 'full' refused");
    db.execute("delete from duebox.outbox where tier = 'full'", &[]).await.unwrap();
}

async fn a_lost_broker_is_told(daemon: &Daemon, db: &Db, rabbit: &Proxy) {
    assert_eq!(daemon.metric("duebox_unknown_total{tier=\"now\"}"), Some(0.0));
    assert_eq!(daemon.metric("duebox_reconnects_total{side=\"rabbitmq\"}"), Some(0.0));
    rabbit.set(Mode::DropServerToClient);
    db.insert_rows("now", 5).await;
    reaches(daemon, "duebox_published_total{tier=\"now\"}", 8.0);
    rabbit.set(Mode::Reset);
    reaches(daemon, "duebox_unknown_total{tier=\"now\"}", 5.0);
    assert_answers(daemon, 503, "rabbitmq: ");
    assert_eq!(daemon.metric("duebox_up{side=\"rabbitmq\"}"), Some(0.0));
    rabbit.set(Mode::Pass);
    reaches(daemon, "duebox_reconnects_total{side=\"rabbitmq\"}", 1.0);
    reaches(daemon, "duebox_confirmed_total{tier=\"now\"}", 8.0);
    reaches(daemon, "duebox_up{side=\"rabbitmq\"}", 1.0);
}

fn a_lost_database_makes_the_backlog_unknown(daemon: &Daemon, postgres: &Proxy) {
    postgres.set(Mode::Reset);
    assert_answers(daemon, 503, "postgres: ");
    let text = || daemon.get("/metrics").unwrap().1;
    eventually("the backlog is absent", TOLD, || {
        let text = text();
        !["duebox_backlog{", "duebox_held{", "duebox_oldest_age_seconds{"].iter().any(|name| text.contains(name))
    });
    assert_eq!(daemon.metric("duebox_up{side=\"postgres\"}"), Some(0.0));
    let unknown = "duebox_unknown_tier{tier=\"nwo\"}";
    eventually("whether rows name a tier that nobody knows is not known", TOLD, || daemon.metric(unknown).is_none());
    assert!(!daemon.log().contains("unknown tier nwo: no longer"), "and not said to be over");
    postgres.set(Mode::Pass);
    reaches(daemon, "duebox_reconnects_total{side=\"postgres\"}", 1.0);
    eventually("the backlog is known again", TOLD, || daemon.metric("duebox_backlog{tier=\"now\"}") == Some(0.0));
    assert_eq!(daemon.metric("duebox_up{side=\"postgres\"}"), Some(1.0));
}
