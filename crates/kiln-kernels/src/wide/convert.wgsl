// A 64-bit number is a pair of words, the low one first.

fn negated(v: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(~v.x + 1u, ~v.y + select(0u, 1u, v.x == 0u));
}

fn shifted_left(v: vec2<u32>, by: u32) -> vec2<u32> {
    if (by >= 32u) {
        return vec2<u32>(0u, v.x << (by & 31u));
    }
    let carried = select(v.x >> (32u - by), 0u, by == 0u);
    return vec2<u32>(v.x << by, (v.y << by) | carried);
}

// Shifts right; the lowest bit of the result is sticky: set if a nonzero bit is shifted out.
fn shifted_right(v: vec2<u32>, by: u32) -> vec2<u32> {
    if (by == 0u) {
        return v;
    }
    if (by >= 64u) {
        return vec2<u32>(select(0u, 1u, any(v != vec2<u32>(0u))), 0u);
    }
    if (by >= 32u) {
        let lost = v.x != 0u || (v.y & ((1u << (by & 31u)) - 1u)) != 0u;
        return vec2<u32>((v.y >> (by & 31u)) | select(0u, 1u, lost), 0u);
    }
    let lost = (v.x & ((1u << by) - 1u)) != 0u;
    return vec2<u32>((v.x >> by) | (v.y << (32u - by)) | select(0u, 1u, lost), v.y >> by);
}

fn leading_zeros(v: vec2<u32>) -> u32 {
    return select(countLeadingZeros(v.y), 32u + countLeadingZeros(v.x), v.y == 0u);
}

// Rounds `digits`, whose highest bit is set and has the value 2^exponent, to the nearest `f32`, or to odd.
fn packed_f32(sign: u32, exponent: i32, digits: vec2<u32>, to_odd: bool) -> f32 {
    if (exponent > 127) {
        return bitcast<f32>((sign << 31u) | select(0x7f800000u, 0x7f7fffffu, to_odd));
    }
    // Subnormal numbers have fewer bits.
    let lost = u32(clamp(-126 - exponent, 0, 64));
    let cut = shifted_right(digits, lost);
    let top = cut.y >> 8u;
    let rest = cut.y & 0xffu;
    let is_cut = rest != 0u || cut.x != 0u;
    let is_up = rest > 0x80u || (rest == 0x80u && (cut.x != 0u || (top & 1u) == 1u));
    // The implicit leading bit is not stored: adding it increments the exponent field.
    let field = select(u32(max(exponent, -126) + 126) << 23u, 0u, lost > 0u);
    let size = select(field + top + select(0u, 1u, is_up), (field + top) | select(0u, 1u, is_cut), to_odd);
    return bitcast<f32>((sign << 31u) | size);
}

fn i64_to_f32(v: vec2<u32>, to_odd: bool) -> f32 {
    if (all(v == vec2<u32>(0u))) {
        return 0.0;
    }
    let sign = v.y >> 31u;
    let size = select(v, negated(v), vec2<bool>(sign == 1u));
    let zeros = leading_zeros(size);
    return packed_f32(sign, 63 - i32(zeros), shifted_left(size, zeros), to_odd);
}

fn f64_to_f32(v: vec2<u32>, to_odd: bool) -> f32 {
    let sign = v.y >> 31u;
    let field = (v.y >> 20u) & 0x7ffu;
    if (field == 0x7ffu) {
        let is_nan = (v.y & 0xfffffu) != 0u || v.x != 0u;
        return bitcast<f32>((sign << 31u) | select(0x7f800000u, 0x7fc00000u, is_nan));
    }
    // Subnormal numbers of 64 bits are zero in 32.
    if (field == 0u) {
        return bitcast<f32>(sign << 31u);
    }
    let digits = shifted_left(vec2<u32>(v.x, (v.y & 0xfffffu) | 0x100000u), 11u);
    return packed_f32(sign, i32(field) - 1023, digits, to_odd);
}

// Truncates and saturates; 0 for NaN.
fn f64_to_i64(v: vec2<u32>) -> vec2<u32> {
    let is_negative = (v.y >> 31u) == 1u;
    let field = (v.y >> 20u) & 0x7ffu;
    let digits = vec2<u32>(v.x, (v.y & 0xfffffu) | 0x100000u);
    if (field < 1023u || (field == 0x7ffu && ((v.y & 0xfffffu) != 0u || v.x != 0u))) {
        return vec2<u32>(0u);
    }
    if (field >= 1086u) {
        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), vec2<bool>(is_negative));
    }
    var size = vec2<u32>(0u);
    if (field >= 1075u) {
        size = shifted_left(digits, field - 1075u);
    } else {
        // Truncates. `shifted_right` would set the sticky bit.
        let by = 1075u - field;
        let cut = select(vec2<u32>(digits.x >> (by & 31u), digits.y >> (by & 31u)), vec2<u32>(digits.y >> (by & 31u), 0u), vec2<bool>(by >= 32u));
        let carried = select(0u, digits.y << ((32u - by) & 31u), by < 32u && by > 0u);
        size = vec2<u32>(cut.x | carried, cut.y);
    }
    return select(size, negated(size), vec2<bool>(is_negative));
}

fn f32_to_f64(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let sign = bits & 0x80000000u;
    let field = (bits >> 23u) & 0xffu;
    let digits = bits & 0x7fffffu;
    if (field == 0xffu) {
        return vec2<u32>(0u, sign | select(0x7ff80000u, 0x7ff00000u, digits == 0u));
    }
    if (field == 0u) {
        if (digits == 0u) {
            return vec2<u32>(0u, sign);
        }
        let zeros = countLeadingZeros(digits);
        let normal = (digits << (zeros - 8u)) & 0x7fffffu;
        return vec2<u32>(normal << 29u, sign | ((905u - zeros) << 20u) | (normal >> 3u));
    }
    return vec2<u32>(digits << 29u, sign | ((field + 896u) << 20u) | (digits >> 3u));
}

fn i64_to_f64(v: vec2<u32>) -> vec2<u32> {
    if (all(v == vec2<u32>(0u))) {
        return v;
    }
    let sign = v.y & 0x80000000u;
    let size = select(v, negated(v), vec2<bool>(sign != 0u));
    let zeros = leading_zeros(size);
    let digits = shifted_left(size, zeros);
    // 53 of 64 bits remain; the leading one is implicit.
    let rest = digits.x & 0x7ffu;
    let top = vec2<u32>((digits.x >> 11u) | (digits.y << 21u), digits.y >> 11u);
    let is_up = rest > 0x400u || (rest == 0x400u && (top.x & 1u) == 1u);
    let low = top.x + select(0u, 1u, is_up);
    let carry = select(0u, 1u, is_up && low == 0u);
    return vec2<u32>(low, sign | (((1085u - zeros) << 20u) + top.y + carry));
}

fn clamp_to_i32(v: vec2<u32>) -> i32 {
    let low = bitcast<i32>(v.x);
    let high = bitcast<i32>(v.y);
    return select(select(2147483647, -2147483647 - 1, high < 0), low, (low >> 31u) == high);
}

fn clamp_to_u32(v: vec2<u32>) -> u32 {
    return select(select(0xffffffffu, 0u, bitcast<i32>(v.y) < 0), v.x, v.y == 0u);
}
