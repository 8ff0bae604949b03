//! Benchmarks the disk store of `kiln-resource-cache` against `cacache`, `redb` and SQLite: put and get at several sizes, cold open, losses
//! after `kill -9`, and several processes at once. Every payload that is read is compared with the one that was put.
//!
//! `cargo run --release --manifest-path bench/store/Cargo.toml -- [sizes] [kill] [processes] [names of stores]`

mod peers;

use peers::{Fallible, Peer, Store};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAYLOAD_BYTES: usize = 20 << 10;
const SIZES: [u64; 3] = [10, 1_000, 20_000];
/// Rounds of timed operations, interleaved between the stores.
const ROUNDS: u64 = 10;
const PER_ROUND: u64 = 50;
const KILLS: u64 = 25;
const PUTS_PER_PROCESS: u64 = 200;

fn main() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [child, what, peer, dir, entries] = args.as_slice()
        && child == "child"
    {
        let peer = Peer::of_name(peer).ok_or("no such store")?;
        return be_child(what, peer, Path::new(dir), entries.parse()?);
    }
    let mut peers: Vec<Peer> = args.iter().filter_map(|arg| Peer::of_name(arg)).collect();
    let names_no_part = peers.len() == args.len();
    if peers.is_empty() {
        peers = Peer::ALL.to_vec();
    }
    let wants = |part: &str| names_no_part || args.iter().any(|arg| arg == part);
    if wants("sizes") {
        // Kept until everything is timed: ext4 is slow to create files after many were deleted.
        let mut folders = Vec::new();
        for size in SIZES {
            folders.extend(compare_at(size, &peers)?);
        }
    }
    if wants("kill") {
        println!(
            "\nafter kill -9, {KILLS} times in a row (one writer): lost acknowledged puts, damaged reads, stores that cannot be opened, time to reopen"
        );
        for peer in peers.iter().copied().filter(|peer| *peer != Peer::KilnFull) {
            kill_writers(peer)?;
        }
    }
    if wants("processes") {
        println!("\n4 processes, {PUTS_PER_PROCESS} puts and gets each, on one store");
        for peer in peers.iter().copied().filter(|peer| !matches!(peer, Peer::KilnFull | Peer::SyncedFiles)) {
            run_processes(peer)?;
        }
    }
    Ok(())
}

fn key_of(number: u64) -> Vec<u8> {
    // As long as a typical kernel key.
    let mut key = format!("kernel {number} of device and driver and compiler ").into_bytes();
    key.resize(300, b'.');
    key
}

fn payload_of(number: u64) -> Vec<u8> {
    let mut payload = vec![0; PAYLOAD_BYTES];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut payload);
    payload
}

struct Arm {
    peer: Peer,
    folder: tempfile::TempDir,
    store: Box<dyn Store>,
    puts: Vec<Duration>,
    gets: Vec<Duration>,
    opens: Vec<Duration>,
}

fn compare_at(size: u64, peers: &[Peer]) -> Fallible<Vec<tempfile::TempDir>> {
    let mut arms = Vec::new();
    for &peer in peers {
        let folder = tempfile::tempdir()?;
        let store = peer.open(folder.path(), size)?;
        store.fill(&mut (0..size).map(|number| (key_of(number), payload_of(number))))?;
        arms.push(Arm { peer, folder, store, puts: Vec::new(), gets: Vec::new(), opens: Vec::new() });
    }
    for round in 0..ROUNDS {
        for arm in &mut arms {
            let first = size + round * PER_ROUND;
            arm.time_round(first, size)?;
        }
    }
    println!("\n{size} entries of {PAYLOAD_BYTES} bytes: median [quartiles], microseconds");
    println!("{:14} {:>24} {:>10} {:>24} {:>24}", "", "put", "mean put", "get", "open + first get");
    for arm in &mut arms {
        // The handle is closed first: one of these stores allows only one process.
        let (peer, path) = (arm.peer, arm.folder.path().to_path_buf());
        arm.store = Box::new(Closed);
        // A full store has evicted the entry that is looked up.
        for _ in 0..if peer == Peer::KilnFull { 0 } else { ROUNDS } {
            let output = child("open", peer, &path, size).output()?;
            arm.opens.push(Duration::from_nanos(String::from_utf8(output.stdout)?.trim().parse()?));
        }
        let mean = arm.puts.iter().sum::<Duration>().as_secs_f64() * 1e6 / arm.puts.len() as f64;
        let (puts, gets, opens) = (spread(&mut arm.puts), spread(&mut arm.gets), spread(&mut arm.opens));
        println!("{:14} {puts:>24} {mean:>10.1} {gets:>24} {opens:>24}", peer.name());
    }
    Ok(arms.into_iter().map(|arm| arm.folder).collect())
}

impl Arm {
    fn time_round(&mut self, first: u64, size: u64) -> Fallible<()> {
        for number in first..first + PER_ROUND {
            let (key, payload) = (key_of(number), payload_of(number));
            let began = Instant::now();
            self.store.put(&key, &payload)?;
            self.puts.push(began.elapsed());
        }
        for step in 0..PER_ROUND {
            // Spread over all entries; those that a full store has evicted are not timed.
            let number = (first + step).wrapping_mul(7919) % (size + ROUNDS).min(first);
            let key = key_of(number);
            let began = Instant::now();
            let found = self.store.get(&key)?;
            let time = began.elapsed();
            match found {
                Some(payload) if payload == payload_of(number) => self.gets.push(time),
                None if self.peer == Peer::KilnFull => {}
                _ => return Err(format!("{}: wrong or missing payload", self.peer.name()).into()),
            }
        }
        Ok(())
    }
}

/// Placeholder for a closed store.
struct Closed;

impl Store for Closed {
    fn put(&self, _key: &[u8], _payload: &[u8]) -> Fallible<()> {
        Err("closed".into())
    }

    fn get(&self, _key: &[u8]) -> Fallible<Option<Vec<u8>>> {
        Err("closed".into())
    }
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    if times.is_empty() {
        return "-".to_string();
    }
    let at = |quarter: usize| times[(times.len() * quarter / 4).min(times.len() - 1)].as_secs_f64() * 1e6;
    format!("{:.1} [{:.1}, {:.1}]", at(2), at(1), at(3))
}

fn child(what: &str, peer: Peer, dir: &Path, entries: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["child", what, peer.name()]).arg(dir).arg(entries.to_string()).stdout(Stdio::piped());
    command
}

fn be_child(what: &str, peer: Peer, dir: &Path, number: u64) -> Fallible<()> {
    let began = Instant::now();
    match what {
        "open" => {
            let store = peer.open(dir, number)?;
            let found = store.get(&key_of(number.saturating_sub(1)))?;
            let time = began.elapsed();
            assert!(found == Some(payload_of(number.saturating_sub(1))), "wrong or missing payload");
            println!("{}", time.as_nanos());
        }
        "write" => {
            let store = peer.open(dir, 1_000_000)?;
            let mut out = std::io::stdout().lock();
            for number in number.. {
                store.put(&key_of(number), &payload_of(number))?;
                writeln!(out, "{number}")?;
                out.flush()?;
            }
        }
        _ => {
            let store = peer.open(dir, 1_000_000)?;
            for round in number * PUTS_PER_PROCESS..(number + 1) * PUTS_PER_PROCESS {
                store.put(&key_of(round), &payload_of(round))?;
                assert!(store.get(&key_of(round))? == Some(payload_of(round)), "wrong or missing payload");
            }
        }
    }
    Ok(())
}

fn kill_writers(peer: Peer) -> Fallible<()> {
    let folder = tempfile::tempdir()?;
    let (mut acknowledged, mut lost, mut damaged, mut broken, mut reopens) = (0_u64, 0, 0, 0, Vec::new());
    for kill in 0..KILLS {
        let mut writer = child("write", peer, folder.path(), acknowledged).spawn()?;
        let lines = BufReader::new(writer.stdout.take().ok_or("no output")?).lines();
        let killer = std::thread::spawn(move || kill_after(writer, 20 + kill * 37 % 100));
        let last = lines.map_while(Result::ok).last();
        killer.join().map_err(|_| "a kill failed")?;
        let before = acknowledged;
        acknowledged = last.map_or(Ok(acknowledged), |last| last.parse::<u64>().map(|number| number + 1))?;
        let began = Instant::now();
        let Ok(store) = peer.open(folder.path(), 1_000_000) else {
            // Everything in it is lost; the next writer starts with an empty store.
            (broken, lost) = (broken + 1, lost + acknowledged - before);
            std::fs::remove_dir_all(folder.path())?;
            continue;
        };
        store.get(&key_of(before))?;
        reopens.push(began.elapsed());
        for number in before..acknowledged {
            match store.get(&key_of(number)) {
                Ok(Some(payload)) => assert!(payload == payload_of(number), "wrong payload"),
                Ok(None) => lost += 1,
                Err(_) => damaged += 1,
            }
        }
    }
    let (files, bytes) = usage(folder.path())?;
    println!(
        "{:14} acknowledged {acknowledged:6}  lost {lost:5}  damaged {damaged:3}  cannot be opened {broken:2}  reopen {:>24} us  on disk {files} files, {} MiB for {} MiB",
        peer.name(),
        spread(&mut reopens),
        bytes >> 20,
        (acknowledged * PAYLOAD_BYTES as u64) >> 20,
    );
    Ok(())
}

fn kill_after(mut writer: Child, millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
    writer.kill().and_then(|()| writer.wait()).expect("a child can be killed");
}

fn usage(dir: &Path) -> Fallible<(u64, u64)> {
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let (files, bytes) = if metadata.is_dir() { usage(&entry.path())? } else { (1, metadata.len()) };
        sum = (sum.0 + files, sum.1 + bytes);
    }
    Ok(sum)
}

fn run_processes(peer: Peer) -> Fallible<()> {
    let folder = tempfile::tempdir()?;
    let began = Instant::now();
    let mut children = Vec::new();
    for number in 0..4 {
        children.push(child("share", peer, folder.path(), number).stderr(Stdio::piped()).spawn()?);
    }
    let (mut failed, mut message) = (0, String::new());
    for mut child in children {
        let mut text = String::new();
        child.stderr.take().ok_or("no errors")?.read_to_string(&mut text)?;
        if !child.wait()?.success() {
            failed += 1;
            message = text.lines().next().unwrap_or_default().to_string();
        }
    }
    let per_pair = began.elapsed().as_secs_f64() * 1e6 / (4 * PUTS_PER_PROCESS) as f64;
    println!("{:14} {per_pair:8.1} us per put and get, {failed} of 4 processes failed {message}", peer.name());
    Ok(())
}
