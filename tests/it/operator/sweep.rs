//! `sweep --once` is one pass of the sweep in the foreground: the same orders, one line each, never beside another pass.

use super::Desk;
use crate::support::daemon::run_cli;
use crate::support::db::Db;
use crate::support::process::Process;
use crate::support::wait::{secs, wait_until};
use nix::sys::signal::Signal;
use std::fs::File;
use std::process::Command;

/// Two rules, over orders and over returns.
const RULES: &str = "[tier.now]\ntarget = { queue = \"closed\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"30m\"\nevent = { tier = \"now\", type = \"order.closed\" }\n\
    [rule.unsent]\ntable = \"returns\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"open\"]\nto = \"lapsed\"\n\
    due = \"due\"\nafter = \"30m\"\n[sweep]\nenabled = false\n";

const TABLES: &str = "create table orders (id bigint primary key, status text not null, due timestamptz not null); \
    create index on orders (due); create table returns (like orders including all); \
    insert into orders select i, case when i > 5 then 'paid' else 'pending' end, now() - interval '1 h' \
    from generate_series(1, 8) i; \
    insert into orders values (9, 'pending', now()), (10, 'pending', now() - interval '30 min 20 s'); \
    insert into returns values (70, 'open', now() - interval '1 h')";

async fn desk(name: &str) -> (Desk, Db) {
    let (desk, db) = Desk::shop(name, RULES, TABLES).await;
    assert_eq!(closed(&db).await, (0, 0, 0));
    (desk, db)
}

/// Closed orders, lapsed returns, and rows of the outbox.
async fn closed(db: &Db) -> (i64, i64, i64) {
    let sql = "select (select count(*) from orders where status = 'closed'), \
        (select count(*) from returns where status = 'lapsed'), (select count(*) from duebox.outbox)";
    let row = db.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_closes_what_the_daemons_sweep_would_and_says_so_line_by_line() {
    let (desk, db) = desk("once_closes").await;
    let text =
        desk.says(&["sweep", "--once"], 0, &["rule unpaid: 5 closed, 0 kept, 0 locked, 0 could not be closed\n"]);
    assert_eq!(closed(&db).await, (5, 1, 5), "not what is paid, early, or within the grace: {text}");
    for id in 1..=5 {
        let sql = "select message_id::text from duebox.outbox where key = $1::int::text and payload ->> 'by' = 'sweep'";
        let message_id: String = db.query_one(sql, &[&id]).await.unwrap().get(0);
        let line = format!("rule unpaid: order {id} closed: pending is now closed, overdue for 30m");
        let line = text.lines().find(|said| said.starts_with(&line)).unwrap_or_else(|| panic!("{line}: {text}"));
        assert!(line.ends_with(&format!("told in message {message_id}")), "{line}");
    }
    assert!(text.contains("rule unsent: order 70 closed: open is now lapsed"), "{text}");
    // The last pass was just now: whoever asks for one gets it all the same.
    desk.says(&["sweep", "--once"], 0, &["rule unpaid: 0 closed", "rule unsent: 0 closed"]);
    let pass = "select from duebox.state where name in ('sweep.unpaid', 'sweep.unsent') and not info ? 'by'";
    assert_eq!(db.query(pass, &[]).await.unwrap().len(), 2, "the passes have ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_what_would_be_closed_and_changes_nothing() {
    let (desk, db) = desk("once_dry").await;
    let text = desk.says(&["sweep", "--once", "--dry-run", "--rule", "unpaid"], 0, &["5 would be closed; nothing was"]);
    assert_eq!(text.matches("rule unpaid: order ").count(), 5, "{text}");
    assert!(text.contains("order 3 would be closed\n") && !text.contains("unsent"), "{text}");
    assert_eq!(closed(&db).await, (0, 0, 0));
    assert_eq!(db.query("select from duebox.state where name like 'sweep.%'", &[]).await.unwrap().len(), 0);
    let toml = desk.toml().replace("to = \"closed\"", "to = \"closed\"\nmode = \"observe\"");
    std::fs::write(&desk.config, toml).unwrap();
    desk.says(
        &["sweep", "--once"],
        0,
        &["5 would be closed; nothing was changed, the rule only observes", "unsent: 1 closed"],
    );
    assert_eq!(closed(&db).await, (0, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_closed_is_named_with_exit_1_and_the_others_are_closed() {
    let (desk, db) = desk("once_fails").await;
    let refuse = "create function refuse() returns trigger language plpgsql as $$ begin \
        raise exception 'stock of order % is negative', new.id; end $$; \
        create trigger refuse before update on orders for each row when (new.id = 2) execute function refuse()";
    db.batch_execute(refuse).await.unwrap();
    let parts = [
        "order 2 could not be closed: ",
        "stock of order 2 is negative",
        "unpaid: 4 closed, 0 kept, 0 locked, 1 could not",
    ];
    desk.says(&["sweep", "--once"], 1, &parts);
    assert_eq!(closed(&db).await, (4, 1, 4));
    db.batch_execute("drop trigger refuse on orders").await.unwrap();
    db.batch_execute("begin; select from orders where id = 2 for update").await.unwrap();
    let parts = ["order 2 locked by somebody else", "0 kept, 1 locked, 0 could not", "unpaid: locked: who may have it"];
    let text = desk.says(&["sweep", "--once"], 0, &parts);
    let (_, query) = text.split_once("first: ").unwrap();
    let who = db.query(query.lines().next().unwrap(), &[]).await.unwrap();
    assert!(who.iter().any(|who| who.get::<_, String>("query").starts_with("select a.pid")), "{query}");
    db.batch_execute("rollback; drop table returns").await.unwrap();
    desk.says(&["sweep", "--once"], 1, &["order 2 closed: ", "rule unsent: there is no table 'returns'"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_of_a_relay_is_waited_for() {
    let (desk, db) = desk("once_waits").await;
    let watch = "create table tried (); create function try() returns trigger language plpgsql security definer as $$ \
        begin insert into public.tried default values; return new; end $$; \
        insert into duebox.state (name, info) values ('sweep.unpaid', '{\"by\": \"a relay\"}'); \
        create trigger try before insert on duebox.state for each row execute function try()";
    db.batch_execute(watch).await.unwrap();
    let config = desk.config.to_str().unwrap().to_owned();
    let once = ["sweep", "--once", "--rule", "unpaid", "--config"];
    let once = tokio::task::spawn_blocking(move || run_cli(&[&once[..], &[&config]].concat()));
    wait_until(secs(20), async || !db.query("select from tried", &[]).await.unwrap().is_empty()).await;
    assert_eq!(closed(&db).await.0, 0);
    db.batch_execute("update duebox.state set info = '{}' where name = 'sweep.unpaid'").await.unwrap();
    let (code, text, _) = once.await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("rule unpaid: a relay sweeps just now") && text.contains("5 closed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_an_unknown_rule_and_a_missing_right_are_said() {
    let (desk, db) = desk("once_refused").await;
    desk.says(
        &["sweep", "--once", "--rule", "unpayd"],
        2,
        &["relay.toml has no rule 'unpayd'; did you mean 'unpaid'?"],
    );
    desk.says(&["sweep"], 2, &["--once"]);
    desk.says(&["pause", "rule", "unpaid", "--reason", "a recount"], 0, &[]);
    let parts = ["rule unpaid: nothing is done; paused: rule unpaid since 2", ": a recount", "unsent: 1 closed"];
    desk.says(&["sweep", "--once"], 1, &parts);
    desk.says(&["resume", "--all"], 0, &[]);
    db.batch_execute(&format!("revoke update on duebox.state from {}", desk.role)).await.unwrap();
    let grant = format!("missing privilege: grant update on duebox.state to {};", desk.role);
    desk.says(&["sweep", "--once"], 1, &[&grant]);
    assert_eq!(closed(&db).await, (0, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_pass_after_the_batch_in_hand_and_what_was_closed_is_said() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (desk, db) = desk(&format!("once_{}", signal.as_str().to_lowercase())).await;
        // Enough that it is never through before the signal.
        let slow = "insert into orders select i, 'pending', now() - interval '1 h' from generate_series(101, 3000) i; \
            create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.002); return new; end $$; \
            create trigger slow before update on orders for each row execute function slow()";
        db.batch_execute(slow).await.unwrap();
        let out = desk.config.with_file_name("out");
        let mut command = Command::new(env!("CARGO_BIN_EXE_duebox"));
        command
            .args(["sweep", "--once", "--config", desk.config.to_str().unwrap()])
            .stdout(File::create(&out).unwrap());
        let mut once = Process::spawn(&mut command, "KILL");
        wait_until(secs(20), async || closed(&db).await.0 > 0).await;
        once.signal(signal);
        assert_eq!(once.wait_exit(secs(20)).unwrap().code(), Some(1));
        let (text, (closed, ..)) = (std::fs::read_to_string(out).unwrap(), closed(&db).await);
        assert!(closed < 2_905, "it went on: {text}");
        for (of, lines) in
            [(" closed: pending is now closed", closed), (&format!("{closed} closed, 0 kept, 0 locked, 0 could"), 1)]
        {
            assert_eq!(text.lines().filter(|line| line.contains(of)).count() as i64, lines, "{of}: {text}");
        }
        for line in ["rule unpaid: stopped before its end: the next sweep", "rule unsent: not swept: stopped before\n"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        // Whatever the period of the relays: the pass is free for them.
        let free = "select from duebox.state where name = 'sweep.unpaid' and not info ? 'by' and at < now() - interval '4 min'";
        assert_eq!(db.query(free, &[]).await.unwrap().len(), 1, "{text}");
    }
}

const REMIND: &str = "[rule.remind]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\n\
    guard = \"o.reminded_at is null\"\nset = { reminded_at = \"now()\" }\ndue = \"due\"\nafter = \"15m\"\n";

/// Whoever reads that an order was closed looks for a fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_is_applied_to_orders_and_closes_none() {
    let toml = format!("{RULES}{REMIND}").replace("[sweep]\nenabled = false\n", "");
    let tables = format!("{TABLES}; alter table orders add reminded_at timestamptz");
    let (desk, db) = Desk::shop("once_reminds", &toml, &tables).await;
    let refuse = "create function refuse() returns trigger language plpgsql as $$ begin \
        raise exception 'order % has no address', new.id; end $$; \
        create trigger refuse before update on orders for each row when (new.id = 2) execute function refuse()";
    db.batch_execute(refuse).await.unwrap();
    let remind = ["sweep", "--once", "--rule", "remind"];
    let dry = [&remind[..], &["--dry-run"]].concat();
    desk.says(&dry, 0, &["rule remind: would be applied to order 2\n", "remind: would be applied to 6; nothing was"]);
    // What is known to work badly is a list for whoever checks, and one line for whoever sweeps now and then.
    db.batch_execute("drop index orders_due_idx").await.unwrap();
    let text = desk.says(&dry, 0, &["rule remind: 1 note(s) on how well it works: duebox check --connect\n"]);
    assert!(!text.contains("no index serves"), "{text}");
    let parts = [
        "rule remind: order 1 applied: pending as before, overdue for 45m",
        "rule remind: could not be applied to order 2: ",
        "rule remind: applied to 5, 0 kept, 0 locked, could not be applied to 1\n",
        "rule remind: could not be applied to 1 order(s), and was to 5 other(s); first 2: ",
    ];
    let text = desk.says(&remind, 1, &parts);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("rule remind")).collect();
    assert!(lines.iter().all(|line| !line.contains("closed")), "{text}");
    assert_eq!(closed(&db).await, (0, 0, 0));
}
