//! Random programs on buffers between guard pages: an out-of-bounds read or write crashes the process.
//! `KILN_FUZZ_CASES` sets the number of programs, `KILN_FUZZ_SEED` the first seed.

#![cfg(all(feature = "wgsl", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "wgsl/launch.rs"]
#[allow(dead_code, reason = "these programs run without a device")]
mod launch;

use kiln::Device;
use kiln::kernel::{KernelKey, KernelSource};
use kiln_device::{BindingKind, KernelModule};
use kiln_jit::{BoundBuffer, Compiler, ExecutableKernel, LaunchArgs, Options, Outcome, Scratch};
use kiln_testkit::wgsl::{Case, Features, generate};
use memmap2::MmapMut;
use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A multiple of the page size of every supported system.
const PAGES: usize = 64 << 10;

unsafe extern "C" {
    fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int;
}

/// Memory that begins or ends at an inaccessible page.
struct Guarded {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl Guarded {
    fn new(contents: &[u8], at_end: bool) -> Self {
        let room = contents.len().next_multiple_of(PAGES);
        let mut map = MmapMut::map_anon(room + 2 * PAGES).unwrap();
        // Buffer addresses are multiples of four.
        let start = if at_end { PAGES + (room - contents.len()) / 4 * 4 } else { PAGES };
        map[start..][..contents.len()].copy_from_slice(contents);
        for page in [0, PAGES + room] {
            // SAFETY: the range is inside the map and is no longer accessed.
            assert_eq!(unsafe { mprotect(map[page..].as_mut_ptr().cast(), PAGES, 0) }, 0);
        }
        Self { map, start, bytes: contents.len() }
    }

    /// Returns the binding for machine code, with a length that may be wrong on purpose.
    fn bound(&mut self, bytes: usize) -> BoundBuffer {
        BoundBuffer { data: self.map[self.start..].as_mut_ptr(), bytes: bytes as u64 }
    }

    fn contents(&self) -> &[u8] {
        &self.map[self.start..][..self.bytes]
    }
}

/// Returns the contents of all bindings after a case ran.
fn run(case: &Case, program: &KernelModule, options: &Options, at_end: bool, is_lie: bool) -> Vec<Vec<u8>> {
    let compiled = Compiler::new().unwrap().compile(&program.module, &program.info, options).unwrap();
    let bindings = &program.reflection.bindings;
    let values = bindings.iter().filter(|binding| binding.kind == BindingKind::Value);
    let buffers = bindings.iter().filter(|binding| binding.kind != BindingKind::Value);
    let mut memory: Vec<Guarded> = (buffers.chain(values))
        .map(|binding| {
            let given = case.bindings.iter().find(|given| given.name == binding.name).unwrap();
            Guarded::new(&given.contents(case.seed), at_end)
        })
        .collect();
    let lie = if is_lie { PAGES } else { 0 };
    let bound: Vec<BoundBuffer> = memory.iter_mut().map(|memory| memory.bound(memory.bytes + lie)).collect();
    let groups = case.grid.iter().map(|count| u64::from(*count)).product();
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let code = ExecutableKernel::new(compiled).unwrap();
    let given = LaunchArgs { bindings: &bound, workgroups: case.grid, deadline };
    // SAFETY: the bindings match the reflection, in its order; a longer length is passed only where the test expects a crash.
    let outcome = unsafe { code.run(&given, 0..groups, &mut Scratch::default()) };
    assert_eq!(outcome, Outcome::Done, "{}", case.text);
    memory.iter().map(|memory| memory.contents().to_vec()).collect()
}

fn program(case: &Case, device: &Device) -> KernelModule {
    let source = KernelSource::wgsl(case.text.as_str());
    let source = case.constants.iter().fold(source, |source, (name, value)| source.constant(name, *value));
    KernelModule::new(&KernelKey::new(&source, device.info()).unwrap(), device.info()).unwrap()
}

/// With every compile option a program stays within its buffers, with a guard page on either side, and computes the same. So does one
/// without the checks that are proven redundant, as in a release build.
#[test]
fn random_programs_stay_inside() {
    let device = Device::cpu().unwrap();
    launch::for_each_seed(20, |seed| {
        let name = format!("guarded-{}-{seed}.wgsl", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let features = Features { f16: true, subgroups: seed % 3 == 0, pointers_to_parts: seed % 2 == 0 };
        let case = Case::parse(&generate(seed, features)).unwrap();
        // Written before the run, so that it exists after a crash.
        std::fs::write(&path, &case.text).unwrap();
        let program = program(&case, &device);
        let exact = || Options { fast_math: false, verify_elided_checks: false, ..Options::default() };
        let expected = run(&case, &program, &exact(), true, false);
        let ways = [
            (Options { optimise: false, ..exact() }, false),
            (Options { single_lane: true, ..exact() }, true),
            (Options { elide_bounds_checks: true, ..exact() }, true),
            (Options { elide_bounds_checks: true, ..exact() }, false),
        ];
        for (options, at_end) in ways {
            assert!(run(&case, &program, &options, at_end, false) == expected, "{seed} {options:?}\n{}", case.text);
        }
        std::fs::remove_file(&path).unwrap();
    });
}

/// The guard pages work: with a wrong length, the process crashes.
#[test]
fn the_pages_are_guards() {
    const CHILD: &str = "KILN_GUARDED_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["the_pages_are_guards", "--exact"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(11), "{ended:?}");
        return;
    }
    let text = "//: grid 1 1 1
        //: buffer x u 8
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(1) fn main() { x[0] = x[8]; }";
    let case = Case::parse(text).unwrap();
    let program = program(&case, &Device::cpu().unwrap());
    run(&case, &program, &Options::default(), true, true);
}
