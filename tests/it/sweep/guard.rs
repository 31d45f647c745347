//! The guard: what else must hold, read when the order is locked.

use super::inspect::one;
use super::shop::{Shop, set, to};
use duebox::rule::{Closing, Kept};

const LONG_AGO: f64 = 2_000.0;
const PAYMENTS: &str = "create table payments (order_id bigint)";

impl Shop {
    /// With payments in a table of their own, which the guard reads.
    async fn with_payments(name: &str) -> Self {
        let mut shop = Self::new(name).await;
        shop.db.batch_execute(PAYMENTS).await.unwrap();
        shop.rule.guard = Some("not exists (select from payments p where p.order_id = o.id)".into());
        shop
    }
}

#[tokio::test]
async fn an_order_that_the_guard_forbids_is_kept() {
    for guard in
        ["not exists (select from payments p where p.order_id = id)", "id <> 2 and kind is distinct from 'cod'"]
    {
        let mut shop = Shop::with_payments("rule_guard").await;
        shop.db.batch_execute("alter table orders add kind text; insert into payments values (2)").await.unwrap();
        shop.rule.guard = Some(guard.into());
        shop.orders(1..=120, "pending", LONG_AGO).await;
        assert_eq!(shop.pass().await, None, "{guard}");
        assert_eq!((shop.status(2).await.as_str(), shop.db.count("true").await), ("pending", 119), "{guard}");
        assert_eq!(shop.kept("2").await, Kept::Guarded);
    }
}

#[tokio::test]
async fn orders_that_the_guard_forbids_hide_no_other() {
    let shop = Shop::with_payments("rule_guard_many").await;
    shop.orders(1..=1_200, "pending", 2.0 * LONG_AGO).await;
    shop.db.batch_execute("insert into payments select i from generate_series(1, 1200) i").await.unwrap();
    shop.orders(1_201..=1_203, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    assert_eq!(shop.count("orders where status = 'closed' and id > 1200").await, 3);
    assert_eq!(shop.db.count("true").await, 3);
}

/// Neither yes nor no is no.
#[tokio::test]
async fn a_guard_that_does_not_know_keeps_the_order() {
    let mut shop = Shop::new("rule_guard_null").await;
    shop.rule.guard = Some("nullif(id, 1) > 0".into());
    shop.orders(1..=2, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.status(1).await.as_str(), shop.status(2).await.as_str()), ("pending", "closed"));
    assert_eq!(shop.kept("1").await, Kept::Guarded);
}

#[tokio::test]
async fn a_guard_over_another_table_is_noted_with_what_the_payment_must_do() {
    let mut shop = Shop::with_payments("rule_guard_note").await;
    let findings = shop.findings().await;
    assert_eq!(findings.problems, Vec::<String>::new());
    let [note] = findings.notes.as_slice() else { panic!("one note: {:?}", findings.notes) };
    for words in ["reads public.payments", "locks or updates the order's row in", "for update"] {
        assert!(note.contains(words), "{note}");
    }
    for harmless in ["o.id > 0", "exists (select from orders other where other.id < o.id)"] {
        shop.rule.guard = Some(harmless.into());
        assert_eq!(shop.findings().await, Default::default(), "{harmless}");
    }
}

#[tokio::test]
async fn an_expression_that_is_not_one_alone_is_a_problem() {
    let mut shop = Shop::with_payments("rule_expressions").await;
    for (guard, said) in [
        ("true; drop table payments", "multiple commands"),
        ("true;", "syntax error"),
        ("o.id = $1", "parameter $1"),
        ("true) or (true", "syntax error"),
        ("true order by 1", "syntax error"),
        ("true limit 1", "syntax error"),
        ("true /* more", "unterminated"),
        ("o.id", "must be type boolean"),
        ("nothing", "column \"nothing\" does not exist"),
        ("o.statsu = 'new'", "Perhaps you meant to reference the column \"o.status\""),
        ("exists (with d as (delete from payments returning 1) select from d)", "data-modifying"),
    ] {
        shop.rule.guard = Some(guard.into());
        one(&shop.findings().await, &["guard: ", said, "one SQL expression"]);
        assert!(shop.pass().await.is_some());
    }
    shop.rule.guard = None;
    for (value, said) in [("1, id = 2", "set.due"), ("now() where false", "set.due"), ("'x' || id", "set.due")] {
        shop.rule.action = set([("due", value)]);
        one(&shop.findings().await, &[said, "one SQL expression"]);
    }
    shop.rule.action = set([("gone", "now()")]);
    one(&shop.findings().await, &["has no column gone, which the rule names in `set`"]);
    shop.rule.action = to("closed");
    for payload in ["1, 2", "o.id from orders o --", "id", "'{}' as x"] {
        shop.rule.event.as_mut().unwrap().payload = Some(payload.into());
        one(&shop.findings().await, &["event.payload: ", "one SQL expression"]);
    }
    assert_eq!(shop.count("payments").await, 0);
}

#[tokio::test]
async fn a_grant_that_an_expression_lacks_is_named() {
    let mut shop = Shop::with_payments("rule_guard_grant").await;
    let relay = shop.rig.create_role("relay");
    shop.rig.migrate(&["--grant-relay", &relay]);
    shop.db.batch_execute(&format!("grant select, update on orders to {relay}")).await.unwrap();
    shop.sweep_as(&relay);
    let findings = shop.findings().await;
    one(&findings, &["guard: permission denied for table payments (42501)"]);
    let (_, grant) = findings.problems[0].split_once("; missing privilege: ").unwrap();
    assert_eq!(grant, format!("grant select on public.payments to {relay};"));
    shop.db.batch_execute(grant).await.unwrap();
    assert_eq!(shop.findings().await.problems, Vec::<String>::new());
    let function = "create function unpaid(bigint) returns boolean language sql as 'select true'; \
        revoke execute on function unpaid from public";
    shop.db.batch_execute(function).await.unwrap();
    let guard = shop.rule.guard.replace("unpaid(o.id)".into());
    let grant = format!("missing privilege: grant execute on function public.unpaid(bigint) to {relay};");
    one(&shop.findings().await, &["guard: ", &grant]);
    shop.rule.guard = guard;
    shop.orders(1..=1, "pending", LONG_AGO).await;
    assert!(matches!(shop.one("1").await, Closing::Closed(_)));
    shop.db.batch_execute(&format!("revoke update on orders from {relay}")).await.unwrap();
    shop.rule.action = set([("due", "now()")]);
    one(&shop.findings().await, &[&format!("grant update (due) on public.orders to {relay};")]);
}

#[tokio::test]
async fn a_version_column_that_closing_leaves_alone_is_noted_with_the_cure() {
    let mut shop = Shop::new("rule_version").await;
    shop.db.batch_execute("alter table orders add version int default 0, add lock_version int").await.unwrap();
    let findings = shop.findings().await;
    let [version, lock] = findings.notes.as_slice() else { panic!("two notes: {:?}", findings.notes) };
    assert!(version.contains("a column version") && version.contains("version = \"version + 1\""), "{version}");
    assert!(lock.contains("a column lock_version"), "{lock}");
    shop.rule.action = set([("version", "version + 1"), ("lock_version", "lock_version + 1"), ("status", "'closed'")]);
    assert_eq!(shop.findings().await, Default::default());
}

#[tokio::test]
async fn of_two_orders_with_one_id_the_one_that_the_guard_forbids_is_kept() {
    let mut shop = Shop::new("rule_guard_twins").await;
    let twins =
        "alter table orders drop constraint orders_pkey; alter table orders add held boolean not null default false";
    shop.db.batch_execute(twins).await.unwrap();
    shop.rule.guard = Some("not o.held".into());
    for held in ["false", "true"] {
        let order = format!("insert into orders values (7, 'pending', now() - interval '1 h', {held})");
        shop.db.batch_execute(&order).await.unwrap();
    }
    assert_eq!(shop.pass().await, None);
    let (held, closed) = ("orders where held and status = 'pending'", "orders where not held and status = 'closed'");
    assert_eq!((shop.count(held).await, shop.count(closed).await, shop.db.count("true").await), (1, 1, 1));
}
