//! A TCP fault proxy on loopback in front of one server, with modes switched at run time.
//!
//! It runs on a thread and runtime of its own, so that a test that blocks its own does not hold the traffic up.

use socket2::SockRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What happens to the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forward.
    Pass,
    /// Swallow both ways, ends of stream included: no FIN, no RST. What was swallowed does not come back.
    BlackHole,
    /// The connections there are stay black holes for good, whatever comes after; new ones are forwarded. What a
    /// firewall does that has lost its memory, or an address that has moved.
    Forget,
    /// The client's bytes arrive, the server's vanish: the ack is lost.
    DropServerToClient,
    /// The server's bytes arrive, the client's vanish.
    DropClientToServer,
    /// New connections are accepted and never served, also when the mode changes; those there are go on.
    FreezeAccept,
    /// RST for every connection there is and every new one.
    Reset,
    /// Forward everything this much later.
    Delay(Duration),
    /// Forward this many more bytes from clients, RST the connection that used them up, then Pass.
    CutAfter(usize),
}

/// One proxy. Dropping it closes everything.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    upstream: u16,
    mode: watch::Sender<Mode>,
    stopped: watch::Sender<bool>,
    budget: AtomicUsize,
    open: AtomicUsize,
    accepted: AtomicUsize,
}

impl Proxy {
    /// In front of a port on loopback.
    pub(crate) fn new(upstream: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared {
            upstream,
            mode: watch::Sender::new(Mode::Pass),
            stopped: watch::Sender::new(false),
            budget: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let inside = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(listener, &inside));
        Self { port, shared, thread: Some(thread) }
    }

    /// Where clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Switches the mode, for the connections there are as well.
    pub(crate) fn set(&self, mode: Mode) {
        if let Mode::CutAfter(bytes) = mode {
            self.shared.budget.store(bytes, Ordering::SeqCst);
        }
        self.shared.mode.send_replace(mode);
    }

    /// The mode now; `CutAfter` turns into `Pass` by itself.
    pub(crate) fn mode(&self) -> Mode {
        self.shared.mode()
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many connections were ever accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the proxy of port {} panicked", self.port);
        }
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Resolves when what is connected now is forgotten: at the next switch to that mode.
    async fn forgotten(&self) {
        let mut mode = self.mode.subscribe();
        while mode.changed().await.is_ok() {
            if *mode.borrow_and_update() == Mode::Forget {
                return;
            }
        }
    }

    /// Resolves when the mode satisfies `wanted`, at once if it does.
    async fn until(&self, wanted: impl Fn(Mode) -> bool) {
        let changed = self.mode.subscribe().wait_for(|mode| wanted(*mode)).await.is_ok();
        assert!(changed, "the sender lives in self");
    }
}

fn serve(listener: std::net::TcpListener, shared: &Arc<Shared>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).unwrap();
        let mut stopped = shared.stopped.subscribe();
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (client, _) = accepted.unwrap();
                    shared.accepted.fetch_add(1, Ordering::SeqCst);
                    tasks.spawn(connection(client, Arc::clone(shared)));
                }
                Some(ended) = tasks.join_next() => ended.unwrap(),
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
        }
    });
}

async fn connection(client: TcpStream, shared: Arc<Shared>) {
    shared.open.fetch_add(1, Ordering::SeqCst);
    serve_one(client, &shared).await;
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

async fn serve_one(mut client: TcpStream, shared: &Shared) {
    if shared.mode() == Mode::FreezeAccept {
        shared.until(|mode| mode == Mode::Reset).await;
    }
    if shared.mode() == Mode::Reset {
        return reset(client);
    }
    // A server that is down refuses, and so does its proxy.
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", shared.upstream)).await else {
        return reset(client);
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let broken = tokio::select! {
        () = shared.until(|mode| mode == Mode::Reset) => true,
        () = shared.forgotten() => return std::future::pending().await,
        ends = async { tokio::try_join!(
            pump(from_client, to_server, Way::ToServer, shared),
            pump(from_server, to_client, Way::ToClient, shared),
        ) } => ends.is_err(),
    };
    if broken {
        reset(client);
        reset(server);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// The connection ends with RST on both sides.
struct Broken;

struct Chunk {
    bytes: Vec<u8>,
    due: Instant,
    last: bool,
}

/// Carries one direction to its end. Reading and writing are apart, so that a delay is a delay and not a throttle.
async fn pump(from: ReadHalf<'_>, to: WriteHalf<'_>, way: Way, shared: &Shared) -> Result<(), Broken> {
    let (sender, receiver) = mpsc::channel(256);
    let ((), ()) = tokio::try_join!(read(from, sender, way, shared), write(to, receiver))?;
    Ok(())
}

async fn read(mut from: ReadHalf<'_>, to: mpsc::Sender<Chunk>, way: Way, shared: &Shared) -> Result<(), Broken> {
    loop {
        let mut bytes = vec![0; 16 * 1024];
        let read = from.read(&mut bytes).await;
        if !matches!(read, Ok(1..)) {
            // The end of a stream is swallowed like its bytes.
            shared.until(|mode| !mode.swallows(way)).await;
        }
        match read {
            Ok(0) => return Ok(()),
            Ok(n) => bytes.truncate(n),
            Err(_) => return Err(Broken),
        }
        if shared.mode().swallows(way) {
            continue;
        }
        let chunk = shared.chunk(bytes, way);
        if to.send(chunk).await.is_err() {
            return Err(Broken);
        }
    }
}

async fn write(mut to: WriteHalf<'_>, mut chunks: mpsc::Receiver<Chunk>) -> Result<(), Broken> {
    while let Some(chunk) = chunks.recv().await {
        tokio::time::sleep_until(chunk.due).await;
        if to.write_all(&chunk.bytes).await.is_err() || chunk.last {
            return Err(Broken);
        }
    }
    to.shutdown().await.map_err(|_| Broken)
}

impl Mode {
    fn swallows(self, way: Way) -> bool {
        match self {
            Self::BlackHole => true,
            Self::DropServerToClient => way == Way::ToClient,
            Self::DropClientToServer => way == Way::ToServer,
            Self::Pass | Self::Forget | Self::FreezeAccept | Self::Reset | Self::Delay(_) | Self::CutAfter(_) => false,
        }
    }
}

impl Shared {
    /// What is to be written of the bytes just read, and when.
    fn chunk(&self, mut bytes: Vec<u8>, way: Way) -> Chunk {
        let mode = self.mode();
        let mut due = Instant::now();
        if let Mode::Delay(delay) = mode {
            due += delay;
        }
        let counted = matches!(mode, Mode::CutAfter(_)) && way == Way::ToServer;
        let left = self.budget.load(Ordering::SeqCst);
        let last = counted && bytes.len() >= left;
        if last {
            bytes.truncate(left);
            self.mode.send_replace(Mode::Pass);
        } else if counted {
            self.budget.store(left - bytes.len(), Ordering::SeqCst);
        }
        Chunk { bytes, due, last }
    }
}

fn reset(stream: TcpStream) {
    // A failure means that the peer was quicker; either way the connection is gone with the value.
    if let Err(error) = SockRef::from(&stream).set_linger(Some(Duration::ZERO)) {
        eprintln!("linger: {error}");
    }
    drop(stream);
}
