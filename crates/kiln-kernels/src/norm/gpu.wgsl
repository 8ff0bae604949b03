// The mean of the deviations from `center`, and of their squares.
fn means(start: u32, center: f32, lane: u32, lanes: u32) -> vec2<f32> {
    var part = vec2<f32>();
    for (var j = lane; j < p_length(); j += lanes) {
        let deviation = load_0(start + j) - center;
        part += vec2<f32>(deviation, deviation * deviation);
    }
    return team_sum(part, lane) / f32(p_length());
}

fn work(row: u32, lane: u32, lanes: u32) {
    let start = at0(row);
    var center = 0.0;
    var off = 0.0;
    var found = means(start, center, lane, lanes);
    if (CENTERED) {
        // The rounding error of a large mean can exceed small deviations. It is corrected by the mean of the deviations from it.
        center = found.x;
        found = means(start, center, lane, lanes);
        off = found.x;
        found.y = max(found.y - off * off, 0.0);
    }
    let factor = 1.0 / sqrt(found.y + bitcast<f32>(p_eps()));
    for (var j = lane; j < p_length(); j += lanes) {
        let deviation = (load_0(start + j) - center) - off;
        finish(row * p_length() + j, scaled(deviation * factor, j));
    }
}
