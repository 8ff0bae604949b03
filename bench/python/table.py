"""Results as text."""

from typing import Any


def duration(seconds: float) -> str:
    if seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.3f} ms"


def best_peer(times: dict[str, dict[str, float]], by: str) -> tuple[str, float] | None:
    """Returns the fastest library other than Kiln."""
    others = {name: time[by] for name, time in times.items() if name != "kiln"}
    return min(others.items(), key=lambda item: item[1]) if others else None


def ratio(result: dict[str, Any], by: str = "median") -> float | None:
    """Returns the best peer's time divided by Kiln's."""
    times = result["times"]
    best = best_peer(times, by)
    return best[1] / times["kiln"][by] if best and "kiln" in times else None


def line(result: dict[str, Any]) -> str:
    """Formats medians with minima in parentheses, per op if a run has many, with `~` if the output is rough; faults below."""
    times, ops = result["times"], result["ops_per_run"]

    def shown(name: str) -> str:
        sign = "~" if name in result["rough"] else ""
        return f"{name} {sign}{duration(times[name]['median'] / ops)} ({duration(times[name]['minimum'] / ops)})"

    peers = sorted((name for name in times if name != "kiln"), key=lambda name: times[name]["median"])
    median, minimum = ratio(result), ratio(result, "minimum")
    verdict = "no ratio"
    if median is not None and minimum is not None:
        reached = "reached" if median >= result["target"] else "NOT REACHED"
        verdict = f"{median:5.2f} ({minimum:5.2f}) of {result['target']} {reached}"
    arms = "; ".join(shown(name) for name in [*(["kiln"] if "kiln" in times else []), *peers])
    faults = "".join(f"\n    {name}: {fault}" for name, fault in result["faults"].items())
    return f"{result['workload']:26} {result['dtype']}  {verdict:32}  {arms}{faults}"


def summary(results: list[dict[str, Any]]) -> str:
    reached = [result for result in results if (value := ratio(result)) is not None and value >= result["target"]]
    return f"{len(reached)} of {len(results)} targets reached; ratio = best peer's median / Kiln's median (minima in parentheses)"


def memory(result: dict[str, Any]) -> str:
    """Formats mebibytes above the idle process, with the total peak in parentheses; smallest first."""
    found = sorted(result["bytes"].items(), key=lambda item: item[1]["peak"] - item[1]["before"])
    mebibytes = lambda count: count / 2**20
    cells = [f"{name} {mebibytes(b['peak'] - b['before']):.1f} ({mebibytes(b['peak']):.0f})" for name, b in found]
    return f"{result['workload']:26} {result['dtype']}  MiB: " + "; ".join(cells)
