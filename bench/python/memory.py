"""Resident bytes of a process, from `/proc` on Linux."""

import re
from pathlib import Path


def read(pid: int | str, field: str) -> int:
    """`VmRSS` or `VmHWM` of a process, in bytes."""
    match = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if match is None:
        raise OSError(f"expected {field} in the status of process {pid}, found none")
    return int(match[1]) * 1024


def resident(pid: int | str) -> int:
    return read(pid, "VmRSS")


def peak(pid: int | str) -> int:
    """The peak since the process started, or since `reset_peak`."""
    return read(pid, "VmHWM")


def reset_peak(pid: int | str) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
