//! Keys and statuses of every kind that shops have.

use super::shop::{self, Shop};
use duebox::rule::Closing;

/// A column type, with two values of it.
type Kind = (&'static str, &'static str, &'static str);

const IDS: [Kind; 5] = [
    ("bigint", "9223372036854775807", "2"),
    ("integer", "1", "2"),
    ("uuid", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    ("text", "it's \"one\" \\{,}", "NULL"),
    ("varchar(20)", "a,b", ""),
];

const STATUSES: [Kind; 6] = [
    ("text", "it's open", "closed"),
    ("varchar(10)", "open", "closed"),
    ("smallint", "1", "-1"),
    ("bigint", "10", "20"),
    ("\"Order State\"", "Open", "Clo'sed"),
    ("word", "open", "closed"),
];

#[tokio::test]
async fn ids_and_statuses_of_every_kind_are_compared_as_their_own_type() {
    let mut shop = Shop::empty("sweep_types").await;
    let types = "create schema \"My Shop\"; create type \"Order State\" as enum ('Open', 'Clo''sed'); \
        create domain word as text check (value <> '')";
    shop.db.batch_execute(types).await.unwrap();
    shop.rule.table = "\"My Shop\".\"Orders\"".into();
    (shop.rule.id, shop.rule.status, shop.rule.due) = ("The \"Id\"".into(), "select".into(), "Due At".into());
    for (id_type, one, two) in IDS {
        for (status_type, from, to) in STATUSES {
            let table = format!(
                "drop table if exists \"My Shop\".\"Orders\"; truncate duebox.outbox; create table \"My Shop\".\"Orders\" \
                 (\"The \"\"Id\"\"\" {id_type} primary key, \"select\" {status_type}, \"Due At\" timestamptz)"
            );
            shop.db.batch_execute(&table).await.unwrap();
            let index = "create index on \"My Shop\".\"Orders\" (\"Due At\") where \"select\" in ";
            let literals = format!("('{}', '{}')", from.replace('\'', "''"), from.replace('\'', "''"));
            shop.db.batch_execute(&format!("{index}{literals}")).await.unwrap();
            let insert = format!(
                "insert into \"My Shop\".\"Orders\" select i::text::{id_type}, $2::text::{status_type}, \
                 now() - interval '2 h' from unnest($1::text[]) i"
            );
            shop.db.execute(&insert, &[&vec![one, two], &from]).await.unwrap();
            (shop.rule.from, shop.rule.action) = (vec![from.to_owned()], shop::to(to));
            let what = format!("{id_type} and {status_type}");
            let findings = duebox::rule::inspect(&shop.connect(), "unpaid", &shop.rule).await.unwrap();
            assert_eq!((findings.problems, findings.notes), (vec![], vec![]), "{what}");
            // The closer one, the sweep the other.
            assert!(matches!(shop.one(one).await, Closing::Closed(closed) if closed.id == one), "{what}");
            assert_eq!(shop.pass().await, None, "{what}");
            let closed = format!("\"My Shop\".\"Orders\" where \"select\"::text = '{}'", to.replace('\'', "''"));
            assert_eq!(shop.count(&closed).await, 2, "{what}");
            let keys = "select array_agg(key order by key), array_agg(distinct payload ->> 'from') from duebox.outbox";
            let row = shop.db.query_one(keys, &[]).await.unwrap();
            let mut wanted = vec![one.to_owned(), two.to_owned()];
            wanted.sort();
            let mut keys: Vec<String> = row.get(0);
            keys.sort();
            assert_eq!((keys, row.get::<_, Vec<String>>(1)), (wanted, vec![from.to_owned()]), "{what}");
        }
    }
}
