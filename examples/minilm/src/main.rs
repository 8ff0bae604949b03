//! Sentence embeddings with all-MiniLM-L6-v2. `./fetch FOLDER` downloads the model; then
//! `cargo run --release -- FOLDER "A man eats." "Somebody is eating."` prints how similar the sentences are.
//!
//! `--save FILE` writes the embeddings as safetensors; `compare.py` compares them with PyTorch's.

use kiln::nn::{self, AttentionOptions, Embedding, LayerNorm, Linear, Mode, Module, Weights};
use kiln::{Device, Result, Tensor};
use serde::Deserialize;
use std::error::Error;
use std::path::Path;
use tokenizers::{PaddingParams, Tokenizer};

#[derive(Deserialize)]
struct Config {
    hidden_size: usize,
    intermediate_size: usize,
    layer_norm_eps: f32,
    max_position_embeddings: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    type_vocab_size: usize,
    vocab_size: usize,
}

/// Loads the parameters of a layer that were stored under this name.
fn load<M: Module>(layer: M, weights: &Weights, name: &str) -> Result<M> {
    weights.prefix(name).load_into(&layer)?;
    Ok(layer)
}

struct EncoderLayer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attention_norm: LayerNorm,
    up: Linear,
    down: Linear,
    norm: LayerNorm,
}

impl EncoderLayer {
    fn new(config: &Config, weights: &Weights, device: &Device) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let linear = |inputs, outputs, name| load(Linear::new(inputs, outputs, device)?, weights, name);
        let norm = |name| load(LayerNorm::new(width, device)?.eps(config.layer_norm_eps), weights, name);
        Ok(Self {
            query: linear(width, width, "attention.self.query")?,
            key: linear(width, width, "attention.self.key")?,
            value: linear(width, width, "attention.self.value")?,
            attended: linear(width, width, "attention.output.dense")?,
            attention_norm: norm("attention.output.LayerNorm")?,
            up: linear(width, inner, "intermediate.dense")?,
            down: linear(inner, width, "output.dense")?,
            norm: norm("output.LayerNorm")?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor, heads: usize, mode: &Mode) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let split = |layer: &Linear| layer.forward(x, mode)?.reshape((batch, length, heads, -1))?.transpose(1, 2);
        let options = AttentionOptions::new().mask(mask);
        let y = Tensor::attention(&split(&self.query)?, &split(&self.key)?, &split(&self.value)?, options)?;
        let y = self.attended.forward(&y.transpose(1, 2)?.reshape((batch, length, width))?, mode)?;
        let x = self.attention_norm.forward(&(x + &y)?, mode)?;
        let y = self.up.forward(&x, mode)?.gelu_erf()?;
        self.norm.forward(&(&x + &self.down.forward(&y, mode)?)?, mode)
    }
}

struct MiniLm {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    norm: LayerNorm,
    layers: Vec<EncoderLayer>,
    heads: usize,
}

impl MiniLm {
    fn new(config: &Config, weights: &Weights, device: &Device) -> Result<Self> {
        let (width, embeddings) = (config.hidden_size, weights.prefix("embeddings"));
        let table = |rows, name| load(Embedding::new(rows, width, device)?, &embeddings, name);
        let layer = |n| EncoderLayer::new(config, &weights.prefix(format!("encoder.layer.{n}")), device);
        Ok(Self {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: table(config.max_position_embeddings, "position_embeddings")?,
            types: table(config.type_vocab_size, "token_type_embeddings")?,
            norm: load(LayerNorm::new(width, device)?.eps(config.layer_norm_eps), &embeddings, "LayerNorm")?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            heads: config.num_attention_heads,
        })
    }

    /// Returns a unit vector for each row of token ids; `mask` is 0 where a row is padded.
    fn embed(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (mode, (_, length)) = (Mode::inference(), ids.dims2()?);
        let places = self.positions.weight.get().narrow(0, 0, length)?;
        let x = (self.words.forward(ids, &mode)? + &places)?;
        let x = (x + &self.types.weight.get().i(0)?)?;
        let mut x = self.norm.forward(&x, &mode)?;
        let seen = mask.i((.., kiln::NewAxis, kiln::NewAxis))?;
        for layer in &self.layers {
            x = layer.forward(&x, &seen, self.heads, &mode)?;
        }
        let weights = mask.to_dtype(x.dtype())?.unsqueeze(-1)?;
        let mean = ((x * &weights)?.sum(1)? / &weights.sum(1)?)?;
        &mean / &mean.norm_keepdim(-1)?
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let save = arguments.iter().position(|argument| argument == "--save").map(|at| arguments.split_off(at));
    let [folder, sentences @ ..] = &arguments[..] else {
        return Err("usage: minilm FOLDER SENTENCE... [--save FILE]".into());
    };
    let folder = Path::new(folder);
    let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
    let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))?;
    tokenizer.with_padding(Some(PaddingParams::default()));

    let device = Device::best()?;
    let model = MiniLm::new(&config, &Weights::load(folder, &device)?, &device)?;
    let encodings = tokenizer.encode_batch(sentences.to_vec(), true)?;
    let ids: Vec<Vec<u32>> = encodings.iter().map(|encoding| encoding.get_ids().to_vec()).collect();
    let mask: Vec<Vec<u32>> = encodings.iter().map(|encoding| encoding.get_attention_mask().to_vec()).collect();
    let embeddings = model.embed(&Tensor::new(ids, &device)?, &Tensor::new(mask, &device)?.ne(0)?)?;

    let similarity = embeddings.matmul(&embeddings.t()?)?.to_vec2::<f32>()?;
    for (row, sentence) in similarity.iter().zip(sentences) {
        let row: Vec<String> = row.iter().map(|cosine| format!("{cosine:6.3}")).collect();
        println!("{}  {sentence}", row.join(" "));
    }
    if let Some(path) = save.and_then(|save| save.into_iter().nth(1)) {
        nn::save_tensors(&path, &[("embeddings".to_string(), embeddings)], &Default::default())?;
    }
    Ok(())
}
