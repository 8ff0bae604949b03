//! Serves metrics over HTTP to programs on this machine: Prometheus text at `/metrics`, JSON at `/metrics.json`.
//!
//! Written by hand because `tiny_http` 0.12 keeps a thread for each silent client, without a limit and forever, and reads headers of any
//! length: it fails the tests `clients_that_stall_do_not_block_others` and `other_requests_are_refused`. Servers on `hyper` need an async runtime.

use crate::timed_stream::TimedStream;
use kiln::metrics::Watch;
use kiln::{Error, ErrorKind, Result};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Maximum length of a request.
const MAX_REQUEST_BYTES: u64 = 8 << 10;

/// Total time limit of a client.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum concurrent clients. Further ones are disconnected, which bounds the number of threads.
const MAX_CLIENTS: usize = 16;

/// Serves the metrics of `watch` until the process ends. Returns the address, with the port that the system chose for port 0.
///
/// # Errors
/// Returns `InvalidArgument` if the address is not a loopback address, or `Io` if the system refuses the address or the thread.
pub(super) fn start(address: SocketAddr, watch: Watch) -> Result<SocketAddr> {
    // There is no authentication, so other machines must not reach the server.
    if !address.ip().is_loopback() {
        let message =
            format!("metrics expected a loopback address such as 127.0.0.1:{}, found {address}", address.port());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let fault = |error: io::Error| {
        Error::new(ErrorKind::Io, format!("cannot serve metrics at {address}: {error}")).with_source(error)
    };
    let listener = TcpListener::bind(address).map_err(fault)?;
    let bound = listener.local_addr().map_err(fault)?;
    let thread = thread::Builder::new().name("kiln-metrics".to_string());
    thread.spawn(move || serve(&listener, &watch)).map_err(fault)?;
    Ok(bound)
}

fn serve(listener: &TcpListener, watch: &Watch) {
    // Each client holds a clone while it is served.
    let clients = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of file descriptors, for example: retried without busy-waiting.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        // This thread holds one handle itself. Only this thread adds handles, so the count is never too low.
        if Arc::strong_count(&clients) > MAX_CLIENTS {
            continue;
        }
        let (watch, client) = (watch.clone(), Arc::clone(&clients));
        // A client without a thread is disconnected, as is one that fails.
        let _ = thread::Builder::new().name("kiln-metrics-client".to_string()).spawn(move || {
            let _client = client;
            let _ = answer(stream, &watch);
        });
    }
}

fn answer(stream: TcpStream, watch: &Watch) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut writer = stream.try_clone()?;
    // One deadline for the whole request: a client that sends a byte now and then does not hold its thread for
    // longer.
    let mut reader = BufReader::new(TimedStream::new(stream, TIMEOUT));
    let request = read_request(&mut reader)?;
    writer.write_all(respond(&request, watch).as_bytes())?;
    writer.shutdown(Shutdown::Write)?;
    // Closing with unread bytes would reset the connection before a client with a long request has read the answer.
    io::copy(&mut reader, &mut io::sink())?;
    Ok(())
}

/// Reads the request up to its empty line, its end, or the limit.
fn read_request(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut reader = reader.take(MAX_REQUEST_BYTES);
    let mut request = Vec::new();
    while reader.read_until(b'\n', &mut request)? > 0 && !is_complete(&request) {}
    Ok(request)
}

fn is_complete(request: &[u8]) -> bool {
    request.ends_with(b"\r\n\r\n") || request.ends_with(b"\n\n")
}

fn respond(request: &[u8], watch: &Watch) -> String {
    const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
    let text = String::from_utf8_lossy(request);
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    let (method, path) = match &words[..] {
        _ if request.len() as u64 >= MAX_REQUEST_BYTES => {
            return response("431 Request Header Fields Too Large", TEXT, "the request is too long\n");
        }
        [method, path, version] if is_complete(request) && version.starts_with("HTTP/1.") => (*method, *path),
        _ => return response("400 Bad Request", TEXT, "expected an HTTP/1.1 request\n"),
    };
    if !is_for_this_machine(&text) {
        return response("403 Forbidden", TEXT, "expected `localhost` or a loopback address as host\n");
    }
    match (method, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics") => response("200 OK", TEXT, &watch.to_prometheus()),
        ("GET", "/metrics.json") => response("200 OK", "application/json", &watch.to_json()),
        (_, "/metrics" | "/metrics.json") => {
            response("405 Method Not Allowed", &format!("{TEXT}\r\nAllow: GET"), "expected GET\n")
        }
        _ => response("404 Not Found", TEXT, "expected /metrics or /metrics.json\n"),
    }
}

/// Returns whether the request's host, if any, is this machine. A web page under a name that resolves to this machine must not read
/// metrics (DNS rebinding).
fn is_for_this_machine(request: &str) -> bool {
    let hosts = request.lines().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("host").then_some(value.trim())
    });
    let is_here = |host: &str| {
        let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    hosts.into_iter().all(is_here)
}

fn response(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_of_metrics_is_answered_with_them() {
        let table: [(&[u8], &str); 18] = [
            (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
            (b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:9464\r\n\r\n", "200"),
            (b"GET /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n", "200"),
            (b"GET /metrics.json HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
            (b"GET /metrics.json HTTP/1.1\r\nHost: pages.example:9464\r\n\r\n", "403"),
            (b"GET /metrics HTTP/1.1\r\nHost: pages.example:9464\r\n\r\n", "403"),
            (b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", "403"),
            (b"GET /metrics?a=b HTTP/1.0\r\n\r\n", "200"),
            (b"GET /metrics HTTP/1.1\n\n", "200"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"get /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\xff\xfe\0\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ];
        for (request, status) in table {
            let request = read_request(&mut &request[..]).unwrap();
            let response = respond(&request, &Watch::new());
            assert_eq!(&response[9..12], status, "{:?}", String::from_utf8_lossy(&request));
            assert_eq!(response.contains("kiln_info"), status == "200");
        }
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; MAX_REQUEST_BYTES as usize]].concat();
        let long = read_request(&mut &long[..]).unwrap();
        assert_eq!(&respond(&long, &Watch::new())[9..12], "431");
    }
}
