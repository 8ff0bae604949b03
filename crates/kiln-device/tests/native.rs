//! Native work as a command: what is refused, what it touches, how its buffers are locked.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kiln_device::{Buffer, BufferUse, Command, CommandList, Device, NativeCall, NativeRun, NullDevice, Record, Usage};
use kiln_ir::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn device() -> (NullDevice, Device) {
    let null = NullDevice::new();
    (null.clone(), null.into_device().unwrap())
}

fn record(buffers: &[(&Buffer, BufferUse)]) -> kiln_ir::Result<CommandList> {
    let mut commands = CommandList::new();
    let buffers = buffers.iter().map(|&(buffer, access)| (buffer.clone(), access));
    commands.native(Arc::new("work"), "planned", buffers, vec![7, 8])?;
    Ok(commands)
}

fn call(commands: &CommandList) -> &NativeCall {
    match &commands.commands()[0] {
        Command::Native(call) => call,
        other => panic!("recorded {other:?}"),
    }
}

/// A device that does not know the work says which it is, and nothing runs.
#[test]
fn a_device_that_does_not_know_the_work_refuses_it() {
    let (null, device) = device();
    let buffer = device.buffer(64).unwrap();
    let error = device.submit(record(&[(&buffer, BufferUse::Write)]).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "null device expected copies and kernels, found native work `planned`");
    assert!(!null.records().iter().any(|record| matches!(record, Record::Submit { .. })));
    assert!(buffer.write(&[1; 64]).is_ok(), "the device and the buffer are still there");
}

#[test]
fn the_work_finds_what_was_recorded() {
    let (_, device) = device();
    let (a, b) = (device.buffer(64).unwrap(), device.buffer(128).unwrap());
    let commands = record(&[(&a, BufferUse::Read), (&b, BufferUse::Write)]).unwrap();
    let uses: Vec<_> = commands.accesses().map(|(buffer, access)| (buffer.bytes(), access)).collect();
    assert_eq!(uses, [(64, BufferUse::Read), (128, BufferUse::Write)]);
    let call = call(&commands);
    let run = call.as_run();
    assert_eq!((run.name(), run.words()), ("planned", &[7, 8][..]));
    assert_eq!(run.work().downcast_ref::<&str>(), Some(&"work"));
    assert!(format!("{:?}", commands.commands()[0]).contains("planned"));
}

#[test]
fn what_cannot_be_locked_together_is_refused() {
    let ((_, own), (_, other)) = (device(), device());
    let (buffer, foreign) = (own.buffer(64).unwrap(), other.buffer(64).unwrap());
    let halves = [buffer.slice(..32).unwrap(), buffer.slice(32..).unwrap()];
    let staging = own.buffer_with(kiln_device::BufferOptions::new(64).usage(Usage::Upload)).unwrap();
    let (read, write) = (BufferUse::Read, BufferUse::Write);
    let refused: [(&[_], &str); 5] = [
        (&[(&buffer, read), (&foreign, read)], "buffers of one device"),
        (&[(&halves[0], read), (&halves[1], write)], "buffers 0 and 1 in one allocation"),
        (&[(&halves[0], write), (&buffer, write)], "buffers 0 and 1 in one allocation"),
        (&[(&buffer, BufferUse::ReadWrite), (&buffer, read)], "buffers 0 and 1 in one allocation"),
        (&[(&staging, read)], "found upload as buffer 0"),
    ];
    for (buffers, expected) in refused {
        let error = record(buffers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().starts_with("native work `planned`: "), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    // What is only read may be there several times; then it is locked once, which a second lock would not survive
    // where a writer waits in between.
    let commands = record(&[(&halves[1], read), (&buffer, read), (&halves[0], read)]).unwrap();
    let run = call(&commands).as_run();
    let access = run.access();
    let regions: Vec<_> = (0..3).map(|index| access.region(index)).collect();
    assert_eq!(regions.iter().map(kiln_device::memory::Region::bytes).collect::<Vec<_>>(), [32, 64, 32]);
    assert_eq!(regions[0].offset(), regions[1].offset() + 32);
}

/// Slices of one allocation that one run writes are locked once, which a second lock would wait for.
#[test]
fn slices_that_lie_apart_are_written_together() {
    let (_, device) = device();
    let buffer = device.buffer(96).unwrap();
    let parts = [buffer.slice(64..).unwrap(), buffer.slice(..32).unwrap(), buffer.slice(32..64).unwrap()];
    let uses: Vec<_> = parts.iter().map(|part| (part, BufferUse::Write)).collect();
    let run = NativeRun::new(&5u32, "apart", uses, &[]).unwrap();
    let mut access = run.access();
    let mut places = Vec::new();
    for index in 0..3 {
        let region = access.region_mut(index);
        places.push((region.offset(), region.bytes()));
    }
    let start = places[1].0;
    assert_eq!(places, [(start + 64, 32), (start, 32), (start + 32, 32)]);
    drop(access);
    // One that is empty hides no overlap behind it.
    let (empty, inside) = (buffer.slice(40..40).unwrap(), buffer.slice(48..56).unwrap());
    let uses = [&parts[2], &empty, &inside].map(|part| (part, BufferUse::Write));
    assert_eq!(NativeRun::new(&5u32, "hidden", uses, &[]).map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Work that is run without being recorded is refused as if it were.
#[test]
fn a_run_is_refused_as_a_recorded_one() {
    let ((_, own), (_, other)) = (device(), device());
    let (buffer, foreign) = (own.buffer(64).unwrap(), other.buffer(64).unwrap());
    let run = |buffer| own.run(&NativeRun::new(&5u32, "five", [(buffer, BufferUse::Read)], &[]).unwrap()).unwrap_err();
    let error = run(&buffer);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().ends_with("expected no native work, found `five`"), "{error}");
    assert_eq!(run(&foreign).kind(), ErrorKind::InvalidArgument);
}

/// A foreign device's buffers are refused at submission, as those of every command.
#[test]
fn foreign_buffers_are_refused_at_submission() {
    let ((_, own), (_, other)) = (device(), device());
    let foreign = other.buffer(64).unwrap();
    let error = own.submit(record(&[(&foreign, BufferUse::Read)]).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn captured_work_takes_other_buffers() {
    let (_, device) = device();
    let [a, b, c] = [64, 64, 64].map(|bytes| device.buffer(bytes).unwrap());
    let buffers = [(a.clone(), BufferUse::Read), (b.clone(), BufferUse::Write)];
    let captured =
        device.capture(|commands| commands.native(Arc::new(1), "captured", buffers.clone(), Vec::new())).unwrap();
    let rebound = captured.rebind(&[(&a, &c)]).unwrap();
    let Command::Native(call) = &rebound.commands()[0] else { panic!("another command") };
    assert!(call.buffers()[0].buffer.shares_allocation_with(&c));
    assert!(call.buffers()[1].buffer.shares_allocation_with(&b));
    let error = captured.rebind(&[(&a, &b)]).unwrap_err();
    assert!(error.to_string().contains("in one allocation"), "{error}");
}

/// Writers are alone, readers are not, and threads that name the same buffers in other orders never wait for each other in
/// a circle.
#[test]
fn threads_that_name_buffers_in_any_order_do_not_wait_for_ever() {
    const ROUNDS: usize = 2000;
    let (_, device) = device();
    let buffers: Vec<Buffer> = (0..4).map(|_| device.buffer(64).unwrap()).collect();
    let inside: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (buffers, inside, done) = (&buffers, &inside, &done);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let order: Vec<usize> =
                        (0..4).map(|index| (index * (1 + 2 * (thread % 2)) + thread + round) % 4).collect();
                    let uses = |position: usize| if position == 0 { BufferUse::Write } else { BufferUse::Read };
                    let bound: Vec<_> =
                        order.iter().enumerate().map(|(position, &index)| (&buffers[index], uses(position))).collect();
                    let commands = record(&bound).unwrap();
                    let run = call(&commands).as_run();
                    let mut access = run.access();
                    assert_eq!(inside[order[0]].fetch_add(1, Ordering::SeqCst), 0, "a writer is alone");
                    assert_eq!((access.region_mut(0).bytes(), access.region(3).bytes()), (64, 64));
                    inside[order[0]].fetch_sub(1, Ordering::SeqCst);
                    drop(access);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let (start, done) = (Instant::now(), &done);
        scope.spawn(move || {
            while done.load(Ordering::SeqCst) < 4 * ROUNDS {
                if start.elapsed() > Duration::from_secs(60) {
                    // Threads that wait for each other cannot be joined: the process is all that can end.
                    std::process::exit(101);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
}
