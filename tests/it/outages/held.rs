//! No transaction of a relay outlives its batch, and none is left behind in the pool.

use crate::support::between::{BATCH_DEADLINE, Between, Tables, counter};
use crate::support::db::Db;
use crate::support::oracle::Oracle;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{millis, secs, wait_until};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const TIERS: &[(&str, &str)] = &[("now", "due")];

/// Looks at a role's sessions all the time.
struct Watch {
    stop: oneshot::Sender<()>,
    longest: JoinHandle<(Duration, Duration)>,
}

impl Watch {
    /// Starts looking; `superuser` sees the sessions of others.
    fn start(superuser: Db, role: &str) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let role = role.to_owned();
        let longest = tokio::spawn(async move {
            let mut longest = (Duration::ZERO, Duration::ZERO);
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                longest.0 = longest.0.max(in_transaction(&superuser, &role).await);
                longest.1 = longest.1.max(left_aborted(&superuser, &role).await);
                tokio::time::sleep(millis(50)).await;
            }
            longest
        });
        Self { stop, longest }
    }

    /// Stops looking: the longest transaction, and the longest that one was left as it had failed.
    async fn longest(self) -> (Duration, Duration) {
        drop(self.stop);
        self.longest.await.unwrap()
    }
}

/// How long the longest transaction of a role has lasted; zero when there is none.
pub(super) async fn in_transaction(superuser: &Db, role: &str) -> Duration {
    const LONGEST: &str = "select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 \
        from pg_stat_activity where usename = $1 and state <> 'idle'";
    seconds(superuser, LONGEST, role).await
}

async fn left_aborted(superuser: &Db, role: &str) -> Duration {
    const LONGEST: &str = "select coalesce(max(extract(epoch from clock_timestamp() - state_change)), 0)::float8 \
        from pg_stat_activity where usename = $1 and state = 'idle in transaction (aborted)'";
    seconds(superuser, LONGEST, role).await
}

async fn seconds(superuser: &Db, query: &str, role: &str) -> Duration {
    let seconds: f64 = superuser.query_one(query, &[&role]).await.unwrap().get(0);
    Duration::from_secs_f64(seconds.max(0.0))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_outlives_its_batch_by_more_than_two_seconds() {
    let between = Between::new(Rig::new("held"));
    let daemon = between.start(Tables::default());
    let (db, superuser) = (between.rig.db().await, between.superuser().await);
    let watch = Watch::start(between.superuser().await, between.role());
    let oracle = Oracle::new(&between.rig, TIERS);
    db.insert_rows("now", 500).await;
    oracle.settled(&db).await;
    // Confirms that never come.
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 200).await;
    wait_until(secs(10), async || counter(&daemon, "unknown", "now") >= 200.0).await;
    between.rabbit.set(Mode::Pass);
    oracle.settled(&db).await;
    // A settle that takes longer than the server allows a statement.
    let slow =
        "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(5); return new; end';
        create trigger slow before update on duebox.outbox for each row when (new.key = '7') execute function slow()";
    db.batch_execute(slow).await.unwrap();
    db.insert_rows("now", 20).await;
    daemon.wait_log("statement timeout", secs(10));
    db.batch_execute("drop trigger slow on duebox.outbox").await.unwrap();
    oracle.settled(&db).await;
    let (longest, aborted) = watch.longest().await;
    assert!(longest >= millis(500), "the watch saw the batches that were held: {longest:?}");
    assert!(longest <= BATCH_DEADLINE + secs(2), "{longest:?}");
    assert!(aborted <= millis(200), "a failed transaction went back to the pool: {aborted:?}");
    wait_until(secs(1), async || in_transaction(&superuser, between.role()).await.is_zero()).await;
    eprintln!("longest transaction {longest:?}, left aborted {aborted:?}");
}
