//! A due column without time zone: never early, when the clocks change either, whatever the zone of server and session.

use super::inspect::one;
use super::shop::Shop;
use duebox::rule::{Closing, Kept};

impl Shop {
    /// With a due column that is written in the time of Berlin, an index on it, and this default zone of the role.
    async fn in_berlin(name: &str, session: &str) -> Self {
        let mut shop = Self::new(name).await;
        shop.db.batch_execute("alter table orders alter due type timestamp").await.unwrap();
        let role = format!("alter role {} set timezone = '{session}'", shop.rig.name());
        shop.rig.postgres().sql("postgres", &role);
        shop.rule.time_zone = Some("Europe/Berlin".into());
        shop
    }

    /// A zone whose clocks are put back, or forward, so many minutes from now.
    async fn zone(&self, back: bool, minutes: i32) -> String {
        // A day of POSIX is counted as if there were no 29 February.
        const ZONE: &str = "with day as ( \
                select at, to_char(at, 'HH24:MI:SS') as time, extract(doy from make_date(2023, \
                       extract(month from at)::int, least(extract(day from at), 28 + 3 * (extract(month from at) <> 2)::int)::int))::int as n \
                  from (select now() at time zone 'UTC' + $2::int * interval '1 min' + $1::bool::int * interval '1 hour' as at) t) \
            select case when $1 then format('STD0DST-1,J%s/0,J%s/%s', (n + 182) % 365 + 1, n, time) \
                        else format('STD0DST-1,J%s/%s,J%s/0', n, time, (n + 182) % 365 + 1) end from day";
        self.db.query_one(ZONE, &[&back, &minutes]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn orders_are_closed_by_the_zone_of_the_column_and_by_no_other() {
    for session in ["UTC", "America/New_York", "Asia/Kolkata"] {
        let shop = Shop::in_berlin("zone_session", session).await;
        let insert = "insert into orders select i, 'pending', (now() - i * interval '1 min') at time zone 'Europe/Berlin' \
            from generate_series(1, 60) i";
        shop.db.batch_execute(insert).await.unwrap();
        assert_eq!(shop.findings().await, Default::default(), "{session}");
        assert!(matches!(shop.kept("29").await, Kept::Early { left, .. } if left.as_secs() <= 60), "{session}");
        assert_eq!(shop.pass().await, None);
        // After 30 minutes and a minute of grace.
        assert_eq!(shop.count("orders where status = 'closed'").await, 30, "{session}");
        assert_eq!(shop.count("orders where status = 'closed' and id < 31").await, 0, "{session}");
        let due = "select count(*) from duebox.outbox join orders o on o.id::text = key where \
            (payload ->> 'due_at')::timestamptz = o.due at time zone 'Europe/Berlin' + interval '30 min'";
        assert_eq!(shop.db.query_one(due, &[]).await.unwrap().get::<_, i64>(0), 30, "{session}");
    }
}

/// Each order is written in local time at some moment of the last hours, and the clocks change some minutes before or
/// after the pass.
#[tokio::test]
async fn around_a_change_of_the_clocks_no_order_is_early_and_none_is_over_an_hour_late() {
    let mut shop = Shop::in_berlin("zone_change", "Asia/Tokyo").await;
    shop.db.batch_execute("create table written (id bigint, at timestamptz)").await.unwrap();
    let offset = "select extract(epoch from (now() at time zone $1) - (now() at time zone 'UTC'))::int / 3600";
    for back in [true, false] {
        let mut offsets = Vec::new();
        for minutes in [-120, -75, -50, -31, -20, -5, 20] {
            let zone = shop.zone(back, minutes).await;
            let what = format!("{zone}, {minutes} minutes from now");
            let orders = format!(
                "truncate orders, written; insert into written \
                 select i, now() - i * interval '1 min' from generate_series(0, 240) i; \
                 insert into orders select id, 'pending', at at time zone '{zone}' from written"
            );
            shop.db.batch_execute(&orders).await.unwrap();
            offsets.push(shop.db.query_one(offset, &[&zone]).await.unwrap().get::<_, i32>(0));
            shop.rule.time_zone = Some(zone);
            // The closer names an order that is not overdue for a minute, and one that has been for hours.
            assert!(matches!(shop.kept("29").await, Kept::Early { .. }), "{what}");
            assert!(matches!(shop.one("200").await, Closing::Closed(_)), "{what}");
            assert_eq!(shop.pass().await, None, "{what}");
            let closed = "written join orders using (id) where status = 'closed'";
            let early = format!("{closed} and at > now() - interval '31 min'");
            assert_eq!(shop.count(&early).await, 0, "{what}");
            // An hour of the column that stands for two is taken for the later.
            let late = "written join orders using (id) where status <> 'closed' and at < now() - interval '92 min'";
            assert_eq!(shop.count(late).await, 0, "{what}");
        }
        // The clocks did change in between.
        assert_eq!(offsets, if back { [0, 0, 0, 0, 0, 0, 1] } else { [1, 1, 1, 1, 1, 1, 0] });
    }
}

#[tokio::test]
async fn a_time_zone_is_needed_exactly_where_the_column_has_none_and_must_be_known() {
    let mut shop = Shop::in_berlin("zone_findings", "UTC").await;
    shop.rule.time_zone = Some("Europe/Berln".into());
    one(&shop.findings().await, &["time_zone = 'Europe/Berln'", "not recognized"]);
    shop.rule.time_zone = None;
    one(&shop.findings().await, &["timestamp without time zone", "time_zone = \"UTC\""]);
    let mut shop = Shop::new("zone_of_its_own").await;
    shop.rule.time_zone = Some("UTC".into());
    one(&shop.findings().await, &["time_zone = 'UTC' must not be set"]);
}
