//! Faults of the way to PostgreSQL that the LISTEN connection has for itself: polling carries on meanwhile.

use super::{Case, Figure, LIMIT, Measure, Side, here, judge, side_by_side};
use crate::support::proxy::Mode;
use crate::support::rig::Rig;

const FAULTS: [(&str, Mode); 2] =
    [("black hole, both ways", Mode::BlackHole), ("reset, and every new connection too", Mode::Reset)];

#[test]
fn each_fault_of_the_listen_connection_is_seen_and_over_in_time() {
    let cases: Vec<Case> = FAULTS.iter().map(|_| Case::new(Rig::new("listen"), Side::Listener)).collect();
    let ended = Case::new(Rig::new("listen"), Side::Listener);
    let mut all: Vec<Measure<'_>> = Vec::new();
    for (case, (fault, mode)) in cases.iter().zip(FAULTS) {
        all.push(Box::new(move || here(async { vec![proxied(case, fault, mode).await] })));
    }
    all.push(Box::new(|| here(async { vec![terminated(&ended).await] })));
    judge(Side::Listener, &side_by_side(all));
}

async fn proxied(case: &Case, fault: &'static str, mode: Mode) -> Figure {
    let end = async || {
        // Once it is seen, there is no waiting for the bell.
        let took = case.sent(1).await;
        assert!(took <= LIMIT / 2, "{fault}: a row during the fault took {took:?}");
        case.proxy.set(Mode::Pass);
    };
    case.measure(fault, async || case.proxy.set(mode), end).await
}

async fn terminated(case: &Case) -> Figure {
    let db = case.rig.db_as("postgres").await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1 and application_name = 'duebox listen'";
    let begin = async || drop(db.query(end, &[&case.role]).await.unwrap());
    case.measure("session terminated", begin, async || {}).await
}
