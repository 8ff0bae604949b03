// A workgroup for each row: its invocations add up together.

var<workgroup> parts: array<vec2<f32>, INVOCATIONS>;

// The sum of all invocations' parts.
fn sum_of(part: vec2<f32>, lane: u32) -> vec2<f32> {
    parts[lane] = part;
    for (var step = INVOCATIONS / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) {
            parts[lane] += parts[lane + step];
        }
    }
    workgroupBarrier();
    let result = parts[0];
    workgroupBarrier();
    return result;
}

// The mean of the deviations from `center`, and of their squares.
fn means(start: u32, center: f32, lane: u32) -> vec2<f32> {
    var part = vec2<f32>();
    for (var j = lane; j < p_length(); j += INVOCATIONS) {
        let deviation = load_0(start + j) - center;
        part += vec2<f32>(deviation, deviation * deviation);
    }
    return sum_of(part, lane) / f32(p_length());
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
    var center = 0.0;
    var off = 0.0;
    var found = means(start, center, lane);
    if (CENTERED) {
        // Rounded, the mean of large numbers is off by more than small deviations allow: what it is off by is the mean of the deviations from it.
        center = found.x;
        found = means(start, center, lane);
        off = found.x;
        found.y = max(found.y - off * off, 0.0);
    }
    let factor = 1.0 / sqrt(found.y + bitcast<f32>(p_eps()));
    for (var j = lane; j < p_length(); j += INVOCATIONS) {
        let deviation = (load_0(start + j) - center) - off;
        finish(row * p_length() + j, scaled(deviation * factor, j));
    }
}
