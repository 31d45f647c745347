//! SIGTERM is answered within the grace period whatever the relay is doing, and what is unconfirmed is not marked sent.

mod first_process;
mod grace;
mod sweeping;
mod told;
mod unread;

use crate::support::between::{BATCH_DEADLINE, Between, GRACE, Tables, counter};
use crate::support::daemon::Daemon;
use crate::support::oracle::Oracle;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rig::Rig;
use crate::support::wait::{millis, secs, wait_until};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

const TIERS: &[(&str, &str)] = &[("now", "due")];
/// More than the scheduler of a busy machine needs, less than anything that waits for a peer.
const AT_ONCE: Duration = secs(3);

/// Asks a relay to stop; returns its exit code and how long it took.
fn stop(daemon: &mut Daemon, signal: Signal) -> (i32, Duration) {
    let begun = Instant::now();
    daemon.signal(signal);
    let code = daemon.wait_exit(GRACE + secs(5));
    (code, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_stops_at_once_on_sigterm_and_on_sigint() {
    let between = Between::new(Rig::new("idle"));
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = between.start(Tables { outbox: "poll = \"1h\"", ..Tables::default() });
        let (code, took) = stop(&mut daemon, signal);
        assert_eq!(code, 0, "{signal}: {}", daemon.log());
        assert!(took <= AT_ONCE, "{signal}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_flight_are_confirmed_and_settled_before_the_end() {
    let between = Between::new(Rig::new("in_flight"));
    let mut daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    between.rabbit.set(Mode::Delay(millis(400)));
    db.insert_rows("now", 1_000).await;
    wait_until(secs(10), async || counter(&daemon, "published", "now") >= 50.0).await;
    let (code, took) = stop(&mut daemon, Signal::SIGTERM);
    assert_eq!(code, 0, "{}", daemon.log());
    let sent = db.count("sent_at is not null").await;
    assert!((50..1_000).contains(&sent), "what was claimed and nothing more, not {sent}");
    let waiting = between.rig.amqp_url();
    let inspector = crate::support::consumer::Inspector::connect(&waiting).await;
    wait_until(secs(5), async || inspector.depth("due").await == u32::try_from(sent).ok()).await;
    // The next one carries on where it stopped.
    between.rabbit.set(Mode::Pass);
    let next = between.start(Tables::default());
    let mut oracle = Oracle::new(&between.rig, TIERS);
    oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0, "a clean stop costs no copy");
    drop(next);
    eprintln!("stopped with messages in flight in {took:?}, {sent} of them settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_messages_are_given_up_at_their_deadline_and_not_marked_sent() {
    let between = Between::new(Rig::new("unconfirmed"));
    let mut daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 100).await;
    wait_until(secs(10), async || counter(&daemon, "published", "now") >= 100.0).await;
    let (code, took) = stop(&mut daemon, Signal::SIGTERM);
    assert_eq!(code, 0, "{}", daemon.log());
    assert!(took <= BATCH_DEADLINE + secs(3), "{took:?}");
    assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_grace_period_it_ends_with_1_and_nothing_unconfirmed_is_marked_sent() {
    let between = Between::new(Rig::new("grace"));
    let patient = Tables { relay: "batch_deadline = \"60s\"\nshutdown_grace = \"2s\"", ..Tables::default() };
    let mut daemon = between.start(patient);
    let db = between.rig.db().await;
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 100).await;
    wait_until(secs(10), async || counter(&daemon, "published", "now") >= 100.0).await;
    let (code, took) = stop(&mut daemon, Signal::SIGTERM);
    assert_eq!(code, 1, "{}", daemon.log());
    assert!(took >= secs(2) && took <= secs(2 + 5), "{took:?}");
    assert!(daemon.log().contains("shutdown_grace"), "{}", daemon.log());
    assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once_with_1() {
    let between = Between::new(Rig::new("twice"));
    let db = between.rig.db().await;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        between.rabbit.set(Mode::Pass);
        db.batch_execute("truncate duebox.outbox").await.unwrap();
        let mut daemon = between.start(Tables { relay: "batch_deadline = \"60s\"", ..Tables::default() });
        between.rabbit.set(Mode::BlackHole);
        db.insert_rows("now", 100).await;
        wait_until(secs(10), async || counter(&daemon, "published", "now") >= 100.0).await;
        daemon.sigterm();
        daemon.wait_log("stopping", secs(5));
        let (code, took) = stop(&mut daemon, signal);
        assert_eq!(code, 1, "{}", daemon.log());
        assert!(took <= AT_ONCE, "{took:?}");
        assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0);
    }
}

/// Starts with an end in this mode and stops once that has been noticed.
fn stops_before_it_is_connected(between: &Between, faulty: &Proxy, mode: Mode, part: &str) {
    faulty.set(mode);
    let mut daemon = between.launch(Tables::default());
    // After the second try it sleeps between two tries, or is in the middle of one.
    let tried = faulty.accepted() + 2;
    crate::support::wait::eventually("it tries", secs(15), || faulty.accepted() >= tried);
    daemon.wait_log(&format!("{part}: "), secs(10));
    let (code, took) = stop(&mut daemon, Signal::SIGTERM);
    assert_eq!(code, 0, "{part} {mode:?}: {}", daemon.log());
    eprintln!("{part} {mode:?} from the start: stopped in {took:?}");
    faulty.set(Mode::Pass);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_while_an_end_is_down_or_does_not_answer_from_the_start() {
    let between = Between::new(Rig::new("unborn"));
    for mode in [Mode::Reset, Mode::FreezeAccept] {
        stops_before_it_is_connected(&between, &between.rabbit, mode, "rabbitmq");
        stops_before_it_is_connected(&between, &between.postgres, mode, "postgres");
    }
}

/// Loses an end while it runs and stops once that has been noticed.
fn stops_in_the_outage(between: &Between, faulty: &Proxy, mode: Mode) {
    let mut daemon = between.start(Tables { outbox: "poll = \"500ms\"", ..Tables::default() });
    faulty.set(mode);
    daemon.wait_unready(secs(10));
    let (code, took) = stop(&mut daemon, Signal::SIGTERM);
    assert_eq!(code, 0, "{mode:?}: {}", daemon.log());
    eprintln!("{mode:?} while running: stopped in {took:?}");
    faulty.set(Mode::Pass);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_while_an_end_is_lost_or_frozen_under_it() {
    let between = Between::new(Rig::new("outage"));
    stops_in_the_outage(&between, &between.postgres, Mode::Reset);
    stops_in_the_outage(&between, &between.postgres, Mode::BlackHole);
    stops_in_the_outage(&between, &between.rabbit, Mode::Reset);
    stops_in_the_outage(&between, &between.rabbit, Mode::BlackHole);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_with_the_database_frozen_in_the_middle_of_a_batch() {
    let between = Between::new(Rig::alone("midway"));
    let mut daemon = between.start(Tables { postgres: "statement_timeout = \"500ms\"", ..Tables::default() });
    let db = between.rig.db().await;
    between.rabbit.set(Mode::Delay(millis(400)));
    db.insert_rows("now", 100).await;
    wait_until(secs(10), async || counter(&daemon, "published", "now") >= 100.0).await;
    between.postgres.set(Mode::BlackHole);
    let (code, took) = stop(&mut daemon, Signal::SIGTERM);
    assert_eq!(code, 0, "{}", daemon.log());
    assert_eq!(db.count("sent_at is not null").await, 0, "what could not be settled is pending");
    eprintln!("database frozen in the middle of a batch: stopped in {took:?}");
}
