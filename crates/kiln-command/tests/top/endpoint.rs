//! The metrics endpoint: its responses, and misbehaving clients.

use crate::process::Process;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Returns the response to these bytes.
fn ask(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The next request reports the activity of a device.
#[test]
fn the_numbers_are_those_of_the_moment() {
    let mut process = Process::start("127.0.0.1:0");
    let launches = |answer: &str| {
        let lines = answer.lines().filter(|line| line.starts_with("kiln_kernel_launches_total{"));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
    };
    let mut before = launches(&ask(&process.address, GET));
    for _ in 0..3 {
        process.work();
        let answer = ask(&process.address, GET);
        let now = launches(&answer);
        assert!(now >= before + 20.0, "{now} after {before}");
        before = now;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    }
    let answer = ask(&process.address, b"GET /metrics.json HTTP/1.1\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Content-Type: application/json"), "{head}");
    let json: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&json["format"], &json["metrics"][0]["name"]), (&1.into(), &"kiln_info".into()));
}

#[test]
fn other_requests_are_refused() {
    let process = Process::start("127.0.0.1:0");
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 100_000]].concat();
    let table: [(&[u8], &str); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"hello\r\n\r\n", "400"),
        (b"\x16\x03\x01\0\0\r\n\r\n", "400"),
        (&long, "431"),
    ];
    for (request, status) in table {
        assert_eq!(ask(&process.address, request).get(9..12), Some(status));
    }
    assert!(ask(&process.address, GET).contains("kiln_info"), "it goes on");
}

/// Clients that send nothing or part of a request, or disconnect, do not block others; too many of them are disconnected.
#[test]
fn clients_that_stall_do_not_block_others() {
    let process = Process::start("127.0.0.1:0");
    let address = &process.address;
    let silent: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /metr").unwrap();
    drop(TcpStream::connect(address).unwrap());
    assert!(ask(address, GET).contains("kiln_info"));
    let many: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    loop {
        assert!(client_threads(process.id()) <= 16, "a thread for each of them");
        let mut stream = TcpStream::connect(address).unwrap();
        let mut answer = String::new();
        if stream.write_all(GET).is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("kiln_info") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never served again");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(half);
    let address = address.clone();
    // Open connections do not keep the process from exiting.
    drop(process);
    assert!(TcpStream::connect(address).is_err(), "still served after its end");
    drop((silent, many));
}

/// Returns the number of threads that serve clients, on systems with `/proc`.
fn client_threads(process: u32) -> usize {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("kiln-metrics-c")).count()
}
