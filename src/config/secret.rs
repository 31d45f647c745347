//! Secrets: how they are masked, and how passwords are read from files.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// Why a password could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The file cannot be read.
    #[error("cannot read the password file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is there and holds nothing.
    #[error("the password file {} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The password of `file`, else of the systemd credential `name`, else none.
///
/// Read at start.
pub(crate) fn read_password(file: Option<&Path>, name: &str) -> Result<Option<SecretString>, PasswordError> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    read_password_from(file, credentials.as_deref(), name)
}

/// [`read_password`] with the credentials directory as an argument.
fn read_password_from(
    file: Option<&Path>,
    credentials: Option<&Path>,
    name: &str,
) -> Result<Option<SecretString>, PasswordError> {
    let credential = credentials.map(|directory| directory.join(name)).filter(|path| path.exists());
    let Some(path) = file.map(Path::to_owned).or(credential) else { return Ok(None) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(PasswordError::Read { path, source }),
    };
    // Only the newline that editors add: a space at the end may be part of the password.
    let password = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if password.is_empty() { Err(PasswordError::Empty { path }) } else { Ok(Some(password.into())) }
}

/// A URL without its secrets; when in doubt, nothing of it.
pub(crate) fn mask_url(text: &str) -> String {
    let masked = || "***".to_owned();
    let Some((scheme, rest)) = text.split_once("://") else { return masked() };
    // The last '@' of all, because a password may hold '/', '?' and '@' by mistake.
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let (address, query) = rest.split_once('?').map_or((rest, None), |(address, query)| (address, Some(query)));
    let hosts = address.split('/').next().unwrap_or_default();
    let plain_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) => (host.starts_with('[') && host.ends_with(']')) || port.chars().all(|c| c.is_ascii_digit()),
        None => true,
    };
    if !hosts.split(',').all(plain_port) {
        return masked();
    }
    let user = login.map(|login| login.split(':').next().unwrap_or_default());
    let user = user.map(|user| if user.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') { user } else { "***" });
    let password = if login.is_some_and(|login| login.contains(':')) { ":***" } else { "" };
    let login = user.map(|user| format!("{user}{password}@")).unwrap_or_default();
    let query = query.map(mask_query).unwrap_or_default();
    format!("{scheme}://{login}{address}{query}")
}

/// Query keys of a Postgres URL whose values are no secrets.
const OPEN_QUERY_KEYS: [&str; 9] = [
    "sslmode",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "application_name",
    "connect_timeout",
    "target_session_attrs",
];

/// The query with the values of all other keys masked.
fn mask_query(query: &str) -> String {
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if OPEN_QUERY_KEYS.contains(&key) => pair.to_owned(),
        Some((key, _)) if key.chars().all(|c| c.is_ascii_lowercase() || c == '_') => format!("{key}=***"),
        _ => "***".to_owned(),
    });
    format!("?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    #[test]
    fn a_masked_url_tells_where_but_not_the_secret() {
        for (url, shown) in [
            ("postgres://app:canary@db:5432/shop?sslmode=disable", "postgres://app:***@db:5432/shop?sslmode=disable"),
            ("postgresql://app@db1,db2:5433/shop", "postgresql://app@db1,db2:5433/shop"),
            ("postgres://[::1]:5432/shop", "postgres://[::1]:5432/shop"),
            ("postgres://[::1]/shop", "postgres://[::1]/shop"),
            ("postgres://app:can/ary@db/shop", "postgres://app:***@db/shop"),
            ("postgres://app:can@ary@db/shop", "postgres://app:***@db/shop"),
            ("postgres://app:canary", "***"),
            ("postgres://app:canary/shop", "***"),
            ("postgres://db/shop?password=canary&host=/run", "postgres://db/shop?password=***&host=/run"),
            ("postgres://db/shop?canary", "postgres://db/shop?***"),
            ("host=db password=canary", "***"),
            ("canary", "***"),
        ] {
            assert_eq!(mask_url(url), shown, "{url}");
        }
    }

    #[test]
    fn a_password_file_goes_before_the_credential() {
        let directory = tempdir();
        let (file, credential) = (directory.join("pw"), directory.join("postgres_password"));
        std::fs::write(&credential, "from systemd\r\n").unwrap();
        let read = |file: Option<&Path>| {
            let found = read_password_from(file, Some(&directory), "postgres_password").unwrap();
            found.map(|secret| secret.expose_secret().to_owned())
        };
        assert_eq!(read(None).as_deref(), Some("from systemd"));
        std::fs::write(&file, " two spaces  \n\n").unwrap();
        assert_eq!(read(Some(&file)).as_deref(), Some(" two spaces  \n"), "only the last newline goes");
        assert!(read_password_from(None, Some(&directory), "amqp_password").unwrap().is_none());
        assert!(read_password_from(None, None, "postgres_password").unwrap().is_none());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_password_file_that_gives_none_is_an_error_naming_it() {
        let directory = tempdir();
        let file = directory.join("pw");
        let error = read_password_from(Some(&file), None, "x").unwrap_err();
        assert!(matches!(error, PasswordError::Read { .. }) && error.to_string().contains("/pw"), "{error}");
        std::fs::write(&file, "\n").unwrap();
        let error = read_password_from(Some(&file), None, "x").unwrap_err();
        assert!(matches!(error, PasswordError::Empty { .. }) && error.to_string().contains("/pw"), "{error}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    fn tempdir() -> PathBuf {
        let path = std::env::temp_dir().join(format!("duebox-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&path).unwrap();
        path
    }
}
