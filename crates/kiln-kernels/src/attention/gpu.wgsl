// A workgroup computes the results of 16 queries of a head, over blocks of 16 keys. Invocation (x, y) makes the score of query y and key x,
// and gathers elements x, x + 16 and so on of the result of query y. Queries, keys and values come through workgroup memory, 16 by 16 of
// them at a time.

const BLOCK: u32 = 16u;
// Where there is no score yet. Not infinite, because the distance between two of these has to be 0.
const NO_SCORE: f32 = -3.4028234663852886e38;

var<workgroup> tile_q: array<f32, 256>;
// Keys, then values.
var<workgroup> tile_kv: array<f32, 256>;
// Scores, then weights.
var<workgroup> weights: array<f32, 256>;
var<workgroup> largest: array<f32, 16>;
var<workgroup> sums: array<f32, 16>;
var<workgroup> factors: array<f32, 16>;

@compute @workgroup_size(16, 16, 1)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (p_m() + BLOCK - 1u) / BLOCK;
    let number = group.y * groups.x + group.x;
    let head = number / blocks;
    let b = head / p_q_length1();
    let h = head % p_q_length1();
    let first_query = number % blocks * BLOCK;
    let query = first_query + local.y;
    let start_q = p_q_offset() + b * p_q_stride0() + h * p_q_stride1();
    let start_k = p_k_offset() + b * p_k_stride0() + h * p_k_stride1();
    let start_v = p_v_offset() + b * p_v_stride0() + h * p_v_stride1();

    var gathered: array<f32, 16>;
    if lane < BLOCK {
        largest[lane] = NO_SCORE;
        sums[lane] = 0.0;
    }
    var end = p_n();
    if p_causal() != 0u {
        // One past what the last query of the block attends to.
        let beyond = first_query + BLOCK + p_n();
        end = min(end, max(beyond, p_m()) - p_m());
    }
    for (var first_key = 0u; first_key < end; first_key += BLOCK) {
        let key = first_key + local.x;
        var score = 0.0;
        for (var first = 0u; first < p_d(); first += BLOCK) {
            let at = first + local.x;
            let row = first_key + local.y;
            let q = load_0(start_q + query * p_q_stride2() + at * p_q_stride3());
            let k = load_1(start_k + row * p_k_stride2() + at * p_k_stride3());
            workgroupBarrier();
            tile_q[lane] = select(0.0, q, query < p_m() && at < p_d());
            tile_kv[lane] = select(0.0, k, row < p_n() && at < p_d());
            workgroupBarrier();
            for (var i = 0u; i < BLOCK; i += 1u) {
                score += tile_q[local.y * BLOCK + i] * tile_kv[local.x * BLOCK + i];
            }
        }
        score *= bitcast<f32>(p_scale());
        var is_attended = query < p_m() && key < p_n() && is_unmasked(b, h, query, key);
        if p_causal() != 0u {
            is_attended = is_attended && key + p_m() <= query + p_n();
        }
        workgroupBarrier();
        weights[lane] = select(NO_SCORE, score, is_attended);
        workgroupBarrier();
        if local.x == 0u {
            var now = largest[local.y];
            for (var i = 0u; i < BLOCK; i += 1u) {
                now = max(now, weights[lane + i]);
            }
            factors[local.y] = exp(largest[local.y] - now);
            largest[local.y] = now;
        }
        workgroupBarrier();
        weights[lane] = select(0.0, exp(score - largest[local.y]), is_attended);
        workgroupBarrier();
        if local.x == 0u {
            var sum = 0.0;
            for (var i = 0u; i < BLOCK; i += 1u) {
                sum += weights[lane + i];
            }
            sums[local.y] = sums[local.y] * factors[local.y] + sum;
        }
        for (var part = 0u; part * BLOCK < p_e(); part += 1u) {
            let at = part * BLOCK + local.x;
            let row = first_key + local.y;
            let v = load_2(start_v + row * p_v_stride2() + at * p_v_stride3());
            workgroupBarrier();
            tile_kv[lane] = select(0.0, v, row < p_n() && at < p_e());
            workgroupBarrier();
            var sum = 0.0;
            for (var i = 0u; i < BLOCK; i += 1u) {
                sum += weights[local.y * BLOCK + i] * tile_kv[i * BLOCK + local.x];
            }
            gathered[part] = gathered[part] * factors[local.y] + sum;
        }
    }
    workgroupBarrier();
    let sum = sums[local.y];
    let factor = select(1.0 / sum, 0.0, sum == 0.0);
    for (var part = 0u; part * BLOCK < p_e(); part += 1u) {
        let at = part * BLOCK + local.x;
        if head < p_q_length0() * p_q_length1() && query < p_m() && at < p_e() {
            finish((head * p_m() + query) * p_e() + at, gathered[part] * factor);
        }
    }
}
