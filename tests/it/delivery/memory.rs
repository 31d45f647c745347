//! Memory: bounded by the batches in work, not by what waits.

use crate::support::consumer::Consumer;
use crate::support::rig::Rig;
use crate::support::wait::secs;
use std::collections::HashSet;

/// The most that the daemon may ever have resident.
const MOST_KIB: u64 = 150 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_thousand_small_rows_and_two_hundred_huge_ones_drain_in_150_mib() {
    const SMALL: usize = 200_000;
    const HUGE: usize = 200;
    let rig = Rig::new("memory");
    let daemon = rig.relay(
        "[relay]\nworkers = 4\n[tier.small]\ntarget = { queue = \"small\" }\n[tier.huge]\ntarget = { queue = \"huge\" }\n",
    );
    let idle = daemon.vm_hwm_kib();
    let producing = async {
        let db = rig.db().await;
        // Compressible, so that they are small on disk and in the server: the relay reads them at full size. Half of
        // the huge ones as jsonb, half as bytes, because these are read differently.
        let huge = "insert into duebox.outbox (tier, payload, body) \
            select 'huge', case when i % 2 = 0 then to_jsonb(text) end, case when i % 2 = 1 then text::bytea end \
            from repeat('x', 5000000) as text, generate_series(1, $1::int) as i";
        db.execute(huge, &[&i32::try_from(HUGE).unwrap()]).await.unwrap();
        let small = "insert into duebox.outbox (tier, payload) \
            select 'small', to_jsonb(repeat(md5(i::text), 31)) from generate_series(1, $1::int) as i";
        db.execute(small, &[&i32::try_from(SMALL).unwrap()]).await.unwrap();
    };
    let consuming = |queue: &'static str, wanted: usize, size: usize| {
        let url = rig.amqp_url();
        async move {
            let mut consumer = Consumer::new(&url, queue).await;
            let mut arrived = HashSet::new();
            for n in 0..wanted {
                let delivery = consumer.next(secs(60)).await.unwrap_or_else(|| panic!("{n} of {wanted} {queue} rows"));
                assert!(delivery.body.len() >= size, "{} bytes", delivery.body.len());
                arrived.insert(delivery.message_id);
            }
            assert_eq!(arrived.len(), wanted, "no duplicate");
        }
    };
    tokio::join!(producing, consuming("small", SMALL, 990), consuming("huge", HUGE, 5_000_000));
    let peak = daemon.vm_hwm_kib();
    println!("resident at most {} MiB, {} MiB of them before the first row", peak / 1024, idle / 1024);
    assert!(peak < MOST_KIB, "{} MiB", peak / 1024);
}
