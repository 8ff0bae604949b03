// All that get to the inner condition return; the others go on.
//: seed 2
//: buffer x i 8
//: buffer y i 8
@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid < 3u) {
        if (x[lid] != 123456789) {
            return;
        }
    }
    y[lid] = 123456789;
}
