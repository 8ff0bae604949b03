"""One run of the benchmark: selects workloads and libraries, measures times or memory, prints a table and writes a file."""

import argparse
import atexit
import json
import os
import platform
import sys
from typing import Any

import table
import timing
from child import Child, ChildError
from peers import PEERS, is_too_slow
from workloads import DTYPES, Workload, WrongOutput, is_rough, list_workloads

# Enough to fill pools and caches.
MEMORY_RUNS = 5


def run(options: argparse.Namespace) -> int:
    workloads = [workload for workload in list_workloads(options.kiln) if is_wanted(workload, options.only)]
    if not workloads:
        print(f"error: expected a workload with {options.only} in its name, found none", file=sys.stderr)
        return 2
    if unknown := set(options.skip) - set(PEERS):
        print(f"error: expected one of {', '.join(PEERS)} to skip, found {', '.join(unknown)}", file=sys.stderr)
        return 2
    dtypes = [options.dtype] if options.dtype else list(DTYPES)
    lines = [(workload, dtype) for dtype in dtypes for workload in workloads]
    report = measure_memory(options, lines) if options.memory else measure_times(options, lines)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    is_right = options.memory or all(
        "kiln" in result["times"] and "kiln" not in result["rough"] for result in report["results"]
    )
    return 0 if is_right else 1


def is_wanted(workload: Workload, only: list[str] | None) -> bool:
    return only is None or any(text in workload.id for text in only)


def start(options: argparse.Namespace) -> dict[Child, str]:
    """Starts the libraries and returns their versions. One that cannot be loaded is skipped with a message."""
    names = [name for name in PEERS if name not in options.skip]
    children = [Child.kiln(options.kiln, options.threads)]
    children += [Child.peer(name, options.kiln, options.threads) for name in names]
    for child in children:
        # A stopped process would not exit when its input closes.
        atexit.register(child.close)
    versions = {}
    for child in children:
        try:
            versions[child] = child.start()
        except (ChildError, OSError) as error:
            print(f"warning: {child.name} is skipped: {error}", file=sys.stderr)
            child.close()
    return versions


def measure_times(options: argparse.Namespace, lines: list[tuple[Workload, str]]) -> dict[str, Any]:
    sampling = timing.QUICK if options.quick else timing.FULL
    children = start(options)
    versions = {child.name: version for child, version in children.items()}
    print(f"{machine()}, {options.threads} threads; " + ", ".join(f"{n} {v}".strip() for n, v in versions.items()))
    results = []
    for workload, dtype in lines:
        results.append(compare(list(children), workload, dtype, sampling))
        print(table.line(results[-1]), flush=True)
    for child in children:
        child.close()
    print(table.summary(results))
    return {"machine": machine(), "threads": options.threads, "versions": versions, "results": results}


def compare(children: list[Child], workload: Workload, dtype: str, sampling: timing.SamplingConfig) -> dict[str, Any]:
    """Returns the times of a line, and the reasons of libraries without one."""
    inputs = [described.elements(DTYPES[dtype]) for described in workload.inputs]
    arms: dict[str, timing.Sampler] = {}
    faults: dict[str, str] = {}
    rough: list[str] = []
    for child in children:
        if is_too_slow(child.name, workload, dtype):
            faults[child.name] = "skipped: a run takes seconds"
            continue
        try:
            child.prepare(workload, dtype)
            if is_rough(workload, DTYPES[dtype], inputs, child.output()):
                rough.append(child.name)
            arms[child.name] = child.sample
        except (ChildError, WrongOutput) as error:
            faults[child.name] = str(error)
    times = {name: time.to_json() for name, time in timing.compare(arms, sampling).items()}
    described = {"workload": workload.id, "dtype": dtype, "target": workload.targets[dtype], "ops_per_run": workload.ops_per_run}
    return {**described, "times": times, "rough": rough, "faults": faults}


def measure_memory(options: argparse.Namespace, lines: list[tuple[Workload, str]]) -> dict[str, Any]:
    """Measures the memory of each library for each line, in separate processes."""
    results = []
    for workload, dtype in lines:
        found: dict[str, dict[str, int]] = {}
        for child in start(options):
            try:
                if not is_too_slow(child.name, workload, dtype):
                    found[child.name] = child.peak_bytes(workload, dtype, MEMORY_RUNS)
            except ChildError:
                pass
            child.close()
        results.append({"workload": workload.id, "dtype": dtype, "bytes": found})
        print(table.memory(results[-1]), flush=True)
    return {"machine": machine(), "threads": options.threads, "results": results}


def machine() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
