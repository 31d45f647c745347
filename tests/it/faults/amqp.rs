//! Faults of RabbitMQ and of the way to it.

use super::{Case, Figure, Measure, NETWORK, Side, here, judge, network, side_by_side};
use crate::support::process;
use crate::support::rabbit::Rabbit;
use crate::support::rig::{Own, Rig};
use nix::sys::signal::Signal;

#[test]
fn each_fault_of_the_broker_is_seen_and_over_in_time() {
    // Alone: these figures come closest to the limit. The first rig has the turn for all.
    let rigs = NETWORK.iter().enumerate().map(|(n, _)| if n == 0 { Rig::alone("net") } else { Rig::new("net") });
    let cases: Vec<Case> = rigs.map(|rig| Case::new(rig, Side::RabbitMq)).collect();
    let own = Case::new(Rig::private("server", Own::Rabbit), Side::RabbitMq);
    let mut all: Vec<Measure<'_>> = Vec::new();
    all.extend(cases.iter().zip(NETWORK).map(|(case, (fault, mode))| network(case, fault, mode)));
    all.push(Box::new(|| here(server(&own))));
    judge(Side::RabbitMq, &side_by_side(all));
}

/// Faults of the server itself, one after the other.
async fn server(case: &Case) -> Vec<Figure> {
    let server = case.rig.rabbit();
    let signal = |signal| process::send(server.pid().unwrap(), signal);
    // Queues that are younger than this would be lost with the node.
    case.healthy().await;
    server.sync();
    vec![
        case.measure("killed (-9)", async || server.kill9(), async || server.start()).await,
        case.measure("frozen (SIGSTOP)", async || signal(Signal::SIGSTOP), async || signal(Signal::SIGCONT)).await,
        alarm(case, server).await,
    ]
}

/// The broker tells a connection only when something is published over it.
async fn alarm(case: &Case, server: &Rabbit) -> Figure {
    let limit = |limit: &str| server.eval(&format!("vm_memory_monitor:set_vm_memory_high_watermark({limit})"));
    let begin = async || {
        drop(limit("0.00001"));
        case.rig.db().await.insert_rows("now", 1).await;
    };
    case.measure("memory alarm", begin, async || drop(limit("{absolute, \"2GiB\"}"))).await
}
