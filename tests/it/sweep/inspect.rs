//! What is wrong with a rule's table is said before anything is closed, with the statement that cures it.

use super::shop::{Shop, set, to};
use duebox::config::Rule;
use duebox::outbox::connect::{Db, Settings};
use duebox::rule::{Findings, inspect};
use std::time::Duration;

impl Shop {
    /// The database as the relay has it.
    pub(super) fn connect(&self) -> Db {
        Db::new(self.settings(), 2).unwrap()
    }

    pub(super) async fn findings(&self) -> Findings {
        inspect(&self.connect(), "unpaid", &self.rule).await.unwrap()
    }
}

/// One problem, with these words in it.
#[track_caller]
pub(super) fn one(findings: &Findings, words: &[&str]) {
    let [problem] = findings.problems.as_slice() else { panic!("one problem: {:?}", findings.problems) };
    for word in words {
        assert!(problem.contains(word), "{word:?} in {problem:?}");
    }
}

#[tokio::test]
async fn a_good_table_has_no_findings() {
    let shop = Shop::new("rule_good").await;
    assert_eq!(shop.findings().await, Findings::default());
}

#[tokio::test]
async fn a_table_is_found_where_the_role_would_find_it_and_missed_with_a_hint() {
    let mut shop = Shop::new("rule_table").await;
    shop.rule.table = "public.orders".into();
    assert_eq!(shop.findings().await, Findings::default());
    for (table, words) in [
        ("order", "no table 'order'"),
        ("shop.orders", "no table 'shop.orders'"),
        ("a.b.c", "no table"),
        ("1;drop", "is not the name of a table"),
    ] {
        shop.rule.table = table.into();
        one(&shop.findings().await, &[words]);
    }
    shop.db.batch_execute("create view seen as select * from orders").await.unwrap();
    shop.rule.table = "seen".into();
    one(&shop.findings().await, &["public.seen is no table"]);
}

#[tokio::test]
async fn columns_that_are_missing_or_of_a_wrong_type_are_named() {
    let mut shop = Shop::new("rule_columns").await;
    (shop.rule.id, shop.rule.status) = ("order_id".into(), "due".into());
    let problems = shop.findings().await.problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].contains("no column order_id, which the rule names as `id`; it has id, status, due"),
        "{problems:?}"
    );
    assert!(problems[1].contains("is timestamp with time zone; `status` must be text"), "{problems:?}");
    (shop.rule.id, shop.rule.status) = ("id".into(), "statsu".into());
    one(&shop.findings().await, &["no column statsu", "did the rule mean 'status'?"]);
    let shop = Shop::new("rule_naive").await;
    shop.db.batch_execute("alter table orders alter due type timestamp").await.unwrap();
    one(&shop.findings().await, &["timestamp without time zone", "time_zone = \"UTC\""]);
}

#[tokio::test]
async fn a_status_that_no_order_has_is_noted_with_the_nearest_that_one_has() {
    let mut shop = Shop::new("inspect_unseen").await;
    shop.rule.from = vec!["pendign".into()];
    let few = "create index on orders (due) where status = 'pendign'";
    shop.db.batch_execute(few).await.unwrap();
    assert_eq!(shop.findings().await, Findings::default(), "an empty table tells nothing");
    shop.orders(1..=3, "pending", 0.0).await;
    shop.db.batch_execute("drop index orders_due_idx1").await.unwrap();
    let findings = shop.findings().await;
    let [note, index] = findings.notes.as_slice() else { panic!("two notes: {:?}", findings.notes) };
    assert!(index.starts_with("no index serves"), "what it would be for comes first: {index}");
    assert!(note.contains("'pendign' (others have: pending); did you mean 'pending'?"), "{note}");
    shop.rule.from.push("pending".into());
    shop.orders(4..=4, "pendign", 0.0).await;
    assert!(!shop.findings().await.notes.iter().any(|note| note.contains("no order")));
}

#[tokio::test]
async fn a_status_that_the_column_cannot_have_is_an_error() {
    let mut shop = Shop::new("rule_status").await;
    let enums = "create type state as enum ('pending', 'closed'); alter table orders alter status type state \
        using status::state";
    shop.db.batch_execute("drop index orders_due_idx").await.unwrap();
    shop.db.batch_execute(enums).await.unwrap();
    shop.rule.from = vec!["pending".into(), "pendng".into()];
    let words = ["from 'pendng'", "invalid input value for enum", "did the rule mean 'pending'?"];
    one(&shop.findings().await, &words);
    (shop.rule.from, shop.rule.action) = (vec!["pending".into()], to("gone"));
    one(&shop.findings().await, &["to 'gone' is no status of public.orders", "; it has pending, closed"]);
    shop.db.batch_execute("alter table orders alter status type int using 1").await.unwrap();
    (shop.rule.from, shop.rule.action) = (vec!["1".into()], to("closed"));
    let findings = shop.findings().await;
    one(&findings, &["to 'closed'", "invalid input syntax for type integer"]);
    assert!(!findings.problems[0].contains("it has"), "{findings:?}");
}

#[tokio::test]
async fn a_missing_grant_is_named_and_granting_it_is_enough() {
    let mut shop = Shop::empty("rule_grants").await;
    let table = "create schema shop; create table shop.orders \
        (id bigint primary key, status text, due timestamptz, secret text)";
    shop.db.batch_execute(table).await.unwrap();
    shop.db.batch_execute("create index on shop.orders (due) where status in ('pending')").await.unwrap();
    let insert = "insert into shop.orders values (1, 'pending', now() - interval '1 day')";
    shop.db.batch_execute(insert).await.unwrap();
    shop.rule.table = "shop.orders".into();
    let relay = shop.rig.create_role("relay");
    shop.rig.migrate(&["--grant-relay", &relay]);
    shop.sweep_as(&relay);
    let grants: Vec<String> = shop.findings().await.problems;
    let wanted = [
        format!("missing privilege: grant usage on schema shop to {relay};"),
        format!("missing privilege: grant select (id, status, due), update (status) on shop.orders to {relay};"),
    ];
    assert_eq!(grants, wanted);
    assert_eq!(shop.pass().await, Some(wanted.join("; ")));
    for grant in wanted {
        shop.db.batch_execute(grant.trim_start_matches("missing privilege: ")).await.unwrap();
    }
    assert_eq!(shop.findings().await, Findings::default());
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.count("shop.orders where status = 'closed'").await, shop.db.count("key = '1'").await), (1, 1));
}

#[tokio::test]
async fn a_missing_index_is_noted_with_the_statement_that_makes_it() {
    let shop = Shop::new("rule_index").await;
    let partitioned = "drop table orders; create table orders (id bigint primary key, status text, due timestamptz) \
        partition by hash (id); create table part partition of orders for values with (modulus 1, remainder 0)";
    for change in ["drop index orders_due_idx", partitioned] {
        shop.db.batch_execute(change).await.unwrap();
        let findings = shop.findings().await;
        assert_eq!(findings.problems, Vec::<String>::new());
        let [note] = findings.notes.as_slice() else { panic!("one note: {:?}", findings.notes) };
        let (_, statement) = note.split_once(": ").unwrap();
        shop.db.batch_execute(statement).await.unwrap();
        assert_eq!(shop.findings().await, Findings::default(), "after {statement}");
    }
}

#[tokio::test]
async fn an_id_that_is_not_unique_is_noted_with_the_statement_that_makes_it_so() {
    let shop = Shop::empty("rule_unkeyed").await;
    for (partitioned, key) in [
        ("; create index on orders (id)", "create unique index concurrently on"),
        (
            " partition by hash (id); create table part partition of orders for values with (modulus 1, remainder 0)",
            "create index on",
        ),
    ] {
        let table = format!(
            "drop table if exists orders; create table orders (id bigint, status text, due timestamptz){partitioned}; \
             create index on orders (due); create index on orders (status, id)"
        );
        shop.db.batch_execute(&table).await.unwrap();
        let findings = shop.findings().await;
        assert_eq!(findings.problems, Vec::<String>::new());
        let [note] = findings.notes.as_slice() else { panic!("one note: {:?}", findings.notes) };
        let (_, statement) = note.rsplit_once(": ").unwrap();
        assert!(statement.starts_with(key), "{note}");
        shop.db.batch_execute(statement).await.unwrap();
        assert_eq!(shop.findings().await, Findings::default(), "after {statement}");
    }
}

#[tokio::test]
async fn a_table_that_somebody_has_locked_is_named_with_the_rule_and_the_statement_that_finds_them() {
    let shop = Shop::new("rule_locked").await;
    let locker = shop.rig.db().await;
    locker.batch_execute("begin; lock table orders").await.unwrap();
    let settings = Settings { statement_timeout: Duration::from_millis(300), ..shop.settings() };
    let db = Db::new(settings, 1).unwrap();
    for guard in [None, Some("id > 0".to_owned())] {
        let rule = Rule { guard, ..shop.rule.clone() };
        let asked = inspect(&db, "unpaid", &rule).await;
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("table orders of rule unpaid") && error.contains("57014"), "{error}");
        let (_, statement) = error.split_once("since when: ").unwrap();
        let [who] = &shop.db.query(statement, &[]).await.unwrap()[..] else { panic!("one who locks: {statement}") };
        assert_eq!(who.get::<_, String>("query"), "begin; lock table orders");
    }
}

/// A trigger of the table may end it, so it is no problem.
#[tokio::test]
async fn a_reminder_that_nothing_ends_is_noted() {
    let mut shop = Shop::new("inspect_endless").await;
    shop.db.batch_execute("alter table orders add reminded_at timestamptz").await.unwrap();
    shop.rule.action = set([("reminded_at", "now()")]);
    let notes = shop.findings().await.notes;
    let [note] = notes.as_slice() else { panic!("one note: {notes:?}") };
    assert!(
        note.contains("its `set` changes neither status nor due") && note.contains("reminded_at is null"),
        "{note}"
    );
    shop.rule.guard = Some("o.reminded_at is null".into());
    assert_eq!(shop.findings().await, Findings::default());
    (shop.rule.guard, shop.rule.action) = (None, set([("due", "'infinity'")]));
    assert_eq!(shop.findings().await, Findings::default());
}
