//! The servers of a URL, tried in turn; the first that lets us in and takes writes is the one.
//!
//! The driver tries them in turn as well, but with one deadline on TCP alone: a server that accepts and says nothing,
//! as a primary with a hanging disk does, would keep it from the others for ever.

use crate::addresses;
use crate::outbox::error::{Error, READ_ONLY, describe};
use deadpool_postgres::{ConfigConnectImpl, Connect};
use std::error::Error as _;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// Where a password came from that the server does not take, and the cure.
const IN_URL: &str = "the password is the one in the URL; `duebox config show` says where that was set";
const BESIDE: &str = "the password is that of [postgres] password_file, or without one of the credential \
    postgres_password; either goes before one in the URL";
const NOWHERE: &str = "no password was given: it belongs into [postgres] password_file, the credential postgres_password, \
    or the URL";

/// How the driver begins to speak of a peer that does not talk as Postgres does.
const STRANGE: [&str; 4] = [
    "error communicating with the server",
    "unexpected message from server",
    "error parsing response from server",
    "connection closed",
];

/// One or more servers.
#[derive(Debug)]
pub(super) struct Hosts {
    each: Vec<Config>,
    limit: Duration,
    /// Which password is used, for whoever has to mend it.
    password: &'static str,
}

impl Hosts {
    /// Those of `config`; a connect to each may take `limit`.
    pub(super) fn of(config: &Config, limit: Duration) -> Result<Self, Error> {
        let (names, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let count = names.len().max(addresses.len());
        if count == 0 {
            return Err(Error::Url("names no server, such as postgres://duebox@db/shop".to_owned()));
        }
        let fits = |given: usize| given == 0 || given == count;
        if !fits(names.len()) || !fits(addresses.len()) || !(ports.len() <= 1 || fits(ports.len())) {
            return Err(Error::Url("hosts, addresses and ports are not equally many".to_owned()));
        }
        let port = |i: usize| ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let each = (0..count).map(|i| {
            let mut one = without_host(config);
            match names.get(i) {
                Some(Host::Tcp(name)) => drop(one.host(name)),
                Some(Host::Unix(folder)) => drop(one.host_path(folder)),
                None => {}
            }
            if let Some(address) = addresses.get(i) {
                one.hostaddr(*address);
            }
            one.port(port(i));
            one
        });
        let password = if config.get_password().is_some() { IN_URL } else { NOWHERE };
        Ok(Self { each: each.collect(), limit, password })
    }

    /// The same with a password that goes before one in the URL.
    pub(super) fn with_password_beside(self) -> Self {
        Self { password: BESIDE, ..self }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.each.len()).unwrap_or(u32::MAX)
    }

    /// The first that `connect` succeeds with; else what each of them said.
    pub(super) async fn first<T, F>(&self, connect: impl Fn(Config) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let mut said = Vec::new();
        for config in &self.each {
            let made = async {
                let each = addresses_of(config).await?;
                let made =
                    addresses::first(each, self.limit, |config, part| answer(part, connect(config), self.password));
                made.await.unwrap_or_else(|| Err("the name has no address".to_owned()))
            };
            match tokio::time::timeout(self.limit, made).await {
                Ok(Ok(made)) => return Ok(made),
                Ok(Err(error)) => said.push(format!("{}: {error}", place(config))),
                Err(_) => said.push(format!("{}: {}", place(config), silent(self.limit))),
            }
        }
        Err(said.join("; "))
    }
}

/// What one address says within `part`.
async fn answer<T>(
    part: Duration,
    connecting: impl Future<Output = Result<T, tokio_postgres::Error>>,
    password: &'static str,
) -> Result<T, String> {
    let answer = tokio::time::timeout(part, connecting).await.map_err(|_| silent(part))?;
    answer.map_err(|error| reason(&error, password))
}

fn silent(within: Duration) -> String {
    format!("no answer within {within:?}")
}

/// One server once for each address of its name. The driver resolves as well, but would give the first all the time.
async fn addresses_of(server: &Config) -> Result<Vec<Config>, String> {
    let (Some(Host::Tcp(name)), []) = (server.get_hosts().first(), server.get_hostaddrs()) else {
        return Ok(vec![server.clone()]);
    };
    // Resolved anew each time: a name may have moved. The port is in the configuration already.
    let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|error| error.to_string())?;
    Ok(found.map(|address| at(server, address.ip())).collect())
}

fn at(server: &Config, address: IpAddr) -> Config {
    let mut one = server.clone();
    one.hostaddr(address);
    one
}

/// Everything but the servers.
fn without_host(config: &Config) -> Config {
    let mut one = Config::new();
    let texts = [
        (config.get_user(), Config::user as fn(&mut Config, String) -> &mut Config),
        (config.get_dbname(), Config::dbname),
        (config.get_options(), Config::options),
        (config.get_application_name(), Config::application_name),
    ];
    for (text, set) in texts {
        if let Some(text) = text {
            set(&mut one, text.to_owned());
        }
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    one.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    one.channel_binding(config.get_channel_binding()).load_balance_hosts(config.get_load_balance_hosts());
    one.target_session_attrs(config.get_target_session_attrs());
    one
}

/// Which server, database and user, without secrets.
fn place(config: &Config) -> String {
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(folder)), _) => folder.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "?".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or_default();
    // Without a user in the URL the server is asked for the account's own name, without a database for the user's.
    let user = config.get_user().map_or_else(|| "of this account (none in the URL)".to_owned(), str::to_owned);
    let database = config.get_dbname().unwrap_or("of the same name");
    format!("at {host}:{port}, database {database}, user {user}")
}

/// Why one server was not to be had, with the cure where the driver or a pooler does not say it.
fn reason(error: &tokio_postgres::Error, password: &'static str) -> String {
    let said = describe(error);
    let refused = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    // The driver's own words: a socket without permission is of the same kind.
    if refused.is_some_and(|source| source.to_string() == "database does not allow writes") {
        return READ_ONLY.to_owned();
    }
    if error.as_db_error().is_some_and(|db| db.message().starts_with("unsupported startup parameter")) {
        return format!(
            "{said}; a pooler refuses it: take it out of the URL, or add it to the pooler's ignore_startup_parameters"
        );
    }
    if error.code() == Some(&SqlState::INVALID_PASSWORD) || said.ends_with("password missing") {
        return format!("{said}; {password}");
    }
    // The driver's own words for a peer that answers otherwise than Postgres does, or ends the connection.
    if STRANGE.iter().any(|words| said.starts_with(words)) {
        return format!(
            "{said}; does PostgreSQL listen there? another server, such as RabbitMQ, ends a connection like this"
        );
    }
    said
}

/// How the pool connects.
pub(super) struct Pooled {
    pub(super) hosts: Hosts,
    /// Why the last connect failed: the pool hands on only the driver's own error, and that of one server.
    pub(super) said: Arc<Mutex<String>>,
}

impl Connect for Pooled {
    fn connect(
        &self,
        _whole: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>> {
        Box::pin(async {
            let connect = async |config: Config| ConfigConnectImpl { tls: NoTls }.connect(&config).await;
            match self.hosts.first(connect).await {
                Ok(made) => Ok(made),
                Err(said) => {
                    *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
                    // Only the driver can make its error, and does for a configuration that names no server.
                    connect(Config::new()).await
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Result<Hosts, Error> {
        Hosts::of(&url.parse().unwrap(), Duration::from_secs(1))
    }

    #[test]
    fn a_server_keeps_everything_else_that_the_url_says() {
        let url = "postgres://u:p@h:6432/d?options=-cx%3D1&application_name=a&sslmode=disable&connect_timeout=3\
            &tcp_user_timeout=4&keepalives=0&keepalives_idle=5&keepalives_interval=6&keepalives_retries=7\
            &target_session_attrs=read-write&channel_binding=disable&load_balance_hosts=random&hostaddr=127.0.0.9";
        let config: Config = url.parse().unwrap();
        assert_eq!(hosts(url).unwrap().each, [config]);
    }

    #[test]
    fn each_server_has_its_own_port() {
        let places = |url| hosts(url).unwrap().each.iter().map(place).collect::<Vec<_>>();
        let shown = |host: &str| format!("at {host}, database d, user u");
        assert_eq!(places("postgres://u@a:1,b:2/d"), [shown("a:1"), shown("b:2")]);
        assert_eq!(places("postgres://u@a,b/d"), [shown("a:5432"), shown("b:5432")]);
        assert_eq!(places("host=/run/x,b port=7 user=u dbname=d"), [shown("/run/x:7"), shown("b:7")]);
        assert_eq!(places("hostaddr=127.0.0.1 user=u dbname=d"), [shown("127.0.0.1:5432")]);
    }

    #[tokio::test]
    async fn the_driver_is_given_one_address_at_a_time() {
        let seen = Mutex::new(Vec::new());
        let localhost = hosts("host=localhost user=u dbname=d").unwrap();
        let said = localhost.first(|config| {
            seen.lock().unwrap().push((config.get_hosts().len(), config.get_hostaddrs().to_vec()));
            async { Config::new().connect(NoTls).await }
        });
        assert!(said.await.is_err_and(|said| said.starts_with("at localhost:5432, database d, user u: ")));
        let seen = seen.into_inner().unwrap();
        assert!(
            !seen.is_empty() && seen.iter().all(|(names, addresses)| (*names, addresses.len()) == (1, 1)),
            "{seen:?}"
        );
    }

    #[test]
    fn a_url_without_a_server_or_with_odd_numbers_is_refused() {
        for (url, said) in [
            ("user=u", "names no server"),
            ("host=a,b port=1,2,3", "equally many"),
            ("host=a,b hostaddr=127.0.0.1", "equally many"),
        ] {
            assert!(hosts(url).is_err_and(|error| error.to_string().contains(said)), "{url}");
        }
    }
}
