// A workgroup computes a tile of 64 by 64 results, each invocation 4 by 4 of them. Both operands come through workgroup memory, 16 steps at a
// time. Whatever is outside of the matrices counts as 0.

const TILE: u32 = 64u;
const STEPS: u32 = 16u;

// For each step the rows of the left operand, and the columns of the right one.
var<workgroup> tile_a: array<f32, 1024>;
var<workgroup> tile_b: array<f32, 1024>;

@compute @workgroup_size(16, 16, 1)
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
    var sums: array<vec4<f32>, 4>;
    for (var first = 0u; first < p_k(); first += STEPS) {
        // LOADS
        workgroupBarrier();
        // STEPS
        workgroupBarrier();
    }
    for (var i = 0u; i < 16u; i += 1u) {
        let row = first_row + 4u * local.y + i / 4u;
        let column = first_column + 4u * local.x + i % 4u;
        if batch < p_batches() && row < p_m() && column < p_n() {
            finish((batch * p_m() + row) * p_n() + column, sums[i / 4u][i % 4u]);
        }
    }
}
