"""A library that answers requests, as `kiln bench --serve` does."""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from peers import PEERS, Arm, Peer
from workloads import DTYPES, Workload


class Server:
    def __init__(self, peer: Peer, workloads: list[Workload]) -> None:
        self.peer = peer
        self.workloads = {workload.id: workload for workload in workloads}
        self.arm: Arm | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "start":
                return {"version": self.peer.version}
            case "prepare":
                self.arm = None
                workload = self.workloads[request["workload"]]
                self.arm = self.peer.prepare(workload, [i.elements(DTYPES[request["dtype"]]) for i in workload.inputs])
                gc.collect()
                return {"workload": workload.id}
            case "sample":
                return {"ns": self.sample(request["runs"])}
            case "output":
                np.save(Path(request["path"]), np.asarray(self.prepared().output()))
                return {}
            case unknown:
                raise ValueError(f"expected a request, found `{unknown}`")

    def prepared(self) -> Arm:
        if self.arm is None:
            raise LookupError("the library does not support this workload")
        return self.arm

    def sample(self, runs: int) -> int:
        run = self.prepared().run
        start = time.perf_counter_ns()
        for _ in range(runs):
            run()
        return time.perf_counter_ns() - start


def serve(name: str, threads: int, workloads: list[Workload]) -> None:
    # Keeps output of the library out of the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    server = Server(PEERS[name](threads), workloads)
    gc.disable()
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001
            answer = {"error": (f"{type(error).__name__}: {error}".splitlines() or ["failed"])[0]}
        answers.write(json.dumps(answer) + "\n")
