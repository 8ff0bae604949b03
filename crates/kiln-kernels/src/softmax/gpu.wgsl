// Three passes over a row: its maximum, the sum of the exponentials, and the quotients.
fn work(row: u32, lane: u32, lanes: u32) {
    let start = at0(row);
    // The lowest finite number: a row of negative infinities has the sum 0, which gives NaN.
    var part = -0x1.fffffep+127f;
    for (var j = lane; j < p_length(); j += lanes) {
        let x = load_0(start + j);
        part = select(part, x, x > part);
    }
    let largest = team_max(part, lane);
    part = 0.0;
    for (var j = lane; j < p_length(); j += lanes) {
        part += op_exp(load_0(start + j) - largest);
    }
    let sum = team_sum(vec2<f32>(part, 0.0), lane).x;
    let log_sum = op_log(sum);
    for (var j = lane; j < p_length(); j += lanes) {
        let difference = load_0(start + j) - largest;
        if (LOG) {
            finish(row * p_length() + j, difference - log_sum);
        } else {
            finish(row * p_length() + j, op_exp(difference) / sum);
        }
    }
}
