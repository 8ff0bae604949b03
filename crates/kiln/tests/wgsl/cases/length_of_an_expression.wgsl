// Lengths of arrays are computed from constants: naga panicked of the second.
//: seed 3
//: constant n 14
//: constant m 2
//: buffer out u 8
override n: u32;
var<workgroup> x: array<u32, n / 2u>;
override m: u32;
var<workgroup> y: array<u32, m * 2u>;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid < 7u) {
        x[lid] = lid + 1u;
    }
    if (lid < 4u) {
        y[lid] = lid * 100u;
    }
    workgroupBarrier();
    out[lid] = x[lid + 1u] + y[lid];
}
