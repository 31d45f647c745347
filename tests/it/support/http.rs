//! Just enough HTTP to ask the daemon.

use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// GET on loopback: the status and the body.
pub(crate) fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // 1.0, so that the answer ends with the connection and is never chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let odd = || Error::new(ErrorKind::InvalidData, answer.clone());
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(odd)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(odd)?;
    Ok((status, body.to_owned()))
}
