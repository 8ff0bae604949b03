// A workgroup computes a tile of 64 by 64 results, each of its 64 invocations 8 by 8 of them: four and four, so that neighbours read
// neighbours. Both operands come through workgroup memory, 16 steps at a time. Steps beyond the last count as 0.

const TILE: u32 = 64u;
const STEPS: u32 = 16u;

// For each step the rows of the left operand, and the columns of the right one.
// TILES

@compute @workgroup_size(8, 8, 1)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let across = (p_n() + TILE - 1u) / TILE;
    let tiles = across * ((p_m() + TILE - 1u) / TILE);
    let number = group.y * groups.x + group.x;
    let batch = number / tiles;
    let first_row = number % tiles / across * TILE;
    let first_column = number % tiles % across * TILE;
    let start_a = batch_a(batch);
    let start_b = batch_b(batch);
    // SUMS
    for (var first = 0u; first < p_k(); first += STEPS) {
        // LOADS
        workgroupBarrier();
        // STEPS
        workgroupBarrier();
    }
    // RESULTS
}
