//! The first day on an old table closes nothing by surprise.

use super::shop::{Running, Shop};
use crate::support::wait::{secs, wait_until};
use duebox::config::Mode;
use duebox::rule::Kept;
use std::time::{Duration, SystemTime};

const LONG_AGO: f64 = 2_000.0;

fn observed(running: &Running) -> String {
    let text = running.metrics.render().unwrap();
    text.lines().find(|line| line.starts_with("duebox_rule_observed{")).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_rule_that_observes_counts_and_changes_nothing() {
    let mut shop = Shop::new("rule_observes").await;
    (shop.rule.mode, shop.rule.every) = (Mode::Observe, Duration::from_millis(100));
    shop.rule.guard = Some("id <> 7".into());
    shop.orders(1..=700, "pending", LONG_AGO).await;
    shop.orders(701..=702, "paid", LONG_AGO).await;
    // With the marks that an update or a lock would leave.
    let rows = "select array_agg(xmin::text || xmax::text || status order by id) from orders where id <= 600";
    let before: Vec<String> = shop.db.query_one(rows, &[]).await.unwrap().get(0);
    let running = shop.sweep();
    wait_until(secs(20), async || observed(&running) == "duebox_rule_observed{rule=\"unpaid\"} 699").await;
    shop.db.batch_execute("delete from orders where id > 600").await.unwrap();
    wait_until(secs(20), async || observed(&running) == "duebox_rule_observed{rule=\"unpaid\"} 599").await;
    assert_eq!(running.stop().await, None);
    assert_eq!(shop.kept("1").await, Kept::Observed);
    assert_eq!(shop.db.query_one(rows, &[]).await.unwrap().get::<_, Vec<String>>(0), before);
    assert_eq!(shop.db.count("true").await, 0);
}

#[tokio::test]
async fn orders_that_were_overdue_before_a_moment_are_left_alone() {
    for naive in [false, true] {
        let mut shop = Shop::new(&format!("rule_not_before_{naive}")).await;
        if naive {
            shop.rule.time_zone = Some("America/New_York".into());
            let naive = "alter table orders alter due type timestamp using due at time zone 'America/New_York'";
            shop.db.batch_execute(naive).await.unwrap();
        }
        // Overdue 100 minutes ago; the others since 40, and not yet.
        for (id, minutes) in [(1, 130), (2, 130), (3, 70), (4, 10)] {
            let due = format!("now() - interval '{minutes} min'");
            let due = if naive { format!("({due}) at time zone 'America/New_York'") } else { due };
            shop.db.batch_execute(&format!("insert into orders values ({id}, 'pending', {due})")).await.unwrap();
        }
        shop.rule.not_before = Some(SystemTime::now() - secs(3_600));
        assert_eq!(shop.findings().await, Default::default());
        assert_eq!(shop.pass().await, None);
        let closed = "select array_agg(id) from orders where status = 'closed'";
        assert_eq!(shop.db.query_one(closed, &[]).await.unwrap().get::<_, Vec<i64>>(0), [3], "naive: {naive}");
        assert_eq!(shop.kept("1").await, Kept::NotBefore);
        shop.rule.not_before = Some(SystemTime::now() - secs(7_200));
        assert_eq!(shop.pass().await, None);
        assert_eq!(shop.count("orders where status = 'closed'").await, 3, "naive: {naive}");
    }
}
