"""The libraries that Kiln is compared with. Each is loaded on demand, and skipped with a message if that fails."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from workloads import OPS, Array, Workload, arguments, weights

# FLOP/s of libraries that convert `f16` one element at a time: in all ops, or in matmul.
SLOW_F16_FLOPS = {"numpy": 1e8}
SLOW_F16_MATMUL_FLOPS = {"torch": 1e9, "torch-compiled": 1e9}
MAX_RUN_S = 1.0


@dataclass(frozen=True)
class Arm:
    """An implementation of a workload: `run` executes it once and waits, `output` returns the result."""

    name: str
    run: Callable[[], object]
    output: Callable[[], Array]


class Peer(Protocol):
    name: str
    version: str

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        """Returns the arm of a workload; `None` if the library does not support it."""


def upload(workload: Workload, inputs: Sequence[Array], convert: Callable[[Array], Any]) -> list[Any]:
    """Converts the inputs to tensors of a library; for independent small tensors, the first input is split into rows."""
    first = [convert(row) for row in inputs[0]] if workload.op == "tiny-independent" else convert(inputs[0])
    return [first, *map(convert, inputs[1:])]


def is_too_slow(peer: str, workload: Workload, dtype: str) -> bool:
    """Whether a run would take longer than `MAX_RUN_S`."""
    rates = SLOW_F16_FLOPS | (SLOW_F16_MATMUL_FLOPS if workload.op in ("matmul", "linear-gelu") else {})
    return dtype == "f16" and workload.flops / rates.get(peer, float("inf")) > MAX_RUN_S


class NumPy:
    name = "numpy"

    def __init__(self, threads: int) -> None:
        self.version = np.__version__

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        form = OPS[workload.op].numpy
        if form is None:
            return None
        values, sizes = upload(workload, inputs, lambda array: array), arguments(workload)
        run = lambda: form(np, *values, **sizes)
        return Arm(self.name, run, lambda: np.array(run()))


class Torch:
    """PyTorch in eager mode."""

    name = "torch"

    def __init__(self, threads: int) -> None:
        self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(threads)
        # Disables autograd bookkeeping.
        self.torch.inference_mode().__enter__()
        self.version = self.torch.__version__

    def form(self, workload: Workload) -> Callable[..., Any] | None:
        """Returns the implementation of a workload as a function of its inputs; `None` if there is none."""
        form = OPS[workload.op].torch
        return None if form is None else lambda *values, **sizes: form(self.torch, *values, **sizes)

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Arm | None:
        form = self.form(workload)
        if form is None:
            return None
        values, sizes = upload(workload, inputs, self.torch.from_numpy), arguments(workload)
        run = lambda: form(*values, **sizes)

        def output() -> Array:
            result = run()
            return np.array(self.torch.stack(result) if isinstance(result, list) else result)

        return Arm(self.name, run, output)


class TorchCompiled(Torch):
    """PyTorch with `torch.compile`."""

    name = "torch-compiled"

    def form(self, workload: Workload) -> Callable[..., Any] | None:
        form = None if OPS[workload.op].is_eager else super().form(workload)
        # Otherwise all workloads count as recompilations of one function: PyTorch compiles eight and runs the rest eagerly.
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
        values, sizes = upload(workload, inputs, jnp.asarray), arguments(workload)
        function = (lambda *values: form(jnp, *values, **sizes)) if op.is_eager else jax.jit(lambda *v: form(jnp, *v))
        run = lambda: jax.block_until_ready(function(*values))
        return Arm(self.name, run, lambda: np.array(run()))


class OnnxRuntime:
    """onnxruntime on a model of one workload, with bound inputs and output, so that it reuses the output memory."""

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
        self.inputs = {f"input{index}": array for index, array in enumerate(inputs) if index not in weights}
        self.output = ""
        # Names of all inputs, in order.
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
