// One invocation gets to the inner condition, which a variable holds that was the same for all; only that one returns.
//: seed 2
//: buffer x i 2
//: buffer y i 8
@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) {
        if ((x[0] < 2000000000) || (x[1] == 7)) {
            return;
        }
    }
    y[lid] = 123456789;
}
