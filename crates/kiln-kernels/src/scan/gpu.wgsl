// Returns the index of the n-th element of a line, counted from the end where the scan starts.
fn place_of(line: u32, number: u32) -> u32 {
    let row = select(number, p_length() - 1u - number, REVERSE);
    return (line / p_inner() * p_length() + row) * p_inner() + line % p_inner();
}
