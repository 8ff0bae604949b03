//! Metrics over HTTP, for programs on the same machine.

use super::Watch;
use crate::{Error, ErrorKind, Result};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest request that is read.
const MAX_REQUEST_BYTES: usize = 8 << 10;

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often whoever waits, for a client or for its bytes, looks whether the server ends.
const LOOK: Duration = Duration::from_millis(50);

/// Clients that are served at once. One more is sent away, so that nobody holds many threads.
const MAX_CLIENTS: usize = 16;

/// Serves `GET /metrics` until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(address: SocketAddr, watch: &Watch) -> Result<Self> {
        if !address.ip().is_loopback() {
            let message = format!(
                "metrics expected an address of this machine alone, such as 127.0.0.1:{}, found {address}",
                address.port()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let fault = |error: io::Error| {
            Error::new(ErrorKind::Io, format!("cannot serve metrics at {address}: {error}")).with_source(error)
        };
        let listener = TcpListener::bind(address).map_err(fault)?;
        // The thread looks for clients now and then: one that waited for them could only be ended by a client.
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (signal, watch) = (Arc::clone(&stop), watch.clone());
        let thread = thread::Builder::new().name("kiln-metrics".to_string());
        let thread = thread.spawn(move || serve(&listener, &signal, &watch)).map_err(fault)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of it has ended the serving, and nothing else.
            let _ = thread.join();
        }
    }
}

/// Takes clients, each on a thread of its own, which ends before this returns.
fn serve(listener: &TcpListener, stop: &AtomicBool, watch: &Watch) {
    let clients = AtomicUsize::new(0);
    thread::scope(|scope| {
        while !stop.load(Ordering::Acquire) {
            let Ok((stream, _)) = listener.accept() else {
                // Nobody there; or out of file descriptors, which passes.
                thread::park_timeout(LOOK);
                continue;
            };
            if clients.load(Ordering::Relaxed) >= MAX_CLIENTS {
                continue;
            }
            clients.fetch_add(1, Ordering::Relaxed);
            let count = Leaving(&clients);
            // Without a thread for it the client is sent away.
            let _ = thread::Builder::new().name("kiln-metrics-client".to_string()).spawn_scoped(scope, move || {
                let _count = count;
                // What goes wrong is the client's loss.
                let _ = answer(stream, stop, watch);
            });
        }
    });
}

/// Counts a client out when it goes, however it goes.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, stop: &AtomicBool, watch: &Watch) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    // On some systems it is as its listener is.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))?;
    let Some(request) = read_request(&mut stream, stop, deadline)? else { return Ok(()) };
    let response = respond(&request, || watch.to_prometheus());
    write(&mut stream, response.as_bytes(), stop, deadline)?;
    stream.shutdown(Shutdown::Write)?;
    // Closing with bytes unread takes the answer away from a client that asked for too much.
    let mut rest = [0; 1024];
    while !stop.load(Ordering::Acquire) && Instant::now() < deadline {
        match stream.read(&mut rest) {
            Ok(0) => break,
            Err(error) if !is_wait(&error) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Hands the answer to a client, as long as it takes it in time.
fn write(stream: &mut TcpStream, mut rest: &[u8], stop: &AtomicBool, deadline: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        if stop.load(Ordering::Acquire) || Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if is_wait(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The request up to its empty line, or as much as is read at most; `None` where it does not come in time.
fn read_request(stream: &mut TcpStream, stop: &AtomicBool, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !stop.load(Ordering::Acquire) && Instant::now() < deadline {
        match stream.read(&mut part) {
            Ok(0) => return Ok((!request.is_empty()).then_some(request)),
            Ok(count) => request.extend_from_slice(&part[..count]),
            Err(error) if is_wait(&error) => continue,
            Err(error) => return Err(error),
        }
        if is_whole(&request) || request.len() > MAX_REQUEST_BYTES {
            return Ok(Some(request));
        }
    }
    Ok(None)
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n")
}

/// The answer to a request.
fn respond(request: &[u8], metrics: impl FnOnce() -> String) -> String {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match &words[..] {
        _ if !is_whole(request) && request.len() > MAX_REQUEST_BYTES => {
            response("431 Request Header Fields Too Large", "", "the request is too long\n")
        }
        [_, _, version] if is_whole(request) && version.starts_with("HTTP/1.") && !is_for_this_machine(request) => {
            response("403 Forbidden", "", "expected the name or the address of this machine as host\n")
        }
        [method, path, version] if is_whole(request) && version.starts_with("HTTP/1.") => {
            let path = path.split('?').next().unwrap_or_default();
            match (*method, path) {
                (_, path) if path != "/metrics" => response("404 Not Found", "", "there is only /metrics\n"),
                ("GET", _) => response("200 OK", "", &metrics()),
                _ => response("405 Method Not Allowed", "Allow: GET\r\n", "there is only GET\n"),
            }
        }
        _ => response("400 Bad Request", "", "expected an HTTP/1.1 request\n"),
    }
}

/// Whether the host that a request names, where it names one, is the machine itself: a page in a browser, under a name that leads here,
/// gets nothing.
fn is_for_this_machine(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let hosts = text.lines().skip(1).filter_map(|line| {
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

fn response(status: &str, header: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n{header}\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_of_metrics_is_answered_with_them() {
        let table: [(&[u8], &str); 16] = [
            (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
            (b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:9464\r\n\r\n", "200"),
            (b"GET /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n", "200"),
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
            let response = respond(request, || "a 1\n".to_string());
            assert_eq!(&response[9..12], status, "{:?}", String::from_utf8_lossy(request));
            assert_eq!(response.ends_with("\r\n\r\na 1\n"), status == "200");
        }
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; MAX_REQUEST_BYTES]].concat();
        assert_eq!(&respond(&long, String::new)[9..12], "431");
    }

    /// A client that takes a little of its answer now and then holds nobody up: not past its time, and not at the end.
    #[test]
    fn a_slow_reader_does_not_delay_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut writer, _) = listener.accept().unwrap();
        writer.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
        // More than any system keeps for a reader.
        let answer = vec![b'x'; 64 << 20];
        let stop = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            let writing = scope.spawn(|| write(&mut writer, &answer, &stop, deadline));
            reader.read_exact(&mut [0; 1000]).unwrap();
            stop.store(true, Ordering::Release);
            assert_eq!(writing.join().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(Instant::now() < deadline);
        });
        stop.store(false, Ordering::Release);
        let late = write(&mut writer, &answer, &stop, Instant::now() + Duration::from_millis(10));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
