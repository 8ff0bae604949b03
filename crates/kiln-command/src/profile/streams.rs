//! Reads the events of all devices of a program.

use kiln::observe::Event;
use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) events: Vec<Event>,
    /// Lines that are not valid events.
    pub(super) unreadable: u64,
}

/// Reads every stream in a folder: `events.jsonl`, which may have rotated to `events.jsonl.1`, and those of other devices,
/// `events.2.jsonl`. A device whose id occurs in an earlier stream gets the number of its stream.
pub(super) fn read(folder: &Path) -> io::Result<Streams> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        files.extend(place(&path).map(|place| (place, path)));
    }
    // By stream, then from the oldest rotated file to the newest, so that the events of a stream are in order.
    files.sort();
    let (mut streams, mut known): (_, Vec<(u64, String)>) = (Streams::default(), Vec::new());
    for ((number, _), path) in files {
        // Lossy, so that a line cut within a character does not lose the others.
        for line in BufReader::new(File::open(path)?).split(b'\n') {
            let Ok(mut event) = Event::from_json_line(&String::from_utf8_lossy(&line?)) else {
                streams.unreadable += 1;
                continue;
            };
            // Each process or device handle writes its own stream. Equal device names of different streams get a
            // number, so that their timelines stay separate.
            if known.iter().any(|(other, device)| *other != number && *device == event.device) {
                event.device = format!("{} #{number}", event.device);
            } else if !known.iter().any(|(_, device)| *device == event.device) {
                known.push((number, event.device.clone()));
            }
            streams.events.push(event);
        }
    }
    Ok(streams)
}

/// Returns the number of the stream and the age of the file, the oldest first; `None` for other files.
fn place(path: &Path) -> Option<(u64, Reverse<u64>)> {
    let rest = path.file_name()?.to_str()?.strip_prefix("events.")?;
    let (name, age) = match rest.rsplit_once("jsonl.") {
        Some((name, age)) => (name, age.parse().ok()?),
        None => (rest.strip_suffix("jsonl")?, 0),
    };
    let number = if name.is_empty() { 1 } else { name.strip_suffix('.')?.parse().ok()? };
    Some((number, Reverse(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_oldest_first_and_devices_are_kept_apart() {
        let folder = tempfile::tempdir().unwrap();
        let line = |device: &str, bytes: u64| {
            let data = format!(r#"{{"bytes":{bytes},"reserved_bytes":0}}"#);
            format!(r#"{{"device":"{device}","at_ns":1,"type":"PoolShrank","data":{data}}}"#)
        };
        let write = |name: &str, lines: &[String]| fs::write(folder.path().join(name), lines.join("\n")).unwrap();
        write("events.jsonl", &[line("cpu", 3), "{\"device\":\"cp".to_string()]);
        write("events.jsonl.1", &[line("cpu", 2)]);
        write("events.jsonl.2", &[line("cpu", 1)]);
        write("events.2.jsonl", &[line("cpu", 4), line("gpu:0", 5)]);
        write("other.jsonl", &["no event".to_string()]);
        let streams = read(folder.path()).unwrap();
        let found: Vec<String> = streams.events.iter().map(|event| event.to_json_line().unwrap()).collect();
        let expected = [line("cpu", 1), line("cpu", 2), line("cpu", 3), line("cpu #2", 4), line("gpu:0", 5)];
        assert_eq!((&found[..], streams.unreadable), (&expected[..], 1));
    }
}
