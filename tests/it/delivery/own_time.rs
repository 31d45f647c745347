//! Rows with a due time of their own: each arrives on its own time, whatever its tier's delay.

use super::{CLOCK, SOON, lateness};
use crate::support::consumer::Consumer;
use crate::support::db::Row;
use crate::support::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn a_due_time_of_its_own_is_kept_whatever_the_delay_of_the_tier() {
    let rig = Rig::alone("own_due");
    let daemon = rig
        .relay("[tier.t3s]\ndelay = \"3s\"\ntarget = { queue = \"due\" }\n[tier.now]\ntarget = { queue = \"due\" }\n");
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    // What the row is called, its tier, when it is due, and whether it goes through the delay queue.
    let rows = [
        ("plain", "t3s", None, true),
        ("more left than the delay", "t3s", Some(4.5), true),
        ("less left than the delay", "t3s", Some(1.0), false),
        ("overdue", "t3s", Some(-60.0), false),
        ("held for a direct tier", "now", Some(2.0), false),
        ("overdue for a direct tier", "now", Some(-60.0), false),
    ];
    for (name, tier, due_in, _) in rows {
        db.insert(&Row { due_in, ..Row::new(tier).key(name) }).await;
    }
    let mut arrived = Vec::new();
    for _ in rows {
        arrived.push(due.next(SOON).await.expect("every one arrives"));
    }
    let late = lateness(&db, 3.0, &arrived).await;
    for (name, _, due_in, delayed) in rows {
        let found = arrived.iter().zip(&late).find(|(delivery, _)| delivery.headers["x-duebox-key"] == name);
        let (delivery, late) = found.unwrap_or_else(|| panic!("{name} did not arrive, another came twice"));
        // One that was overdue when it was written can only go out at once.
        let late = if due_in.is_some_and(|due_in| due_in < 0.0) { late - 60.0 } else { *late };
        assert!((-CLOCK..1.0).contains(&late), "{name}: {late} s after it was due");
        assert_eq!(delivery.headers.contains_key("x-death"), delayed, "{name}: its way");
    }
    assert_eq!(db.count("sent_at is not null and attempts = 0").await, 6);
    drop(daemon);
}
