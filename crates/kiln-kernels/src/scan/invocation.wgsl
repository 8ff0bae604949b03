// An invocation scans a line; adjacent invocations read adjacent elements.
@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let line = (group.y * groups.x + group.x) * INVOCATIONS + lane;
    if (line >= p_lines()) {
        return;
    }
    var running = FIRST;
    for (var number = 0u; number < p_length(); number += 1u) {
        let place = place_of(line, number);
        running = next(running, place, number);
        finish(place, running);
    }
}
