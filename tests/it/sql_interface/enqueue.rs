//! enqueue, as drivers call it and as attackers would.

use super::rig::{Database, allowed, one, refused, told};
use tokio_postgres::types::Type;
use uuid::Uuid;

const ID: &str = "00000000-0000-0000-0000-000000000001";

/// A JDBC driver declares each string as varchar and leaves the rest to casts in the statement.
#[tokio::test]
async fn enqueue_takes_varchar_and_text_parameters() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    let sql = "select duebox.enqueue($1, $2, $3, $4, $5::timestamptz, $6, $7, $8::uuid)";
    for kind in [Type::VARCHAR, Type::TEXT] {
        // The casts' own parameters are texts as well, read by the server.
        let sql = sql.replace("$5", "$5::text").replace("$8", "$8::text");
        let call = producer.prepare_typed(&sql, &vec![kind; 8]).await.unwrap();
        let id = Uuid::new_v4();
        let row = producer
            .query_one(
                &call,
                &[
                    &"order-30m",
                    &"4711",
                    &"order.created",
                    &r#"{"b": 1, "a": "ü"}"#,
                    &"2030-01-02 03:04:05+00",
                    &"orders.eu",
                    &r#"{"traceparent": "00-x"}"#,
                    &id.to_string(),
                ],
            )
            .await
            .unwrap();
        assert_eq!(row.get::<_, Uuid>(0), id);
        let written = format!(
            "select count(*) from outbox where message_id = '{id}' and tier = 'order-30m' and key = '4711'
             and type = 'order.created' and payload->>'a' = 'ü' and due_at = '2030-01-02 03:04:05+00'
             and routing_key = 'orders.eu' and headers->>'traceparent' = '00-x' and body is null
             and content_type = 'application/json' and attempts = 0 and available_at <= now()
             and num_nonnulls(sent_at, parked_at, cancelled_at, last_error) = 0"
        );
        assert_eq!(one::<i64>(&owner, &written).await, 1);
    }
}

#[tokio::test]
async fn four_parameters_are_enough_and_the_rest_can_be_named() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    let four = [Type::VARCHAR, Type::VARCHAR, Type::VARCHAR, Type::VARCHAR];
    let call = producer.prepare_typed("select duebox.enqueue($1, $2, $3, $4)", &four).await.unwrap();
    producer.query_one(&call, &[&"now", &None::<&str>, &None::<&str>, &"[1]"]).await.unwrap();
    allowed(&producer, "select duebox.enqueue(payload => '2', tier => 'now', key => 'k', type => 't')").await;
    let sql = "select count(*) from outbox where headers = '{}' and due_at is null and routing_key is null";
    assert_eq!(one::<i64>(&owner, sql).await, 2);
}

#[tokio::test]
async fn null_for_the_optional_parameters_means_their_defaults() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    let call = "select duebox.enqueue('now', 'k', 't', '{}', null, null, null, null)";
    let ids: [Uuid; 2] = [one(&producer, call).await, one(&producer, call).await];
    assert_ne!(ids[0], ids[1]);
    let sql =
        format!("select count(*) from outbox where message_id in ('{}', '{}') and headers = '{{}}'", ids[0], ids[1]);
    assert_eq!(one::<i64>(&owner, &sql).await, 2);
}

#[tokio::test]
async fn the_same_message_id_twice_is_one_row_while_that_row_exists() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    let call = format!("select duebox.enqueue('now', 'first', 't', '{{}}', message_id => '{ID}')::text");
    assert_eq!(one::<String>(&producer, &call).await, ID);
    assert_eq!(one::<String>(&producer, &call.replace("first", "second")).await, ID);
    assert_eq!(one::<String>(&owner, "select string_agg(key, ',') from outbox").await, "first");
    allowed(&owner, "delete from outbox").await;
    assert_eq!(one::<String>(&producer, &call.replace("first", "third")).await, ID);
    assert_eq!(one::<String>(&owner, "select string_agg(key, ',') from outbox").await, "third");
}

#[tokio::test]
async fn the_message_is_gone_with_the_order_that_was_rolled_back() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    allowed(&producer, "begin; select duebox.enqueue('now', 'k', 't', '{}'); rollback").await;
    assert_eq!(one::<i64>(&owner, "select count(*) from outbox").await, 0);
}

#[tokio::test]
async fn what_is_not_json_is_refused_as_such() {
    let database = Database::migrated().await;
    let producer = database.producer().await;
    for call in ["'now', 'k', 't', 'no json'", "'now', 'k', 't', '{}', headers => ''"] {
        let error = refused(&producer, &format!("select duebox.enqueue({call})")).await;
        assert!(told(&error).contains("invalid input syntax for type json"), "{}", told(&error));
    }
    let error = refused(&producer, "select duebox.enqueue('now', 'k', 't', null)").await;
    assert!(told(&error).contains("outbox_payload_or_body"), "{}", told(&error));
}

/// enqueue and cancel run as the owner, so whatever they look up by name must be ours.
#[tokio::test]
async fn tables_and_functions_of_the_caller_are_never_taken_for_ours() {
    let database = Database::migrated().await;
    let (admin, producer, owner) = (database.superuser().await, database.producer().await, database.owner().await);
    let trap = "as $$ begin raise exception 'the trap ran as %', current_user; end $$ language plpgsql";
    let role = database.producer.replace('"', "\"\"");
    allowed(&admin, &format!("create schema evil; grant all on schema evil to \"{role}\"")).await;
    allowed(
        &producer,
        &format!(
            "create temp table outbox (id bigint, tier text, key text, message_id uuid);
             create table evil.outbox (id bigint, tier text, key text, message_id uuid);
             create function evil.gen_random_uuid() returns uuid {trap};
             create function evil.now() returns timestamptz {trap};
             create function evil.pg_notify(text, text) returns void {trap};
             create function evil.concat(variadic text[]) returns text {trap};
             create function evil.equal(text, text) returns boolean {trap};
             create operator evil.= (leftarg = text, rightarg = text, function = evil.equal);
             create function evil.equal(uuid, uuid) returns boolean {trap};
             create operator evil.= (leftarg = uuid, rightarg = uuid, function = evil.equal);
             set search_path = evil, pg_temp, pg_catalog, duebox"
        ),
    )
    .await;
    // Null makes enqueue itself call gen_random_uuid.
    allowed(&producer, "select duebox.enqueue('now', 'a', 't', '{}', message_id => null)").await;
    allowed(&producer, &format!("select duebox.enqueue('now', 'b', 't', '{{}}', message_id => '{ID}')")).await;
    assert_eq!(one::<i64>(&owner, "select count(*) from duebox.outbox").await, 2);
    assert!(one::<bool>(&producer, "select duebox.cancel('now', 'a')").await);
    assert!(one::<bool>(&producer, &format!("select duebox.cancel('{ID}'::pg_catalog.uuid)")).await);
}
