//! Captured sequences: recorded once, replayed with the same buffers and with others.

use crate::fixture::{cpu, device, invalid, part};
use kiln_device::{Captured, Command, Device, NullDevice, RawMemory, Record, TypedBuffer};

/// b = a; a[0..8] = 0; c = b.
fn sequence(device: &Device) -> (Captured, [TypedBuffer<u32>; 3]) {
    let buffers = [0; 3].map(|_| device.buffer_from(&[0_u32; 4]).unwrap());
    let [a, b, c] = buffers.each_ref().map(TypedBuffer::as_bytes);
    let captured = device.capture(|commands| {
        commands.copy(a, b)?;
        commands.zero(&part(a, 0..8))?;
        commands.copy(b, c)
    });
    (captured.unwrap(), buffers)
}

/// A replay is one submission of all commands. It neither records, allocates nor waits.
#[test]
fn a_replay_is_one_submission() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (captured, [a, _, c]) = sequence(&device);
    assert_eq!(captured.commands().len(), 3);
    for number in 1..4 {
        a.write(&[number, 2, 3, 4]).unwrap();
        null.clear_records();
        let submission = captured.replay().unwrap();
        assert_eq!(null.records(), [Record::Submit { submission, commands: 3 }]);
        assert!(null.completed() < submission);
        assert_eq!(c.read().unwrap(), [number, 2, 3, 4]);
        assert_eq!(a.read().unwrap(), [0, 0, 3, 4]);
    }
}

/// A replay with new inputs and outputs does not use the captured buffers that are replaced.
#[test]
fn a_replay_can_have_other_buffers() {
    for device in [cpu(), device(&NullDevice::new()), device(&NullDevice::new().manual_completion())] {
        let (captured, [a, b, c]) = sequence(&device);
        a.write(&[1; 4]).unwrap();
        let other = device.buffer_from(&[7_u32; 8]).unwrap();
        let low = other.slice(..4).unwrap();
        captured.replay_with(&[(a.as_bytes(), low.as_bytes())]).unwrap();
        assert_eq!(other.read().unwrap(), [0, 0, 7, 7, 7, 7, 7, 7]);
        assert_eq!([&a, &b, &c].map(|buffer| buffer.read().unwrap()), [[1; 4], [7; 4], [7; 4]]);

        // Commands that use no replaced buffer are unchanged.
        let rebound = captured.rebind(&[(c.as_bytes(), other.slice(4..).unwrap().as_bytes())]).unwrap();
        for _ in 0..2 {
            a.write(&[3; 4]).unwrap();
            rebound.replay().unwrap();
        }
        assert_eq!(other.slice(4..).unwrap().read().unwrap(), [3; 4]);
        assert_eq!(c.read().unwrap(), [7; 4]);
        assert!(matches!(&rebound.commands()[0], Command::Copy { to, .. } if to.shares_allocation_with(b.as_bytes())));
        captured.replay().unwrap();
        assert_eq!(c.read().unwrap(), [0, 0, 3, 3], "the original is unchanged");
    }
}

/// A part of a captured buffer can be replaced if every command stays within that part.
#[test]
fn a_part_can_be_replaced() {
    let device = device(&NullDevice::new());
    let (captured, [a, ..]) = sequence(&device);
    let (half, other) = (part(a.as_bytes(), 0..8), device.buffer_from(&[1_u32; 2]).unwrap());
    let message = invalid(captured.replay_with(&[(&half, other.as_bytes())]));
    insta::assert_snapshot!(message, @"command 0: replacement of bytes 0..8 of an allocation expected uses within them, found one of 0..16");
    let captured = device.capture(|commands| commands.zero(&part(a.as_bytes(), 4..8))).unwrap();
    captured.replay_with(&[(&half, other.as_bytes())]).unwrap();
    assert_eq!(other.read().unwrap(), [1, 0]);
}

/// Invalid captures and replacements are rejected, and nothing is submitted.
#[test]
fn replacements_are_checked() {
    let null = NullDevice::new();
    let (device, foreign) = (device(&null), cpu());
    let (captured, [a, b, c]) = sequence(&device);
    let [a, b, c] = [&a, &b, &c].map(TypedBuffer::as_bytes);
    let (unknown, long, far) = (device.buffer(16).unwrap(), device.buffer(64).unwrap(), foreign.buffer(16).unwrap());
    null.clear_records();
    let refusals = [
        invalid(device.capture(|commands| commands.copy(a, &long))),
        invalid(device.capture(|commands| commands.zero(&far))),
        invalid(captured.replay_with(&[(&unknown, a)])),
        invalid(captured.replay_with(&[(b, &long)])),
        invalid(captured.replay_with(&[(a, &unknown), (b, &far)])),
        invalid(captured.replay_with(&[(a, &unknown), (&part(a, 0..8), &part(&long, 0..8))])),
        invalid(captured.replay_with(&[(c, b)])),
        invalid(captured.replay_with(&[(a, &part(&long, 2..18))])),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
    assert_eq!(null.records(), []);
    insta::assert_snapshot!(format!("{captured:?}"), @r#"Captured { device: Device { id: "null", name: "null device" }, commands: 3 }"#);
}
