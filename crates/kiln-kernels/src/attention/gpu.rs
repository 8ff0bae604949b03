//! The WGSL of attention: fills in the template `gpu.wgsl`, and adds the mask.

use super::Attention;
use crate::tiles::{Load, SIDE, STEPS, Tile, last_element, products, store, sums};
use kiln_ir::wgsl::{self, WgslCall, WgslKernel};
use kiln_ir::{Error, ErrorKind, Result};

/// The queries of a workgroup, as columns of the scores.
const Q: Tile = Tile { name: "tile_qv", fours: 2, axis: 'y' };

/// The keys of a block, as rows of the scores.
const K: Tile = Tile { name: "tile_k", fours: 1, axis: 'x' };

/// The weights of a block: a step for each key, the queries as rows of the results.
const WEIGHTS: Tile = Tile { name: "weights", fours: 2, axis: 'y' };

/// Elements of the values, as columns of the results. They reuse the memory of the queries.
const V: Tile = Tile { name: "tile_qv", fours: 2, axis: 'x' };

/// Steps that are unrolled in a loop.
const UNROLL: usize = 4;

/// Maximum elements of a value: each invocation keeps as many numbers.
pub(super) const MAX_ELEMENTS: usize = 4 * V.lines();

const MASK: &str = "
fn is_attended(b: u32, h: u32, query: u32, key: u32) -> bool {
    let offset = p_mask_offset() + b * p_mask_stride0() + h * p_mask_stride1();
    let at = min(offset + query * p_mask_stride2() + key * p_mask_stride3(), p_mask_last());
    let unmasked = load_3(at) != 0u;
    return unmasked && is_inside(query, key);
}
";

const NO_MASK: &str = "
fn is_attended(b: u32, h: u32, query: u32, key: u32) -> bool {
    return is_inside(query, key);
}
";

pub(super) fn render(op: &Attention, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let [q, _, v, mask @ ..] = call.operands else {
        let message = format!("attention expected 3 or 4 operands, found {}", call.operands.len());
        return Err(Error::new(ErrorKind::Internal, message));
    };
    let (queries, values) = (q.layout.shape(), v.layout.shape());
    if values[3] > MAX_ELEMENTS {
        let message = format!("attention on a GPU expected values of at most {MAX_ELEMENTS} elements, found {values}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // Three quarters of the iterations that the strictest driver allows an invocation in all of its loops.
    let most = 3 * wgsl::LOOP_STEPS;
    let tiles = values[3].div_ceil(V.lines());
    let steps = |form: Form| form.loop_steps(queries[3]) * values[2].div_ceil(K.lines());
    let form = Form { tiles, are_whole: values[3].is_multiple_of(4), is_unrolled: false };
    let form = Form { is_unrolled: steps(form) > most, ..form };
    if steps(form) > most {
        let message =
            format!("attention on a GPU expected fewer or shorter keys, found queries {queries} and values {values}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut builder = call.builder();
    for (name, length) in [("m", queries[2]), ("n", values[2]), ("d", queries[3]), ("e", values[3])] {
        builder.param(name, length as u32);
    }
    builder.param("scale", op.scale.to_bits());
    builder.param("causal", u32::from(op.causal));
    for (name, operand) in ["q", "k", "v", "mask"].into_iter().zip(call.operands) {
        builder.strides(name, &operand.layout);
        builder.param(&format!("{name}_last"), last_element(&operand.layout));
    }
    let blocks = queries[0] * queries[1] * queries[2].div_ceil(Q.lines());
    let blocks = u32::try_from(blocks).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("attention expected at most {} queries, found {queries}", u32::MAX))
    })?;
    let mask = if mask.is_empty() { NO_MASK } else { MASK };
    Ok(builder.finish(&format!("{mask}{}", form.text()), wgsl::grid(blocks)))
}

/// The parameters of the text.
#[derive(Clone, Copy)]
struct Form {
    /// Tiles per value.
    tiles: usize,
    /// Whether rows of results are whole groups of four.
    are_whole: bool,
    /// Whether inner loops are unrolled. That takes compilers seconds, so it is done only if a software driver, which counts the iterations of all
    /// loops, would otherwise end them (`wgsl::LOOP_STEPS`).
    is_unrolled: bool,
}

impl Form {
    /// Returns the iterations of all loops for a block of keys.
    fn loop_steps(self, elements: usize) -> usize {
        // Counts what the driver counts: each iteration of each loop, of the outer loops as well.
        let inner = |loads: usize| if self.is_unrolled { 0 } else { loads + STEPS / UNROLL };
        let scores = elements.div_ceil(STEPS) * (1 + inner(Q.loads() + K.loads()));
        let results = K.lines() / STEPS * (1 + self.tiles * inner(V.loads()));
        1 + scores + results
    }

    fn load(self, load: &Load<'_>) -> String {
        if self.is_unrolled { load.unrolled() } else { load.in_loop() }
    }

    /// Renders the steps of a tile, unrolled completely or a few at a time.
    fn steps(self, step: impl Fn(String) -> String) -> String {
        if self.is_unrolled {
            return (0..STEPS).map(|number| step(format!("{number}u"))).collect();
        }
        let statements: String = (0..UNROLL).map(|number| step(format!("at + {number}u"))).collect();
        line(3, &format!("for (var at = 0u; at < STEPS; at += {UNROLL}u) {{")) + &statements + &line(3, "}")
    }

    fn text(self) -> String {
        let Self { tiles, are_whole, .. } = self;
        let parts = [
            ("// TILES\n", [Q, K].map(|tile| tile.declaration(STEPS)).concat() + &WEIGHTS.declaration(K.lines())),
            ("    // RESULTS SO FAR\n", accumulators(tiles)),
            (
                "        // NO SCORES\n",
                sums(K, Q).map(|(key, four)| line(2, &format!("var score{key}_{four} = vec4<f32>();"))).collect(),
            ),
            ("            // LOAD QUERIES AND KEYS\n", self.load_queries_and_keys()),
            ("            // SCORES\n", self.steps(|step| products("score", [&step; 2], K, Q))),
            ("        // LARGEST OF OWN KEYS\n", block_maximum()),
            ("        // LARGEST OF ALL KEYS\n", running_maximum()),
            ("        // WEIGHTS\n", weights(tiles)),
            ("            // GATHER\n", (0..tiles).map(|tile| self.accumulate(tile)).collect()),
            ("    // SUMS OF ALL KEYS\n", sums_of_all()),
            ("    // RESULTS\n", (0..tiles).map(|tile| results(tile, are_whole)).collect()),
        ];
        parts.iter().fold(include_str!("gpu.wgsl").to_string(), |text, (mark, part)| text.replace(mark, part))
    }

    fn load_queries_and_keys(self) -> String {
        let queries = Load {
            tile: Q,
            operand: 0,
            name: "q",
            lines: ["first_query", "p_q_stride2()"],
            steps: ["first", "p_q_stride3()", "p_d()"],
            along_steps: true,
        };
        let keys = Load {
            tile: K,
            operand: 1,
            name: "k",
            lines: ["first_key", "p_k_stride2()"],
            steps: ["first", "p_k_stride3()", "p_d()"],
            along_steps: true,
        };
        self.load(&queries) + &self.load(&keys)
    }

    /// Renders the load of a tile of 16 values, and the addition of the weighted values.
    fn accumulate(self, tile: usize) -> String {
        let values = Load {
            tile: V,
            operand: 2,
            name: "v",
            lines: [&format!("{}u", tile * V.lines()), "p_v_stride3()"],
            steps: ["first_key + first", "p_v_stride2()", "p_n()"],
            along_steps: false,
        };
        // The weights are those of all 32 keys of the block, the tile has 16 values: their steps differ by `first`.
        let steps =
            self.steps(|step| products(&format!("result{tile}_"), [&format!("first + {step}"), &step], WEIGHTS, V));
        // The first barrier waits until the tile is complete, the second until it is no longer read.
        let barrier = line(3, "workgroupBarrier();");
        self.load(&values) + &barrier + &steps + &barrier
    }
}

/// Renders the accumulators: for each query of the invocation the largest score, the sum of the weights of its own keys, and the results.
fn accumulators(tiles: usize) -> String {
    let mut text = String::new();
    for four in 0..Q.fours {
        text += &line(1, &format!("var largest{four} = vec4<f32>(NO_SCORE);"));
        text += &line(1, &format!("var sum{four} = vec4<f32>();"));
    }
    for tile in 0..tiles {
        for (query, four) in sums(WEIGHTS, V) {
            text += &line(1, &format!("var result{tile}_{query}_{four} = vec4<f32>();"));
        }
    }
    text
}

/// Renders the masking of scores with `NO_SCORE`, and the exchange of the largest score among the invocation's keys.
fn block_maximum() -> String {
    // The maxima overwrite the tile of the keys. The loop over the steps ends with a barrier, so no invocation reads keys any more.
    let mut text = line(2, "let scale = bitcast<f32>(p_scale());");
    for (key, four) in sums(K, Q) {
        let attended = (0..4).map(|lane| {
            let query = format!("first_query + 4u * {} + {lane}u", Q.own_group(four));
            format!("is_attended(b, h, {query}, first_key + 4u * local.x + {key}u)")
        });
        let attended = attended.collect::<Vec<_>>().join(", ");
        text += &line(2, &format!("let attended{key}_{four} = vec4<bool>({attended});"));
        let score = format!("score{key}_{four}");
        text += &line(2, &format!("{score} = select(vec4<f32>(NO_SCORE), {score} * scale, attended{key}_{four});"));
    }
    for four in 0..Q.fours {
        let largest = (1..4).fold(format!("score0_{four}"), |most, key| format!("max({most}, score{key}_{four})"));
        text += &line(2, &format!("{} = {largest};", exchanged(four, "local.x")));
    }
    text
}

/// Renders the new maxima, and the factors that rescale earlier sums and results to them.
fn running_maximum() -> String {
    let mut text = String::new();
    for four in 0..Q.fours {
        // Every invocation reads the maxima of all eight with the same queries, so they all rescale by the same factor.
        let most = (0..SIDE)
            .fold(format!("largest{four}"), |most, x| format!("max({most}, {})", exchanged(four, &format!("{x}u"))));
        text += &line(2, &format!("let now{four} = {most};"));
        text += &line(2, &format!("let factor{four} = exp(largest{four} - now{four});"));
        text += &line(2, &format!("largest{four} = now{four};"));
        text += &line(2, &format!("sum{four} *= factor{four};"));
    }
    text
}

fn weights(tiles: usize) -> String {
    let mut text = String::new();
    for (key, four) in sums(K, Q) {
        // Selected by the mask: until a query attends to a key, its maximum is `NO_SCORE` too, and the exponential of the difference is 1.
        let weight = format!("exp(score{key}_{four} - largest{four})");
        text += &line(2, &format!("let weight{key}_{four} = select(vec4<f32>(), {weight}, attended{key}_{four});"));
        text += &line(2, &format!("sum{four} += weight{key}_{four};"));
        let offset = WEIGHTS.own(&format!("4u * local.x + {key}u"), four);
        text += &line(2, &format!("{offset} = weight{key}_{four};"));
    }
    for tile in 0..tiles {
        for (query, four) in sums(WEIGHTS, V) {
            text += &line(2, &format!("result{tile}_{query}_{four} *= factor{}[{}];", query / 4, query % 4));
        }
    }
    text
}

/// Renders the reciprocal of the sum of all weights, the factor of the results. A query that attends to no key has results of 0.
fn sums_of_all() -> String {
    let mut text = String::new();
    for four in 0..Q.fours {
        text += &line(1, &format!("{} = sum{four};", exchanged(four, "local.x")));
    }
    text += &line(1, "workgroupBarrier();");
    for four in 0..Q.fours {
        // Each of the eight invocations with these queries has summed the weights of its own keys.
        let all = (0..SIDE).map(|x| exchanged(four, &format!("{x}u"))).collect::<Vec<_>>().join(" + ");
        text += &line(1, &format!("let all{four} = {all};"));
        text += &line(1, &format!("let share{four} = select(1.0 / all{four}, vec4<f32>(), all{four} == vec4<f32>());"));
    }
    text
}

/// Renders the stores of the elements of a tile.
fn results(tile: usize, are_whole: bool) -> String {
    let result = |(query, four)| {
        format!(
            "    {{
        let query = first_query + 4u * {} + {}u;
        let at = {}u + 4u * {};
        let number = (head * p_m() + query) * p_e() + at;
        let result = result{tile}_{query}_{four} * share{}[{}];
        if head < p_q_length0() * p_q_length1() && query < p_m() {{
{}        }}
    }}
",
            WEIGHTS.own_group(query / 4),
            query % 4,
            tile * V.lines(),
            V.own_group(four),
            query / 4,
            query % 4,
            store("result", "at", "p_e()", are_whole),
        )
    };
    sums(WEIGHTS, V).map(result).collect()
}

/// Renders where invocation `x`, among those with the same queries, shares a value for group `four` of them. It reuses the memory of the keys.
fn exchanged(four: usize, x: &str) -> String {
    // 8 invocations with 16 groups each take 128 of the 144 elements of the tile: 16 steps of 8 groups and one of padding.
    format!("{}[{}u * {x} + {}]", K.name, 2 * SIDE, Q.own_group(four))
}

fn line(depth: usize, statement: &str) -> String {
    format!("{:1$}{statement}\n", "", 4 * depth)
}
