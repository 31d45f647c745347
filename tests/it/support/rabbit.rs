//! A private RabbitMQ on loopback: one for all the tests, or one for a test that stops and kills it.

use super::epmd;
use super::process::{self, INSTALL, Process};
use super::run::{free_port, run};
use super::wait::eventually;
use nix::sys::signal::Signal;
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

pub(super) const ACCOUNT: &str = "rabbitmq";
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const CTL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";
const COOKIE: &str = "duebox-it";
/// The password of every user that the rig makes.
pub(crate) const PASSWORD: &str = "rig-secret";

/// Quiet schedulers (idle ones spin by default, which costs other tests their CPU), distribution on loopback only.
const ERL_ARGS: &str = "+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}";

/// One RabbitMQ node.
pub(crate) struct Rabbit {
    dir: PathBuf,
    port: u16,
    dist_port: u16,
    epmd_port: u16,
    shared: bool,
    process: Mutex<Option<Process>>,
}

impl Rabbit {
    /// The broker of all the tests, started at the first call.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Rabbit> = OnceLock::new();
        SHARED.get_or_init(|| Self::create(true))
    }

    /// A broker for one test, gone with the value.
    pub(crate) fn own() -> Self {
        Self::create(false)
    }

    fn create(shared: bool) -> Self {
        assert!(Path::new(SERVER).exists(), "RabbitMQ is missing: {INSTALL}");
        let epmd_port = epmd::port();
        let dir = run().folder("rabbitmq");
        let broker =
            Self { port: free_port(), dist_port: free_port(), epmd_port, shared, process: Mutex::new(None), dir };
        broker.write_files();
        broker.launch();
        broker
    }

    /// Its AMQP port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a vhost as its user; the rig gives both one name.
    pub(crate) fn url(&self, vhost: &str) -> String {
        format!("amqp://{vhost}:{PASSWORD}@127.0.0.1:{}/{vhost}", self.port)
    }

    /// The pid of the node; none when it does not run.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.slot().as_ref().map(Process::pid)
    }

    /// Makes a vhost, and a user of the same name with every right in it.
    #[track_caller]
    pub(crate) fn add_vhost(&self, name: &str) {
        self.eval(&format!(
            r#"rabbit_vhost:add(<<"{name}">>, <<"rig">>),
            rabbit_auth_backend_internal:add_user(<<"{name}">>, <<"{PASSWORD}">>, <<"rig">>),
            rabbit_auth_backend_internal:set_permissions(
                <<"{name}">>, <<"{name}">>, <<".*">>, <<".*">>, <<".*">>, <<"rig">>)"#
        ));
    }

    /// Deletes a vhost with its queues, and its user.
    #[track_caller]
    pub(crate) fn delete_vhost(&self, name: &str) {
        self.eval(&format!(
            r#"rabbit_vhost:delete(<<"{name}">>, <<"rig">>),
            rabbit_auth_backend_internal:delete_user(<<"{name}">>, <<"rig">>)"#
        ));
    }

    /// Evaluates Erlang expressions, without the last full stop, in the node and returns what they gave: in 4 ms,
    /// where `ctl` takes 800.
    #[track_caller]
    pub(crate) fn eval(&self, expressions: &str) -> String {
        let mut output = self.erl_call(expressions);
        // A busy node may refuse the handshake; nothing was evaluated then.
        eventually("the node lets us in", Duration::from_secs(20), || {
            let refused = String::from_utf8_lossy(&output.stderr).contains("failed to connect");
            if refused {
                output = self.erl_call(expressions);
            }
            !refused
        });
        let answer = String::from_utf8_lossy(&output.stdout);
        let value = answer.strip_prefix("{ok, ").and_then(|rest| rest.strip_suffix('}'));
        let Some(value) = value.filter(|_| output.status.success()) else {
            panic!("{expressions}: {answer}{}", String::from_utf8_lossy(&output.stderr));
        };
        value.to_owned()
    }

    fn erl_call(&self, expressions: &str) -> Output {
        let mut child = self
            .command(Path::new("/usr/bin/erl_call"))
            .args(["-sname", &self.node(), "-c", COOKIE, "-e"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It connects before it reads, so a refusal may close the pipe under us; its stderr says so.
        if let Err(error) = writeln!(child.stdin.take().unwrap(), "{expressions}.") {
            eprintln!("erl_call does not listen: {error}");
        }
        child.wait_with_output().unwrap()
    }

    /// Starts the management API on that port; only for a broker of one's own.
    #[track_caller]
    pub(crate) fn manage(&self, port: u16) {
        self.refuse_shared();
        let plugins = self.dir.join("plugins");
        fs::write(&plugins, "[rabbitmq_management].\n").unwrap();
        let ensure = format!(
            r#"application:set_env(rabbitmq_management, tcp_config, [{{port, {port}}}, {{ip, "127.0.0.1"}}], [{{persistent, true}}]),
            rabbit_plugins:ensure("{}")"#,
            plugins.display()
        );
        // A node that greets may not have come to the end of its start, and refuses.
        eventually("the node starts the plugin", Duration::from_secs(60), || {
            let answer = self.eval(&ensure);
            println!("{answer}");
            answer.starts_with("{ok")
        });
        eventually("the API answers", Duration::from_secs(60), || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Runs rabbitmqctl against this node and returns its output.
    #[track_caller]
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        let output = self.command(Path::new(CTL)).arg("-q").args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rabbitmqctl {args:?}: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Writes down what was declared so far. The broker does that within a second or so by itself; a quorum queue that
    /// is younger when `kill9` comes loses its messages, confirmed ones too (seen on 3.10).
    #[track_caller]
    pub(crate) fn sync(&self) {
        self.eval("[ok = dets:sync(Table) || Table <- dets:all()], mnesia:sync_log()");
    }

    /// Starts it again, on the same port with the same data, and waits until it answers.
    #[track_caller]
    pub(crate) fn start(&self) {
        self.refuse_shared();
        self.launch();
    }

    /// Orderly shutdown.
    #[track_caller]
    pub(crate) fn stop(&self) {
        self.end(Signal::SIGTERM);
    }

    /// SIGKILL, as in a power cut; the data stays.
    #[track_caller]
    pub(crate) fn kill9(&self) {
        self.end(Signal::SIGKILL);
    }

    /// `stop` and `start`.
    #[track_caller]
    pub(crate) fn restart(&self) {
        self.stop();
        self.start();
    }

    /// What the node wrote so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    #[track_caller]
    fn end(&self, signal: Signal) {
        self.refuse_shared();
        let mut process = self.slot().take().expect("RabbitMQ is running");
        process.signal(signal);
        let status = process.wait_exit(Duration::from_secs(60));
        assert!(status.is_some(), "RabbitMQ did not stop: {}", self.log());
    }

    fn launch(&self) {
        let mut slot = self.slot();
        assert!(slot.is_none(), "RabbitMQ is running already");
        let log = File::options().create(true).append(true).open(self.dir.join("server.log")).unwrap();
        let mut command = self.command(Path::new(SERVER));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        // KILL: nobody reads the data again, and an orderly shutdown takes seconds.
        let mut process = Process::spawn(&mut command, "KILL");
        eventually("RabbitMQ answers", Duration::from_secs(120), || {
            let gone = process.wait_exit(Duration::ZERO);
            assert!(gone.is_none(), "RabbitMQ ended: {}", self.log());
            greets(self.port).is_ok()
        });
        *slot = Some(process);
    }

    fn write_files(&self) {
        let dir = &self.dir;
        let settings = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\n\
             vm_memory_high_watermark.absolute = 2GiB\n\
             disk_free_limit.absolute = 50MB\n\
             raft.wal_max_size_bytes = 64000000\n\
             log.console = true\nlog.console.level = info\nlog.file = false\n",
            self.port
        );
        fs::write(dir.join("rabbitmq.conf"), settings).unwrap();
        fs::write(dir.join("plugins"), "[].\n").unwrap();
        fs::write(dir.join("env.conf"), "").unwrap();
        let cookie = dir.join(".erlang.cookie");
        fs::write(&cookie, COOKIE).unwrap();
        fs::set_permissions(&cookie, Permissions::from_mode(0o400)).unwrap();
        for path in [cookie.as_path(), dir] {
            process::give_to(ACCOUNT, path);
        }
    }

    /// A program of the broker's, in the environment that points it to this node.
    fn command(&self, program: &Path) -> Command {
        let mut command = process::command_as(ACCOUNT, program);
        let file = |name: &str| self.dir.join(name);
        command
            .envs([
                ("RABBITMQ_NODENAME", self.node()),
                ("RABBITMQ_NODE_PORT", self.port.to_string()),
                ("RABBITMQ_DIST_PORT", self.dist_port.to_string()),
                ("ERL_EPMD_PORT", self.epmd_port.to_string()),
            ])
            .envs([
                ("HOME", self.dir.clone()),
                ("RABBITMQ_MNESIA_BASE", file("mnesia")),
                ("RABBITMQ_LOG_BASE", file("log")),
                ("RABBITMQ_CONFIG_FILE", file("rabbitmq")),
                ("RABBITMQ_CONF_ENV_FILE", file("env.conf")),
                ("RABBITMQ_ENABLED_PLUGINS_FILE", file("plugins")),
                ("RABBITMQ_PID_FILE", file("pid")),
            ])
            .envs([
                ("ERL_EPMD_ADDRESS", "127.0.0.1"),
                ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERL_ARGS),
                ("RABBITMQ_CTL_ERL_ARGS", ERL_ARGS),
                // The tables of a million processes cost a second of each start.
                ("RABBITMQ_MAX_NUMBER_OF_PROCESSES", "65536"),
                // Makes the start script exec the node, so that the child's pid is the node's.
                ("RUNNING_UNDER_SYSTEMD", "true"),
            ]);
        command
    }

    fn node(&self) -> String {
        format!("duebox-{}@localhost", self.port)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap()
    }

    #[track_caller]
    fn refuse_shared(&self) {
        assert!(!self.shared, "this RabbitMQ serves every test: use Rig::private");
    }
}

/// Whether an AMQP server greets us; a listening port alone would not tell.
fn greets(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    stream.read_exact(&mut [0; 7])
}
