//! Row-level security on a table of orders: what it hides is named, and never taken for an order that is not there.

use super::inspect::one;
use super::shop::Shop;
use duebox::outbox::error::Error;
use duebox::rule::{Closing, Findings, Kept, PATIENCE, one as close_one, prepare};

const LONG_AGO: f64 = 2_000.0;

impl Shop {
    /// Swept by a role that does not own the table, whose row-level security is on.
    async fn policed(name: &str) -> (Self, String) {
        let mut shop = Self::new(name).await;
        let relay = shop.rig.create_role("relay");
        shop.rig.migrate(&["--grant-relay", &relay]);
        let on = format!("grant select, update on orders to {relay}; alter table orders enable row level security");
        shop.db.batch_execute(&on).await.unwrap();
        shop.sweep_as(&relay);
        (shop, relay)
    }

    /// What becomes of an order that the closer names, by statements made before.
    async fn close(&self, id: &str) -> Result<Closing, Error> {
        let db = self.connect();
        let orders = prepare(&db, "unpaid", &self.rule).await.unwrap().0.unwrap();
        close_one(&db, &orders, (id, PATIENCE), "closer").await
    }
}

#[tokio::test]
async fn orders_that_no_policy_lets_the_role_update_are_a_problem_of_the_rule_and_each_cure_is_enough() {
    let (shop, relay) = Shop::policed("policies_none").await;
    shop.orders(1..=2, "pending", LONG_AGO).await;
    // A select policy alone, one for somebody else, and none at all.
    for policies in [
        "create policy look on orders for select using (true)",
        "create policy own on orders to current_user using (true)",
    ] {
        shop.db.batch_execute(policies).await.unwrap();
        one(&shop.findings().await, &["row-level security", "public.orders", &relay]);
        let problem = shop.pass().await.unwrap();
        assert!(problem.contains("row-level security is on for public.orders"), "{problem}");
    }
    assert_eq!(shop.status(1).await, "pending");
    let problem = shop.findings().await.problems.remove(0);
    let (_, cures) = problem.split_once("; create").unwrap();
    let (policy, bypass) = cures.split_once(" or: ").unwrap();
    shop.db.batch_execute(&format!("create{policy}")).await.unwrap();
    assert_eq!(shop.findings().await, Findings::default());
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.status(1).await.as_str(), shop.status(2).await.as_str()), ("closed", "closed"));
    shop.db.batch_execute("drop policy duebox on orders").await.unwrap();
    shop.rig.postgres().sql("postgres", bypass);
    assert_eq!(shop.findings().await, Findings::default());
}

/// Tenants: all orders may be read, and one's own updated.
#[tokio::test]
async fn an_order_that_can_be_read_and_not_locked_is_an_error_and_no_unknown_order() {
    let (shop, _) = Shop::policed("policies_some").await;
    let policies = "create policy look on orders for select using (true); \
        create policy own on orders for update using (id <= 2)";
    shop.db.batch_execute(policies).await.unwrap();
    let findings = shop.findings().await;
    assert_eq!(findings.problems, Vec::<String>::new());
    assert!(matches!(&findings.notes[..], [note] if note.contains("are never closed")), "{:?}", findings.notes);
    shop.orders(1..=5, "pending", LONG_AGO).await;
    let error = shop.close("3").await.unwrap_err().to_string();
    assert!(error.contains("row-level security"), "{error}");
    assert_eq!(shop.close("9").await.unwrap(), Closing::Kept(Kept::Unknown));
    // Somebody else's lock is none of the policies' doing.
    let payment = shop.rig.db().await;
    payment.batch_execute("begin; select from orders where id = 1 for update").await.unwrap();
    let problem = shop.pass().await.unwrap();
    assert!(
        problem.starts_with("3 order(s) could not be closed") && problem.contains("row-level security"),
        "{problem}"
    );
    payment.batch_execute("rollback").await.unwrap();
    assert!(shop.pass().await.is_some());
    assert_eq!(shop.count("orders where status = 'closed' and id <= 2").await, 2);
    assert_eq!((shop.count("orders where status = 'closed'").await, shop.db.count("true").await), (2, 2));
}
