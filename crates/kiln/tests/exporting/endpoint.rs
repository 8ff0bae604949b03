//! The address: who is answered, what bad clients can do, and that it ends.

use crate::{cpu, value, work};
use kiln::ErrorKind;
use kiln::metrics::{Exporter, Target};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn start() -> (Exporter, SocketAddr) {
    let exporter = Exporter::start(&"127.0.0.1:0".parse::<Target>().unwrap()).unwrap();
    let address = exporter.address().unwrap();
    assert_ne!(address.port(), 0);
    (exporter, address)
}

/// What is answered to these bytes.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// What a device does is seen by the next question.
#[test]
fn the_numbers_are_those_of_the_moment() {
    let (exporter, address) = start();
    let device = cpu();
    exporter.watch().add(&device);
    let launches = |answer: &str| {
        let line = answer.lines().find(|line| line.starts_with("kiln_kernel_launches_total{"));
        line.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
    };
    assert_eq!(launches(&ask(address, GET)), None);
    for count in 1..4 {
        work(&device).unwrap();
        let answer = ask(address, GET);
        assert_eq!(launches(&answer), Some(f64::from(count)));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    }
    drop(device);
    assert_eq!(value(&ask(address, GET), "kiln_device_open{device=\"cpu\"}"), Some(0.0));
}

#[test]
fn other_questions_are_refused() {
    let (_exporter, address) = start();
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 100_000]].concat();
    let table: [(&[u8], &str); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"hello\r\n\r\n", "400"),
        (b"\x16\x03\x01\0\0\r\n\r\n", "400"),
        (&long, "431"),
    ];
    for (request, status) in table {
        assert_eq!(ask(address, request).get(9..12), Some(status));
    }
    assert!(ask(address, GET).contains("kiln_info"), "it goes on");
}

/// Clients that say nothing, or half of it, or go away keep nobody waiting; too many of them are sent away.
#[test]
fn bad_clients_block_nobody() {
    let (exporter, address) = start();
    let silent: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /metr").unwrap();
    drop(TcpStream::connect(address).unwrap());
    assert!(ask(address, GET).contains("kiln_info"));
    let many: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    // They lose their places after a while, all of them.
    let began = Instant::now();
    loop {
        assert!(client_threads() < 40, "a thread for each of them");
        let mut stream = TcpStream::connect(address).unwrap();
        let mut answer = String::new();
        if stream.write_all(GET).is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("kiln_info") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never served again");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((silent, half));
    // Those that are still there do not keep it from ending.
    drop(exporter);
    assert!(TcpStream::connect(address).is_err(), "still served after its end");
    drop(many);
}

/// Threads that serve clients now, of all tests, where the system tells.
fn client_threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("kiln-metrics-c")).count()
}

#[test]
fn only_this_machine_is_served_and_faults_are_told() {
    for text in ["0.0.0.0:0", "192.168.1.1:9464", "[::]:0"] {
        let error = Exporter::start(&text.parse::<Target>().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("expected an address of this machine alone, such as 127.0.0.1:"), "{error}");
    }
    let (_exporter, address) = start();
    let error = Exporter::start(&Target::Http(address)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with(&format!("cannot serve metrics at {address}: ")), "{error}");
}

#[test]
fn the_setting_says_where() {
    let of = |value: Option<&str>| {
        Exporter::from_settings(|name| value.filter(|_| name == "KILN_METRICS").map(ToString::to_string))
    };
    assert!(of(None).unwrap().is_none());
    assert!(of(Some("")).unwrap().is_none(), "an empty variable is an unset one");
    assert!(of(Some("127.0.0.1:0")).unwrap().unwrap().address().is_some());
    let error = of(Some("everywhere")).unwrap_err();
    assert_eq!(error.to_string(), "KILN_METRICS: expected `127.0.0.1:PORT` or `file:PATH`, found `everywhere`");
}
