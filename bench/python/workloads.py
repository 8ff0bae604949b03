"""The table of ops, with the implementation that users of each library would write.

The workloads, their shapes and their inputs come from `kiln bench --list --json`.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}
# Takes the library's module and the inputs.
Form = Callable[..., Any]
# Takes the model builder and the names of the inputs; returns the name of the output.
Model = Callable[..., str]


@dataclass(frozen=True)
class Input:
    shape: tuple[int, ...]
    seed: int
    scale: float
    is_whole: bool

    def elements(self, dtype: np.dtype[Any]) -> Array:
        """Generates the same numbers as Kiln's `Input::elements_of`: `splitmix64(seed * 2^32 + index)`, mapped to [-1, 1)."""
        z = (np.uint64(self.seed) << np.uint64(32)) + np.arange(prod(self.shape), dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        unit = ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
        if self.is_whole:
            unit = np.rint(unit)
        return (unit * np.float32(self.scale)).astype(dtype).reshape(self.shape)


@dataclass(frozen=True)
class Workload:
    """A workload as `kiln bench --list --json` describes it."""

    id: str
    op: str
    sizes: dict[str, int]
    inputs: tuple[Input, ...]
    ops_per_run: int
    flops: float
    targets: dict[str, float]

    @staticmethod
    def of(line: dict[str, Any]) -> "Workload":
        op = dict(line["op"])
        inputs = [Input(tuple(i["shape"]), i["seed"], i["scale"], i["is_whole"]) for i in line["inputs"]]
        name = op.pop("op")
        return Workload(line["workload"], name, op, tuple(inputs), line["ops_per_run"], line["flops"], line["targets"])


def list_workloads(program: Path) -> list[Workload]:
    command = [str(program), "bench", "--list", "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [Workload.of(json.loads(line)) for line in lines]


@dataclass(frozen=True)
class Op:
    """Implementations of an op. A library without one is not measured."""

    reference: Form
    """In NumPy on `f64`: the output, and the sum of the magnitudes of its terms (0 if it is not a sum)."""
    numpy: Form | None = None
    torch: Form | None = None
    jax: Form | None = None
    onnx: Model | None = None
    weights: tuple[int, ...] = ()
    """Inputs that are weights of a model. onnxruntime takes them as constants, which it may repack once."""
    rounded: float = 1.0
    """Magnitude of intermediate values that a library may round to the dtype, which bounds the error near zero."""
    is_eager: bool = False
    """Whether the dispatch of small ops is measured, so that they must not be compiled as a whole."""


def gelu(m: Any, x: Any) -> Any:
    return 0.5 * x * (1 + m.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))


def softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(m: Any, x: Any, w: Any, b: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / m.sqrt(variance + 1e-5) * w + b


def attention(m: Any, q: Any, k: Any, v: Any) -> Any:
    return softmax(m, (q @ m.swapaxes(k, -1, -2)) * q.dtype.type(1 / sqrt(q.shape[-1]))) @ v


def chain8(m: Any, a: Any, b: Any) -> Any:
    return -m.minimum(m.maximum(m.abs((a * b + a) * 0.5 - b), a), 0.75)


def mlp(m: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return m.maximum(x @ w1 + b1, 0) @ w2 + b2


def tiny_chain(add: Form, zeros: Any, y: Any, chains: int, steps: int) -> list[Any]:
    results = []
    for _ in range(chains):
        x = zeros
        for _ in range(steps):
            x = add(x, y)
        results.append(x)
    return results


def tiny_independent(add: Form, singles: Sequence[Any], b: Any) -> list[Any]:
    return [add(a, b) for a in singles]


def topk(m: Any, x: Any, k: int) -> Any:
    return m.sort(m.partition(x, -k, axis=1)[:, -k:], axis=1)[:, ::-1]


def max_pool(m: Any, x: Any) -> Any:
    padded = m.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-m.inf)
    size = x.shape[2]
    taken = [padded[:, :, i : i + size : 2, j : j + size : 2] for i in range(3) for j in range(3)]
    result = taken[0]
    for other in taken[1:]:
        result = m.maximum(result, other)
    return result


def torch_chain8(t: Any, a: Any, b: Any) -> Any:
    return -t.clamp(t.maximum(t.abs((a * b + a) * 0.5 - b), a), max=0.75)


def onnx_linear_gelu(g: Any, x: str, w: str, b: str) -> str:
    return g.Gelu(g.Add(g.MatMul(x, w), b), approximate="tanh")


def onnx_chain8(g: Any, a: str, b: str) -> str:
    scaled = g.Mul(g.Add(g.Mul(a, b), a), g.constant(0.5))
    return g.Neg(g.Min(g.Max(g.Abs(g.Sub(scaled, b)), a), g.constant(0.75)))


def onnx_mlp(g: Any, x: str, w1: str, b1: str, w2: str, b2: str) -> str:
    return g.Add(g.MatMul(g.Relu(g.Add(g.MatMul(x, w1), b1)), w2), b2)


def magnitudes(a: Array, b: Array) -> Array:
    return np.abs(a) @ np.abs(b)


OPS: dict[str, Op] = {
    "matmul": Op(
        reference=lambda a, b: (a @ b, magnitudes(a, b)),
        numpy=lambda m, a, b: a @ b,
        torch=lambda t, a, b: a @ b,
        jax=lambda m, a, b: a @ b,
        onnx=lambda g, a, b: g.MatMul(a, b),
        rounded=0.0,
    ),
    "linear-gelu": Op(
        reference=lambda x, w, b: (gelu(np, x @ w + b), magnitudes(x, w)),
        numpy=lambda m, x, w, b: gelu(m, x @ w + b),
        torch=lambda t, x, w, b: t.nn.functional.gelu(t.addmm(b, x, w), approximate="tanh"),
        jax=lambda m, x, w, b: gelu(m, x @ w + b),
        onnx=onnx_linear_gelu,
        weights=(1, 2),
    ),
    "add": Op(
        reference=lambda a, b: (a + b, 0),
        numpy=lambda m, a, b: a + b,
        torch=lambda t, a, b: a + b,
        jax=lambda m, a, b: a + b,
        onnx=lambda g, a, b: g.Add(a, b),
    ),
    "mul-add-relu": Op(
        reference=lambda a, b, c: (np.maximum(a * b + c, 0), 0),
        numpy=lambda m, a, b, c: m.maximum(a * b + c, 0),
        torch=lambda t, a, b, c: t.relu(t.addcmul(c, a, b)),
        jax=lambda m, a, b, c: m.maximum(a * b + c, 0),
        onnx=lambda g, a, b, c: g.Relu(g.Add(g.Mul(a, b), c)),
    ),
    "chain8": Op(
        reference=lambda a, b: (chain8(np, a, b), 0),
        numpy=chain8,
        torch=torch_chain8,
        jax=chain8,
        onnx=onnx_chain8,
    ),
    "gelu": Op(
        reference=lambda x: (gelu(np, x), 0),
        numpy=gelu,
        torch=lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        jax=gelu,
        onnx=lambda g, x: g.Gelu(x, approximate="tanh"),
    ),
    "sum": Op(
        reference=lambda x: (x.sum(), np.abs(x).sum()),
        numpy=lambda m, x: x.sum(),
        torch=lambda t, x: x.sum(),
        jax=lambda m, x: x.sum(),
        onnx=lambda g, x: g.ReduceSum(x, keepdims=0),
        rounded=0.0,
    ),
    "row-sums": Op(
        reference=lambda x: (x.sum(axis=1), np.abs(x).sum(axis=1)),
        numpy=lambda m, x: x.sum(axis=1),
        torch=lambda t, x: x.sum(1),
        jax=lambda m, x: x.sum(axis=1),
        onnx=lambda g, x: g.ReduceSum(x, g.axes(1), keepdims=0),
        rounded=0.0,
    ),
    "softmax": Op(
        reference=lambda x: (softmax(np, x), 0),
        numpy=softmax,
        torch=lambda t, x: t.softmax(x, 1),
        jax=softmax,
        onnx=lambda g, x: g.Softmax(x, axis=1),
        rounded=0.0,
    ),
    "cumsum": Op(
        reference=lambda x: (np.cumsum(x, axis=1), np.cumsum(np.abs(x), axis=1)),
        numpy=lambda m, x: m.cumsum(x, axis=1),
        torch=lambda t, x: x.cumsum(1),
        jax=lambda m, x: m.cumsum(x, axis=1),
        onnx=lambda g, x: g.CumSum(x, g.axes(1)),
        rounded=0.0,
    ),
    "sort": Op(
        reference=lambda x: (np.sort(x, axis=1), 0),
        numpy=lambda m, x: m.sort(x, axis=1),
        torch=lambda t, x: x.sort(1).values,
        jax=lambda m, x: m.sort(x, axis=1),
        rounded=0.0,
    ),
    "topk": Op(
        reference=lambda x, k: (topk(np, x, k), 0),
        numpy=topk,
        torch=lambda t, x, k: x.topk(k, 1).values,
        rounded=0.0,
    ),
    "max-pool": Op(
        reference=lambda x: (max_pool(np, x), 0),
        numpy=max_pool,
        torch=lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1),
        onnx=lambda g, x: g.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        rounded=0.0,
    ),
    "layer-norm": Op(
        reference=lambda x, w, b: (layer_norm(np, x, w, b), 0),
        numpy=layer_norm,
        torch=lambda t, x, w, b: t.nn.functional.layer_norm(x, w.shape, w, b, 1e-5),
        jax=layer_norm,
        onnx=lambda g, x, w, b: g.LayerNormalization(x, w, b, epsilon=1e-5),
        weights=(1, 2),
    ),
    "attention": Op(
        reference=lambda q, k, v: (attention(np, q, k, v), 0),
        numpy=attention,
        torch=lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v),
        jax=attention,
        onnx=lambda g, q, k, v: g.Attention(q, k, v),
        rounded=0.5,
    ),
    "tiny-chain": Op(
        reference=lambda y, chains, steps: (np.tile(y * steps, (chains, 1)), 0),
        numpy=lambda m, y, chains, steps: tiny_chain(m.add, m.zeros_like(y), y, chains, steps),
        torch=lambda t, y, chains, steps: tiny_chain(t.add, t.zeros_like(y), y, chains, steps),
        jax=lambda m, y, chains, steps: tiny_chain(m.add, m.zeros_like(y), y, chains, steps),
        is_eager=True,
    ),
    "tiny-independent": Op(
        reference=lambda a, b: (a + b, 0),
        numpy=lambda m, singles, b: tiny_independent(m.add, singles, b),
        torch=lambda t, singles, b: tiny_independent(t.add, singles, b),
        jax=lambda m, singles, b: tiny_independent(m.add, singles, b),
        is_eager=True,
    ),
    "mlp": Op(
        reference=lambda x, w1, b1, w2, b2: (
            mlp(np, x, w1, b1, w2, b2),
            magnitudes(np.maximum(x @ w1 + b1, 0), w2),
        ),
        numpy=mlp,
        torch=lambda t, x, w1, b1, w2, b2: t.addmm(b2, t.relu(t.addmm(b1, x, w1)), w2),
        jax=mlp,
        onnx=onnx_mlp,
        weights=(1, 2, 3, 4),
        rounded=4.0,
    ),
}


def arguments(workload: Workload) -> dict[str, int]:
    """Returns the arguments of an implementation other than its inputs."""
    names = {"tiny-chain": ("chains", "steps"), "topk": ("k",)}.get(workload.op, ())
    return {name: workload.sizes[name] for name in names}


def weights(workload: Workload) -> tuple[int, ...]:
    """Returns the inputs that are weights. A matmul with one row is a linear layer applied to one token."""
    return (1,) if workload.op == "matmul" and workload.sizes["m"] == 1 else OPS[workload.op].weights


class WrongOutput(Exception):
    """An output error larger than rounding explains, even if every partial sum is rounded to the dtype."""


def is_rough(workload: Workload, dtype: np.dtype[Any], inputs: Sequence[Array], output: Array) -> bool:
    """Compares an output with the `f64` reference. Returns whether it is less accurate than its dtype allows, for example because a
    library rounds partial sums to `f16`. The bounds are those of `kiln-bench`."""
    op = OPS[workload.op]
    expected, terms = op.reference(*(array.astype(np.float64) for array in inputs), **arguments(workload))
    output = output.astype(np.float64).reshape(np.shape(output))
    if output.size != np.size(expected):
        raise WrongOutput(f"expected {np.size(expected)} elements, found {output.size}")
    output = output.reshape(np.shape(expected))
    epsilon = float(np.finfo(dtype).eps)
    smallest = 2.0**-24 if dtype == np.float16 else 0.0
    close = 8 * epsilon * np.maximum(np.abs(expected), op.rounded) + 4 * float(np.finfo(np.float32).eps) * terms + smallest
    rough = 8 * close + np.minimum(2 * epsilon * terms, 0.05 * np.sqrt(terms))
    off = np.abs(output - expected)
    # The negation makes NaN wrong.
    is_wrong = ~(off <= rough)
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        found, wanted = np.ravel(output)[index], np.ravel(expected)[index]
        count = f"{int(is_wrong.sum())} of {output.size} elements are out of tolerance"
        raise WrongOutput(f"{count}: expected {wanted:.6g}, found {found:.6g} at {index}")
    return bool((off > close).any())
