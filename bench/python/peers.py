"""The libraries that Kiln is measured beside. Each is loaded when it is wanted, and left out with a message where it fails."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from workloads import OPS, Array, Workload, arguments, weights

# Operations a second that these reach with `f16`, which they convert one by one: everywhere, or in matrix products.
SLOW_HALVES = {"numpy": 1e8}
SLOW_HALF_PRODUCTS = {"torch": 1e9, "torch-compiled": 1e9}
LONGEST_RUN_S = 1.0


@dataclass(frozen=True)
class Arm:
    """One way to do a workload: `run` does it once and waits for it, `output` gives what came out."""

    name: str
    run: Callable[[], object]
    output: Callable[[], Array]


class Peer(Protocol):
    name: str
    version: str

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        """The arm of a workload; `None` where the library has no form of it."""


def placed(workload: Workload, inputs: Sequence[Array], place: Callable[[Array], Any]) -> list[Any]:
    """The inputs as forms of a library take them: the first one row by row where a workload is about small tensors."""
    first = [place(row) for row in inputs[0]] if workload.op == "tiny-independent" else place(inputs[0])
    return [first, *map(place, inputs[1:])]


def is_too_slow(peer: str, workload: Workload, dtype: str) -> bool:
    """Whether a run would take longer than anybody waits for it."""
    rates = SLOW_HALVES | (SLOW_HALF_PRODUCTS if workload.op in ("matmul", "linear-gelu") else {})
    return dtype == "f16" and workload.flops / rates.get(peer, float("inf")) > LONGEST_RUN_S


class NumPy:
    name = "numpy"

    def __init__(self, threads: int) -> None:
        self.version = np.__version__

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        form = OPS[workload.op].numpy
        if form is None:
            return None
        values, sizes = placed(workload, inputs, lambda array: array), arguments(workload)
        run = lambda: form(np, *values, **sizes)
        return Arm(self.name, run, lambda: np.array(run()))


class Torch:
    """PyTorch, op by op."""

    name = "torch"

    def __init__(self, threads: int) -> None:
        self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(threads)
        # Without the state that gradients need.
        self.torch.inference_mode().__enter__()
        self.version = self.torch.__version__

    def form(self, workload: Workload) -> Callable[..., Any] | None:
        form = OPS[workload.op].torch
        return None if form is None else lambda *values, **sizes: form(self.torch, *values, **sizes)

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        form = self.form(workload)
        if form is None:
            return None
        values, sizes = placed(workload, inputs, self.torch.from_numpy), arguments(workload)
        run = lambda: form(*values, **sizes)

        def output() -> Array:
            result = run()
            return np.array(self.torch.stack(result) if isinstance(result, list) else result)

        return Arm(self.name, run, output)


class TorchCompiled(Torch):
    """PyTorch with its compiler."""

    name = "torch-compiled"

    def form(self, workload: Workload) -> Callable[..., Any] | None:
        form = None if OPS[workload.op].is_eager else super().form(workload)
        # Otherwise the workloads would count as variants of one function, of which it compiles eight and runs the rest op by op.
        self.torch._dynamo.reset()
        return None if form is None else self.torch.compile(form, dynamic=False)


class Jax:
    name = "jax"

    def __init__(self, threads: int) -> None:
        self.jax = importlib.import_module("jax")
        self.jnp = importlib.import_module("jax.numpy")
        self.version = self.jax.__version__

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        op, jax, jnp = OPS[workload.op], self.jax, self.jnp
        form = op.jax
        if form is None:
            return None
        values, sizes = placed(workload, inputs, jnp.asarray), arguments(workload)
        function = (lambda *values: form(jnp, *values, **sizes)) if op.is_eager else jax.jit(lambda *v: form(jnp, *v))
        run = lambda: jax.block_until_ready(function(*values))
        return Arm(self.name, run, lambda: np.array(run()))


class OnnxRuntime:
    """onnxruntime on a model of the one workload, with inputs and output bound, so that it writes where it wrote before."""

    name = "onnxruntime"

    def __init__(self, threads: int) -> None:
        self.onnx = importlib.import_module("onnx")
        self.ort = importlib.import_module("onnxruntime")
        self.version = self.ort.__version__
        self.threads = threads

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        model = OPS[workload.op].onnx
        if model is None:
            return None
        graph = Model(self.onnx, inputs, weights(workload))
        graph.finish(model(graph, *graph.values))
        options = self.ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = self.ort.InferenceSession(graph.bytes(), options, providers=["CPUExecutionProvider"])
        result = session.run(None, graph.inputs)[0]
        bound = self.ort.OrtValue.ortvalue_from_numpy(np.array(result, order="C"))
        binding = session.io_binding()
        for name, array in graph.inputs.items():
            binding.bind_ortvalue_input(name, self.ort.OrtValue.ortvalue_from_numpy(array))
        binding.bind_ortvalue_output(graph.output, bound)
        run = lambda: session.run_with_iobinding(binding)

        def output() -> Array:
            run()
            return bound.numpy()

        return Arm(self.name, run, output)


class Model:
    """Builds a model op by op: `model.Add(a, b)` adds a node and returns the name of its output."""

    OPSET = 23

    def __init__(self, onnx: Any, inputs: Sequence[Array], weights: Sequence[int]) -> None:
        self.onnx, self.dtype = onnx, inputs[0].dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs = {f"input{place}": array for place, array in enumerate(inputs) if place not in weights}
        self.output = ""
        # The names of all inputs, in their order.
        self.values = [self.initialised(a) if p in weights else f"input{p}" for p, a in enumerate(inputs)]

    def __getattr__(self, op: str) -> Callable[..., str]:
        def add(*inputs: str, **attributes: Any) -> str:
            name = f"value{len(self.nodes)}"
            self.nodes.append(self.onnx.helper.make_node(op, inputs, [name], **attributes))
            return name

        return add

    def constant(self, value: float) -> str:
        return self.initialised(np.array(value, self.dtype))

    def axes(self, axis: int) -> str:
        return self.initialised(np.array([axis], np.int64))

    def initialised(self, array: Array) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def finish(self, output: str) -> None:
        self.output = output

    def bytes(self) -> bytes:
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        inputs = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(self.output, kind, None)]
        graph = helper.make_graph(self.nodes, "workload", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.OPSET)], ir_version=10)
        return model.SerializeToString()


PEERS: dict[str, Callable[[int], Peer]] = {
    peer.name: peer for peer in (NumPy, Torch, TorchCompiled, Jax, OnnxRuntime)
}
