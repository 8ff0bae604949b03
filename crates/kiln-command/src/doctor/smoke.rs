//! Smoke test of a device: uploads data, copies it on the device, and reads it back.

use crate::terminal::micros;
use kiln::graph::CommandList;
use kiln::{Device, Error, ErrorKind, Result};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Words to transfer: 16 KiB, more than one page and more than one workgroup.
const WORDS: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SmokeTest {
    /// Whether the data came back unchanged.
    pub(crate) works: bool,
    /// Error message.
    pub(crate) error: Option<String>,
    /// Time to open the device; `None` if it does not work.
    pub(crate) open_us: Option<u64>,
    /// Time of the round trip; `None` if the device does not work.
    pub(crate) round_trip_us: Option<u64>,
}

pub(crate) fn test(open: impl FnOnce() -> Result<Device>) -> SmokeTest {
    match timed(open).and_then(|(device, open)| Ok((open, timed(|| round_trip(&device))?.1))) {
        Ok((open, round_trip)) => {
            SmokeTest { works: true, error: None, open_us: Some(micros(open)), round_trip_us: Some(micros(round_trip)) }
        }
        Err(error) => SmokeTest { works: false, error: Some(error.to_string()), open_us: None, round_trip_us: None },
    }
}

fn round_trip(device: &Device) -> Result<()> {
    // A unique value at each index, so that a shift or a swap is detected.
    let sent: Vec<u32> = (1..=WORDS as u32).map(|place| place.wrapping_mul(0x9E37_79B9)).collect();
    let from = device.buffer_from(&sent)?;
    let to = device.buffer_of::<u32>(WORDS)?;
    let mut commands = CommandList::new();
    // Reused memory may contain the data of an earlier test; without zeros a copy that did nothing could pass.
    commands.zero(to.as_bytes())?;
    commands.copy(from.as_bytes(), to.as_bytes())?;
    device.submit(commands)?;
    let found = to.read()?;
    match sent.iter().zip(&found).position(|(sent, found)| sent != found) {
        None if sent.len() == found.len() => Ok(()),
        None => Err(wrong(format!("expected {WORDS} words back, found {}", found.len()))),
        Some(place) => {
            Err(wrong(format!("expected {:#010x} back at word {place}, found {:#010x}", sent[place], found[place])))
        }
    }
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, message).context("test data")
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let value = work()?;
    Ok((value, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_device::memory::{MemoryProperties, RawBlock, RawMemory, Region, RegionMut};
    use kiln_device::{Command, DeviceApi, DeviceInfo, NullDevice, PoolOptions, Usage};
    use std::sync::Arc;
    use std::task::Waker;

    /// A device that accepts submissions but does not execute them.
    struct Idle(NullDevice);

    impl RawMemory for Idle {
        fn properties(&self) -> MemoryProperties {
            self.0.properties()
        }

        fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
            self.0.allocate(bytes, usage)
        }

        fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
            self.0.map(region, read)
        }

        fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
            self.0.map_mut(region, write)
        }
    }

    impl DeviceApi for Idle {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }

        fn submit(&self, _commands: &[Command]) -> Result<u64> {
            self.0.submit(&[])
        }

        fn notify(&self, submission: u64, waker: Waker) {
            self.0.notify(submission, waker);
        }

        fn fault(&self) -> Option<Error> {
            None
        }
    }

    /// A submission that silently did nothing is detected.
    #[test]
    fn device_that_does_nothing_does_not_work() {
        let idle = Arc::new(Idle(NullDevice::new()));
        let found = test(|| Ok(kiln_device::Device::new(idle, PoolOptions::new())?.into()));
        assert_eq!(found.error.as_deref(), Some("test data: expected 0x9e3779b9 back at word 0, found 0x00000000"));
        assert!(!found.works);
    }

    fn test_null(null: &NullDevice) -> SmokeTest {
        test(|| Ok(null.clone().into_device()?.into()))
    }

    #[test]
    fn device_that_returns_what_it_was_sent_works() {
        for null in [NullDevice::new(), NullDevice::new().manual_completion()] {
            let found = test_null(&null);
            assert_eq!((found.works, found.error), (true, None));
            assert!(found.open_us.is_some() && found.round_trip_us.is_some());
            assert_eq!(null.live_bytes(), 0, "all memory is released");
        }
    }

    /// A fault at any step reaches the report.
    #[test]
    fn every_fault_is_reported() {
        type Plant = fn(&NullDevice);
        let table: [(Plant, &str); 3] = [
            (|null| (1..9).for_each(|n| null.fail_allocation(n)), "found no room"),
            (|null| null.fail_map(1), "an injected fault of a map"),
            (|null| null.lose_submission(1), "was lost while it ran submission"),
        ];
        for (plant, message) in table {
            let null = NullDevice::new();
            plant(&null);
            let found = test_null(&null);
            assert!(!found.works && found.open_us.is_none(), "{message}");
            assert!(found.error.as_ref().is_some_and(|error| error.contains(message)), "{found:?}");
        }
        let found = test(|| Err(Error::new(ErrorKind::Unsupported, "refused")));
        assert_eq!((found.works, found.error.as_deref()), (false, Some("refused")));
    }
}
