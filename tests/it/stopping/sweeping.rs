//! A stop in the middle of a sweep: the pass is broken off between two transactions.

use super::stop;
use crate::support::between::{Between, NOW, Tables};
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use nix::sys::signal::Signal;

/// Each close takes a while, so that the pass takes a minute.
const SHOP: &str = "create table orders (id bigint primary key, status text not null, due timestamptz not null);
    create index on orders (due) where status = 'pending';
    create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.02); return new; end';
    create trigger slow before update on orders for each row execute function slow();
    insert into orders select i, 'pending', now() - interval '1 h' from generate_series(1, 3000) i;";
const RULE: &str = "[sweep]\nevery = \"1s\"\ngrace = \"1s\"\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"2s\"\nevent = { tier = \"now\", type = \"order.closed\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_is_broken_off_and_what_it_closed_has_its_events() {
    let between = Between::new(Rig::new("sweeping"));
    let db = between.rig.db().await;
    db.batch_execute(SHOP).await.unwrap();
    let role = between.role();
    db.batch_execute(&format!("grant select, update on orders to {role}")).await.unwrap();
    let count = async |predicate: &str| -> i64 {
        let query = format!("select count(*) from orders where {predicate}");
        db.query_one(&query, &[]).await.unwrap().get(0)
    };
    let tiers = format!("{NOW}{RULE}");
    for frozen in [false, true] {
        let before = count("status = 'closed'").await;
        let mut daemon = between.launch(Tables { tiers: &tiers, ..Tables::default() });
        wait_until(secs(30), async || count("status = 'closed'").await > before).await;
        if frozen {
            between.postgres.set(Mode::BlackHole);
        }
        let (code, took) = stop(&mut daemon, Signal::SIGTERM);
        assert_eq!(code, 0, "{}", daemon.log());
        between.postgres.set(Mode::Pass);
        eprintln!("sweeping, database frozen: {frozen}: stopped in {took:?}");
        assert!(count("status = 'pending'").await > 0, "it was in the middle");
        // A session that was frozen out ends with its transaction.
        let events = "exists (select from duebox.outbox e where e.key = orders.id::text) <> (status = 'closed')";
        wait_until(secs(10), async || count(events).await == 0).await;
    }
}
