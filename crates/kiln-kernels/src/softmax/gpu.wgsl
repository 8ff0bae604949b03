// A workgroup for each row: its invocations find the largest number, the sum of the exponentials and the quotients together.

var<workgroup> parts: array<f32, INVOCATIONS>;

fn join(a: f32, b: f32, add: bool) -> f32 {
    return select(select(a, b, b > a), a + b, add);
}

// The sum of all invocations' parts, or the largest.
fn all_of(part: f32, add: bool, lane: u32) -> f32 {
    parts[lane] = part;
    for (var step = INVOCATIONS / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) {
            parts[lane] = join(parts[lane], parts[lane + step], add);
        }
    }
    workgroupBarrier();
    let result = parts[0];
    workgroupBarrier();
    return result;
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.y * groups.x + group.x;
    if (row >= p_rows()) {
        return;
    }
    let start = at0(row);
    // The lowest finite number: a row of negative infinities has the sum 0, which gives NaN.
    var part = -0x1.fffffep+127f;
    for (var j = lane; j < p_length(); j += INVOCATIONS) {
        part = join(part, load_0(start + j), false);
    }
    let largest = all_of(part, false, lane);
    part = 0.0;
    for (var j = lane; j < p_length(); j += INVOCATIONS) {
        part += op_exp(load_0(start + j) - largest);
    }
    let sum = all_of(part, true, lane);
    let log_sum = op_log(sum);
    for (var j = lane; j < p_length(); j += INVOCATIONS) {
        let difference = load_0(start + j) - largest;
        if (LOG) {
            finish(row * p_length() + j, difference - log_sum);
        } else {
            finish(row * p_length() + j, op_exp(difference) / sum);
        }
    }
}
