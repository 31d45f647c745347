//! AMQP URLs, read strictly.
//!
//! The client library's own reading turns `amqp://[::1]` into `localhost`, gives `amqp://user@h` the password `guest`,
//! takes `amqp://h/` for a vhost without a name, drops query keys it does not know, and prints the password.

use std::fmt;

use secrecy::SecretString;

/// One broker to connect to. `Display` and `Debug` leave the password out.
#[derive(Debug, Clone)]
pub struct AmqpUrl {
    /// Host name or address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port; 5672 unless given.
    pub port: u16,
    /// Virtual host; `/` unless given. `amqp://host/` means `/` as well: the specification reads a nameless vhost
    /// there, which nobody has.
    pub vhost: String,
    /// User; `guest` unless the URL names one.
    pub user: String,
    /// Password of the URL: `guest` when it names no user, empty when it names a user and no password.
    pub password: SecretString,
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = self.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        write!(f, "amqp://{}:***@{open}{}{close}:{}/", encode(&self.user), self.host, self.port)?;
        f.write_str(&encode(&self.vhost))
    }
}

impl AmqpUrl {
    /// Reads a URL; the error is the rule that was broken and never quotes the URL.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = after_scheme(text)?;
        if rest.contains('#') {
            return Err("must not contain '#': write %23 for one in a name or password".to_owned());
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        if let Some(query) = query {
            refuse_query(query)?;
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) =
            authority.rsplit_once('@').map_or((None, authority), |(login, address)| (Some(login), address));
        let (user, password) = read_login(login)?;
        let (host, port) = read_address(address)?;
        Ok(Self { host, port, vhost: read_vhost(path)?, user, password })
    }
}

/// What follows `amqp://`.
fn after_scheme(text: &str) -> Result<&str, String> {
    if text.starts_with("amqps://") {
        return Err("must start with amqp://: TLS comes with a later version".to_owned());
    }
    text.strip_prefix("amqp://")
        .ok_or_else(|| "must be an AMQP URL such as amqp://user:password@host:5672/vhost".to_owned())
}

/// No query key is taken: each has a key of its own in `[rabbitmq]`, and a dropped one (`verify`, `cacertfile`) would
/// promise what is not kept.
fn refuse_query(query: &str) -> Result<(), String> {
    let Some(pair) = query.split('&').find(|pair| !pair.is_empty()) else { return Ok(()) };
    let key = pair.split('=').next().unwrap_or_default();
    Err(match key {
        "heartbeat" => "takes no '?heartbeat': set rabbitmq.heartbeat".to_owned(),
        "connection_timeout" => "takes no '?connection_timeout': set rabbitmq.connect_timeout".to_owned(),
        // With an '@' it may be the rest of a password that holds a '?'.
        _ if !query.contains('@') => format!("takes no '?{key}'"),
        _ => "takes nothing after '?'".to_owned(),
    })
}

/// User and password of the part before `@`.
fn read_login(login: Option<&str>) -> Result<(String, SecretString), String> {
    let Some(login) = login else { return Ok(("guest".to_owned(), "guest".into())) };
    if login.contains('@') {
        return Err("must have one '@': write %40 for one in a user name or password".to_owned());
    }
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    if user.is_empty() {
        return Err("must name a user before '@'".to_owned());
    }
    Ok((decode(user, "user name")?, decode(password, "password")?.into()))
}

/// Host and port; an IPv6 address in brackets.
fn read_address(address: &str) -> Result<(String, u16), String> {
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("must close the '[' of an IPv6 address with ']'")?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| "must have an IPv6 address between '[' and ']'")?;
        match port {
            "" => (host, None),
            _ => (host, Some(port.strip_prefix(':').ok_or("must have ':port' or nothing after ']'")?)),
        }
    } else if address.matches(':').count() > 1 {
        return Err(
            "must have an IPv6 address in brackets, and '/', ':' and '@' of a password as %2F, %3A, %40".to_owned()
        );
    } else {
        address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port)))
    };
    let host = decode(host, "host")?;
    if host.is_empty() {
        return Err("must name a host".to_owned());
    }
    let Some(port) = port else { return Ok((host, 5672)) };
    match port.parse() {
        // A leading '+' parses as well, and 0 is "any port" only to whoever listens.
        Ok(number) if number > 0 && port.chars().all(|c| c.is_ascii_digit()) => Ok((host, number)),
        _ => {
            Err("must have a port from 1 to 65535 ('/', '?' and '@' of a password are written %2F, %3F and %40)"
                .to_owned())
        }
    }
}

/// The vhost of what follows the first `/`.
fn read_vhost(path: &str) -> Result<String, String> {
    if path.contains('/') {
        return Err("must have one '/' after the host: write %2F for one in the vhost, amqp://host/%2F for the \
                    vhost '/'"
            .to_owned());
    }
    match decode(path, "vhost")?.as_str() {
        "" => Ok("/".to_owned()),
        vhost if vhost.len() > 255 => Err("must have a vhost of at most 255 bytes".to_owned()),
        vhost => Ok(vhost.to_owned()),
    }
}

/// Percent-decoding that refuses what it cannot read.
fn decode(text: &str, what: &str) -> Result<String, String> {
    let broken = || format!("has a '%' in its {what} that two hexadecimal digits do not follow: write %25 for one");
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let digits = piece.get(..2).filter(|d| d.chars().all(|c| c.is_ascii_hexdigit())).ok_or_else(broken)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| broken())?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| format!("must have a {what} in UTF-8"))
}

/// Percent-encoding of all but the unreserved characters.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn parts(text: &str) -> (String, u16, String, String, String) {
        let url = AmqpUrl::parse(text).unwrap();
        (url.host, url.port, url.vhost, url.user, url.password.expose_secret().to_owned())
    }

    #[test]
    fn urls_are_read_as_their_writers_mean_them() {
        for (text, host, port, vhost, user, password) in [
            ("amqp://h", "h", 5672, "/", "guest", "guest"),
            ("amqp://h/", "h", 5672, "/", "guest", "guest"),
            ("amqp://h/%2F", "h", 5672, "/", "guest", "guest"),
            ("amqp://[::1]:5673/shop", "::1", 5673, "shop", "guest", "guest"),
            ("amqp://[::1]", "::1", 5672, "/", "guest", "guest"),
            ("amqp://user@h", "h", 5672, "/", "user", ""),
            ("amqp://u%40x:p%2F%3A%25@h:1/a%20b", "h", 1, "a b", "u@x", "p/:%"),
            ("amqp://u:p:q@h", "h", 5672, "/", "u", "p:q"),
            ("amqp://h:65535?", "h", 65535, "/", "guest", "guest"),
        ] {
            let expected = (host.into(), port, vhost.into(), user.into(), password.into());
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_unclear_is_refused_with_the_cure_and_without_the_url() {
        for (text, answer) in [
            ("amqps://canary@h", "later version"),
            ("http://canary", "must be an AMQP URL"),
            ("amqp://", "name a host"),
            ("amqp://u:canary@", "name a host"),
            ("amqp://:canary@h", "name a user"),
            ("amqp://u:can@ary@h", "%40"),
            ("amqp://u:can/ary@h", "port from 1"),
            ("amqp://u:can#ary@h", "%23"),
            ("amqp://u:canary%zz@h", "%25"),
            ("amqp://u:canary%ff@h", "UTF-8"),
            ("amqp://h:0", "port from 1"),
            ("amqp://h:65536", "port from 1"),
            ("amqp://h:+1", "port from 1"),
            ("amqp://::1", "in brackets"),
            ("amqp://[::1", "close the '['"),
            ("amqp://[h]", "IPv6 address between"),
            ("amqp://[::1]1", "after ']'"),
            ("amqp://h//", "amqp://host/%2F"),
            ("amqp://h?heartbeat=5", "rabbitmq.heartbeat"),
            ("amqp://u:p?canary&x@h", "nothing after '?'"),
            ("amqp://h/v?verify=verify_peer", "'?verify'"),
        ] {
            let error = AmqpUrl::parse(text).unwrap_err();
            assert!(error.contains(answer) && !error.contains("canary"), "{text}: {error}");
        }
    }

    #[test]
    fn neither_display_nor_debug_shows_the_password() {
        let url = AmqpUrl::parse("amqp://u%40x:canary@[::1]:5673/a%2Fb").unwrap();
        assert_eq!(url.to_string(), "amqp://u%40x:***@[::1]:5673/a%2Fb");
        assert!(!format!("{url:?}").contains("canary"));
    }
}
