//! `check --connect` says what is wrong with a rule in the words of whoever wrote it, and what it has not looked at yet.

use super::Desk;

const RULE: &str = "[tier.now]\ntarget = { queue = \"closed\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"statsu\"\nfrom = [\"pendign\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"30m\"\n";

const TABLES: &str = "create type state as enum ('pending', 'closed'); \
    create table orders (id bigint primary key, status state, due timestamptz, lock_version int)";

/// The broker is dead, so the exit code is that of a configuration that is wrong only while there is a problem.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_mended_step_by_step_and_each_step_says_that_there_may_be_more() {
    let (desk, db) = Desk::shop("check_steps", RULE, TABLES).await;
    let check = ["check", "--connect"];
    let mend = |from: &str, to: &str| std::fs::write(&desk.config, desk.toml().replace(from, to)).unwrap();
    let later = "rule unpaid: its statuses, expressions and indexes are looked at when that is mended";
    desk.says(&check, 78, &["rule unpaid: public.orders has no column statsu", "did the rule mean 'status'?", later]);
    mend("statsu", "status");
    let parts = [
        "rule unpaid: from 'pendign' is no status of public.orders: invalid input value for enum",
        "did the rule mean 'pending'?",
        "rule unpaid: its indexes are looked at when that is mended",
    ];
    desk.says(&check, 78, &parts);
    mend("pendign", "pending");
    let notes = ["rule unpaid: public.orders has a column lock_version", "no index serves rule unpaid"];
    let text = desk.says(&check, 1, &[&["postgres: good"][..], &notes].concat());
    assert!(!text.contains("when that is mended"), "{text}");
    db.batch_execute("drop table duebox.state").await.unwrap();
    desk.says(&check, 78, &["the rules are looked at when that is mended"]);
}
