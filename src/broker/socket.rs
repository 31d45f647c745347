//! A TCP connection that can be cut from outside.
//!
//! lapin connects without a handshake timeout, and writes nothing at all while the broker blocks the connection, its
//! own close included (measured). So the socket is ours: connected under our deadline, and shut down under the
//! client's feet when it must end now.

use super::error::{Error, within};
use super::link::Endpoint;
use crate::addresses;
use async_compat::Compat;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use secrecy::ExposeSecret;
use socket2::{SockRef, TcpKeepalive};
use std::net::{Shutdown, TcpStream as StdStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// A peer that vanished is noticed by the kernel after this much silence under unacknowledged data.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// A handle on the socket below a connection; dropped, it cuts the connection.
#[derive(Debug)]
pub(super) struct Cut(StdStream);

impl Cut {
    /// Cuts the connection.
    pub(super) fn now(&self) {
        // An error here says that the socket has been closed already, which is what is wanted.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.now();
    }
}

/// Connects to `endpoint`, everything included, within `limit`: to the first address of its name that lets us in.
pub(super) async fn connect(
    endpoint: &Endpoint,
    name: &str,
    heartbeat: Duration,
    limit: Duration,
) -> Result<(Connection, Cut), Error> {
    let what = format!("connect to RabbitMQ at {}:{}", endpoint.host, endpoint.port);
    within(&what, limit, async {
        let network = |source| Error::Network { what: what.clone(), source };
        // Resolved anew each time: a name may have moved.
        let found = lookup_host((endpoint.host.as_str(), endpoint.port)).await.map_err(network)?;
        let what = what.as_str();
        let made = addresses::first(found.collect(), limit, |address, part| {
            within(what, part, async move {
                let stream = TcpStream::connect(address).await.map_err(network)?;
                let (stream, cut) = tuned(stream).map_err(network)?;
                // Dropped by the deadline, `cut` ends lapin's thread, which would wait for the peer for ever.
                let connection = handshake(endpoint, name, heartbeat, stream).await.map_err(Error::handshake(what))?;
                Ok((connection, cut))
            })
        });
        made.await.unwrap_or_else(|| Err(network(std::io::Error::other("the name has no address"))))
    })
    .await
}

fn tuned(stream: TcpStream) -> std::io::Result<(TcpStream, Cut)> {
    let stream = stream.into_std()?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive.with_retries(3))?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    let cut = Cut(stream.try_clone()?);
    Ok((TcpStream::from_std(stream)?, cut))
}

async fn handshake(
    endpoint: &Endpoint,
    name: &str,
    heartbeat: Duration,
    stream: TcpStream,
) -> lapin::Result<Connection> {
    let mut uri = lapin::uri::AMQPUri { vhost: endpoint.vhost.clone(), ..lapin::uri::AMQPUri::default() };
    uri.authority.host.clone_from(&endpoint.host);
    uri.authority.port = endpoint.port;
    uri.authority.userinfo.username.clone_from(&endpoint.user);
    uri.authority.userinfo.password = endpoint.password.expose_secret().to_owned();
    uri.query.heartbeat = Some(u16::try_from(heartbeat.as_secs()).unwrap_or(u16::MAX));
    let properties = ConnectionProperties::default()
        .with_connection_name(name.into())
        .with_client_property("product".into(), "duebox".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
    // lapin may call this again only to reconnect, which is off.
    let once = Mutex::new(Some(stream));
    let hand_over = async move |_, _| {
        let stream = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or_else(|| std::io::Error::other("the connection is not made again below lapin"))?;
        Ok(AsyncTcpStream::Plain(Compat::new(stream)))
    };
    Connection::connector(uri, lapin::runtime::default_runtime()?, hand_over, properties).await
}
