// A subgroup for each row.
fn team_sum(part: vec2<f32>, lane: u32) -> vec2<f32> {
    return subgroupAdd(part);
}

fn team_max(part: f32, lane: u32) -> f32 {
    return subgroupMax(part);
}

// Independent of the actual subgroup size: with more subgroups than expected, some have no row; with fewer, some have several.
@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) lanes: u32,
) {
    let first = (group.y * groups.x + group.x) * subgroups + subgroup;
    for (var row = first; row < p_rows(); row += groups.y * groups.x * subgroups) {
        work(row, lane, lanes);
    }
}

