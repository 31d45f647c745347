//! Connections to the HTTP side, few and not for ever: readers that go silent must not take the descriptors that the
//! relay needs to connect again.

use axum::serve::Listener;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// Connections at a time; one more ends the oldest of them.
const CONNECTIONS: usize = 64;

/// How long one may go without a byte in either direction.
const SILENCE: Duration = Duration::from_secs(30);

/// A listener that keeps so many.
#[derive(Debug)]
pub(super) struct Few {
    listener: TcpListener,
    /// One for each connection, oldest first; cancelled with its end, or to end it.
    open: VecDeque<CancellationToken>,
}

impl Few {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, open: VecDeque::new() }
    }
}

impl Listener for Few {
    type Io = Watched;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Watched, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.listener).await;
        self.open.retain(|open| !open.is_cancelled());
        if self.open.len() >= CONNECTIONS
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.cancel();
        }
        let token = CancellationToken::new();
        self.open.push_back(token.clone());
        let (silence, over) = (Box::pin(tokio::time::sleep(SILENCE)), Box::pin(token.clone().cancelled_owned()));
        (Watched { stream, silence, over, _end: token.drop_guard() }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when it has been silent for too long, or has to make room.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    _end: DropGuard,
}

impl Watched {
    /// Passes on what became of a read or a write.
    fn watch<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.silence.as_mut().reset(Instant::now() + SILENCE);
            return progress;
        }
        if self.silence.as_mut().poll(cx).is_ready() || self.over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch(cx, progress)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, progress)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
