"""Compares embeddings that `--save FILE` wrote with those of PyTorch: prints the cosine for each sentence.

    python3 compare.py FOLDER FILE "A man eats." "Somebody is eating."

Needs the packages torch, tokenizers and safetensors.
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

HEADS, LAYERS, EPS = 12, 6, 1e-12


def embed(folder, sentences):
    weights = load_file(f"{folder}/model.safetensors")
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(sentences)
    ids = torch.tensor([encoding.ids for encoding in encodings])
    mask = torch.tensor([encoding.attention_mask for encoding in encodings])

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPS)

    x = F.embedding(ids, weights["embeddings.word_embeddings.weight"])
    x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        parts = [linear(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        q, k, v = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None].bool())
        y = linear(y.transpose(1, 2).reshape(x.shape), f"{name}.attention.output.dense")
        x = norm(x + y, f"{name}.attention.output.LayerNorm")
        y = linear(F.gelu(linear(x, f"{name}.intermediate.dense")), f"{name}.output.dense")
        x = norm(x + y, f"{name}.output.LayerNorm")
    seen = mask[..., None].float()
    return F.normalize((x * seen).sum(1) / seen.sum(1), dim=-1)


folder, file, *sentences = sys.argv[1:]
found, expected = load_file(file)["embeddings"].double(), embed(folder, sentences).double()
for cosine, sentence in zip(F.cosine_similarity(found, expected), sentences, strict=True):
    print(f"{cosine:.9f}  {sentence}")
