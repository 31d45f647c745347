//! Each mode of the proxy, seen from both ends of a connection through it.

use crate::support::http;
use crate::support::proxy::{Mode, Proxy};
use crate::support::wait::{eventually, millis, secs};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// A listener, the proxy in front of it, and a way to get both ends of a connection.
struct Bench {
    listener: TcpListener,
    proxy: Proxy,
}

impl Bench {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::new(listener.local_addr().unwrap().port());
        Self { listener, proxy }
    }

    fn dial(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.proxy.port())).unwrap()
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        let client = self.dial();
        (client, self.listener.accept().unwrap().0)
    }

    /// Nobody has connected to the listener.
    fn untouched(&self) -> bool {
        self.listener.set_nonblocking(true).unwrap();
        let accepted = self.listener.accept();
        self.listener.set_nonblocking(false).unwrap();
        accepted.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[track_caller]
fn carries(mut from: &TcpStream, mut to: &TcpStream) {
    from.write_all(b"hello").unwrap();
    to.set_read_timeout(Some(secs(5))).unwrap();
    let mut got = [0; 5];
    to.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
}

/// Neither bytes nor an end for a while.
#[track_caller]
fn silent(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(millis(150))).unwrap();
    let read = stream.read(&mut [0; 16]);
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
}

#[track_caller]
fn is_reset(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(secs(5))).unwrap();
    let read = stream.read(&mut [0; 16]);
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

#[track_caller]
fn is_at_end(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(secs(5))).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
}

#[test]
fn pass_forwards_bytes_and_ends_of_stream() {
    let bench = Bench::new();
    let (client, server) = bench.pair();
    carries(&client, &server);
    carries(&server, &client);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    is_at_end(&server);
    carries(&server, &client);
    assert_eq!((bench.proxy.connections(), bench.proxy.accepted()), (1, 1));
    drop(server);
    is_at_end(&client);
    eventually("the count falls", secs(5), || bench.proxy.connections() == 0);
}

#[test]
fn black_hole_swallows_bytes_and_ends_of_stream() {
    let bench = Bench::new();
    let (mut client, mut server) = bench.pair();
    bench.proxy.set(Mode::BlackHole);
    client.write_all(b"lost").unwrap();
    server.write_all(b"lost").unwrap();
    silent(&client);
    drop(client);
    silent(&server);
    bench.proxy.set(Mode::Pass);
    is_at_end(&server);
}

#[test]
fn a_connection_opened_into_the_black_hole_hears_nothing() {
    let bench = Bench::new();
    bench.proxy.set(Mode::BlackHole);
    let (mut client, server) = bench.pair();
    client.write_all(b"lost").unwrap();
    silent(&server);
    bench.proxy.set(Mode::Pass);
    carries(&client, &server);
}

#[test]
fn dropping_one_way_leaves_the_other() {
    let bench = Bench::new();
    let (mut client, mut server) = bench.pair();
    bench.proxy.set(Mode::DropServerToClient);
    carries(&client, &server);
    server.write_all(b"lost").unwrap();
    silent(&client);
    bench.proxy.set(Mode::DropClientToServer);
    carries(&server, &client);
    client.write_all(b"lost").unwrap();
    silent(&server);
}

#[test]
fn freeze_accept_keeps_new_connections_waiting_and_old_ones_going() {
    let bench = Bench::new();
    let (client, server) = bench.pair();
    bench.proxy.set(Mode::FreezeAccept);
    let mut frozen = bench.dial();
    frozen.write_all(b"anybody?").unwrap();
    silent(&frozen);
    assert!(bench.untouched());
    carries(&client, &server);
    bench.proxy.set(Mode::Pass);
    silent(&frozen);
    assert!(bench.untouched());
    bench.proxy.set(Mode::Reset);
    is_reset(&frozen);
}

#[test]
fn reset_ends_old_and_new_connections_with_rst() {
    let bench = Bench::new();
    let (client, server) = bench.pair();
    bench.proxy.set(Mode::Reset);
    is_reset(&client);
    is_reset(&server);
    is_reset(&bench.dial());
    assert!(bench.untouched());
    bench.proxy.set(Mode::Pass);
    let (client, server) = bench.pair();
    carries(&client, &server);
}

#[test]
fn a_server_that_is_down_is_a_reset() {
    let Bench { listener, proxy } = Bench::new();
    drop(listener);
    is_reset(&TcpStream::connect(("127.0.0.1", proxy.port())).unwrap());
}

#[test]
fn delay_moves_traffic_later_and_does_not_throttle_it() {
    let bench = Bench::new();
    let (client, server) = bench.pair();
    bench.proxy.set(Mode::Delay(millis(200)));
    let begun = Instant::now();
    (&client).write_all(b"hello").unwrap();
    carries(&client, &server);
    assert!(begun.elapsed() >= millis(200));
    carries(&client, &server);
    let begun = Instant::now();
    for _ in 0..20 {
        (&server).write_all(b"x").unwrap();
        std::thread::yield_now();
    }
    client.set_read_timeout(Some(secs(5))).unwrap();
    (&client).read_exact(&mut [0; 20]).unwrap();
    assert!(begun.elapsed() >= millis(200));
    assert!(begun.elapsed() < millis(2000), "{:?}", begun.elapsed());
}

#[test]
fn cut_after_counts_the_clients_bytes_cuts_once_and_passes() {
    let bench = Bench::new();
    let (mut client, mut server) = bench.pair();
    bench.proxy.set(Mode::CutAfter(5));
    carries(&server, &client);
    client.write_all(b"abc").unwrap();
    server.read_exact(&mut [0; 3]).unwrap();
    client.write_all(b"defgh").unwrap();
    let mut got = [0; 2];
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"de");
    is_reset(&server);
    is_reset(&client);
    assert_eq!(bench.proxy.mode(), Mode::Pass);
    let (client, server) = bench.pair();
    carries(&client, &server);
}

#[test]
fn http_get_reads_status_and_body() {
    let bench = Bench::new();
    let port = bench.proxy.port();
    let client = std::thread::spawn(move || http::get(port, "/readyz").unwrap());
    let (mut server, _) = bench.listener.accept().unwrap();
    let mut request = [0; 64];
    let n = server.read(&mut request).unwrap();
    assert!(request[..n].starts_with(b"GET /readyz HTTP/1.0\r\n"));
    server.write_all(b"HTTP/1.0 503 Service Unavailable\r\ncontent-type: text/plain\r\n\r\nno broker\n").unwrap();
    drop(server);
    assert_eq!(client.join().unwrap(), (503, "no broker\n".to_owned()));
}
