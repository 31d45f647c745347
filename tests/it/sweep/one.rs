//! One order that somebody names is closed if it is to be, and otherwise the reason is told.

use super::race::waiting;
use super::shop::Shop;
use crate::support::proxy::{Mode, Proxy};
use crate::support::wait::{secs, wait_until};
use duebox::outbox::connect::Db;
use duebox::rule::{Closing, Kept, Orders, PATIENCE, one, prepare};
use secrecy::ExposeSecret as _;
use std::time::{Duration, Instant, SystemTime};

const LONG_AGO: f64 = 2_000.0;
const PAY: &str = "update orders set status = 'paid' where id = $1 and status = 'pending'";

impl Shop {
    /// What becomes of an order that the closer names.
    pub(super) async fn one(&self, id: &str) -> Closing {
        let db = self.connect();
        let (orders, findings) = prepare(&db, "unpaid", &self.rule).await.unwrap();
        let orders = orders.unwrap_or_else(|| panic!("{:?}", findings.problems));
        one(&db, &orders, (id, PATIENCE), "closer").await.unwrap()
    }

    /// Whether the closer closes this order; its transaction may have run into its bounds.
    pub(super) async fn try_one(&self, id: &str) -> bool {
        try_by(&self.ready().await, id).await
    }

    /// What the closer needs for that, so that nothing but the close is left to do.
    pub(super) async fn ready(&self) -> (Db, Orders) {
        let db = self.connect();
        let orders = prepare(&db, "unpaid", &self.rule).await.unwrap().0.unwrap();
        (db, orders)
    }

    /// Why the order that the closer names is kept.
    pub(super) async fn kept(&self, id: &str) -> Kept {
        match self.one(id).await {
            Closing::Kept(kept) => kept,
            Closing::Closed(closed) => panic!("{closed:?}"),
        }
    }
}

/// Whether the closer closes this order.
pub(super) async fn try_by((db, orders): &(Db, Orders), id: &str) -> bool {
    matches!(one(db, orders, (id, PATIENCE), "closer").await, Ok(Closing::Closed(_)))
}

#[tokio::test]
async fn an_overdue_order_is_closed_and_closed_once() {
    let shop = Shop::new("one_closes").await;
    // Overdue by less than the grace, which is the sweep's alone.
    shop.orders(1..=1, "pending", 1_810.0).await;
    let Closing::Closed(closed) = shop.one("1").await else { panic!("kept") };
    assert_eq!((closed.id.as_str(), closed.was.as_str()), ("1", "pending"));
    assert!((10.0..40.0).contains(&closed.late.as_secs_f64()), "{:?}", closed.late);
    let event = "select message_id, payload ->> 'by' from duebox.outbox";
    let row = shop.db.query_one(event, &[]).await.unwrap();
    assert_eq!((closed.message_id, row.get::<_, &str>(1)), (Some(row.get(0)), "closer"));
    assert_eq!(shop.kept("1").await, Kept::Status("closed".into()));
    assert_eq!(shop.db.count("true").await, 1);
}

#[tokio::test]
async fn whatever_is_not_to_be_closed_is_kept_with_the_reason() {
    let shop = Shop::new("one_keeps").await;
    shop.orders(1..=1, "paid", LONG_AGO).await;
    shop.orders(2..=2, "pending", 1_000.0).await;
    shop.orders(3..=4, "pending", LONG_AGO).await;
    shop.db.batch_execute("update orders set due = 'infinity' where id = 3").await.unwrap();
    assert_eq!(shop.kept("99").await, Kept::Unknown);
    assert_eq!(shop.kept("1").await, Kept::Status("paid".into()));
    let Kept::Early { left, due_at } = shop.kept("2").await else { panic!("not early") };
    assert!((770.0..=800.0).contains(&left.as_secs_f64()), "{left:?}");
    let due = "select due + interval '1800 s' from orders where id = 2";
    assert_eq!(due_at, shop.db.query_one(due, &[]).await.unwrap().get::<_, SystemTime>(0));
    assert_eq!(shop.kept("3").await, Kept::Undated);
    shop.db.batch_execute("insert into duebox.state (name) values ('pause.rule.unpaid')").await.unwrap();
    assert_eq!(shop.kept("4").await, Kept::Paused);
    shop.db.batch_execute("update duebox.state set name = 'pause.closer' where name like 'pause.%'").await.unwrap();
    assert_eq!(shop.kept("4").await, Kept::AskerPaused);
    assert_eq!(shop.count("orders where status = 'closed'").await, 0);
    assert_eq!(shop.db.count("true").await, 0);
    // A sweep that is paused does not hold the closer up.
    shop.db.batch_execute("update duebox.state set name = 'pause.sweep' where name like 'pause.%'").await.unwrap();
    assert!(matches!(shop.one("4").await, Closing::Closed(_)));
}

#[tokio::test]
async fn a_locked_order_is_waited_for_and_its_payment_is_seen() {
    let shop = Shop::new("one_waits").await;
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let payment = shop.rig.db().await;
    payment.batch_execute("begin").await.unwrap();
    payment.execute(PAY, &[&1_i64]).await.unwrap();
    let pay = async {
        wait_until(secs(10), async || waiting(&shop.db, "transactionid").await).await;
        payment.batch_execute("commit").await.unwrap();
    };
    let (kept, ()) = tokio::join!(shop.kept("1"), pay);
    assert_eq!(kept, Kept::Status("paid".into()));
}

#[tokio::test]
async fn an_order_that_stays_locked_is_given_up_after_two_seconds() {
    let shop = Shop::new("one_locked").await;
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let payment = shop.rig.db().await;
    payment.batch_execute("begin; select from orders for update").await.unwrap();
    let started = Instant::now();
    assert_eq!(shop.kept("1").await, Kept::Locked);
    assert!(started.elapsed() >= Duration::from_secs(2), "gave up after {:?}", started.elapsed());
}

/// The id of a text column need not be a number, that of a bigint must be.
#[tokio::test]
async fn an_id_that_the_column_cannot_have_is_an_error() {
    let shop = Shop::new("one_malformed").await;
    let db = shop.connect();
    let orders = prepare(&db, "unpaid", &shop.rule).await.unwrap().0.unwrap();
    let error = one(&db, &orders, ("A-7", PATIENCE), "closer").await.unwrap_err();
    assert!(error.to_string().contains("invalid input syntax for type bigint"), "{error}");
}

#[tokio::test]
async fn a_connection_that_takes_long_to_make_takes_nothing_from_the_time_of_the_close() {
    let shop = Shop::new("one_connects").await;
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let (near, mut settings) = (shop.connect(), shop.settings());
    let orders = prepare(&near, "unpaid", &shop.rule).await.unwrap().0.unwrap();
    let frozen = Proxy::new(shop.rig.postgres().port());
    frozen.set(Mode::FreezeAccept);
    let server = |port: u16| format!("127.0.0.1:{port}");
    let here = server(shop.rig.postgres().port());
    let both = settings.url.expose_secret().replacen(&here, &format!("{},{here}", server(frozen.port())), 1);
    // Longer than a close may take.
    (settings.url, settings.connect_timeout) = (both.into(), secs(6));
    let db = Db::new(settings, 1).unwrap();
    let closing = one(&db, &orders, ("1", PATIENCE), "closer").await.unwrap();
    assert!(matches!(closing, Closing::Closed(_)) && frozen.accepted() > 0, "{closing:?}");
}
