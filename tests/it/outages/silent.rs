//! A server that lets us in and then says nothing: every wait has a bound of its own.

use crate::support::wait::secs;
use duebox::outbox::connect::{self, Settings};
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
    let pool = connect::pool(&settings, 1).unwrap();
    let counted = tokio::time::timeout(secs(20), count::backlog(&pool, &settings)).await;
    let error = counted.expect("there is a bound").unwrap_err();
    eprintln!("given up after {:?}: {error}", begun.elapsed());
    assert!(error.is_away() && error.to_string().contains("127.0.0.1"), "{error}");
    drop(pool);
    server.join().unwrap();
}
