//! A relay that stops on its way to sleep has given K back already: what it waits for is still another's to find.

use super::{AT_ONCE, NOW, Sleeper, pid, waits_for};
use crate::support::db::Row;
use crate::support::wait::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_stops_while_it_waits_for_an_insert_leaves_it_to_one_that_sleeps() {
    let mut sleeper = Sleeper::new("parting").await;
    let second = sleeper.beside(NOW);
    let producer = sleeper.skips("insert into duebox.outbox (tier, payload) values ('now', '{}')").await;
    sleeper.db.insert(&Row::new("now")).await;
    sleeper.due.next(AT_ONCE).await.expect("the insert rings");
    let pid = pid(&producer).await;
    let waits = || [&sleeper.daemon, &second].map(|daemon| waits_for(daemon).contains(&pid));
    eventually("whoever took the row waits for the open transaction", AT_ONCE, || waits().contains(&true));
    let (stops, stays) = if waits()[0] { (&sleeper.daemon, &second) } else { (&second, &sleeper.daemon) };
    stops.sigterm();
    eventually("the other waits for it instead", AT_ONCE, || waits_for(stays).contains(&pid));
    producer.batch_execute("commit").await.unwrap();
    sleeper.due.next(AT_ONCE).await.expect("the row of the transaction that was open leaves");
}
