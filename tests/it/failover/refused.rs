//! The database turns connections away for a while, or keeps ending them.

use super::{assert_says, tried_again};
use crate::support::between::{Between, Tables, counter};
use crate::support::oracle::Oracle;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_connect_for_a_while_is_an_outage() {
    let between = Between::new(Rig::new("connection_limit"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    let refuse = format!(
        "alter role {0} connection limit 0; select pg_terminate_backend(pid) from pg_stat_activity where usename = '{0}'",
        between.role()
    );
    between.rig.postgres().sql("postgres", &refuse);
    assert_says(&daemon, "postgres: ", "too many connections for role");
    let published = counter(&daemon, "published", "now");
    db.insert_rows("now", 500).await;
    tried_again(&between, 4);
    assert_eq!(counter(&daemon, "published", "now"), published);
    let admit = format!("alter role {} connection limit -1", between.role());
    between.rig.postgres().sql("postgres", &admit);
    let mut oracle = Oracle::new(&between.rig, &[("now", "due")]);
    oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0);
    daemon.wait_ready(secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_ended_again_and_again_cost_copies_and_no_row() {
    let between = Between::new(Rig::new("terminated"));
    let daemon = between.start(Tables::default());
    let (db, superuser) = (between.rig.db().await, between.superuser().await);
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1";
    for _ in 0..5 {
        let confirmed = counter(&daemon, "confirmed", "now");
        db.insert_rows("now", 500).await;
        wait_until(secs(20), async || counter(&daemon, "confirmed", "now") > confirmed).await;
        superuser.query(end, &[&between.role()]).await.unwrap();
    }
    let mut oracle = Oracle::new(&between.rig, &[("now", "due")]);
    oracle.settled(&db).await;
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates <= 5 * crate::support::between::WINDOW, "{duplicates}");
    assert_eq!(db.count("attempts > 0").await, 0);
    daemon.wait_ready(secs(10));
    eprintln!("sessions ended five times: {duplicates} copies");
}
