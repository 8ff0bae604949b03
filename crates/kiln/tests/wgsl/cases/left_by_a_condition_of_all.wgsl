// All take a branch by their own numbers, in a loop that others leave at other times, and leave it by a number that is the same for all.
//: seed 1
//: grid 1 1 1
//: buffer x u 16
//: buffer y u 16
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {
    let at = arrayLength(&x) + 4u;
    for (var round = 0u; round < 2u + x[l] % 2u; round++) {
        if ((x[l] | 1u) != 0u) {
            if (at >= arrayLength(&y)) { break; }
            y[at] = 7u;
            y[l] += 1u;
        }
    }
    switch (x[l] & 0u) {
        case 0u: {
            if (at >= arrayLength(&y)) { break; }
            y[at] = 7u;
            y[l] += 2u;
        }
        default: { }
    }
}
