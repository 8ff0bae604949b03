//! `kiln run`.

use crate::support::{Workspace, fixture};
use std::fs;

const SAXPY: &str = "run saxpy.wgsl --in x=x.npy --in y=y.npy --out y=out.npy --value alpha=2 --size 100";

fn saxpy_workspaces() -> impl Iterator<Item = Workspace> {
    Workspace::on_each_device().inspect(|workspace| {
        ["saxpy.wgsl", "index.wgsl", "x.npy", "y.npy"].iter().for_each(|name| workspace.fixture(name));
    })
}

/// A read-write buffer; the second run loads its kernel from disk; the output file equals NumPy's.
#[test]
fn saxpy_is_right_and_its_kernel_is_kept() {
    for workspace in saxpy_workspaces() {
        let expected = fs::read(fixture("saxpy.npy")).unwrap();
        for origin in ["compiled", "disk"] {
            let report = workspace.json(SAXPY);
            assert_eq!(fs::read(workspace.path("out.npy")).unwrap(), expected);
            let kernel = &report["kernel"];
            assert_eq!(
                (&kernel["name"], &kernel["entry"], &kernel["origin"]),
                (&"saxpy.wgsl".into(), &"main".into(), &origin.into())
            );
            assert_eq!(report["device"]["id"], workspace.device());
            assert!(kernel["load_us"].as_u64().unwrap() > 0 && report["run_us"].as_u64().unwrap() > 0);
            let output = serde_json::json!([{ "name": "y", "dtype": "f32", "shape": [100], "file": "out.npy" }]);
            assert_eq!(report["outputs"], output);
        }
        let text = workspace.text(SAXPY);
        assert!(text.starts_with("y  f32  (100,)  out.npy\nkernel saxpy.wgsl ("), "{text}");
        assert!(
            text.contains(") loaded from disk in ") && text.contains(&format!(" on {} (", workspace.device())),
            "{text}"
        );
        assert!(
            fs::read_dir(workspace.path("")).unwrap().all(|file| !file
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with(".tmp"))
        );
    }
}

/// The output file may be the input file: it is replaced at the end.
#[test]
fn output_may_replace_its_input() {
    for workspace in saxpy_workspaces() {
        workspace.text(&SAXPY.replace("out.npy", "y.npy"));
        assert_eq!(fs::read(workspace.path("y.npy")).unwrap(), fs::read(fixture("saxpy.npy")).unwrap());
    }
}

/// An `override` constant is part of the kernel key, and has its value in the kernel.
#[test]
fn constants_and_options_reach_the_kernel() {
    for workspace in saxpy_workspaces() {
        workspace.text(&SAXPY.replace("alpha=2", "alpha=4 --constant SCALE=0.5 --option bounds-checks=off"));
        assert_eq!(fs::read(workspace.path("out.npy")).unwrap(), fs::read(fixture("saxpy.npy")).unwrap());
        let fields = workspace.text("cache explain saxpy.wgsl");
        for change in ["constants      SCALE=0.5", "bounds_checks  false      true"] {
            assert!(fields.contains(change), "{fields}");
        }
    }
}

/// An output without an input has one element per invocation of `--size`, x last, or the given shape.
#[test]
fn outputs_get_their_shape_from_the_problem_or_the_command_line() {
    for workspace in saxpy_workspaces() {
        let run =
            |arguments: &str| workspace.json(&format!("run index.wgsl {arguments}"))["outputs"][0]["shape"].clone();
        let data = |header: usize| {
            let bytes = fs::read(workspace.path("o.npy")).unwrap()[header..].to_vec();
            bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
        };
        let plane = "--entry plane --out y=o.npy --value params.offset=10,20";
        assert_eq!(run(&format!("{plane} --size 3x2 --value params.width=3")), serde_json::json!([2, 3]));
        assert_eq!(data(128), [2010, 2011, 2012, 2110, 2111, 2112]);
        assert_eq!(run(&format!("{plane} --size 3x2 --shape y=14 --value params.width=3")), serde_json::json!([14]));
        assert_eq!(data(128)[10..], [2311, 2312, 0, 0], "a workgroup has four rows; what nothing writes is zero");
        assert_eq!(
            run(&format!("{plane} --workgroups 1 --shape y=2x2 --value params.width=2")),
            serde_json::json!([2, 2])
        );
        assert_eq!(data(128), [2010, 2011, 2110, 2111]);
        assert_eq!(run("--entry vectors --out v=o.npy --size 3"), serde_json::json!([3, 4]));
        assert_eq!(data(128)[8..12], [2.0f32, 1.0, 2.0, 3.0].map(f32::to_bits));
        workspace.fixture("plane.npy");
        let both = plane.replace("--out", "--in y=plane.npy --out");
        assert_eq!(run(&format!("{both} --size 1 --value params.width=1")), serde_json::json!([2, 3]));
        assert_eq!(data(128), [2010, 2110, 2210, 2310, 4, 5]);
        assert_eq!(run(&format!("{both} --size 1 --shape y=3x2 --value params.width=3")), serde_json::json!([3, 2]));
    }
}

#[test]
fn halves_are_two_bytes_each() {
    for workspace in Workspace::on_each_device() {
        if kiln::Device::list().iter().any(|info| !info.features.contains(&kiln::device::Feature::ShaderF16)) {
            println!("skipped: a device has no f16");
            return;
        }
        workspace.fixture("halves.npy");
        let source = "enable f16; @group(0) @binding(0) var<storage, read_write> h: array<f16>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) { h[id.x] = h[id.x] + 1.0h; }";
        fs::write(workspace.path("h.wgsl"), source).unwrap();
        workspace.text("run h.wgsl --in h=halves.npy --out h=out.npy --size 4");
        let bytes = fs::read(workspace.path("out.npy")).unwrap();
        assert_eq!(bytes[128..], [1.0f32, 2.0, 3.0, 4.0].map(|x| half::f16::from_f32(x).to_le_bytes()).concat());
        // An odd number of 16-bit elements, which a device cannot bind directly.
        assert_eq!(
            workspace.json("run h.wgsl --out h=three.npy --size 3")["outputs"][0]["shape"],
            serde_json::json!([3])
        );
        assert_eq!(numbers(&workspace, "three.npy", f16), [1.0; 3]);
        workspace.text("run h.wgsl --in h=three.npy --out h=three.npy --size 3");
        assert_eq!(numbers(&workspace, "three.npy", f16), [2.0; 3]);
    }
}

fn f16(bytes: [u8; 2]) -> f32 {
    half::f16::from_le_bytes(bytes).to_f32()
}

/// Returns the numbers in a file with a short header.
fn numbers<const BYTES: usize>(workspace: &Workspace, name: &str, number: fn([u8; BYTES]) -> f32) -> Vec<f32> {
    let bytes = fs::read(workspace.path(name)).unwrap();
    bytes[128..].chunks(BYTES).map(|bytes| number(bytes.try_into().unwrap())).collect()
}

/// Files have `vec3` without padding; other shapes are rejected.
#[test]
fn vectors_have_their_length_as_last_axis() {
    for workspace in Workspace::on_each_device() {
        workspace.fixture("ints.npy");
        workspace.fixture("plane.npy");
        let source = "@group(0) @binding(0) var<storage, read> x: array<vec3<u32>>;
        @group(0) @binding(1) var<storage, read_write> y: array<vec3<f32>>;
        @group(0) @binding(2) var<storage, read_write> p: array<vec2<u32>>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x] = vec3<f32>(x[id.x].zyx) + y[id.x];
        }
        @compute @workgroup_size(1) fn pairs(@builtin(global_invocation_id) id: vec3<u32>) { p[id.x].x += 1; }";
        fs::write(workspace.path("v.wgsl"), source).unwrap();
        let run = |line: &str| workspace.json(&format!("run v.wgsl {line} --size 2"))["outputs"][0]["shape"].clone();
        assert_eq!(run("--entry main --in x=plane.npy --out y=y.npy"), serde_json::json!([2, 3]));
        assert_eq!(numbers(&workspace, "y.npy", f32::from_le_bytes), [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
        assert_eq!(run("--entry main --in x=plane.npy --in y=y.npy --out y=y.npy"), serde_json::json!([2, 3]));
        assert_eq!(numbers(&workspace, "y.npy", f32::from_le_bytes), [4.0, 2.0, 0.0, 10.0, 8.0, 6.0]);
        let error = workspace.error("run v.wgsl --entry pairs --in p=plane.npy --out p=p.npy --size 2");
        let expected = "expected a shape that ends with (2,), the shape of an element, found (2, 3) in plane.npy";
        assert_eq!(error, format!("error: binding p: array<vec2<u32>> (read_write): {expected}\n"));
        assert_eq!(run("--entry pairs --in p=plane.npy --out p=p.npy --shape p=3"), serde_json::json!([3, 2]));
    }
}

/// Structs are raw bytes: any shape is accepted whose size is a multiple of theirs.
#[test]
fn structs_take_arrays_of_any_shape() {
    for workspace in Workspace::on_each_device() {
        workspace.fixture("plane.npy");
        let source = "struct Pair { a: u32, b: f32 } @group(0) @binding(0) var<storage, read_write> p: array<Pair>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) { p[id.x].a += 1; }";
        fs::write(workspace.path("s.wgsl"), source).unwrap();
        let run = |more: &str| workspace.json(&format!("run s.wgsl --in p=plane.npy --out p=p.npy --size 3 {more}"));
        assert_eq!(run("")["outputs"][0]["shape"], serde_json::json!([2, 3]));
        assert_eq!(run("--shape p=3")["outputs"][0]["shape"], serde_json::json!([3, 2]));
        assert_eq!(
            numbers(&workspace, "p.npy", |bytes| u32::from_le_bytes(bytes) as f32),
            [1.0, 1.0, 3.0, 3.0, 5.0, 5.0]
        );
        let source = source.replace("b: f32", "b: f32, c: vec2<f32>");
        fs::write(workspace.path("s.wgsl"), source).unwrap();
        let error = workspace.error("run s.wgsl --in p=plane.npy --out p=p.npy --size 1");
        assert!(error.ends_with("expected a multiple of 16 bytes, found 24 in shape (2, 3) of plane.npy\n"), "{error}");
    }
}

/// Different paths may name one file: no data is lost then.
#[cfg(unix)]
#[test]
fn outputs_do_not_overwrite_each_other_or_what_is_read() {
    for workspace in saxpy_workspaces() {
        std::os::unix::fs::symlink("saxpy.wgsl", workspace.path("link")).unwrap();
        std::os::unix::fs::symlink("x.npy", workspace.path("x.link")).unwrap();
        let folder = workspace.path("");
        let whole = folder.join("saxpy.wgsl");
        for (file, other) in [
            ("./saxpy.wgsl", "the kernel"),
            ("link", "the kernel"),
            (whole.to_str().unwrap(), "the kernel"),
            ("x.link", "the input of `x`"),
        ] {
            let error = workspace.error(&SAXPY.replace("out.npy", file));
            let expected = format!("error: output `y` expected a separate file, found {file}, which is {other}\n");
            assert_eq!(error, expected);
        }
        for name in ["saxpy.wgsl", "x.npy"] {
            assert_eq!(fs::read(workspace.path(name)).unwrap(), fs::read(fixture(name)).unwrap());
        }
        workspace.text(&SAXPY.replace("y.npy", "./y.npy").replace("out.npy", "y.npy"));
    }
}

/// A kernel that is too large for the disk cache runs, with a warning each time.
#[test]
fn kernel_that_is_too_large_to_store_gives_a_warning() {
    for workspace in saxpy_workspaces() {
        let source = fs::read_to_string(workspace.path("saxpy.wgsl")).unwrap();
        fs::write(workspace.path("saxpy.wgsl"), format!("{source}// {}\n", "x".repeat(2 << 20))).unwrap();
        let fault = "larger than the maximum entry size of the store\n";
        for _ in 0..2 {
            let ran = workspace.kiln(SAXPY);
            assert_eq!((ran.code, ran.out.contains(" compiled in ")), (Some(0), true), "{}", ran.err);
            assert_eq!(ran.err, format!("warning: the compiled kernel is not stored: {fault}"));
        }
        let ran = workspace.kiln("cache warm saxpy.wgsl");
        assert_eq!((ran.code, ran.out.starts_with(&format!("not stored: {fault}"))), (Some(1), true), "{}", ran.out);
    }
}

/// Errors name the binding, what was expected and what was found, and nothing is written.
#[test]
fn errors_name_what_is_wrong() {
    for workspace in saxpy_workspaces() {
        let more = ["doubles.npy", "ints.npy", "bad.wgsl"];
        more.iter().for_each(|name| workspace.fixture(name));
        let lines = [
            SAXPY.replace("x=x.npy", "x=doubles.npy"),
            SAXPY.replace("x=x.npy", "x=ints.npy"),
            SAXPY.replace("x=x.npy", "x=saxpy.wgsl"),
            SAXPY.replace("--in x=", "--in z="),
            SAXPY.replace("--out y=", "--out x="),
            SAXPY.replace("--size 100", "--size 100 --shape y=99"),
            SAXPY.replace("alpha=2", "alpha=two"),
            SAXPY.replace("alpha=2", "beta=2"),
            SAXPY.replace("--size 100", "--entry start --size 100"),
            SAXPY.replace("--size 100", "--constant WRONG=1 --size 100"),
            SAXPY.replace("alpha=2", "alpha=2 --value alpha=3"),
            SAXPY.replace("--size 100", "--constant SCALE=1 --constant SCALE=2 --size 100"),
            SAXPY.replace("--size 100", "--option fast-math=on --option fast-math=off --size 100"),
            "run saxpy.wgsl".to_string(),
            "run bad.wgsl --size 1".to_string(),
        ];
        let errors: Vec<String> =
            lines.iter().map(|line| format!("$ kiln {line}\n{}", workspace.error(line))).collect();
        insta::assert_snapshot!("errors", errors.join("\n"));
        let files = [
            (SAXPY.replace("x=x.npy", "x=nowhere.npy"), "binding x: array<f32> (read): cannot read nowhere.npy: "),
            (SAXPY.replace("out.npy", "nowhere/out.npy"), "cannot write nowhere/out.npy: "),
            ("run nowhere.wgsl --size 1".to_string(), "cannot read the kernel nowhere.wgsl: "),
        ];
        for (line, expected) in files {
            let error = workspace.error(&line);
            assert!(error.starts_with(&format!("error: {expected}")), "{error}");
        }
        assert!(!workspace.path("out.npy").exists());
    }
}

/// Every device gives the same bytes, and the default is the best device. Needs no GPU.
#[test]
fn devices_agree_and_one_is_chosen() {
    let outputs: Vec<Vec<u8>> = saxpy_workspaces()
        .map(|workspace| {
            workspace.text(SAXPY);
            fs::read(workspace.path("out.npy")).unwrap()
        })
        .collect();
    assert!(outputs.iter().all(|output| *output == fs::read(fixture("saxpy.npy")).unwrap()));
    let workspace = Workspace::new();
    ["saxpy.wgsl", "x.npy", "y.npy"].iter().for_each(|name| workspace.fixture(name));
    assert_eq!(workspace.json(SAXPY)["device"]["id"], kiln::Device::best().unwrap().info().id);
    let error = workspace.error(&format!("{SAXPY} --device tpu"));
    assert!(error.contains("expected the name of a device, `cpu`, `gpu` or `gpu:N`, found `tpu`"), "{error}");
}

#[test]
fn command_lines_that_make_no_sense_exit_with_2() {
    let workspace = Workspace::new();
    for line in [
        "run",
        "run a.wgsl --size ten",
        "run a.wgsl --size 10 --workgroups 1",
        "run a.wgsl --in x.npy",
        "run a.wgsl --constant A=b",
        "run a.wgsl --workgroups 0",
        "run a.wgsl --workgroups 4,0,1",
        "run a.wgsl --option speed=on",
    ] {
        let ran = workspace.kiln(line);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{line}");
        assert!(ran.err.starts_with("error: "), "{line}: {}", ran.err);
    }
}

/// An unusable cache directory gives one warning, and the kernel runs.
#[test]
fn kernel_runs_without_a_cache_directory() {
    for workspace in saxpy_workspaces() {
        fs::write(workspace.cache_dir(), "not a directory").unwrap();
        let ran = workspace.kiln(SAXPY);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.err.starts_with("warning: the compiled kernel is not stored: the cache directory "), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(ran.out.contains(" compiled in "), "{}", ran.out);
        assert_eq!(fs::read(workspace.path("out.npy")).unwrap(), fs::read(fixture("saxpy.npy")).unwrap());
    }
}

/// A size of 0 has an empty output.
#[test]
fn an_empty_problem_writes_an_empty_array() {
    for workspace in Workspace::on_each_device() {
        workspace.fixture("index.wgsl");
        let line =
            "run index.wgsl --entry plane --out y=out.npy --value params.width=1 --value params.offset=0,0 --size 0";
        assert!(workspace.text(line).starts_with("y  u32  (0,)  out.npy\n"));
        assert!(workspace.path("out.npy").exists());
    }
}

/// The numbers of matrices, arrays and structs are in memory order, without padding.
#[test]
fn uniforms_of_any_type_take_their_numbers_in_order() {
    for workspace in Workspace::on_each_device() {
        let text = "struct Inner { a: f32, b: vec2<u32> } struct Params { inner: Inner, table: array<vec3<i32>, 2> }
        @group(0) @binding(0) var<uniform> m: mat2x3<f32>;
        @group(0) @binding(1) var<uniform> p: Params;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() {
            for (var i = 0; i < 6; i++) { y[i] = m[i / 3][i % 3]; y[i + 6] = f32(p.table[i / 3][i % 3]); }
            y[12] = p.inner.a; y[13] = f32(p.inner.b.x); y[14] = f32(p.inner.b.y);
        }";
        fs::write(workspace.path("k.wgsl"), text).unwrap();
        let line = "run k.wgsl --out y=y.npy --shape y=15 --workgroups 1 --value m=1,2,3,4,5,6 --value p.inner=0.5,7,8";
        workspace.text(&format!("{line} --value p.table=-1,-2,-3,-4,-5,-6"));
        let expected = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, 0.5, 7.0, 8.0];
        assert_eq!(numbers(&workspace, "y.npy", f32::from_le_bytes), expected);
        let error = workspace.error(line);
        assert!(
            error.contains("p.table: array<vec3<i32>, 2> (value)  --value p.table=NUMBER,NUMBER,… (6 numbers)"),
            "{error}"
        );
    }
}

/// Structs may be scratch memory too; the length of a trailing array is that of `--shape`, or of the file.
#[test]
fn structs_of_any_length_are_made_or_read() {
    for workspace in Workspace::on_each_device() {
        workspace.fixture("plane.npy");
        let text = "struct World { count: u32, items: array<vec2<u32>> }
        @group(0) @binding(0) var<storage, read_write> w: World;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1) fn main() { y[0] = arrayLength(&w.items); y[1] = w.items[1].y; }";
        fs::write(workspace.path("k.wgsl"), text).unwrap();
        let run = |more: &str| {
            workspace.text(&format!("run k.wgsl --out y=y.npy --shape y=2 --workgroups 1 {more}"));
            numbers(&workspace, "y.npy", |bytes| u32::from_le_bytes(bytes) as f32)
        };
        assert_eq!(run("--shape w=9"), [9.0, 0.0]);
        assert_eq!(run("--in w=plane.npy"), [2.0, 5.0]);
        assert_eq!(run("--in w=plane.npy --shape w=2"), [2.0, 5.0]);
        let error = workspace.error("run k.wgsl --out y=y.npy --shape y=2 --workgroups 1 --in w=plane.npy --shape w=3");
        assert!(error.ends_with("`--shape` expected the 24 bytes of plane.npy, found 32\n"), "{error}");
    }
}

/// A kernel with `enable subgroups;` runs if the device supports subgroups.
#[test]
fn subgroups_may_be_enabled() {
    for workspace in Workspace::on_each_device() {
        let device = kiln::Device::by_name(workspace.device()).unwrap();
        let text = "enable subgroups;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) { y[i] = subgroupAdd(0u) + i; }";
        fs::write(workspace.path("k.wgsl"), text).unwrap();
        let line = "run k.wgsl --out y=y.npy --size 4";
        if device.info().features.contains(&kiln::device::Feature::Subgroups) {
            workspace.text(line);
            assert_eq!(numbers(&workspace, "y.npy", |bytes| u32::from_le_bytes(bytes) as f32), [0.0, 1.0, 2.0, 3.0]);
        } else {
            assert!(workspace.error(line).starts_with("error: k.wgsl:1:8: expected a device with subgroups"));
        }
    }
}
