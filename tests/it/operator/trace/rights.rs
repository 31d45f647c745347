//! Missing rights are named; what can be told is told all the same.

use super::{Desk, ORDERS, SHOP};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_as_the_grant_that_gives_it() {
    let (desk, db) = Desk::shop("trace_rights", SHOP, ORDERS).await;
    let role = &desk.role;
    db.batch_execute("insert into orders values (1, 'pending', 'yesterday')").await.unwrap();
    db.batch_execute(&format!("revoke update on orders from {role}")).await.unwrap();
    let next =
        "next: rule unpaid is applied to no order before this is mended: missing privilege: grant update (status) on";
    desk.says(&["trace", "1"], 0, &["it would be closed now, but the rule has a problem", next]);
    db.batch_execute(&format!("revoke select on orders from {role}")).await.unwrap();
    let missing = "cannot be asked: missing privilege: grant select (id, status, due), update (status) on";
    desk.says(&["trace", "1"], 1, &[missing, "next: rule unpaid cannot be applied: duebox check --connect"]);
    db.batch_execute("drop table orders").await.unwrap();
    desk.says(&["trace", "1"], 1, &["cannot be asked: there is no table 'orders'"]);
    db.batch_execute(&format!("revoke select on duebox.outbox from {role}")).await.unwrap();
    desk.says(&["trace", "1"], 1, &[&format!("missing privilege: grant select on duebox.outbox to {role};")]);
    db.batch_execute("drop schema duebox cascade").await.unwrap();
    desk.says(&["trace", "1"], 1, &["schema 'duebox' does not exist", "duebox migrate"]);
}

/// A migration on one table is no reason to keep silent about the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_has_locked_is_named_and_the_messages_are_told() {
    let (desk, db) = Desk::shop("trace_locked_table", SHOP, ORDERS).await;
    db.batch_execute("insert into duebox.outbox (tier, key, payload) values ('now', '1', '{}')").await.unwrap();
    let migration = desk.rig.db().await;
    migration.batch_execute("begin; lock table orders").await.unwrap();
    let locked = "no answer in time about table orders of rule unpaid";
    desk.says(&["trace", "1"], 0, &["message without type in tier now", locked, "from pg_locks"]);
    let check = desk.says(&["check", "--connect"], 78, &[locked]);
    assert!(!check.contains("postgres: cannot be asked"), "{check}");
    migration.batch_execute("commit").await.unwrap();
}
