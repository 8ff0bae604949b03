"""Draws the times that `run --json FILE` wrote: Kiln against the fastest other library, one bar per workload and dtype.

`python3 plot.py times.json docs/pictures/speed` writes `speed-light.svg` and `speed-dark.svg`. Needs no library.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH = 800
MARGIN = 16
LABELS = 188  # width of the column of workloads
PEERS = 78  # width of the column of libraries, right of each panel
GAP = 10
TOP = 126  # y of the first row
ROW = 18
BAR = 9
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
# Room for the number at the end of a bar.
VALUE_PX = 32

# Blue and orange differ for colour-blind readers too; the side of the line at 1 says the same.
SCHEMES = {
    "light": {
        "page": "#ffffff", "text": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0", "stripe": "#f6f8fa", "faster": "#0072b2", "slower": "#d55e00",
    },
    "dark": {
        "page": "#0d1117", "text": "#f0f6fc", "muted": "#9198a1", "grid": "#3d444d", "stripe": "#151b23", "faster": "#56b4e9", "slower": "#f0a04b",
    },
}  # fmt: skip

LIBRARIES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "torch-compiled": "torch.compile",
    "jax": "JAX",
    "onnxruntime": "onnxruntime",
}

FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛"}

# The start of a workload's id, and what a reader calls it. The rest of the id is the size.
WORKLOADS = {
    "matmul-": "matmul {}²",
    "linear-gelu-": "linear + GELU {}",
    "row-sums-": "row sums {}",
    "row-": "vector × matrix {}",
    "mul-add-relu-": "relu(a·b + c) {}",
    "add-": "a + b {}",
    "chain8-": "chain of 8 ops {}",
    "gelu-": "GELU {}",
    "sum-": "sum {}",
    "softmax-": "softmax {}",
    "layer-norm-": "layer norm {}",
    "cumsum-": "cumulative sum {}",
    "sort-": "sort {}",
    "topk-": "top {}",
    "max-pool-": "max pooling {}",
    "attention-": "attention {} tokens",
    "tiny-chain": "tiny adds, dependent",
    "tiny-independent": "tiny adds, independent",
    "mlp-": "MLP {}",
}
# Workloads whose single size is that of a square.
SQUARES = ("softmax-", "layer-norm-", "cumsum-", "sort-")


@dataclass(frozen=True)
class Bar:
    """A comparison with the fastest other library. Without a ratio, `peer` says why."""

    ratio: float | None
    peer: str


@dataclass(frozen=True)
class Panel:
    dtype: str
    bars: dict[str, Bar]

    def summary(self) -> str:
        ratios = [bar.ratio for bar in self.bars.values() if bar.ratio is not None]
        return f"faster in {sum(ratio >= 1 for ratio in ratios)} of {len(self.bars)} workloads"


def bar_of(result: dict[str, Any]) -> Bar:
    times = result["times"]
    if "kiln" not in times:
        return Bar(None, "Kiln failed")
    others = {name: time["median"] for name, time in times.items() if name != "kiln"}
    if not others:
        return Bar(None, "no other library")
    best = min(others, key=lambda name: others[name])
    sign = "~" if best in result["rough"] else ""
    return Bar(others[best] / times["kiln"]["median"], sign + LIBRARIES.get(best, best))


def panels_of(results: list[dict[str, Any]]) -> list[Panel]:
    dtypes = dict.fromkeys(result["dtype"] for result in results)
    # Files of older runs say `work`.
    name = lambda result: result.get("workload") or result["work"]
    return [Panel(d, {name(r): bar_of(r) for r in results if r["dtype"] == d}) for d in dtypes]


def ordered(panels: list[Panel]) -> list[str]:
    """All workloads, by the geometric mean of their ratios, the highest first."""

    def mean(workload: str) -> float:
        bars = [panel.bars[workload] for panel in panels if workload in panel.bars]
        logs = [math.log(bar.ratio) for bar in bars if bar.ratio is not None]
        return sum(logs) / len(logs) if logs else -math.inf

    names = dict.fromkeys(name for panel in panels for name in panel.bars)
    return sorted(names, key=mean, reverse=True)


def label(workload: str) -> str:
    for start, text in WORKLOADS.items():
        if workload.startswith(start):
            size = workload.removeprefix(start).replace("-of-", " of ")
            if start in SQUARES and size.isdigit():
                size += "²"
            size = size[:-1] + "M" if size.endswith("m") else size
            return text.format(size.replace("x", "×"))
    return workload


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from `low` to `high`, between two positions in pixels."""

    low: float
    high: float
    left: float
    right: float

    def x(self, ratio: float) -> float:
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """The powers of two."""
        return [2.0**n for n in range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)]


def axis_range(panels: list[Panel], width: float) -> tuple[float, float]:
    """The least range in which all bars fit with their numbers, the same for all panels."""
    ratios = [bar.ratio for panel in panels for bar in panel.bars.values() if bar.ratio is not None]
    least, most = min([*ratios, 1.0]), max([*ratios, 1.0])
    low, high = 0.5, 2.0
    while (axis := Axis(low, high, 0, width)).x(most) + VALUE_PX > width or (least < 1 and axis.x(least) < VALUE_PX):
        if axis.x(most) + VALUE_PX > width:
            high *= 1.05
        else:
            low /= 1.05
    return low, high


def number(ratio: float) -> str:
    """Formats a ratio. Below 1 it is rounded down, so that no bar of a slower workload says 1.00."""
    if ratio < 1:
        return f"{math.floor(ratio * 100) / 100:.2f}"
    return f"{ratio:.1f}" if ratio >= 9.95 else f"{ratio:.2f}"


def text(x: float, y: float, content: str, css: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}">{escape(content)}</text>'


def rect(x: float, y: float, width: float, height: float, css: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{css}"/>'


def line(x: float, top: float, bottom: float, css: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" class="{css}"/>'


def draw_panel(panel: Panel, workloads: list[str], axis: Axis) -> Iterator[str]:
    bottom = TOP + ROW * len(workloads)
    one = axis.x(1)
    yield text(axis.left, TOP - 46, panel.dtype, "head")
    yield text(axis.left + 30, TOP - 46, panel.summary(), "small")
    yield text(one - 6, TOP - 26, "← slower", "small end")
    yield text(one + 6, TOP - 26, "faster →", "small")
    yield text(axis.right + GAP, TOP - 10, "fastest other", "small")
    ticks = axis.ticks()
    for tick in ticks:
        yield line(axis.x(tick), TOP - 4, bottom, "one" if tick == 1 else "grid")
        # The labels of many ticks would touch: then only those of powers of four remain.
        if len(ticks) > 6 and math.log2(tick) % 2:
            continue
        for y in (TOP - 10, bottom + 15):
            yield text(axis.x(tick), y, f"{FRACTIONS.get(tick, f'{tick:g}')}×", "tick now" if tick == 1 else "tick")
    for row, workload in enumerate(workloads):
        middle = TOP + ROW * row + ROW / 2
        bar = panel.bars.get(workload)
        if bar is None:
            continue
        if bar.ratio is None:
            yield text(one + 6, middle + 4, bar.peer, "small")
            continue
        end = axis.x(bar.ratio)
        css = "faster" if bar.ratio >= 1 else "slower"
        yield rect(min(one, end), middle - BAR / 2, max(abs(end - one), 1.5), BAR, css)
        place = (end + 5, "value") if bar.ratio >= 1 else (end - 5, "value end")
        yield text(place[0], middle + 4, number(bar.ratio), place[1])
        yield text(axis.right + GAP, middle + 4, bar.peer, "small")


def draw(report: dict[str, Any], colours: dict[str, str]) -> str:
    panels = panels_of(report["results"])
    workloads = ordered(panels)
    space = (WIDTH - 2 * MARGIN - LABELS) / len(panels)
    plot_width = space - PEERS - 2 * GAP
    low, high = axis_range(panels, plot_width)
    bottom = TOP + ROW * len(workloads)
    height = bottom + 66
    libraries = [name for name in report["versions"] if name in LIBRARIES and name != "torch-compiled"]
    versions = [f"{LIBRARIES[name]} {report['versions'][name].split('+')[0]}" for name in libraries]
    title = f"Speed of Kiln relative to {fastest_of([LIBRARIES[name] for name in libraries])}"
    parts = [text(MARGIN, 30, title, "title")]
    parts.append(text(MARGIN, 50, f"{report['machine']}; {report['threads']} threads each", "small"))
    for row in range(0, len(workloads), 2):
        parts.append(rect(MARGIN - 6, TOP + ROW * row, WIDTH - 2 * MARGIN + 12, ROW, "stripe"))
    for row, workload in enumerate(workloads):
        parts.append(text(MARGIN, TOP + ROW * row + ROW / 2 + 4, label(workload), "label"))
    for place, panel in enumerate(panels):
        left = MARGIN + LABELS + place * space
        parts += draw_panel(panel, workloads, Axis(low, high, left, left + plot_width))
    rough = any(bar.peer.startswith("~") for panel in panels for bar in panel.bars.values())
    notes = ["Time of the fastest other library divided by Kiln's: medians, interleaved in one run, logarithmic axis. Every output is checked first."]
    notes.append("; ".join([", ".join(versions), *(["~: less accurate output"] if rough else [])]))
    parts += [text(MARGIN, bottom + 38 + 16 * row, note, "small") for row, note in enumerate(notes)]
    described = "; ".join(f"{panel.dtype}: Kiln is {panel.summary()}" for panel in panels)
    return "\n".join([*opening(height, title, described, colours), *parts, "</svg>", ""])


def fastest_of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"the fastest of {', '.join(names[:-1])} and {names[-1]}"


def opening(height: float, title: str, described: str, colours: dict[str, str]) -> list[str]:
    style = f"""
text {{ font-family: {FONT}; font-size: 12px; fill: {colours["text"]}; }}
.title {{ font-size: 17px; font-weight: 600; }}
.head {{ font-size: 13px; font-weight: 600; }}
.small, .tick {{ font-size: 11px; fill: {colours["muted"]}; }}
.value {{ font-size: 11px; }}
.tick {{ text-anchor: middle; }}
.now {{ fill: {colours["text"]}; font-weight: 600; }}
.end {{ text-anchor: end; }}
.stripe {{ fill: {colours["stripe"]}; }}
.grid {{ stroke: {colours["grid"]}; }}
.one {{ stroke: {colours["text"]}; stroke-width: 1.5; }}
.faster {{ fill: {colours["faster"]}; }}
.slower {{ fill: {colours["slower"]}; }}
"""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img" aria-labelledby="title described">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="described">{escape(described)}</desc>',
        f"<style>{style}</style>",
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="6" fill="{colours["page"]}"/>',
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="plot.py", description="Draws what `run --json FILE` measured.")
    parser.add_argument("times", type=Path, help="the file that `run --json` wrote")
    parser.add_argument("pictures", type=Path, help="where the pictures go, without `-light.svg` and `-dark.svg`")
    options = parser.parse_args()
    report = json.loads(options.times.read_text())
    if "versions" not in report or not report["results"]:
        print(f"error: expected times of at least one workload, found none in {options.times}", file=sys.stderr)
        return 2
    options.pictures.parent.mkdir(parents=True, exist_ok=True)
    for scheme, colours in SCHEMES.items():
        path = options.pictures.with_name(f"{options.pictures.name}-{scheme}.svg")
        path.write_text(draw(report, colours), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
