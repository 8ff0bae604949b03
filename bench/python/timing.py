"""Timing: arms are interleaved in random order. Each reports its median, minimum and spread."""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

# Takes the number of warm-up runs and the number of timed runs; returns the total seconds of the timed ones.
Sampler = Callable[[int, int], float]

# Untimed warm-up before each sample, which reloads the caches and wakes the threads.
WARM_UP_S = 0.002
# An arm whose minimum exceeds the best median by this factor is dropped from further rounds.
MAX_SLOWDOWN = 4.0
MIN_SAMPLES = 3


@dataclass(frozen=True)
class SamplingConfig:
    budget_s: float
    max_samples: int
    sample_s: float = 1e-3
    seed: int = 1


FULL = SamplingConfig(budget_s=2.0, max_samples=200)
QUICK = SamplingConfig(budget_s=0.2, max_samples=5)


@dataclass(frozen=True)
class Timing:
    """Seconds per run."""

    median: float
    minimum: float
    spread: float
    samples: int
    runs_per_sample: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Samples:
    sample: Sampler
    runs: int = 1
    warm_up_runs: int = 1
    seconds: list[float] = field(default_factory=list)

    def warm_up(self, sampling: SamplingConfig) -> None:
        self.sample(0, 1)
        while (took := self.sample(0, self.runs)) < sampling.sample_s:
            wanted = sampling.sample_s / max(took, 1e-9)
            self.runs = int(self.runs * min(max(wanted, 1.2), 10.0)) + 1
        self.warm_up_runs = max(1, round(WARM_UP_S / took * self.runs))

    def take(self) -> None:
        self.seconds.append(self.sample(self.warm_up_runs, self.runs) / self.runs)

    def timing(self) -> Timing:
        ordered = sorted(self.seconds)
        at = lambda share: ordered[round((len(ordered) - 1) * share)]
        median = statistics.median(ordered)
        return Timing(median, ordered[0], (at(0.75) - at(0.25)) / median, len(ordered), self.runs)


def compare(arms: dict[str, Sampler], sampling: SamplingConfig) -> dict[str, Timing]:
    """Times arms interleaved: each is warmed up, then gives one sample per round, in random order."""
    order = random.Random(sampling.seed)
    active = {name: Samples(arm) for name, arm in arms.items()}
    all_samples = dict(active)
    for samples in active.values():
        samples.warm_up(sampling)
    start = time.perf_counter()
    for turn in range(sampling.max_samples):
        if turn >= MIN_SAMPLES:
            if time.perf_counter() - start > sampling.budget_s:
                break
            fastest = min(statistics.median(samples.seconds) for samples in active.values())
            active = {n: s for n, s in active.items() if min(s.seconds) <= MAX_SLOWDOWN * fastest}
        names = list(active)
        order.shuffle(names)
        for name in names:
            active[name].take()
    return {name: samples.timing() for name, samples in all_samples.items()}
