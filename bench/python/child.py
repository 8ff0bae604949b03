"""A library in a separate process that speaks the protocol of `kiln bench --serve`: one JSON object per line in each direction.

A process without a request is stopped with a signal: the thread pools of most libraries spin for a while after their last op, and would
take a core from the timed process.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import memory
from workloads import Array, Workload


class ChildError(Exception):
    """The error that a child returns for a request."""


class Child:
    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    @staticmethod
    def kiln(program: Path, threads: int) -> "Child":
        command = [str(program), "bench", "--serve", "--device", "cpu", "--threads", str(threads)]
        return Child("kiln", command)

    @staticmethod
    def peer(name: str, program: Path, threads: int) -> "Child":
        options = ["--kiln", str(program), "--threads", str(threads), "--serve", name]
        return Child(name, [sys.executable, sys.argv[0], *options])

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise ChildError(f"its process exited with status {self.process.wait()}")
        os.kill(self.process.pid, signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildError(answer["error"])
        return answer

    def start(self) -> str:
        """Waits until the library is loaded; returns its version."""
        return str(self.ask("start").get("version", ""))

    def prepare(self, workload: Workload, dtype: str) -> None:
        self.ask("prepare", workload=workload.id, dtype=dtype)

    def sample(self, warm_up: int, runs: int) -> float:
        """Seconds for this many runs, after untimed warm-up runs."""
        if warm_up:
            self.ask("sample", runs=warm_up)
        return int(self.ask("sample", runs=runs)["ns"]) / 1e9

    def output(self) -> Array:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "output.npy")
            self.ask("output", path=str(path))
            array: Array = np.load(path)
            return array

    def peak_bytes(self, workload: Workload, dtype: str, runs: int) -> dict[str, int]:
        """Resident bytes before a workload is prepared, and their peak while it runs, without the generation of its inputs."""
        before = memory.resident(self.process.pid)
        self.prepare(workload, dtype)
        memory.reset_peak(self.process.pid)
        self.sample(0, runs)
        return {"before": before, "peak": memory.peak(self.process.pid)}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
