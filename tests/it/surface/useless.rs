//! Never green while useless, and never ill because somebody else is: what each page says while nothing can flow.

use crate::support::between::{Between, Tables, counter};
use crate::support::daemon::Daemon;
use crate::support::db::{Db, Row};
use crate::support::rabbit::Rabbit;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{eventually, secs, wait_until};
use std::time::Duration;

/// What is counted is counted when one of these waits reads it; a machine under load takes its time.
const TOLD: Duration = secs(20);

const TIERS: &str = "[tier.now]\ntarget = { queue = \"due\" }\n\
    [tier.slow]\ndelay = \"1h\"\nqueue = \"waiting\"\ntarget = { queue = \"due\" }\n\
    [tier.events]\ntarget = { exchange = \"amq.topic\" }\n";

/// Waits until `/readyz` answers so, with a line that has these words; `/healthz` is well all the while.
#[track_caller]
fn told(daemon: &Daemon, ready: bool, words: &[&str]) {
    eventually(&format!("/readyz says {words:?}"), TOLD, || {
        assert_eq!(daemon.get("/healthz"), Some((200, "ok\n".to_owned())), "a restart would not help");
        let (code, text) = daemon.get("/readyz").unwrap();
        (code == 200) == ready && words.iter().all(|word| text.contains(word))
    });
}

/// Pending rows of a tier, those held included, as `/metrics` has them.
fn pending(daemon: &Daemon, tier: &str) -> Option<f64> {
    let gauge = |name| daemon.metric(&format!("duebox_{name}{{tier=\"{tier}\"}}"));
    Some(gauge("backlog")? + gauge("held")?)
}

async fn drained(db: &Db) {
    wait_until(secs(60), async || db.count("sent_at is null and parked_at is null").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_is_green_while_nothing_flows_nor_ill_while_others_are() {
    let between = Between::new(Rig::private("useless", Own::Rabbit));
    let daemon = between.start(Tables { tiers: TIERS, ..Tables::default() });
    let db = between.rig.db().await;
    eventually("who consumes is known", TOLD, || daemon.metric("duebox_target_consumers{tier=\"now\"}") == Some(0.0));
    a_deleted_delay_queue(&between, &daemon, &db).await;
    an_alarm(between.rig.rabbit(), &daemon, &db).await;
    poison(&daemon, &db).await;
}

/// Deleted, and it may not be declared again: its tier is named, the other one flows.
async fn a_deleted_delay_queue(between: &Between, daemon: &Daemon, db: &Db) {
    let (rabbit, name) = (between.rig.rabbit(), between.rig.name());
    let configure = |what: &str| {
        rabbit.eval(&format!(
            "rabbit_auth_backend_internal:set_permissions(<<\"{name}\">>, <<\"{name}\">>, <<\"{what}\">>, <<\".*\">>, \
             <<\".*\">>, <<\"rig\">>)"
        ));
    };
    configure("^$");
    rabbit.ctl(&["delete_queue", "-p", name, "waiting"]);
    db.insert_rows("slow", 10).await;
    told(daemon, false, &["waiting"]);
    eventually("its rows are counted", TOLD, || pending(daemon, "slow") == Some(10.0));
    db.insert_rows("now", 10).await;
    wait_until(secs(10), async || db.count("tier = 'now' and sent_at is null").await == 0).await;
    configure(".*");
    // By now most are too late for the delay queue: they stay here until they are due, in an hour.
    db.execute("delete from duebox.outbox where tier = 'slow'", &[]).await.unwrap();
    db.insert_rows("slow", 10).await;
    drained(db).await;
    told(daemon, true, &[]);
}

async fn an_alarm(rabbit: &Rabbit, daemon: &Daemon, db: &Db) {
    let limit = |limit: &str| rabbit.eval(&format!("vm_memory_monitor:set_vm_memory_high_watermark({limit})"));
    drop(limit("0.00001"));
    db.insert_rows("now", 1_000).await;
    told(daemon, false, &["rabbitmq: the broker blocks publishing"]);
    assert_eq!(daemon.metric("duebox_up{side=\"rabbitmq\"}"), Some(0.0));
    assert_eq!(daemon.metric("duebox_target_consumers{tier=\"now\"}"), None, "nobody asks while it blocks");
    eventually("the backlog is counted", TOLD, || pending(daemon, "now").is_some_and(|rows| rows >= 500.0));
    let age = || daemon.metric("duebox_oldest_age_seconds{tier=\"now\"}").unwrap_or_default();
    let before = age();
    eventually("and grows older", TOLD, || age() > before);
    drop(limit("{absolute, \"2GiB\"}"));
    drained(db).await;
    told(daemon, true, &[]);
    eventually("who consumes is known", TOLD, || daemon.metric("duebox_target_consumers{tier=\"now\"}") == Some(0.0));
}

/// Rows whose own key leads nowhere are the rows' trouble: the relay works, and says how many there are.
async fn poison(daemon: &Daemon, db: &Db) {
    for n in 0..20 {
        db.insert(&Row { routing_key: Some("nowhere".into()), ..Row::new("events").key(&n.to_string()) }).await;
    }
    db.insert_rows("now", 10).await;
    wait_until(secs(20), async || db.count("tier = 'now' and sent_at is null").await == 0).await;
    eventually("returns are counted", TOLD, || counter(daemon, "returned", "events") >= 20.0);
    told(daemon, true, &[]);
    eventually("they are waiting", TOLD, || pending(daemon, "events") == Some(20.0));
}
