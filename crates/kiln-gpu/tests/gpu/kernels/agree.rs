//! All devices compute the same results for rarely used parts of WGSL.

use super::targets;
use kiln_device::{Device, Grid, KernelSource};

const ITEMS: usize = 720;

/// Returns words of every kind: small, large, few bits, many bits.
fn words() -> Vec<u32> {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 3 ^ state << 7
    };
    (0..ITEMS)
        .map(|index| match index % 5 {
            0 => index as u32,
            1 => next(),
            2 => next() & next(),
            3 => next() % 100,
            _ => [0, 1, u32::MAX, 1 << 31, i32::MAX as u32][index / 5 % 5],
        })
        .collect()
}

const BINDINGS: &str = "
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
";

/// Returns what the entry point `main` writes to `y`, with enough workgroups to cover the items.
fn run(device: &Device, name: &str, source: &str) -> Vec<u32> {
    let kernel = device.kernel(KernelSource::wgsl(format!("{BINDINGS}{source}")).named(name)).unwrap();
    let invocations = kernel.reflection().workgroup_size.iter().product::<u32>();
    let x = device.buffer_from(&words()).unwrap();
    let mut y = device.buffer_of::<u32>(ITEMS).unwrap();
    y.zero().unwrap();
    let grid = Grid::workgroups([(ITEMS as u32).div_ceil(invocations), 1, 1]);
    kernel.launch().bind("x", &x).bind("y", &mut y).grid(grid).submit().unwrap();
    y.read().unwrap()
}

/// Checks that all devices write the same words.
#[track_caller]
fn agree(name: &str, source: &str) {
    let found: Vec<(Device, Vec<u32>)> =
        targets().into_iter().map(|device| (device.clone(), run(&device, name, source))).collect();
    let (_, wanted) = &found[0];
    assert!(wanted.iter().any(|word| *word != wanted[0]), "{name} computes something");
    for (device, words) in &found[1..] {
        let differs = wanted.iter().zip(words).position(|(wanted, found)| wanted != found);
        if let Some(place) = differs {
            let (x, one, other) = (words_at(place), wanted[place], words[place]);
            panic!(
                "{name}: item {place} of {x:#x} on {}: {other:#x}, on {}: {one:#x}",
                device.info().compiler.as_deref().unwrap_or("-"),
                found[0].0.info().id
            );
        }
    }
}

fn words_at(place: usize) -> u32 {
    words()[place]
}

/// Builds a kernel for any workgroup shape from a function of an item, which has the index `i` and the value `v`.
fn each(size: &str, before: &str, body: &str) -> String {
    format!(
        "{before}
        @compute @workgroup_size({size}) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32,
            @builtin(local_invocation_id) at: vec3<u32>) {{
            const SIZE = vec3<u32>({size});
            let i = group.x * (SIZE.x * SIZE.y * SIZE.z) + (at.z * SIZE.y + at.y) * SIZE.x + at.x;
            if (i >= {ITEMS}u || local != (at.z * SIZE.y + at.y) * SIZE.x + at.x) {{ return; }}
            let v = x[i];
            {body}
        }}"
    )
}

const SIZES: [&str; 5] = ["64,1,1", "12,1,1", "3,5,2", "8,3,1", "1,1,1"];

/// `min`, `max` and `clamp` of NaN and a number return the number.
#[test]
fn min_and_max_of_nan() {
    agree(
        "extremes",
        "fn float(word: u32) -> f32 { return select(f32(word % 64u) - 32.0, bitcast<f32>(0x7fc00000u), word % 3u == 0u); }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x >= arrayLength(&y)) { return; }
            let a = float(x[id.x]); let b = float(x[(id.x + 1u) % arrayLength(&x)]);
            let is_number = a == a || b == b;
            let least = select(0.0, min(a, b), is_number); let most = select(0.0, max(a, b), is_number);
            y[id.x] = u32(least + 100.0) * 1000000u + u32(most + 100.0) * 1000u + u32(clamp(a, -9.0, 9.0) + 100.0);
        }",
    );
}

#[test]
fn integers() {
    let body = "
        let w = x[(i * 7u + 3u) % 720u]; let s = bitcast<i32>(v); let t = bitcast<i32>(w);
        var h = v / w ^ (v % w) ^ bitcast<u32>(s / t) ^ bitcast<u32>(s % t) * 3u;
        h = h * 31u + (v << (w & 31u)) + (v >> (w & 31u)) + bitcast<u32>(s >> (w & 31u));
        h = h * 31u + countOneBits(v) + (reverseBits(v) ^ countLeadingZeros(v)) + countTrailingZeros(v) * 5u;
        h = h * 31u + firstLeadingBit(v) + bitcast<u32>(firstLeadingBit(s)) * 3u + firstTrailingBit(v) * 7u;
        h = h * 31u + extractBits(v, w & 31u, v & 15u) + bitcast<u32>(extractBits(s, w & 31u, v & 15u));
        h = h * 31u + insertBits(v, w, w & 31u, v & 15u) + bitcast<u32>(abs(s)) + bitcast<u32>(sign(t)) + min(v, w) * 3u;
        h = h * 31u + bitcast<u32>(max(s, t)) + bitcast<u32>(clamp(s, min(t, 5), max(t, 5))) + bitcast<u32>(-s) + ~w;
        h = h * 31u + dot4U8Packed(v, w) + bitcast<u32>(dot4I8Packed(v, w)) + pack4xI8(unpack4xI8(v) * 3) + pack4xU8Clamp(unpack4xU8(w) * 2u);
        h = h * 31u + bitcast<u32>(dot(vec3<i32>(s, t, 3), vec3<i32>(t, 5, s))) + select(1u, 2u, s < t) + u32(v <= w) * 9u;
        y[i] = h;";
    for size in SIZES {
        agree(&format!("integers of {size}"), &each(size, "", body));
    }
}

#[test]
fn floats() {
    // Exact on every device, or rounded far from where results could differ.
    let body = "
        let f = f32(bitcast<i32>(v) >> 12u) * 0.25; let g = f32(x[(i * 7u + 3u) % 720u] % 1000u) * 0.5 - 100.0;
        var h = bitcast<u32>(f) + bitcast<u32>(g) * 3u;
        h = h * 31u + bitcast<u32>(i32(f * 4096.0)) + u32(g) + bitcast<u32>(i32(trunc(f)) + i32(floor(g)) * 3 + i32(ceil(g)) * 5 + i32(round(f)) * 7);
        h = h * 31u + bitcast<u32>(fract(f)) + bitcast<u32>(sign(g)) + bitcast<u32>(max(f, g)) + bitcast<u32>(clamp(f, -9.0, 9.0)) + bitcast<u32>(saturate(g));
        h = h * 31u + bitcast<u32>(step(f, g)) + bitcast<u32>(abs(f)) + bitcast<u32>(sqrt(floor(g) * floor(g)));
        let parts = frexp(f); let two = modf(g);
        h = h * 31u + bitcast<u32>(parts.fract) + bitcast<u32>(parts.exp) + bitcast<u32>(two.fract + 1.0) * 3u + bitcast<u32>(two.whole) + bitcast<u32>(ldexp(f, 3));
        h = h * 31u + pack4x8unorm(unpack4x8unorm(v)) + pack2x16snorm(unpack2x16snorm(v & 0x7ffe7ffeu)) + pack4x8snorm(unpack4x8snorm(v & 0x7e7e7e7eu)) + pack2x16unorm(unpack2x16unorm(v));
        h = h * 31u + pack2x16float(vec2(f, g)) + u32(all(vec2(f, g) < vec2(g, f + 1.0))) + u32(any(vec2(f == g, f > g))) * 2u;
        h = h * 31u + bitcast<u32>(f % 8.0) + u32(round(exp2(f32(v % 10u)))) + u32(round(100.0 * (sin(g) + atan2(f32(v % 7u), 3.0) + pow(1.5, f32(v % 5u)))) + 200.0 > 1.0e9);
        y[i] = h;";
    for size in SIZES {
        agree(&format!("floats of {size}"), &each(size, "", body));
    }
}

/// Loops, switches and functions that invocations leave at different times.
#[test]
fn control() {
    let before = "
        fn search(start: u32, steps: ptr<function, u32>) -> u32 {
            var n = start % 97u;
            loop {
                if (n == 0u) { break; }
                if (n % 13u == 5u) { return n * 100u; }
                switch n % 7u {
                    case 0u: { n /= 2u; continue; }
                    case 1u, 4u: { n -= 1u; }
                    case 6u: { if (n > 50u) { break; } *steps += 10u; return 7u; }
                    default: { n -= 1u; if (n % 2u == 0u) { continue; } *steps += 3u; }
                }
                continuing { *steps += 1u; break if *steps > 40u; }
            }
            return n + 1u;
        }
        fn deep(v: u32, depth: u32) -> u32 {
            if (v % 3u == 0u) { return depth; }
            var sum = 0u;
            for (var a = 0u; a < v % 5u; a++) {
                for (var b = a; b < 6u; b++) {
                    if (b == v % 4u) { continue; }
                    if (a + b > 7u) { break; }
                    if (sum > 60u) { return sum; }
                    sum += a * b + depth;
                }
                while (sum % 5u != 0u) { sum += 1u; if (a == 2u) { break; } }
            }
            return sum;
        }
        fn both(v: u32) -> u32 { var steps = v % 2u; let first = search(v, &steps); return deep(first + v, steps) * 1000u + steps; }";
    let body = "
        var h = both(v) + both(v / 3u) * 7u;
        if (v % 2u == 0u) { h += deep(v, 3u); if (v % 4u == 0u) { y[i] = h; return; } } else { switch v % 3u { case 1u: { h ^= 5u; } default: { h *= 3u; } } }
        for (var k = 0u; k < 3u; k++) { if (h % 11u == k) { y[i] = h + k; return; } h += group.x; }
        y[i] = h;";
    for size in SIZES {
        agree(&format!("control of {size}"), &each(size, before, body));
    }
}

/// Arrays, structs and matrices in function variables, and pointers to parts of them.
#[test]
fn variables() {
    let before = "
        struct Part { a: vec3<u32>, b: array<u32, 3>, m: mat2x3<f32> }
        var<private> own: array<u32, 5>;
        var<private> total: u32 = 3u;
        var<private> parts: array<Part, 2>;
        const TABLE = array<u32, 6>(3u, 1u, 4u, 1u, 5u, 9u);
        fn swap(a: ptr<function, array<u32, 4>>, one: u32, other: u32) { let kept = (*a)[one]; (*a)[one] = (*a)[other]; (*a)[other] = kept; total += one; }
        fn sum(part: Part) -> u32 { return part.a.x + part.a.y * 3u + part.a.z * 5u + part.b[0] + part.b[1] * 7u + part.b[2] * 9u + u32(part.m[1].z); }";
    let body = "
        var a = array<u32, 4>(v, v / 2u, v / 3u, v / 5u);
        swap(&a, v % 4u, (v / 4u) % 4u); swap(&a, 1u, i % 4u);
        own[v % 5u] = a[i % 4u]; own[i % 5u] += TABLE[v % 6u];
        var p: Part; p.a[v % 3u] = 4u; p.a.y += 1u; p.b[i % 3u] = v % 50u; p.m[v % 2u][i % 3u] = 8.0; p.m[1] += vec3<f32>(1.0, 2.0, 3.0);
        parts[i % 2u] = p; if (v % 2u == 1u) { parts[0].b[v % 3u] = 11u; parts[1] = parts[0]; }
        let m = mat3x2<f32>(1.0, 2.0, 3.0, 4.0, f32(v % 8u), f32(i % 8u));
        let product = m * parts[0].m * vec2<f32>(2.0, 3.0) + vec3<f32>(1.0, 2.0, 3.0) * transpose(m);
        var vector = vec4<u32>(a[0], a[1], a[2], a[3]); vector[v % 4u] ^= 77u; let zyx = vector.zyx; vector = vector.wzyx + vec4(zyx, 1u);
        let d = determinant(mat3x3<f32>(f32(v % 5u), 1.0, 2.0, 0.0, f32(i % 7u), 1.0, 3.0, 2.0, 1.0));
        y[i] = own[0] + own[1] * 3u + own[2] * 5u + own[3] * 7u + own[4] * 11u + total + sum(p) + sum(parts[v % 2u]) * 3u
            + bitcast<u32>(i32(product.x) + i32(product.y) * 3 + i32(d)) + vector[i % 4u] + vector.x * 2u + (*(&a))[v % 4u];";
    for size in SIZES {
        agree(&format!("variables of {size}"), &each(size, before, body));
    }
}

/// Workgroup memory between barriers: in loops, in functions, after `workgroupUniformLoad`, with inactive invocations.
#[test]
fn workgroups() {
    for size in ["64", "12", "100", "8", "1"] {
        let source = format!(
            "
            const SIZE = {size}u;
            struct Row {{ sum: u32, flags: array<bool, 3>, most: atomic<u32>, least: atomic<i32> }}
            var<workgroup> row: Row;
            var<workgroup> words: array<u32, SIZE>;
            var<workgroup> lengths: array<vec3<u32>, SIZE>;
            var<private> seen: u32; var<private> kept: array<u32, 3>; var<private> third: vec2<u32> = vec2<u32>(4u, 5u);
            fn scan(local: u32, value: u32) -> u32 {{
                words[local] = value;
                workgroupBarrier();
                var step = 1u;
                loop {{
                    if (step >= SIZE) {{ break; }}
                    var more = 0u;
                    if (local >= step) {{ more = words[local - step]; }}
                    workgroupBarrier();
                    words[local] += more;
                    workgroupBarrier();
                    step *= 2u;
                }}
                seen += 1u;
                return words[local];
            }}
            @compute @workgroup_size(SIZE) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {{
                let i = group.x * SIZE + local;
                let v = select(0u, x[min(i, 719u)], i < 720u);
                kept[v % 3u] = local;
                lengths[SIZE - 1u - local] = vec3<u32>(v, local, group.x);
                let first = scan(local, v % 10u);
                if (local == SIZE / 2u) {{ row.sum = group.x % 3u; row.flags[1] = v % 2u == 0u; atomicStore(&row.least, 100); }}
                workgroupBarrier();
                atomicMax(&row.most, v % 1000u);
                atomicMin(&row.least, bitcast<i32>(v) % 50);
                let turn = workgroupUniformLoad(&row.sum);
                var h = first + lengths[local].x + lengths[local].z + u32(row.flags[1]) * 3u + third.y;
                switch turn {{
                    case 0u: {{ workgroupBarrier(); h += scan(local, h % 7u) * 3u; }}
                    case 1u: {{ h ^= 99u; third.x += v; }}
                    default: {{ for (var k = 0u; k < turn; k++) {{ if (k == 1u) {{ continue; }} words[local] += k; workgroupBarrier(); h += words[(local + 1u) % SIZE]; workgroupBarrier(); }} }}
                }}
                if (i >= 720u) {{ return; }}
                if (v % 8u == 7u) {{ y[i] = h; return; }}
                y[i] = h * 3u + atomicLoad(&row.most) + bitcast<u32>(atomicLoad(&row.least)) + seen + kept[0] + kept[1] * 3u + kept[2] * 5u + third.x;
            }}"
        );
        agree(&format!("workgroups of {size}"), &source);
    }
}

/// Atomics of every kind, whose order does not matter.
#[test]
fn atomics() {
    let source = "
        var<workgroup> bins: array<atomic<u32>, 8>;
        var<workgroup> lock: atomic<u32>;
        @compute @workgroup_size(36) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
            let i = group.x * 36u + local; let v = x[i];
            atomicAdd(&bins[v % 2u], v); atomicXor(&bins[2], v); atomicMax(&bins[3], v); atomicMin(&bins[4], ~v);
            if (v % 2u == 0u) { atomicOr(&bins[5], 1u << (v % 32u)); atomicAnd(&bins[6], v); } else { atomicSub(&bins[7], v % 9u); }
            workgroupBarrier();
            // An addition by compare-and-exchange, as in a lock.
            loop {
                let old = atomicLoad(&lock);
                let now = atomicCompareExchangeWeak(&lock, old, old + v % 5u);
                if (now.exchanged) { break; }
            }
            workgroupBarrier();
            y[i] = atomicLoad(&bins[local % 8u]) + atomicLoad(&lock) * 3u;
        }";
    agree("atomics", source);
}

/// Subgroup operations whose result does not depend on the subgroup size. Subgroups are full, because a software driver
/// miscounts partial ones.
#[test]
fn subgroups() {
    let source = "
        var<workgroup> total: atomic<u32>; var<workgroup> firsts: atomic<u32>;
        @compute @workgroup_size(72) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32,
            @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) size: u32, @builtin(subgroup_id) id: u32, @builtin(num_subgroups) count: u32) {
            let i = group.x * 72u + local; let v = x[i];
            let sum = subgroupAdd(v); let before = subgroupExclusiveAdd(v); let most = subgroupMax(v & 0xffffu);
            if (lane == 0u) { atomicAdd(&total, sum); atomicAdd(&firsts, subgroupBroadcastFirst(1u)); }
            let ballot = subgroupBallot(v % 2u == 0u);
            let odd = (ballot[lane / 32u] >> (lane % 32u)) & 1u;
            workgroupBarrier();
            var h = atomicLoad(&total) + u32(before + v == subgroupInclusiveAdd(v)) + u32(most >= (v & 0xffffu)) * 2u + odd * 4u;
            h += u32(atomicLoad(&firsts) == count && id < count && lane < size) * 8u + subgroupShuffle(v, lane) * 3u;
            if (v % 3u == 0u) { h += u32(subgroupAll(v % 3u == 0u)) * 16u + u32(subgroupAny(v % 3u == 1u)) * 32u + subgroupMin(subgroupOr(v) | v) * 0u; }
            h += u32(subgroupAll(subgroupShuffleXor(lane, 1u) == (lane ^ 1u) || size == 1u)) * 64u;
            y[i] = h;
        }";
    agree("subgroups", source);
}

/// Buffers of vectors, matrices and structs with padding, read and written by member.
#[test]
fn layouts() {
    let source = "
        enable f16;
        struct Inner { a: vec3<u32>, b: u32, c: vec2<u32>, d: array<vec2<u32>, 2> }
        @group(0) @binding(0) var<storage, read> x: array<Inner>;
        @group(0) @binding(1) var<storage, read_write> y: array<vec3<u32>>;
        @group(0) @binding(2) var<storage, read_write> h: array<vec4<f16>>;
        @group(0) @binding(3) var<storage, read_write> m: array<mat3x3<f32>>;
        @compute @workgroup_size(24) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let i = id.x; if (i >= 60u) { return; }
            let part = x[i % arrayLength(&x)];
            y[i] = part.a + vec3<u32>(part.b, part.c) * 3u;
            y[i].y += x[(i * 5u) % 60u].d[i % 2u].x; y[i][(i + 1u) % 3u] ^= x[i].c.y;
            h[i] = vec4<f16>(f16(part.a.x % 2048u), f16(i), h[i].x + 0.5h, f16(f32(part.b % 1000u) * 0.125)); h[i].w *= 0.5h; h[i][i % 4u] += 1.0h;
            m[i] = mat3x3<f32>(vec3<f32>(part.a % vec3<u32>(16u)), vec3<f32>(1.0, 2.0, f32(i)), vec3<f32>(f32(i % 3u))); m[i][1] = m[i] * vec3<f32>(1.0, 2.0, 4.0); m[i][2][i % 3u] = 7.0;
        }";
    let results: Vec<_> = targets()
        .iter()
        .map(|device| {
            let kernel = device.kernel(KernelSource::wgsl(source)).unwrap();
            let x = device.buffer_from(&words()).unwrap().into_bytes();
            let mut all =
                [60 * 16, 60 * 8, 60 * 48].map(|bytes| device.buffer_from(&vec![0u8; bytes]).unwrap().into_bytes());
            let [y, h, m] = &mut all;
            let launch = kernel.launch().bind("x", &x).bind("y", y).bind("h", h).bind("m", m);
            launch.grid(Grid::workgroups([3, 1, 1])).submit().unwrap();
            all.map(|buffer| buffer.read().unwrap())
        })
        .collect();
    for (place, found) in results.iter().enumerate() {
        for (buffer, (found, wanted)) in found.iter().zip(&results[0]).enumerate() {
            let differs = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
            assert_eq!(differs, None, "buffer {buffer} on device {place}");
        }
    }
}
