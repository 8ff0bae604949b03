"""Kiln as a child process that stays alive: one line of JSON each way."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from works import Array, Work


class KilnError(Exception):
    """What the child says about a request that it cannot do."""


def list_works(program: Path) -> list[Work]:
    command = [str(program), "bench", "--list", "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [Work.of(json.loads(line)) for line in lines]


class Kiln:
    """`kiln bench --serve`, and the work that it has prepared."""

    name = "kiln"

    def __init__(self, program: Path, threads: int) -> None:
        command = [str(program), "bench", "--serve", "--device", "cpu", "--threads", str(threads)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        version = subprocess.run([str(program), "--version"], check=True, capture_output=True, text=True).stdout
        self.version = version.removeprefix("kiln").strip()

    @property
    def pid(self) -> int:
        return self.child.pid

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        assert self.child.stdin and self.child.stdout
        self.child.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        line = self.child.stdout.readline()
        if not line:
            raise KilnError(f"the child ended with status {self.child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KilnError(answer["error"])
        return answer

    def prepare(self, work: Work, dtype: str) -> None:
        self.ask("prepare", work=work.id, dtype=dtype)

    def sample(self, runs: int) -> float:
        """Seconds for this many runs."""
        return self.ask("sample", runs=runs)["ns"] / 1e9

    def output(self) -> Array:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "output.npy")
            self.ask("output", path=str(path))
            array: Array = np.load(path)
            return array

    def close(self) -> None:
        if self.child.poll() is None:
            self.ask("quit")
        self.child.wait()
