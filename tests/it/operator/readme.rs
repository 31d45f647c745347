//! What the README shows of rules does what it says.

use super::Desk;

const README: &str = include_str!("../../../README.md");

/// The block of the README with this name.
fn block(name: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("{name}\n")).unwrap_or_else(|| panic!("README.md has no {name}"));
    rest.split_once("\n```").expect("the block ends").0
}

const CLOSE: &str = "\n[tier.events]\ntarget = { queue = \"events\" }\n[rule.close]\ntable = \"orders\"\nid = \"id\"\n\
    status = \"status\"\ndue = \"created_at\"\nfrom = [\"unpaid\"]\nto = \"closed\"\nafter = \"30m\"\n";

const TABLES: &str = "create table items (id bigint primary key, stock int not null); insert into items values (7, 10); \
    create table orders (id bigint primary key, item_id bigint, status text, created_at timestamptz, reminded_at timestamptz); \
    create index on orders (created_at); \
    insert into orders values (1, 7, 'unpaid', now() - interval '10 min'), (2, 7, 'unpaid', now() - interval '20 min'), \
    (3, 7, 'paid', now() - interval '40 min'), (4, 7, 'unpaid', now() - interval '40 min')";

#[tokio::test(flavor = "multi_thread")]
async fn the_reminder_reminds_once_and_the_trigger_brings_the_stock_back() {
    let toml = format!("{}{CLOSE}", block("```toml reminder"));
    let (desk, db) = Desk::shop("readme_rules", &toml, TABLES).await;
    let (role, trigger) = (&desk.role, block("```sql stock"));
    db.batch_execute(&format!("{trigger}; revoke all on items from {role}")).await.unwrap();
    desk.says(&["sweep", "--once", "--rule", "close"], 0, &["order 4 closed", "close: 1 closed"]);
    for applied in ["remind: applied to 1,", "remind: applied to 0,"] {
        desk.says(&["sweep", "--once", "--rule", "remind"], 0, &[applied]);
    }
    let reminded = "key = '2' and tier = 'events' and type = 'order.reminder'";
    assert_eq!((db.count(reminded).await, db.count("true").await), (1, 1));
    let stock = async || db.query_one("select stock from items", &[]).await.unwrap().get::<_, i32>(0);
    assert_eq!(stock().await, 11);

    // As the invoker the trigger needs the grant that the README names.
    db.batch_execute("alter function back_to_stock security invoker").await.unwrap();
    db.batch_execute("update orders set created_at = now() - interval '1 h' where id = 2").await.unwrap();
    desk.says(
        &["sweep", "--once", "--rule", "close"],
        1,
        &["order 2 could not be closed: ", "permission denied for table items"],
    );
    let grant = README.split('`').find(|code| code.starts_with("grant select, update on items")).unwrap();
    db.batch_execute(&grant.replace("to duebox", &format!("to {role}"))).await.unwrap();
    desk.says(&["sweep", "--once", "--rule", "close"], 0, &["order 2 closed"]);
    assert_eq!(stock().await, 12);
}
