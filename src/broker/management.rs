//! The broker's management API: bindings, policies and stuck dead letters, which AMQP does not tell. Only asked by
//! `duebox check --connect`, never by a relay.

use super::error::{Error, within};
use crate::config::ManagementUrl;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode, client};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;

/// The longest answer that is read: one of thousands of bindings.
const LONGEST: usize = 16 << 20;

/// Where and as whom it is asked.
#[derive(Debug)]
pub struct Management {
    url: ManagementUrl,
    authorization: String,
    vhost: String,
    limit: Duration,
}

impl Management {
    /// `login` is that of AMQP, for a URL without one.
    #[must_use]
    pub fn new(url: &ManagementUrl, login: (&str, &SecretString), vhost: &str, limit: Duration) -> Self {
        let (user, password) = url.login.as_ref().map_or(login, |(user, password)| (user, password));
        let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.expose_secret())));
        Self { url: url.clone(), authorization, vhost: segment(vhost), limit }
    }

    /// A queue; none: there is no such queue.
    pub(super) async fn queue(&self, name: &str) -> Result<Option<Value>, Error> {
        self.get(&format!("/api/queues/{}/{}", self.vhost, segment(name))).await
    }

    /// An exchange; none: there is no such exchange.
    pub(super) async fn exchange(&self, name: &str) -> Result<Option<Value>, Error> {
        self.get(&format!("/api/exchanges/{}/{}", self.vhost, segment(name))).await
    }

    /// What is bound to an exchange.
    pub(super) async fn bindings(&self, exchange: &str) -> Result<Vec<Value>, Error> {
        let found = self.get(&format!("/api/exchanges/{}/{}/bindings/source", self.vhost, segment(exchange))).await?;
        Ok(found.and_then(|found| found.as_array().cloned()).unwrap_or_default())
    }

    /// A policy of queues and exchanges; only those who may set policies may read them.
    pub(super) async fn policy(&self, name: &str) -> Result<Option<Value>, Error> {
        self.get(&format!("/api/policies/{}/{}", self.vhost, segment(name))).await
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, Error> {
        let what = format!("ask {}{path}", self.url);
        let says = |text: String| Error::Network { what: what.clone(), source: std::io::Error::other(text) };
        within(&what, self.limit, async {
            let stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await;
            let stream = stream.map_err(|source| Error::Network { what: what.clone(), source })?;
            let http = |error: hyper::Error| says(format!("{error}; is this the management API?"));
            let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
            let request = Request::get(path)
                .header(HOST, format!("{}:{}", self.url.host, self.url.port))
                .header(AUTHORIZATION, &self.authorization)
                .body(Empty::<Bytes>::new())
                .map_err(|error| says(error.to_string()))?;
            let answer = async {
                let answer = sender.send_request(request).await.map_err(http)?;
                let status = answer.status();
                let body = Limited::new(answer.into_body(), LONGEST).collect().await;
                Ok((status, body.map_err(|error| says(error.to_string()))?.to_bytes()))
            };
            let mut connection = std::pin::pin!(connection);
            let (status, body) = tokio::select! {
                answer = answer => answer?,
                ended = &mut connection => {
                    return Err(says(format!("it ended the connection{}", ended.err().map(|e| format!(": {e}")).unwrap_or_default())));
                }
            };
            match status {
                StatusCode::OK => serde_json::from_slice(&body).map(Some).map_err(|error| says(error.to_string())),
                StatusCode::NOT_FOUND => Ok(None),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Err(says(format!("{status}; the user needs its password right, and the tag `monitoring` or `management`, and `policymaker` for policies")))
                }
                status => Err(says(status.to_string())),
            }
        })
        .await
    }
}

/// A name as one segment of a path.
fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment() {
        assert_eq!(segment("/"), "%2F");
        assert_eq!(segment("order.due-1 ä"), "order.due-1%20%C3%A4");
    }
}
