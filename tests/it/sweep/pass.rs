//! One relay at a time sweeps a rule, and a dead one is replaced.

use super::shop::{Running, Shop};
use crate::support::wait::{secs, wait_until};

const LONG_AGO: f64 = 2_000.0;

#[tokio::test]
async fn of_five_sweeps_one_has_the_pass() {
    let shop = Shop::new("pass_one").await;
    // Who tried, and who had it: the trigger for inserts runs before the conflict is found.
    let watch = "create table tried (by text); create table had (by text); \
        create function try() returns trigger language plpgsql security definer as $$ begin \
        insert into public.tried values (new.info ->> 'by'); return new; end $$; \
        create function have() returns trigger language plpgsql security definer as $$ begin \
        insert into public.had values (new.info ->> 'by'); return new; end $$; \
        create trigger try before insert on duebox.state for each row execute function try(); \
        create trigger have after insert or update on duebox.state for each row execute function have()";
    shop.db.batch_execute(watch).await.unwrap();
    shop.orders(1..=200, "pending", LONG_AGO).await;
    let sweeps = [(); 5].map(|()| shop.sweep());
    wait_until(secs(20), async || shop.count("(select distinct by from tried) t").await == 5).await;
    shop.wait_pass().await;
    assert_eq!(shop.count("(select distinct by from had where by is not null) t").await, 1);
    assert_eq!(shop.db.count("true").await, 200);
    for sweep in sweeps {
        sweep.stop().await;
    }
}

#[tokio::test]
async fn a_pass_is_taken_over_when_whoever_has_it_was_silent_for_thirty_seconds() {
    let mut shop = Shop::new("pass_taken_over").await;
    shop.rule.every = secs(1);
    let at = first_close(&shop, "28 s", r#"{"by": "somebody else"}"#).await;
    assert!((2.0..10.0).contains(&at), "taken over after {at} s, 2 were left");
}

#[tokio::test]
async fn the_period_counts_from_the_end_of_the_last_pass_of_any_relay() {
    let mut shop = Shop::new("pass_period").await;
    shop.rule.every = secs(10);
    let at = first_close(&shop, "8 s", "{}").await;
    assert!((2.0..10.0).contains(&at), "swept after {at} s, 2 were left");
}

/// After a failover to a server whose clock is behind, say: waited for, it would be hours without a sweep.
#[tokio::test]
async fn a_pass_that_was_taken_or_ended_ahead_of_the_clock_keeps_nobody_from_the_next() {
    for (name, info) in [("pass_ahead_ended", "{}"), ("pass_ahead_taken", r#"{"by": "somebody else"}"#)] {
        let mut shop = Shop::new(name).await;
        shop.rule.every = secs(600);
        let at = first_close(&shop, "-1 h", info).await;
        assert!(at < 10.0, "swept after {at} s with {info}");
        let ahead = format!("set search_path = duebox; update state set at = now() + interval '1 h', info = '{info}'");
        shop.db.batch_execute(&ahead).await.unwrap();
        let wait = include_str!("../../../sql/sweep_wait.sql");
        let wait: f64 = shop.db.query_one(wait, &[&"sweep.unpaid", &"600 s"]).await.unwrap().get("wait");
        assert!(wait.abs() < f64::EPSILON, "waits {wait} s with {info}");
    }
}

/// When the last pass ended, as the metrics show it; 0 when none has.
fn last_pass(running: &Running) -> f64 {
    let text = running.metrics.render().unwrap();
    let of = "duebox_rule_last_pass_timestamp_seconds{rule=\"unpaid\"} ";
    text.lines().find_map(|line| line.strip_prefix(of)).map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn a_pass_is_shown_as_ended_by_whoever_ends_it_and_by_the_clock_of_the_database() {
    let mut shop = Shop::new("pass_lost").await;
    shop.rule.every = secs(1);
    let watch = "create table tried (); create function try() returns trigger language plpgsql security definer as $$ \
        begin insert into public.tried default values; return new; end $$; \
        create trigger try before insert on duebox.state for each row execute function try(); \
        create table ended (at timestamptz); create function tell() returns trigger language plpgsql as $$ \
        begin insert into public.ended values (new.at); return new; end $$; \
        create trigger tell before update on duebox.state for each row when (not new.info ? 'by') execute function tell(); \
        create function hang() returns trigger language plpgsql as $$ begin \
        perform pg_advisory_xact_lock_shared(1); return new; end $$; \
        create trigger hang before update on orders for each row execute function hang()";
    shop.db.batch_execute(watch).await.unwrap();
    shop.orders(1..=3, "pending", LONG_AGO).await;
    shop.db.batch_execute("select pg_advisory_lock(1)").await.unwrap();
    let running = shop.sweep();
    wait_until(secs(10), async || super::race::waiting(&shop.db, "advisory").await).await;
    let lost = "update duebox.state set at = now(), info = '{\"by\": \"another relay\"}'; select pg_advisory_unlock(1)";
    shop.db.batch_execute(lost).await.unwrap();
    // It has tried to take the next pass, so it is through with this one.
    wait_until(secs(20), async || shop.count("tried").await > 1).await;
    assert_eq!(last_pass(&running).to_string(), "0", "ended although another relay has it");
    shop.db.batch_execute("update duebox.state set at = now() - interval '1 h', info = '{}'").await.unwrap();
    wait_until(secs(20), async || last_pass(&running) > 0.0).await;
    let shown = last_pass(&running);
    running.stop().await;
    let ended = format!("ended where at = to_timestamp({shown})");
    assert_eq!(shop.count(&ended).await, 1, "{shown} is no time of the database's");
}

/// How long after now, in seconds, an order is closed when the state of the pass is this old.
async fn first_close(shop: &Shop, age: &str, info: &str) -> f64 {
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let state = format!(
        "insert into duebox.state (name, at, info) values ('sweep.unpaid', now() - interval '{age}', '{info}') \
         returning extract(epoch from now())::float8"
    );
    let begun: f64 = shop.db.query_one(&state, &[]).await.unwrap().get(0);
    let running = shop.sweep();
    wait_until(secs(20), async || shop.db.count("true").await == 1).await;
    let closed = "select extract(epoch from (payload ->> 'closed_at')::timestamptz)::float8 from duebox.outbox";
    let closed: f64 = shop.db.query_one(closed, &[]).await.unwrap().get(0);
    running.stop().await;
    closed - begun
}

#[tokio::test]
async fn a_pass_that_a_stop_broke_off_is_free_at_once() {
    let shop = Shop::new("pass_stopped").await;
    // The first order hangs until its batch gives up, then again alone: long enough for the stop to come in between.
    let hang = "create function hang() returns trigger language plpgsql as $$ begin \
        perform pg_advisory_xact_lock(1); return new; end $$; \
        create trigger hang before update on orders for each row execute function hang()";
    shop.db.batch_execute(hang).await.unwrap();
    shop.orders(1..=40, "pending", LONG_AGO).await;
    shop.db.batch_execute("select pg_advisory_lock(1)").await.unwrap();
    let running = shop.sweep();
    wait_until(secs(10), async || super::race::waiting(&shop.db, "advisory").await).await;
    running.stop().await;
    shop.db.batch_execute("drop trigger hang on orders").await.unwrap();
    let next = shop.sweep();
    wait_until(secs(10), async || shop.db.count("true").await == 40).await;
    next.stop().await;
}
