// A workgroup for each row.
var<workgroup> parts: array<vec2<f32>, INVOCATIONS>;

fn team_sum(part: vec2<f32>, lane: u32) -> vec2<f32> {
    return joined(part, lane, true);
}

fn team_max(part: f32, lane: u32) -> f32 {
    return joined(vec2<f32>(part, 0.0), lane, false).x;
}

fn joined(part: vec2<f32>, lane: u32, add: bool) -> vec2<f32> {
    parts[lane] = part;
    for (var step = INVOCATIONS / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) {
            let a = parts[lane];
            let b = parts[lane + step];
            parts[lane] = select(select(a, b, b > a), a + b, add);
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
    if (row < p_rows()) {
        work(row, lane, INVOCATIONS);
    }
}

