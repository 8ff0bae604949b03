// A workgroup scans a line in tiles of one element per invocation.
var<workgroup> sums: array<NUMBER, INVOCATIONS>;

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let line = group.y * groups.x + group.x;
    if (line >= p_lines()) {
        return;
    }
    var running = FIRST;
    for (var tile = 0u; tile < p_length(); tile += INVOCATIONS) {
        let number = tile + lane;
        let place = place_of(line, min(number, p_length() - 1u));
        var own = next(NUMBER(0), place, number);
        sums[lane] = own;
        workgroupBarrier();
        own = scan_tile(own, lane);
        if (number < p_length()) {
            finish(place, running + own);
        }
        // Elements past the end of the line are in the last tile only, so this sum of theirs is not used.
        running += sums[INVOCATIONS - 1u];
        workgroupBarrier();
    }
}
