//! The URL of the broker's management API.

use super::AmqpUrl;
use secrecy::SecretString;
use std::fmt;

/// Port of the management plugin.
const PORT: u16 = 15_672;

/// Where the management API is. `Display` leaves the password out.
#[derive(Debug, Clone)]
pub struct ManagementUrl {
    /// Host name or address.
    pub host: String,
    /// TCP port; 15672 unless given.
    pub port: u16,
    /// User and password, where they are not those of `rabbitmq.urls`.
    pub login: Option<(String, SecretString)>,
}

impl fmt::Display for ManagementUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = self.login.as_ref().map(|(user, _)| format!("{user}:***@")).unwrap_or_default();
        write!(f, "http://{login}{}:{}", self.host, self.port)
    }
}

impl ManagementUrl {
    /// Reads a URL; the error is the rule that was broken and never quotes the URL.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err("must start with http://: TLS comes with a later version".to_owned());
        }
        let such_as = || "must be a URL such as http://broker:15672".to_owned();
        let rest = text.strip_prefix("http://").ok_or_else(such_as)?.trim_end_matches('/');
        if rest.contains(['/', '?', '#']) {
            return Err(such_as());
        }
        // Login and address are written as in an AMQP URL.
        let url = AmqpUrl::parse(&format!("amqp://{rest}"))?;
        let (login, address) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self {
            host: url.host,
            port: if has_port { url.port } else { PORT },
            login: login.map(|_| (url.user, url.password)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    #[test]
    fn host_port_and_login_are_read_and_the_password_is_not_shown() {
        let url = ManagementUrl::parse("http://me:canary@broker:8080/").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.to_string().as_str()),
            ("broker", 8080, "http://me:***@broker:8080")
        );
        assert_eq!(url.login.unwrap().1.expose_secret(), "canary");
        let url = ManagementUrl::parse("http://broker").unwrap();
        assert_eq!((url.port, url.login.is_none()), (15_672, true));
        for wrong in ["https://broker", "broker:15672", "http://broker/api", ""] {
            assert!(ManagementUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
