//! The tour in the README works as it stands.

use crate::support::consumer::Inspector;
use crate::support::rig::Rig;
use crate::support::run::free_port;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../README.md");

/// The lines of the tour's code block.
fn tour() -> String {
    let (_, rest) = README.split_once("```sh tour\n").expect("README.md has a tour");
    let (tour, _) = rest.split_once("\n```").expect("the tour ends");
    tour.to_owned()
}

/// The commands in a script: its lines without those of a here-document.
fn commands(script: &str) -> Vec<&str> {
    let mut in_document = false;
    let is_command = |line: &&str| {
        let inside = in_document;
        in_document = if inside { *line != "END" } else { line.contains("<<'END'") };
        !inside && !line.is_empty()
    };
    script.lines().filter(is_command).collect()
}

#[test]
fn the_tour_has_at_most_twelve_commands() {
    let script = tour();
    let commands = commands(&script);
    assert!((8..=12).contains(&commands.len()), "{}: {commands:#?}", commands.len());
    assert!(commands.iter().any(|command| command.starts_with("duebox run")), "{commands:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_brings_its_order_to_the_queue_and_leaves_nothing_behind() {
    let rig = Rig::new("tour");
    let binary = Path::new(env!("CARGO_BIN_EXE_duebox"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    // As a reader would, but for what says where the servers are. Stops at the first command that fails.
    let output = Command::new("bash")
        .args(["-euc", &tour()])
        .current_dir(rig.folder())
        .env("PATH", path)
        .env("DUEBOX_POSTGRES__URL", rig.postgres_url())
        .env("DUEBOX_RABBITMQ__URLS", format!("[\"{}\"]", rig.amqp_url()))
        .env("DUEBOX_ADMIN__LISTEN", format!("127.0.0.1:{}", free_port()))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let log = std::fs::read_to_string(rig.folder().join("duebox.log")).unwrap_or_default();
    assert!(output.status.success(), "{said}\n{log}");
    assert!(said.contains("ok, but: consumers of tier tour-2s: nobody consumes"), "status tells it: {said}");
    let due = Inspector::connect(&rig.amqp_url()).await.drain("tour.due").await;
    let keys: Vec<&str> = due.iter().map(|delivery| delivery.headers["x-duebox-key"].as_str()).collect();
    assert_eq!(keys, ["1"], "order 1 and not the cancelled one: {said}\n{log}");
    let db = rig.db().await;
    let left: i64 =
        db.query_one("select count(*) from pg_namespace where nspname = 'duebox'", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}
