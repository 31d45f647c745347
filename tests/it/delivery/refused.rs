//! The late-row rule: who was refused while others went on does not queue up behind them.

use super::{CLOCK, SOON, lateness};
use crate::support::consumer::{Consumer, Delivery, Inspector};
use crate::support::db::{Db, Row};
use crate::support::rig::Rig;
use crate::support::wait::{millis, wait_until};
use futures_util::future::join_all;
use lapin::BasicProperties;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};

/// Of the tier; the delay queue is full for about this long, too.
const DELAY: f64 = 3.0;

/// Its room: more than what flows through it, so that it refuses only while the test fills it.
const ROOM: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn a_row_refused_for_half_its_delay_is_on_time_although_fresh_rows_flow() {
    let rig = Rig::alone("late_row");
    let daemon = rig.relay(&format!(
        "[relay]\nbackoff_min = \"50ms\"\nbackoff_max = \"200ms\"\n\
         [tier.t]\ndelay = \"{DELAY}s\"\nlate_tolerance = \"500ms\"\nmax_length = {ROOM}\n\
         target = {{ queue = \"due\" }}\n"
    ));
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    fill(&rig, &db).await;
    let consuming = async {
        let mut arrived: Vec<Delivery> = Vec::new();
        while arrived.len() < 100 {
            let delivery = due.next(SOON).await.expect("every row arrives");
            // What filled the queue comes out of it as well.
            if !delivery.message_id.is_empty() {
                arrived.push(delivery);
            }
        }
        arrived
    };
    // 20 rows a second for 5 s: refused at first, then through the queue.
    let producing = async {
        let mut tick = tokio::time::interval(millis(50));
        for n in 0..100 {
            tick.tick().await;
            db.insert(&Row::new("t").key(&n.to_string())).await;
        }
    };
    let (arrived, ()) = tokio::join!(consuming, producing);
    let (mut delayed, mut straight) = (0, 0);
    for (delivery, late) in arrived.iter().zip(lateness(&db, DELAY, &arrived).await) {
        let key = &delivery.headers["x-duebox-key"];
        assert!((-CLOCK..1.0).contains(&late), "row {key}: {late} s after it was due");
        *if delivery.headers.contains_key("x-death") { &mut delayed } else { &mut straight } += 1;
    }
    assert!(delayed >= 20, "fresh rows went through the delay queue: {delayed}");
    assert!(straight >= 20, "rows refused for long went straight at their due time: {straight}");
    assert_eq!(db.count("attempts > 0 or parked_at is not null").await, 0, "no refusal is a row's fault");
    assert!(db.count("last_error is not null").await >= 10, "the queue did refuse");
    drop(daemon);
}

/// Fills the delay queue of the tier to its brim, behind the relay's back.
async fn fill(rig: &Rig, db: &Db) {
    let recorded = "select substr(name, 7) from duebox.state where name like 'queue.%'";
    wait_until(SOON, async || db.query_opt(recorded, &[]).await.unwrap().is_some()).await;
    let queue: String = db.query_one(recorded, &[]).await.unwrap().get(0);
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    let channel = inspector.channel().await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    // All at once: one by one, the first would come out before the last is in.
    let confirms = (0..ROOM).map(async |_| {
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        channel.basic_publish("".into(), queue.as_str().into(), options, b"full", properties).await.unwrap().await
    });
    let confirms = join_all(confirms).await;
    assert!(confirms.iter().all(|confirm| confirm.as_ref().unwrap().is_ack()), "room for {ROOM}");
}
