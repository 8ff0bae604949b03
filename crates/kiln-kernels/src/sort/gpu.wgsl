// A workgroup for each run: a bitonic sort of its keys, each with its index in the row, which makes all items distinct and the sort stable.
var<workgroup> items: array<vec2<u32>, SIZE>;

fn is_after(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y > b.y);
}

// Puts a pair of items in order.
fn exchange(low: u32, high: u32) {
    let a = items[low];
    let b = items[high];
    if (is_after(a, b)) {
        items[low] = b;
        items[high] = a;
    }
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    let row = number / p_runs();
    if (row >= p_rows()) {
        return;
    }
    let first = number % p_runs() * p_run();
    let count = min(p_run(), p_length() - min(first, p_length()));
    for (var i = lane; i < SIZE; i += INVOCATIONS) {
        // Padding sorts after all elements, including those with the largest key.
        var item = vec2<u32>(0xffffffffu, 0xffffffffu);
        if (i < count) {
            item = vec2<u32>(key(p_offset() + row * p_length() + first + i), first + i);
        }
        items[i] = item;
    }
    workgroupBarrier();
    for (var size = 2u; size <= SIZE; size *= 2u) {
        // The first step of a merge compares an item with its mirror image, so that all pairs are in ascending order.
        for (var i = lane; i < SIZE / 2u; i += INVOCATIONS) {
            let start = i / (size / 2u) * size;
            let place = i % (size / 2u);
            exchange(start + place, start + size - 1u - place);
        }
        workgroupBarrier();
        for (var step = size / 4u; step > 0u; step /= 2u) {
            for (var i = lane; i < SIZE / 2u; i += INVOCATIONS) {
                let low = i / step * 2u * step + i % step;
                exchange(low, low + step);
            }
            workgroupBarrier();
        }
    }
    for (var i = lane; i < count; i += INVOCATIONS) {
        // A row that is cut off is a single run.
        if (first + i < p_count()) {
            finish(row * p_count() + first + i, items[i].y);
        }
    }
}
