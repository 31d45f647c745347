//! A confirm that comes too late costs its channel: it is closed, on both sides, and not merely forgotten.

use super::Use;
use crate::support::between::{Between, NOW, Tables, counter};
use crate::support::consumer::Inspector;
use crate::support::oracle::Oracle;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, millis, secs, wait_until};
use lapin::types::FieldTable;

/// A confirm is late after this; those of the other tier have to come sooner, on a busy machine too.
const RELAY: &str = "batch_deadline = \"800ms\"";
/// The workers of the shared connection.
const WORKERS: usize = 4;
const ROUNDS: usize = 20;

fn channels(rig: &Rig) -> usize {
    let name = rig.name();
    let count = format!("length([c || [{{vhost, <<\"{name}\">>}}] <- rabbit_channel:info_all([vhost])])");
    rig.rabbit().eval(&count).trim().parse().unwrap()
}

/// Makes the process of the queue `slow` stand still, or lets it go on: meanwhile nothing for it is confirmed.
fn slow(rig: &Rig, how: &str) {
    let name = rig.name();
    rig.rabbit().eval(&format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"{name}\">>, queue, <<\"slow\">>)), sys:{how}(amqqueue:get_pid(Q))"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_given_up_while_others_get_their_confirms_are_closed_and_leave_nothing_behind() {
    let between = Between::new(Rig::new("late"));
    Inspector::connect(&between.rig.amqp_url()).await.declare_queue("slow", FieldTable::default()).await;
    let tiers = format!("{NOW}[tier.slow]\ntarget = {{ queue = \"slow\" }}\n");
    let daemon = between.start(Tables { relay: RELAY, tiers: &tiers, ..Tables::default() });
    let db = between.rig.db().await;
    let (mut before, mut given_up) = (Use::of(&daemon), 0);
    for round in 1..=ROUNDS {
        let unknown = counter(&daemon, "unknown", "slow");
        slow(&between.rig, "suspend");
        db.insert_rows("slow", 1).await;
        // Confirmed in the meantime, so the connection is above suspicion.
        wait_until(secs(30), async || {
            db.insert_rows("now", 1).await;
            counter(&daemon, "unknown", "slow") > unknown
        })
        .await;
        given_up += 1;
        slow(&between.rig, "resume");
        wait_until(secs(30), async || db.count("sent_at is null and parked_at is null").await == 0).await;
        if round == ROUNDS / 10 {
            before = Use::of(&daemon);
        }
    }
    let after = Use::of(&daemon);
    eprintln!("{given_up} confirms too late: {before}, then {after}");
    after.assert_flat_since(&before);
    let reconnects = daemon.metric("duebox_reconnects_total{side=\"rabbitmq\"}").unwrap();
    assert!(reconnects <= (ROUNDS / 3) as f64, "{reconnects}: it is the channel that pays, not the connection");
    wait_until(secs(60), async || channels(&between.rig) <= WORKERS).await;
    let mut oracle = Oracle::new(&between.rig, &[("now", "due"), ("slow", "slow")]);
    eprintln!("{} copies of what was late", oracle.duplicates(&db).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_every_confirm_is_late_nothing_piles_up() {
    let between = Between::new(Rig::new("all_late"));
    let daemon = between.start(Tables { relay: "batch_deadline = \"300ms\"", ..Tables::default() });
    let db = between.rig.db().await;
    // A confirm takes twice as long.
    between.rabbit.set(Mode::Delay(millis(200)));
    db.insert_rows("now", 200).await;
    let published = || counter(&daemon, "published", "now");
    let mut most = (0, 0);
    let mut look = |rounds: f64| {
        let enough = published() + rounds;
        eventually("confirms are late", secs(60), || {
            most = (most.0.max(channels(&between.rig)), most.1.max(between.rabbit.connections()));
            published() >= enough
        });
        Use::of(&daemon)
    };
    let (before, after) = (look(3.0), look(5.0));
    eprintln!("every confirm too late: at most {most:?} channels and connections; {before}, then {after}");
    // Each worker's, the one it has just given up, and one of a check.
    assert!(most.0 <= 2 * (WORKERS + 1) + 1, "{most:?}");
    // The shared and the isolated one, and each one's predecessor.
    assert!(most.1 <= 4, "{most:?}");
    after.assert_flat_since(&before);
    assert_eq!(db.count("sent_at is not null").await, 0, "a late confirm is no confirm");
    between.rabbit.set(Mode::Pass);
    let mut oracle = Oracle::new(&between.rig, &[("now", "due")]);
    oracle.settled(&db).await;
    oracle.duplicates(&db).await;
    wait_until(secs(60), async || channels(&between.rig) <= WORKERS).await;
}
