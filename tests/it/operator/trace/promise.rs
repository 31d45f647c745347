//! What is promised of an order is what will be: nothing that is past, and nothing that nobody is there to do.

use super::{Desk, ORDERS, SHOP};

/// A reminder that is looked at rarely, and comes first by its name; and a function that closes what is old.
const RULES: &str = "[rule.a-reminder]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\n\
    guard = \"o.reminded_at is null\"\nset = { reminded_at = \"now()\" }\ndue = \"due\"\nafter = \"15m\"\nevery = \"1h\"\n\
    [rule.old]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"old\"]\nfunction = \"close_order\"\n\
    due = \"due\"\nafter = \"1m\"\nevent = { tier = \"now\", type = \"order.old\" }\n";

const TABLES: &str = "; alter table orders add reminded_at timestamptz; \
    create function close_order(bigint) returns boolean language sql as \
    'update orders set status = ''gone'' where id = $1 returning true'";

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_is_promised_only_where_one_runs_and_by_the_rule_that_is_late() {
    let (desk, db) = Desk::shop("trace_promise", &format!("{SHOP}{RULES}"), &format!("{ORDERS}{TABLES}")).await;
    let orders = "insert into orders values (1, 'pending', now()), (2, 'pending', now() - interval '31 min'), \
        (3, 'pending', now() - interval '16 min'), (4, 'pending', now() - interval '2 h')";
    db.batch_execute(orders).await.unwrap();
    let next = |key: &str, words: &str| assert!(desk.next(key).contains(words), "{key}: {}", desk.next(key));
    let passes = async |sql: &str| db.batch_execute(&format!("delete from duebox.state; {sql}")).await.unwrap();
    let swept = |name: &str, at: &str, info: &str| {
        format!("insert into duebox.state (name, at, info) values ('sweep.{name}', now() - interval '{at}', '{info}');")
    };
    let all = |at: &str, info: &str| ["unpaid", "a-reminder", "old"].map(|name| swept(name, at, info)).concat();

    passes(&all("1 s", "{}")).await;
    next("1", "rule a-reminder is applied to the order after 2");
    next("1", "; but no relay listens now: does a relay run?");
    next("2", "overdue by rule unpaid, and nobody has closed it; no relay listens now: does a relay run?");
    next("3", "overdue by rule a-reminder, and the rule was not applied; no relay listens now");

    db.batch_execute("set application_name = 'duebox listen'").await.unwrap();
    next("1", "nothing to do: unless it leaves that status, rule a-reminder is applied to the order after 2");
    assert!(!desk.next("1").contains("; but"), "{}", desk.next("1"));
    next("2", "nothing to do: the sweep of rule unpaid closes the order within 6m of when it was overdue");
    next("3", "nothing to do: the sweep of rule a-reminder applies it within 1h 1m of when it was overdue");
    next("4", "overdue by rule unpaid, and nobody has closed it; its sweep runs: duebox status and the log say why");

    passes("").await;
    next("2", "its sweep has not run yet: does a relay run?");
    passes(&all("30 min", "{}")).await;
    next("2", "overdue by rule unpaid, and nobody has closed it; its sweep has not run for 30m: does a relay run?");
    next("3", "nothing to do: the sweep of rule a-reminder applies it");
    passes(&all("20 s", r#"{"by": "a relay"}"#)).await;
    next("2", "nothing to do: the sweep of rule unpaid closes");
    // Silent for so long, whoever had it is gone.
    passes(&all("30 min", r#"{"by": "a relay"}"#)).await;
    next("2", "its sweep has not run for 30m");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_a_function_has_closed_is_closed_and_left_alone_by_nobody() {
    let (desk, db) = Desk::shop("trace_function", &format!("{SHOP}{RULES}"), &format!("{ORDERS}{TABLES}")).await;
    db.batch_execute("insert into orders values (5, 'old', now() - interval '5 min')").await.unwrap();
    desk.says(&["trace", "5"], 0, &["rule old: the order in orders is old, overdue since", "it would be closed now"]);
    desk.says(&["sweep", "--once", "--rule", "old"], 0, &["order 5 closed: old is now gone"]);
    let text = desk.says(&["trace", "5"], 0, &["rule old: the order in orders is gone; closed by the sweep 2"]);
    assert!(text.contains("rule unpaid: the order in orders is gone; the rule leaves it alone: that status"), "{text}");
    // Its event waits, and nobody is there to take it.
    assert!(text.contains("goes when a relay runs; no relay listens now"), "{text}");
}
