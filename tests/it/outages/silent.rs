//! A server that lets us in and then says nothing: every wait has a bound of its own.

use crate::support::proxy::{Mode, Proxy};
use crate::support::rig::Rig;
use crate::support::wait::secs;
use duebox::outbox::connect::{Db, Settings};
use duebox::outbox::count;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Instant;

/// Authentication is done, and the session is ready for a statement.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_does_not_wait_for_ever_for_the_first_statement_of_a_session() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://anybody@127.0.0.1:{}/any", listener.local_addr().unwrap().port());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(WELCOME).unwrap();
        // Until the client has had enough.
        while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
    });
    let settings = Settings {
        url: url.into(),
        password: None,
        schema: "duebox".into(),
        connect_timeout: secs(1),
        statement_timeout: secs(1),
    };
    let begun = Instant::now();
    let db = Db::new(settings, 1).unwrap();
    let counted = tokio::time::timeout(secs(20), count::backlog(&db)).await;
    let error = counted.expect("there is a bound").unwrap_err();
    eprintln!("given up after {:?}: {error}", begun.elapsed());
    assert!(error.is_away() && error.to_string().contains("127.0.0.1"), "{error}");
    drop(db);
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_that_does_not_answer_condemns_the_others_of_the_pool() {
    let rig = Rig::new("condemned");
    rig.migrate(&[]);
    let proxy = Proxy::new(rig.postgres().port());
    let settings = Settings {
        url: format!("postgres://{0}@127.0.0.1:{1}/{0}", rig.name(), proxy.port()).into(),
        password: None,
        schema: "duebox".into(),
        connect_timeout: secs(10),
        statement_timeout: secs(1),
    };
    let db = Db::new(settings, 6).unwrap();
    let count = async || count::backlog(&db).await;
    // Until several are in the pool at once.
    while proxy.connections() < 4 {
        for counted in futures_util::future::join_all((0..6).map(|_| count())).await {
            counted.unwrap();
        }
    }
    proxy.set(Mode::Forget);
    assert!(count().await.unwrap_err().is_away());
    count().await.expect("the next one is on a new connection");
}
