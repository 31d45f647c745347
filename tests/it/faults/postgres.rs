//! Faults of PostgreSQL and of the way to it, for the pool; the LISTEN connection goes the same way.

use super::{Case, Figure, Measure, NETWORK, Side, here, judge, network, side_by_side};
use crate::support::process;
use crate::support::rig::{Own, Rig};
use nix::sys::signal::Signal;

#[test]
fn each_fault_of_the_database_is_seen_and_over_in_time() {
    let own = Case::new(Rig::private("server", Own::Postgres), Side::Postgres);
    let statement = Case::new(Rig::new("statement"), Side::Postgres);
    let cases: Vec<Case> = NETWORK.iter().map(|_| Case::new(Rig::new("net"), Side::Postgres)).collect();
    let mut all: Vec<Measure<'_>> = Vec::new();
    all.extend(cases.iter().zip(NETWORK).map(|(case, (fault, mode))| network(case, fault, mode)));
    all.push(Box::new(|| here(server(&own))));
    all.push(Box::new(|| here(async { vec![terminated(&statement).await, locked(&statement).await] })));
    judge(Side::Postgres, &side_by_side(all));
}

/// Faults of the server itself, one after the other.
async fn server(case: &Case) -> Vec<Figure> {
    let server = case.rig.postgres();
    let everyone = |signal| {
        let postmaster = server.pid().unwrap();
        // The postmaster first, so that no child is made meanwhile.
        process::send(postmaster, signal);
        process::children(postmaster).into_iter().for_each(|pid| process::send(pid, signal));
    };
    vec![
        case.measure("killed (-9)", async || server.kill9(), async || server.start()).await,
        case.measure("frozen (SIGSTOP)", async || everyone(Signal::SIGSTOP), async || everyone(Signal::SIGCONT)).await,
    ]
}

/// Every session is ended once; the next statement has a new one, so there is nothing to be seen.
async fn terminated(case: &Case) -> Figure {
    case.healthy().await;
    let db = case.rig.db_as("postgres").await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1";
    let order = case.place_order().await;
    db.query(end, &[&case.role]).await.unwrap();
    case.deliver(order).await;
    let (flows, closes) = tokio::join!(case.sent(1), case.closed(order));
    Figure { fault: "sessions terminated".to_owned(), seen: None, flows, closes: Some(closes) }
}

/// Every statement waits for a lock, as under a migration that nobody commits.
async fn locked(case: &Case) -> Figure {
    let db = case.rig.db().await;
    let begin = async || db.batch_execute("begin; lock table duebox.outbox in access exclusive mode").await.unwrap();
    case.measure("statements wait for a lock", begin, async || db.batch_execute("rollback").await.unwrap()).await
}
