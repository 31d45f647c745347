//! The connections to the database are reset under the relay, the LISTEN connection among them.

use super::{Use, rounds};
use crate::support::between::{Between, Tables};
use crate::support::oracle::Oracle;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];
/// The pool of a relay with four workers, and the LISTEN connection.
const MOST: usize = 4 + 3 + 1;

#[tokio::test(flavor = "multi_thread")]
async fn each_reset_of_the_databases_connections_is_made_good_and_leaves_nothing_behind() {
    let between = Between::new(Rig::new("pg_resets"));
    let daemon = between.start(Tables { outbox: "poll = \"500ms\"", ..Tables::default() });
    let (db, superuser) = (between.rig.db().await, between.superuser().await);
    let (rounds, begun) = (rounds(30), std::time::Instant::now());
    let mut before = Use::of(&daemon);
    for round in 1..=rounds {
        between.postgres.set(Mode::Reset);
        wait_until(secs(10), async || between.postgres.connections() == 0).await;
        between.postgres.set(Mode::Pass);
        db.insert_rows("now", 20).await;
        wait_until(secs(30), async || db.count("sent_at is null").await == 0).await;
        if round == rounds.div_ceil(10) {
            before = Use::of(&daemon);
        }
    }
    let after = Use::of(&daemon);
    eprintln!("{rounds} resets of the database's connections in {:?}: {before}, then {after}", begun.elapsed());
    // Over the first rounds the pool may still be growing to its size.
    assert!(after.threads <= before.threads + 2, "before {before}, after {after}");
    assert!(after.descriptors <= before.descriptors + MOST, "before {before}, after {after}");
    after.assert_small_since(&before);
    let sessions = "select count(*) from pg_stat_activity where usename = $1";
    let sessions: i64 = superuser.query_one(sessions, &[&between.role()]).await.unwrap().get(0);
    assert!(usize::try_from(sessions).unwrap() <= MOST, "{sessions} sessions");
    daemon.wait_ready(secs(10));
    let mut oracle = Oracle::new(&between.rig, TIERS);
    assert_eq!(oracle.duplicates(&db).await, 0, "nothing was in flight at any reset");
}
