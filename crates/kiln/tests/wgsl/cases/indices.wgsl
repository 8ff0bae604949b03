// Beyond the end of an array is its last element.
//: seed 1
//: grid 1 1 1
//: buffer x i 5
//: buffer y i 8
@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lid: u32) {
    var local = array<i32, 3>(1, 2, 3);
    let vector = vec4<i32>(10, 20, 30, 40);
    y[lid] = x[lid * 1000u] + x[i32(lid) - 4] + local[lid] + vector[lid];
}
