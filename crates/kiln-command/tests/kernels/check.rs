//! `kiln check`.

use crate::support::Workspace;
use std::fs;

const RACE: &str = "struct Params { n: u32, scale: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
var<workgroup> part: array<f32, 4>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    part[l] = x[id.x] * params.scale;
    workgroupBarrier();
    if (l > 0u) { part[l] += part[l - 1u]; }
    if (id.x < params.n) { y[id.x] = part[l]; }
}
";

/// A fault is reported with its line, and by the exit status; arguments that are not given are generated.
#[test]
fn a_race_is_reported_as_text_and_as_json() {
    let workspace = Workspace::new();
    fs::write(workspace.path("race.wgsl"), RACE).unwrap();
    let ran = workspace.kiln("check race.wgsl");
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    assert_eq!(
        ran.out,
        "race.wgsl:10:30: race: invocation (2, 0, 0) of workgroup (0, 0, 0) reads `part[1]`, which invocation (1, 0, 0) of workgroup \
         (0, 0, 0) wrote in line 10, and no `workgroupBarrier` is in between, nor are these accesses atomic (4 times)\n    if (l > 0u) { part[l] += part[l - 1u]; }\n\
         kernel race.wgsl: 1 fault found; check the generated inputs first: 2x1x1 workgroups of 4x1x1, params.n = 8, params.scale = 1, x \
         of 32 bytes, y of 32 bytes\n"
    );
    let ran = workspace.kiln("check race.wgsl --size 8 --value params.scale=2 --json");
    assert_eq!(ran.code, Some(1));
    let report = ran.json();
    let finding = &report["findings"][0];
    assert_eq!((&finding["kind"], &finding["line"], &finding["index"]), (&"race".into(), &10.into(), &1.into()));
    assert_eq!(finding["other"]["global_id"], serde_json::json!([1, 0, 0]));
    assert_eq!(report["generated"], serde_json::json!(["params.n = 8", "x of 32 bytes", "y of 32 bytes"]));
    assert_eq!((&finding["generated"], &report["error"]), (&serde_json::json!([]), &serde_json::Value::Null));
}

#[test]
fn a_correct_kernel_passes_and_an_invalid_one_does_not_run() {
    let workspace = Workspace::new();
    ["saxpy.wgsl", "bad.wgsl", "x.npy"].iter().for_each(|name| workspace.fixture(name));
    let report = workspace.json("check saxpy.wgsl --in x=x.npy --size 100 --value alpha=2");
    assert_eq!(report["findings"], serde_json::json!([]));
    assert_eq!(report["generated"], serde_json::json!(["y of 400 bytes"]));
    // `y` has one element more than `x`.
    let ran = workspace.kiln("check saxpy.wgsl --in x=x.npy --shape y=101 --size 100");
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("invocation (100, 0, 0) of workgroup (1, 0, 0) reads index 100 of `x`"), "{}", ran.out);
    for line in
        ["check bad.wgsl", "check none.wgsl", "check saxpy.wgsl --value beta=1", "check", "check saxpy.wgsl --size 0"]
    {
        let ran = workspace.kiln(line);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.out);
        assert!(ran.err.starts_with("error: "), "{line}: {}", ran.err);
    }
}

const STENCIL: &str = "struct Params { width: u32, height: u32 }
@group(0) @binding(0) var<storage, read> image: array<f32>;
@group(0) @binding(1) var<storage, read_write> blurred: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) { return; }
    let y = min(id.y + 1u, params.height);
    blurred[id.y * params.width + id.x] = image[y * params.width + id.x];
}
";

const SOFTMAX: &str = "@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> weights: array<f32>;
@group(0) @binding(2) var<uniform> columns: u32;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = id.x * columns;
    if (first + columns > arrayLength(&scores)) { return; }
    var sum = 0.0;
    for (var i = 0u; i < columns; i++) { sum += exp(scores[first + i] - 1000.0); }
    for (var i = 0u; i < columns; i++) { weights[first + i] = exp(scores[first + i] - 1000.0) / sum; }
}
";

const EDGE: &str = "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> part: array<f32, 32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    if (id.x < arrayLength(&x)) {
        part[l] = x[id.x];
        workgroupBarrier();
        y[id.x] = part[l] + part[l ^ 1u];
    }
}
";

/// Generated inputs cause no faults: the height of a plane is not its width, and a buffer is as long as the array that is given.
#[test]
fn faults_are_those_of_the_kernel_and_not_of_generated_inputs() {
    let workspace = Workspace::new();
    workspace.fixture("x.npy");
    for (name, text) in [("stencil.wgsl", STENCIL), ("softmax.wgsl", SOFTMAX), ("edge.wgsl", EDGE)] {
        fs::write(workspace.path(name), text).unwrap();
    }
    let table = [
        ("check stencil.wgsl --size 30x20", vec![("out-of-bounds", 9, "image")]),
        ("check softmax.wgsl --in scores=x.npy --value columns=10 --size 10", vec![("nan", 10, "weights")]),
        ("check edge.wgsl --size 100", vec![("divergent-barrier", 6, "")]),
    ];
    for (line, expected) in table {
        let ran = workspace.kiln(&format!("{line} --json"));
        assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""), "{line}");
        let report = ran.json();
        let found: Vec<_> = (report["findings"].as_array().unwrap().iter())
            .map(|finding| {
                let variable = finding["variable"].as_str().unwrap_or_default();
                (finding["kind"].as_str().unwrap(), finding["line"].as_u64().unwrap(), variable)
            })
            .collect();
        assert_eq!(found, expected, "{line}: {}", ran.out);
    }
    // Generated sizes are whole workgroups, and the report says so.
    let text = workspace.text("check edge.wgsl");
    assert!(
        text.starts_with(
            "kernel edge.wgsl: no fault found in whole workgroups (use `--size` for partial ones); generated inputs"
        ),
        "{text}"
    );
}

const WORLD: &str = "struct Item { at: vec3<f32>, mass: f32, by: vec3<f32> }
struct World { count: u32, step: f32, items: array<Item> }
@group(0) @binding(0) var<storage, read_write> w: World;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    w.items[id.x].at += w.items[id.x].by * w.step;
}
";

/// A struct that ends in an array gets one item per invocation, or the length of `--shape`.
#[test]
fn the_array_at_the_end_of_a_struct_has_the_length_of_the_problem() {
    let workspace = Workspace::new();
    fs::write(workspace.path("w.wgsl"), WORLD).unwrap();
    assert_eq!(workspace.json("check w.wgsl")["generated"][1], "w of 2064 bytes");
    assert_eq!(workspace.json("check w.wgsl --size 96 --shape w=96")["generated"][0], "w of 3088 bytes");
    let ran = workspace.kiln("check w.wgsl --shape w=10");
    assert_eq!(ran.code, Some(1));
    let expected = "reads index 10 of `w`, which has 10 elements";
    assert!(ran.out.contains(expected) && ran.out.contains("\n    with generated w of 336 bytes\n"), "{}", ran.out);
    let fixed = WORLD.replace("array<Item> }", "array<Item, 64> }");
    fs::write(workspace.path("w.wgsl"), fixed).unwrap();
    workspace.text("check w.wgsl");
    let ran = workspace.kiln("check w.wgsl --shape w=64");
    let error =
        "error: binding w: World (read_write) expected a `--shape` of 1 element, the length of its type, found (64,)\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(2), error));
}

/// Findings from before a kernel was stopped are reported, with the reason of the stop.
#[test]
fn findings_of_a_stopped_kernel_are_reported() {
    let workspace = Workspace::new();
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x + 1000u] = 1u;
            loop { if (y[id.x] == 12345u) { break; } y[id.x] = 7u; }
        }";
    fs::write(workspace.path("k.wgsl"), text).unwrap();
    let ran = workspace.kiln("check k.wgsl --time-limit 0.3");
    assert_eq!(ran.code, Some(2), "{}", ran.out);
    assert!(ran.out.starts_with("k.wgsl:3:13: out-of-bounds: "), "{}", ran.out);
    assert!(ran.out.contains("kernel k.wgsl: 1 fault found before the kernel was stopped; check the"), "{}", ran.out);
    assert!(ran.err.starts_with("error: ") && ran.err.contains("`k.wgsl`"), "{}", ran.err);
    let report = workspace.kiln("check k.wgsl --time-limit 0.3 --json").json();
    assert_eq!((&report["findings"][0]["line"], report["error"].is_string()), (&3.into(), true));
    // Without a finding there is only the error.
    fs::write(workspace.path("k.wgsl"), text.replace("y[id.x + 1000u] = 1u;", "")).unwrap();
    let ran = workspace.kiln("check k.wgsl --time-limit 0.3");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    let ran = workspace.kiln("run k.wgsl --device cpu --shape y=4 --size 4 --time-limit 0.3");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    let ran = workspace.kiln("check k.wgsl --time-limit 0");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("expected seconds above 0"), "{}", ran.err);
}

/// Uniforms of any type are generated.
#[test]
fn matrices_arrays_and_structs_are_generated() {
    let workspace = Workspace::new();
    let text = "struct Size { width: u32, height: u32 } struct Params { size: Size, table: array<vec4<f32>, 4> }
        @group(0) @binding(0) var<uniform> m: mat3x3<f32>;
        @group(0) @binding(1) var<uniform> p: Params;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < p.size.width * p.size.height) { y[id.x] = m[2].z + p.table[id.x].x; }
        }";
    fs::write(workspace.path("k.wgsl"), text).unwrap();
    let ran = workspace.kiln("check k.wgsl --size 4x2 --json");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let report = ran.json();
    assert_eq!(
        report["generated"],
        serde_json::json!(["m = 1 (9 times)", "p.size = 4,2", "p.table = 1 (16 times)", "y of 32 bytes"])
    );
    let finding = &report["findings"][0];
    assert_eq!((&finding["index"], &finding["line"]), (&4.into(), &6.into()));
    assert_eq!(finding["generated"], report["generated"]);
}
