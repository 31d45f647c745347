//! What is wrong with a rule's table is said before anything is closed, with the statement that cures it.

use super::shop::{Shop, to};
use duebox::outbox::connect;
use duebox::rule::{Findings, inspect};

impl Shop {
    pub(super) fn pool(&self) -> connect::Pool {
        connect::pool(&self.settings(), 2).unwrap()
    }

    pub(super) async fn findings(&self) -> Findings {
        inspect(&self.pool(), &self.settings(), "unpaid", &self.rule).await.unwrap()
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
    assert!(problems[0].contains("no column order_id"), "{problems:?}");
    assert!(problems[1].contains("is timestamp with time zone; `status` must be text"), "{problems:?}");
    let shop = Shop::new("rule_naive").await;
    shop.db.batch_execute("alter table orders alter due type timestamp").await.unwrap();
    one(&shop.findings().await, &["timestamp without time zone", "time_zone = \"UTC\""]);
}

#[tokio::test]
async fn a_status_that_the_column_cannot_have_is_an_error() {
    let mut shop = Shop::new("rule_status").await;
    let enums = "create type state as enum ('pending', 'closed'); alter table orders alter status type state \
        using status::state";
    shop.db.batch_execute("drop index orders_due_idx").await.unwrap();
    shop.db.batch_execute(enums).await.unwrap();
    shop.rule.from = vec!["pending".into(), "pendng".into()];
    one(&shop.findings().await, &["from 'pendng'", "invalid input value for enum"]);
    (shop.rule.from, shop.rule.action) = (vec!["pending".into()], to("gone"));
    one(&shop.findings().await, &["to 'gone'"]);
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
    shop.db.batch_execute("drop index orders_due_idx").await.unwrap();
    let findings = shop.findings().await;
    assert_eq!(findings.problems, Vec::<String>::new());
    let [note] = findings.notes.as_slice() else { panic!("one note: {:?}", findings.notes) };
    let (_, statement) = note.split_once(": ").unwrap();
    shop.db.batch_execute(statement).await.unwrap();
    assert_eq!(shop.findings().await, Findings::default(), "after {statement}");
}
