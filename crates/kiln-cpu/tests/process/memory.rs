//! Memory is returned to the system.

use crate::in_own_process;
use kiln_cpu::CpuOptions;
use kiln_device::{Buffer, Device, PoolConfig, PoolOptions};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);
const WARM_UP_BYTES: u64 = 16 << 20;
const BURST_BYTES: u64 = 2 << 30;

/// After a burst of 2 GiB in large blocks and an idle period, resident memory is back at its initial size.
#[test]
fn a_burst_of_large_buffers_goes_back_when_idle() {
    in_own_process("memory::a_burst_of_large_buffers_goes_back_when_idle", || {
        check_burst(PoolConfig::default(), &Burst { bytes: BURST_BYTES, touched_every: 4096, size: |_| 64 << 20 });
    });
}

/// The same with small blocks of mixed sizes, which share raw blocks.
#[test]
fn a_burst_of_small_buffers_goes_back_when_idle() {
    in_own_process("memory::a_burst_of_small_buffers_goes_back_when_idle", || {
        let size = |index: u64| 4096 + index.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (60 << 10);
        check_burst(PoolConfig::default(), &Burst { bytes: BURST_BYTES, touched_every: 4096, size });
    });
}

/// Freeing every second of many blocks fragments the process's memory maps up to the system's limit. Their memory is
/// returned even then.
#[test]
fn more_blocks_than_the_system_lists_go_back_in_any_order() {
    in_own_process("memory::more_blocks_than_the_system_lists_go_back_in_any_order", || {
        let list: u64 = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        // 64 Ki by default. If it is far higher, no process reaches it.
        let blocks = (list * 2 + 10_000).min(200_000);
        let burst = Burst { bytes: blocks * (64 << 10), touched_every: 64 << 10, size: |_| 64 << 10 };
        check_burst(PoolConfig { pooling: false, ..PoolConfig::default() }, &burst);
    });
}

struct Burst {
    bytes: u64,
    /// Distance between touched bytes of a buffer.
    touched_every: usize,
    /// The size of each buffer, by its number.
    size: fn(u64) -> u64,
}

/// Runs a burst, and waits until its memory is returned.
fn check_burst(config: PoolConfig, burst: &Burst) {
    let pool = PoolOptions::new().config(PoolConfig { maintenance_interval: INTERVAL, ..config });
    let device = kiln_cpu::open(CpuOptions::new().pool(pool)).unwrap();
    // The program's code counts as resident from its first use.
    hold_and_drop(&device, WARM_UP_BYTES, burst);
    device.pool().clear().unwrap();
    let before = resident_bytes();
    let most = hold_and_drop(&device, burst.bytes, burst);
    assert!(most > before + (1 << 29), "expected the burst to be resident, found {before}, then {most} bytes");
    let deadline = Instant::now() + Duration::from_secs(60);
    while resident_bytes() > before + before / 10 {
        let after = resident_bytes();
        assert!(
            Instant::now() < deadline,
            "expected {before} resident bytes again, found {after}: {:?}",
            device.pool()
        );
        std::thread::sleep(INTERVAL / 4);
    }
}

/// Allocates buffers, touches their pages, and drops every second one before the others. Returns the resident bytes before that.
fn hold_and_drop(device: &Device, bytes: u64, burst: &Burst) -> u64 {
    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    let mut held = 0;
    while held < bytes {
        let buffer = device.buffer((burst.size)(buffers.len() as u64)).unwrap();
        let touch = |byte: &mut u8| *byte = 1;
        buffer.map_write(|bytes| bytes.iter_mut().step_by(burst.touched_every).for_each(touch)).unwrap();
        held += buffer.bytes();
        buffers.push(Some(buffer));
    }
    let resident = resident_bytes();
    buffers.iter_mut().step_by(2).for_each(|buffer| drop(buffer.take()));
    resident
}

/// Counted page by page: the counters in `status` and `statm` are off by some hundred KiB.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
