// A workgroup computes the results of 64 queries of a head, over blocks of 32 keys. Each of its 8 by 8 invocations computes the scores of 8 queries
// and 4 keys, and accumulates 8 of every 64 elements of the results of these queries. Queries, keys and values are staged in workgroup memory, 16
// steps at a time; so are the weights of a block.

const QUERIES: u32 = 64u;
const KEYS: u32 = 32u;
const STEPS: u32 = 16u;
// The initial maximum. It is finite, because the difference of two of these has to be 0, not NaN.
const NO_SCORE: f32 = -3.4028234663852886e38;

// Three tiles: queries, later values; keys, later the partial maxima and sums of each invocation; the weights of the queries for each key.
// TILES

// Returns whether the query and the key exist, and, if the attention is causal, the query attends to the key.
fn is_inside(query: u32, key: u32) -> bool {
    return query < p_m() && key < p_n() && (p_causal() == 0u || key + p_m() <= query + p_n());
}

@compute @workgroup_size(8, 8, 1)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (p_m() + QUERIES - 1u) / QUERIES;
    let number = group.y * groups.x + group.x;
    let head = number / blocks;
    let b = head / p_q_length1();
    let h = head % p_q_length1();
    let first_query = number % blocks * QUERIES;
    let start_q = p_q_offset() + b * p_q_stride0() + h * p_q_stride1();
    let start_k = p_k_offset() + b * p_k_stride0() + h * p_k_stride1();
    let start_v = p_v_offset() + b * p_v_stride0() + h * p_v_stride1();
    var end = p_n();
    if p_causal() != 0u {
        // One past the last key that a query of the block attends to.
        let beyond = first_query + QUERIES + p_n();
        end = min(end, max(beyond, p_m()) - p_m());
    }

    // RESULTS SO FAR
    for (var first_key = 0u; first_key < end; first_key += KEYS) {
        // NO SCORES
        for (var first = 0u; first < p_d(); first += STEPS) {
            // LOAD QUERIES AND KEYS
            workgroupBarrier();
            // SCORES
            workgroupBarrier();
        }
        // LARGEST OF OWN KEYS
        workgroupBarrier();
        // LARGEST OF ALL KEYS
        // WEIGHTS
        workgroupBarrier();
        for (var first = 0u; first < KEYS; first += STEPS) {
            // GATHER
        }
    }
    // SUMS OF ALL KEYS
    // RESULTS
}
