// Each element is an affine map y -> x + a * y of the result before it, as vec2(a, x). Maps combine in any grouping.
fn combine(before: vec2<NUMBER>, after: vec2<NUMBER>) -> vec2<NUMBER> {
    return vec2<NUMBER>(before.x * after.x, after.x * before.y + after.y);
}

// The place of the n-th element of a line, counted from where the scan starts.
fn place_of(line: u32, number: u32) -> u32 {
    let row = select(number, p_length() - 1u - number, REVERSE);
    return (line / p_inner() * p_length() + row) * p_inner() + line % p_inner();
}
