//! A kernel stays within the stack of its thread and within its time limit.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_cpu::CpuOptions;
use kiln_device::{Grid, KernelOptions, KernelSource, Optimisation};
use kiln_ir::ErrorKind;
use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A kernel that returns before many matrices that are all live at once, each loaded before a function call: none of them is in a
/// register then. The call before the return is below all of them on the stack.
fn with_matrices(count: usize) -> String {
    let mut body = "var t = asinh(f32(x[0])); if (x[1] == 0u) { y[id.x] = u32(t); return; }\n".to_string();
    (0..count).for_each(|k| writeln!(body, "let v{k} = m[{k}]; t = asinh(t);").unwrap());
    body += "var s = mat4x4<f32>();\n";
    (0..count).for_each(|k| writeln!(body, "s = s + v{k};").unwrap());
    body += "let q = s[0] + s[1] + s[2] + s[3]; y[id.x] = u32(q.x + q.y + q.z + q.w + t);";
    format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @group(0) @binding(2) var<storage, read> m: array<mat4x4<f32>>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {body} }}"
    )
}

const STACK: usize = 2 << 20;
const GUARD: usize = 4 << 10;
const BELOW: usize = 4 << 20;

unsafe extern "C" {
    fn pthread_attr_init(attr: *mut c_void) -> c_int;
    fn pthread_attr_setstack(attr: *mut c_void, address: *mut c_void, bytes: usize) -> c_int;
    fn pthread_create(
        thread: *mut u64,
        attr: *const c_void,
        start: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_join(thread: u64, result: *mut *mut c_void) -> c_int;
    fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int;
}

extern "C" fn call(task: *mut c_void) -> *mut c_void {
    // SAFETY: guaranteed by `on_a_guarded_stack`.
    unsafe { (*task.cast::<Box<dyn FnMut()>>())() };
    std::ptr::null_mut()
}

/// Runs a task on a stack of 2 MiB. Below it are a guard page and foreign memory; returns how many bytes of that changed.
fn on_a_guarded_stack(mut task: Box<dyn FnMut() + '_>) -> usize {
    let mut map = memmap2::MmapMut::map_anon(BELOW + GUARD + STACK).unwrap();
    map[..BELOW].fill(0xa5);
    let start = map.as_mut_ptr();
    // SAFETY: the addresses are within the map, which outlives the thread; only that thread uses the task.
    unsafe {
        assert_eq!(mprotect(start.add(BELOW).cast(), GUARD, 0), 0);
        let (mut attr, mut thread) = ([0u64; 16], 0);
        assert_eq!(pthread_attr_init(attr.as_mut_ptr().cast()), 0);
        assert_eq!(pthread_attr_setstack(attr.as_mut_ptr().cast(), start.add(BELOW + GUARD).cast(), STACK), 0);
        assert_eq!(pthread_create(&mut thread, attr.as_ptr().cast(), call, (&raw mut task).cast()), 0);
        assert_eq!(pthread_join(thread, std::ptr::null_mut()), 0);
    }
    map[..BELOW].iter().filter(|byte| **byte != 0xa5).count()
}

/// A kernel that needs more than the stack is rejected; an accepted one runs on it and writes nothing below it.
#[test]
fn memory_below_the_stack_is_not_written() {
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let plain = KernelOptions { optimisation: Optimisation::None, ..KernelOptions::default() };
    let compile = |count| device.kernel(KernelSource::wgsl(with_matrices(count)).options(plain.clone()));
    for count in [3000, 9000] {
        let error = compile(count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("524288 bytes of stack"), "{error}");
    }
    let kernel = compile(700).unwrap();
    let (x, m) = (device.buffer_from(&[0u32; 4]).unwrap(), device.buffer_from(&[0f32; 16]).unwrap());
    let mut y = device.buffer_from(&[1u32; 8]).unwrap();
    let task = || {
        let launch = kernel.launch().bind("x", &x).bind("y", &mut y).bind("m", &m);
        launch.grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
    };
    assert_eq!(on_a_guarded_stack(Box::new(task)), 0, "bytes below the page that guards the stack");
    assert_eq!(y.read().unwrap(), [0; 8]);
}

/// Variables are cleared on each call of their function, 63 MB per iteration here, and reloaded after each barrier:
/// that counts towards the time limit too. Otherwise the clock was not read for minutes.
#[test]
fn clearing_variables_takes_time() {
    let variables: String = (0..30).map(|k| format!("var a{k}: array<u32, 65536>; a{k}[k] = k; ")).collect();
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        fn f(k: u32) -> u32 {{ {variables} return a3[k + 1u]; }}
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            var s = 0u; for (var k = id.x; k < 1000000000u; k++) {{ s += f(k); }} y[id.x] = s;
        }}"
    );
    let limit = Duration::from_millis(100);
    let device = kiln_cpu::open(CpuOptions::new().threads(1).time_limit(Some(limit))).unwrap();
    let kernel = device.kernel(KernelSource::wgsl(text)).unwrap();
    let mut y = device.buffer_from(&[1u32; 8]).unwrap();
    let begin = Instant::now();
    drop(kernel.launch().bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit());
    let error = y.read().unwrap_err().to_string();
    // Generous for slow machines, and far below the time of 2^19 statements between reads of the clock.
    assert!(error.contains("100ms") && begin.elapsed() < 100 * limit, "{error}: {:?}", begin.elapsed());
}
