//! Requests the metrics of a process.

use super::model::Snapshot;
use crate::timed_stream::TimedStream;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of an answer, more than Kiln ever sends.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Parses a source of metrics: `HOST:PORT`, a port, the printed URL `http://HOST:PORT/metrics`, or `file:PATH`.
pub(super) fn parse_address(text: &str) -> Result<String, String> {
    if text.strip_prefix("file:").is_some_and(|path| !path.is_empty()) {
        return Ok(text.to_string());
    }
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix("/metrics").or(bare.strip_suffix('/')).unwrap_or(bare);
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port != 0);
    match bare.rsplit_once(':') {
        None if is_port(bare) => Ok(format!("127.0.0.1:{bare}")),
        Some(("", port)) if is_port(port) => Ok(format!("127.0.0.1:{port}")),
        Some((_, port)) if is_port(port) => Ok(bare.to_string()),
        _ => Err(format!("expected an address such as `127.0.0.1:9464`, found `{text}`")),
    }
}

/// Returns the current metrics at this address or in this file.
pub(super) fn scrape(address: &str) -> Result<Snapshot, String> {
    let found = match address.strip_prefix("file:") {
        Some(path) => File::open(path).and_then(read_all),
        None => fetch(address),
    };
    let answer = found.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("nothing answers at {address}"),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer from {address} within the timeout"),
        _ => format!("cannot query {address}: {error}"),
    })?;
    let body = if address.starts_with("file:") { Ok(&answer[..]) } else { body(&answer) };
    let body = body.map_err(|fault| format!("{address}: {fault}"))?;
    Snapshot::parse(body).ok_or_else(|| format!("{address}: expected metrics of Kiln as JSON, found other data"))
}

fn fetch(address: &str) -> io::Result<String> {
    let mut fault = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for resolved in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&resolved, TIMEOUT) {
            Ok(mut stream) => {
                stream.set_write_timeout(Some(TIMEOUT))?;
                write!(stream, "GET /metrics.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
                return read_all(TimedStream::new(stream, TIMEOUT));
            }
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

fn read_all(source: impl Read) -> io::Result<String> {
    let mut answer = Vec::new();
    // The address may belong to any program, which could send bytes without an end.
    if source.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)? as u64 == MAX_ANSWER_BYTES {
        return Err(io::Error::other("the response is too long"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the body of a complete HTTP answer.
fn body(answer: &str) -> Result<&str, String> {
    let Some((head, body)) = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.")) else {
        return Err("expected an HTTP response, found other data".to_string());
    };
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split_ascii_whitespace().nth(1)).unwrap_or_default();
    if status != "200" {
        return Err(format!("expected status 200, found {status}"));
    }
    let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
    let length = lines.filter_map(|line| line.split_once(':')).find(|(name, _)| is_length(name));
    let length = length.and_then(|(_, value)| value.trim().parse::<usize>().ok());
    match length {
        // Lossy decoding can only lengthen the body; Kiln's answers are valid UTF-8.
        Some(length) if body.len() < length => Err(format!("expected {length} bytes, found {}", body.len())),
        _ => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_several_spellings() {
        for text in ["127.0.0.1:9464", "9464", ":9464", "http://127.0.0.1:9464/metrics", "http://127.0.0.1:9464/"] {
            assert_eq!(parse_address(text), Ok("127.0.0.1:9464".to_string()), "{text}");
        }
        assert_eq!(parse_address("localhost:80"), Ok("localhost:80".to_string()));
        assert_eq!(parse_address("[::1]:80"), Ok("[::1]:80".to_string()));
        assert_eq!(parse_address("file:a b.json"), Ok("file:a b.json".to_string()));
        for text in ["", "localhost", "127.0.0.1:", "127.0.0.1:0", "99999", "https://a:1/b", "file:"] {
            assert!(parse_address(text).unwrap_err().contains("expected an address"), "{text}");
        }
    }

    #[test]
    fn invalid_or_truncated_answers_are_errors() {
        let table = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n", Ok("a 1\n")),
            ("HTTP/1.0 200 OK\r\n\r\na 1\n", Ok("a 1\n")),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na 1\n", Err("expected 9 bytes, found 4")),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Err("expected status 200, found 404")),
            ("SSH-2.0-OpenSSH\r\n\r\n", Err("expected an HTTP response, found other data")),
            ("", Err("expected an HTTP response, found other data")),
        ];
        for (answer, expected) in table {
            assert_eq!(body(answer), expected.map_err(str::to_string), "{answer}");
        }
    }
}
