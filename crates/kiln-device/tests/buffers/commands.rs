//! Command lists: checked when they are recorded, run in order.

use crate::fixture::{WAYS, buffer, counting, device};
use kiln_device::{Command, CommandList, NullDevice, RawMemory, Record, access_pair};
use kiln_ir::ErrorKind;

/// Invalid commands are rejected with what was expected and found.
#[test]
fn invalid_commands_are_rejected() {
    let (device, other) = (device(&NullDevice::new()), device(&NullDevice::new()));
    let (a, b, foreign) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]), buffer(&other, 64, WAYS[0]));
    let part = |buffer: &kiln_device::Buffer, range: std::ops::Range<u64>| buffer.slice(range).unwrap();
    let mut list = CommandList::new();
    let refusals = [
        list.copy(&a, &part(&b, 0..32)),
        list.copy(&a, &foreign),
        list.copy(&part(&a, 0..8), &part(&a, 8..16)),
        list.copy(&a, &a),
        list.copy(&part(&a, 1..9), &part(&b, 0..8)),
        list.copy(&part(&a, 0..8), &part(&b, 2..10)),
        list.copy(&part(&a, 0..7), &part(&b, 0..7)),
        list.zero(&part(&a, 2..6)),
        list.zero(&part(&a, 0..6)),
    ];
    assert!(list.is_empty() && list.commands().is_empty(), "nothing of it is recorded");
    let messages: Vec<String> = refusals
        .into_iter()
        .map(|refusal| {
            let error = refusal.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.to_string()
        })
        .collect();
    insta::assert_snapshot!(messages.join("\n"));
}

/// Commands take effect in list order, in one submission.
#[test]
fn commands_run_in_order() {
    let null = NullDevice::new();
    let device = device(&null);
    let (a, b, c) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[1]), buffer(&device, 64, WAYS[0]));
    a.write(&counting(64)).unwrap();
    let mut list = CommandList::new();
    list.copy(&a, &b).unwrap();
    list.zero(&a.slice(..32).unwrap()).unwrap();
    list.copy(&b, &c).unwrap();
    list.copy(&a.slice(16..48).unwrap(), &b.slice(..32).unwrap()).unwrap();
    assert_eq!(list.commands().len(), 4);
    assert!(matches!(list.commands()[1], Command::Zero { .. }));
    null.clear_records();
    let submission = device.submit(list).unwrap();
    assert_eq!(null.records(), [Record::Submit { submission, commands: 4 }, Record::Complete { submission }]);
    assert_eq!(c.read().unwrap(), counting(64));
    let mut expected = counting(64);
    expected[..16].fill(0);
    expected[16..32].copy_from_slice(&counting(64)[32..48]);
    assert_eq!(b.read().unwrap(), expected);
}

/// An empty copy is not recorded, and an empty list can be submitted.
#[test]
fn empty_commands_are_left_out() {
    let null = NullDevice::new();
    let device = device(&null);
    let (a, b) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]));
    let mut list = CommandList::new();
    list.copy(&a.slice(4..4).unwrap(), &b.slice(8..8).unwrap()).unwrap();
    list.zero(&a.slice(64..).unwrap()).unwrap();
    assert!(list.is_empty());
    assert_eq!(device.submit(list).unwrap(), 1);
    assert_eq!(device.submit(CommandList::new()).unwrap(), 2, "submissions are numbered from one");
}

/// A list with buffers of another device is rejected before anything runs.
#[test]
fn foreign_buffers_are_refused_at_submission() {
    let (null, other) = (NullDevice::new(), device(&NullDevice::new()));
    let device = device(&null);
    let foreign = buffer(&other, 64, WAYS[0]);
    let mut list = CommandList::new();
    list.zero(&buffer(&device, 64, WAYS[0])).unwrap();
    list.zero(&foreign).unwrap();
    let error = device.submit(list).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    insta::assert_snapshot!(error);
    assert!(!null.records().iter().any(|record| matches!(record, Record::Submit { .. })));
}

/// A list keeps its buffers alive until it is submitted, then the submission does.
#[test]
fn a_list_keeps_its_buffers() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (a, b) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]));
    a.write(&[4; 64]).unwrap();
    let mut list = CommandList::new();
    list.copy(&a, &b).unwrap();
    drop(a);
    assert_eq!(device.buffer_pool_stats().live_buffers, 2);
    device.submit(list).unwrap();
    assert_eq!((device.buffer_pool_stats().live_buffers, device.buffer_pool_stats().bytes_pending), (1, 256));
    let _other = buffer(&device, 64, WAYS[0]);
    assert_eq!(b.read().unwrap(), [4; 64]);
}

/// `synchronize` waits for everything submitted so far.
#[test]
fn synchronize_waits_for_everything() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let target = buffer(&device, 64, WAYS[0]);
    for _ in 0..3 {
        target.zero().unwrap();
    }
    assert_eq!(null.completed(), 0);
    device.synchronize().unwrap();
    assert!(null.completed() >= 3);
}

/// `access_pair` works for two allocations in either lock order.
#[test]
fn access_to_a_pair() {
    let device = device(&NullDevice::new());
    let buffers: Vec<_> = (0..4).map(|_| buffer(&device, 64, WAYS[0])).collect();
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            let (read, mut write) = access_pair(&buffers[from], &buffers[to]);
            assert_eq!((read.region().bytes(), write.region_mut().bytes()), (64, 64));
        }
    }
}

#[test]
#[should_panic(expected = "access to a pair of buffers in one allocation")]
fn access_to_a_pair_of_one_allocation_panics() {
    let device = device(&NullDevice::new());
    let whole = buffer(&device, 64, WAYS[0]);
    drop(access_pair(&whole.slice(..8).unwrap(), &whole.slice(8..).unwrap()));
}
