//! Several relays: whoever is awake looks for all, and nobody is forgotten when it goes.

use super::{AT_ONCE, Awake, NOW, Sleeper, asleep, pid, waits_for};
use crate::support::consumer::Consumer;
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, millis, secs, wait_until};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

const INSERT: &str = "insert into duebox.outbox (tier, payload) values ('now', '{}')";

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_did_not_ring_leaves_once_with_two_relays_asleep() {
    let mut sleeper = Sleeper::new("two_asleep").await;
    let second = sleeper.beside(NOW);
    let producer = sleeper.skips(INSERT).await;
    sleeper.db.insert(&Row::new("now")).await;
    sleeper.due.next(AT_ONCE).await.expect("the insert rings");
    let pid = pid(&producer).await;
    let waited_for = || waits_for(&sleeper.daemon).contains(&pid) || waits_for(&second).contains(&pid);
    eventually("whoever took the row waits for the open transaction", AT_ONCE, waited_for);
    producer.batch_execute("commit").await.unwrap();
    sleeper.due.next(AT_ONCE).await.expect("the row of the transaction that was open leaves");
    for daemon in [&sleeper.daemon, &second] {
        asleep(daemon);
    }
    assert!(sleeper.due.next(millis(100)).await.is_none(), "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_tier_that_the_relay_awake_does_not_know_is_rung_for() {
    let mut sleeper = Sleeper::new("others_tier").await;
    let other = sleeper.beside("[tier.later]\ntarget = { queue = \"later\" }\n");
    let mut later = Consumer::new(&sleeper.rig.amqp_url(), "later").await;
    // Open while the relay that knows `now` is awake, and committed on its way to sleep.
    let producer = sleeper.skips(&INSERT.replace("'now'", "'later'")).await;
    sleeper.wakes_and_waits_for(&[&producer]).await;
    producer.batch_execute("commit").await.unwrap();
    later.next(AT_ONCE).await.expect("the relay that does not know the tier rings for the one that does");
    asleep(&sleeper.daemon);
    asleep(&other);
}

#[tokio::test(flavor = "multi_thread")]
async fn word_that_a_relay_gives_up_sends_every_sleeper_the_whole_way_to_sleep_again() {
    let mut sleeper = Sleeper::new("hand_over").await;
    let second = sleeper.beside(NOW);
    let awake = Awake::new(&sleeper.rig).await;
    let producer = sleeper.rig.db().await;
    producer.batch_execute(&format!("begin; {INSERT}")).await.unwrap();
    // What a relay rings that gives up while it is awake.
    sleeper.db.batch_execute("notify \"duebox.outbox\", 'over'").await.unwrap();
    awake.ends().await;
    let pid = pid(&producer).await;
    for daemon in [&sleeper.daemon, &second] {
        eventually("each looks around before it sleeps again", AT_ONCE, || waits_for(daemon).contains(&pid));
    }
    producer.batch_execute("commit").await.unwrap();
    sleeper.due.next(AT_ONCE).await.expect("the row of the transaction that was open leaves");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_stopped_or_killed_while_awake_leaves_the_rest_to_the_other() {
    let rig = Rig::new("survivor");
    let role = rig.migrated();
    // A poll bounds the wait when the relay that was awake is killed. That a stop is told, `parting` shows.
    for (kill, poll) in [(false, "1h"), (true, "2s")] {
        let mut daemons = [(); 2].map(|()| rig.daemon(&role, &format!("[outbox]\npoll = \"{poll}\"\n{NOW}")));
        for daemon in &daemons {
            daemon.wait_ready(START);
            asleep(daemon);
        }
        let (db, late) = (rig.db().await, rig.db().await);
        let awake = AtomicBool::new(true);
        let producers = async {
            while awake.load(Ordering::Relaxed) {
                db.insert_rows("now", 5).await;
            }
        };
        let sent = |daemon: &Daemon| daemon.metric("duebox_confirmed_total{tier=\"now\"}").unwrap_or(0.0);
        let end = async {
            wait_until(AT_ONCE * 2, async || daemons.iter().any(|daemon| sent(daemon) > 20.0)).await;
            daemons.sort_by(|a, b| sent(a).total_cmp(&sent(b)));
            // Inserted while a relay is awake, so it rings for nobody, and still pending when that relay is gone.
            late.batch_execute(&format!("begin; {INSERT}")).await.unwrap();
            let [_, busier] = &mut daemons;
            busier.signal(if kill { Signal::SIGKILL } else { Signal::SIGTERM });
            awake.store(false, Ordering::Relaxed);
            assert_eq!(busier.wait_exit(secs(30)), if kill { 128 + 9 } else { 0 }, "{}", busier.log());
        };
        tokio::join!(producers, end);
        let [survivor, _] = &daemons;
        let before = sent(survivor);
        late.batch_execute("commit").await.unwrap();
        wait_until(AT_ONCE * 2, async || db.count("sent_at is null").await == 0).await;
        eventually("the survivor sent what was left", AT_ONCE, || sent(survivor) > before);
        asleep(survivor);
    }
}
