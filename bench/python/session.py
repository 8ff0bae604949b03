"""One call of the program: which works, which libraries, times or memory, a table and a file."""

import argparse
import json
import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np

import memory
import table
import timing
from kiln_child import Kiln, KilnError, list_works
from peers import PEERS, Peer
from works import Array, Work, check

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}
# Enough that pools and caches have what they keep.
MEMORY_RUNS = 5


def run(options: argparse.Namespace) -> int:
    works = [work for work in list_works(options.kiln) if is_wanted(work, options.only)]
    if not works:
        print(f"error: expected a work with {options.only} in its name, found none", file=sys.stderr)
        return 2
    if unknown := set(options.skip) - set(PEERS):
        print(f"error: expected one of {', '.join(PEERS)} to skip, found {', '.join(unknown)}", file=sys.stderr)
        return 2
    if options.one:
        print(json.dumps(memory_of(options, next(work for work in works if work.id == options.one[1]))))
        return 0
    dtypes = [options.dtype] if options.dtype else list(DTYPES)
    lines = [(work, dtype) for dtype in dtypes for work in works]
    if options.memory:
        results = [measure_memory(options, work, dtype) for work, dtype in lines]
        print(table.memory(results))
        is_right = True
    else:
        results, is_right = measure_times(options, lines)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if is_right else 1


def is_wanted(work: Work, only: list[str] | None) -> bool:
    return only is None or any(text in work.id for text in only)


def load(options: argparse.Namespace) -> list[Peer]:
    """The libraries that are there. One that fails is left out with a message, whatever it fails with."""
    peers: list[Peer] = []
    for name, make in PEERS.items():
        if name in options.skip:
            continue
        try:
            peers.append(make(options.threads))
        except Exception as error:  # noqa: BLE001
            warn(f"{name} is left out: {error}")
    return peers


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def measure_times(options: argparse.Namespace, lines: list[tuple[Work, str]]) -> tuple[dict[str, Any], bool]:
    peers, kiln = load(options), Kiln(options.kiln, options.threads)
    versions = {peer.name: peer.version for peer in [kiln, *peers]}
    print(f"{machine()}, {options.threads} threads; " + ", ".join(f"{n} {v}" for n, v in versions.items()))
    results = []
    for work, dtype in lines:
        results.append(compare(kiln, peers, work, dtype, timing.QUICK if options.quick else timing.FULL))
        print(table.line(results[-1]), flush=True)
    kiln.close()
    print(table.summary(results))
    report = {"machine": machine(), "threads": options.threads, "versions": versions, "results": results}
    return report, all("kiln" in result["times"] for result in results)


def compare(kiln: Kiln, peers: list[Peer], work: Work, dtype: str, effort: timing.Effort) -> dict[str, Any]:
    """The times of a line, and why libraries have none."""
    inputs = [described.elements(DTYPES[dtype]) for described in work.inputs]
    arms: dict[str, timing.Sampler] = {}
    faults: dict[str, str] = {}

    def admit(name: str, sample: timing.Sampler, output: Array) -> None:
        if (fault := check(work, DTYPES[dtype], inputs, output)) is None:
            arms[name] = sample
        else:
            faults[name] = fault

    try:
        kiln.prepare(work, dtype)
        admit(kiln.name, kiln.sample, kiln.output())
    except KilnError as error:
        faults[kiln.name] = str(error)
    for peer in peers:
        try:
            if arm := peer.prepare(work, inputs):
                admit(arm.name, timing.sampler(arm.run), np.asarray(arm.output()))
        except Exception as error:  # noqa: BLE001
            faults[peer.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    times = {name: time.to_json() for name, time in timing.compare(arms, effort).items()}
    return {
        "work": work.id,
        "dtype": dtype,
        "target": work.targets[dtype],
        "ops_per_run": work.ops_per_run,
        "times": times,
        "faults": faults,
    }


def measure_memory(options: argparse.Namespace, work: Work, dtype: str) -> dict[str, Any]:
    """What each library needs for a line, in a process of its own."""
    found: dict[str, dict[str, int]] = {}
    for name in ["kiln", *(name for name in PEERS if name not in options.skip)]:
        one = ["--one", name, work.id, dtype, "--kiln", str(options.kiln), "--threads", str(options.threads)]
        child = subprocess.run([sys.executable, sys.argv[0], *one], capture_output=True, text=True)
        if child.returncode != 0:
            warn(f"{name} has no line {work.id} {dtype}: {(child.stderr.strip().splitlines() or ['it failed'])[-1]}")
        elif answer := json.loads(child.stdout.splitlines()[-1]):
            found[name] = answer
    return {"work": work.id, "dtype": dtype, "bytes": found}


def memory_of(options: argparse.Namespace, work: Work) -> dict[str, int] | None:
    """Peak resident bytes while a work runs, and how much of it the process had before; what making the numbers took is left out."""
    name, _, dtype = options.one
    if name == Kiln.name:
        kiln = Kiln(options.kiln, options.threads)
        kiln.ask("start")
        before = memory.resident(kiln.pid)
        kiln.prepare(work, dtype)
        memory.reset_peak(kiln.pid)
        kiln.sample(MEMORY_RUNS)
        found = {"before": before, "peak": memory.peak(kiln.pid)}
        kiln.close()
        return found
    peer = PEERS[name](options.threads)
    before = memory.resident("self")
    inputs = [described.elements(DTYPES[dtype]) for described in work.inputs]
    arm = peer.prepare(work, inputs)
    if arm is None:
        return None
    memory.reset_peak("self")
    for _ in range(MEMORY_RUNS):
        arm.run()
    return {"before": before, "peak": memory.peak("self")}


def machine() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
