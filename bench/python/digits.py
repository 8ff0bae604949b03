"""The networks of Kiln's example `digits` in PyTorch: trains one epoch per input line, for `bench/src/bin/digits.rs`."""

import math
import sys
import time

import numpy as np
import torch
from torch import nn

TRAIN_IMAGES, BATCH, LEARNING_RATE, WARM_UP = 1437, 64, 0.01, 20


def make(net: str) -> nn.Module:
    if net == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.4), nn.Linear(256, 10))
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(32 * 16, 10),
    )


def main() -> None:
    name, epochs, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(2)
    torch.manual_seed(1)
    lines = np.loadtxt(path, delimiter=",", dtype=np.float32)
    np.random.default_rng(1).shuffle(lines)
    images = torch.from_numpy(lines[:, :64] / 16.0).reshape(-1, 1, 8, 8)
    digits = torch.from_numpy(lines[:, 64].astype(np.int64))
    net = make(name)
    # `fused`: all parameters in one kernel, its fastest implementation.
    optimizer = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)
    steps, step = epochs * (TRAIN_IMAGES // BATCH), 0
    for request in sys.stdin:
        if request.strip() == "accuracy":
            net.eval()
            with torch.no_grad():
                right = (net(images[TRAIN_IMAGES:]).argmax(1) == digits[TRAIN_IMAGES:]).float().mean().item()
            print(right, flush=True)
            continue
        if request.strip() == "ready":
            print(0.0, flush=True)
            continue
        start = time.perf_counter()
        net.train()
        order = torch.randperm(TRAIN_IMAGES)
        losses = []
        for first in range(0, TRAIN_IMAGES - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            loss = nn.functional.cross_entropy(net(images[chosen]), digits[chosen])
            share = min(max(step - WARM_UP, 0), steps) / steps
            warm = min((step + 1) / WARM_UP, 1.0)
            optimizer.param_groups[0]["lr"] = LEARNING_RATE * warm * 0.5 * (1.0 + math.cos(math.pi * share))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1
        torch.stack(losses).mean().item()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
