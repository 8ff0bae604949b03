"""Stubs for the GPU libraries that PyTorch's wheel links to.

The x86-64 Linux wheel loads gigabytes of CUDA libraries even if nothing runs on a GPU. Installed without them, it loads if each missing
library has a stub that defines the imported functions. All stubs are one small library, whose functions report that there is no GPU.
"""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STUB = "libno_gpu.so"
NO_DEVICE = 100  # `cudaErrorNoDevice`; no GPU library takes it for success
# The driver is looked up at run time, and is optional.
NOT_NEEDED = {"libcuda.so.1"}


def readelf(option: str, library: Path) -> str:
    command = ["readelf", "--wide", option, str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", library)))


def is_loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def versions_asked(library: Path, missing: set[str]) -> set[str]:
    """Returns the symbol versions that the library requires of the missing ones."""
    asked, file = set(), ""
    for match in re.finditer(r"File: (\S+)|Name: (\S+)\s+Flags", readelf("--version-info", library)):
        file = match[1] or file
        if match[2] and file in missing:
            asked.add(match[2])
    return asked


def symbols(library: Path, missing: set[str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Returns the symbols that the library defines, and those that it may import from the missing ones, with their versions."""
    defined, wanted, asked = set(), set(), versions_asked(library, missing)
    # Functions without a version start with the name of their library: `cudnnCreate` of `libcudnn.so.9`.
    prefixes = tuple(name.removeprefix("lib").partition(".")[0].lower() for name in missing)
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":"):
            continue
        name, _, version = fields[7].partition("@")
        if fields[6] != "UND":
            defined.add(name)
        elif fields[4] == "GLOBAL" and (version in asked if version else name.lower().startswith(prefixes)):
            wanted.add((name, version))
    return defined, wanted


def source(names: set[str]) -> str:
    def function(name: str) -> str:
        if "String" in name:
            return f'const char *{name}(void) {{ return "no GPU library"; }}'
        return f"long {name}(void) {{ return {NO_DEVICE}; }}"

    return "\n".join(function(name) for name in sorted(names)) + "\n"


def versions(wanted: set[tuple[str, str]]) -> str:
    """Returns a linker script that assigns the required symbol versions, which the loader checks."""
    nodes: dict[str, list[str]] = {}
    for name, version in sorted(wanted):
        if version:
            nodes.setdefault(version, []).append(name)
    return "\n".join(f"{version} {{ {' '.join(f'{name};' for name in names)} }};" for version, names in nodes.items())


def make(folder: Path) -> list[str]:
    """Writes the stubs to the directory of PyTorch's libraries; returns their names."""
    libraries = sorted(folder.glob("lib*.so"))
    present = {path.name for path in folder.iterdir()}
    needed_names = set[str]().union(*map(needed, libraries)) - present - NOT_NEEDED
    missing = {name for name in needed_names if not is_loadable(name)}
    if not missing:
        return []
    found = [symbols(library, missing) for library in libraries]
    defined = set[str]().union(*(pair[0] for pair in found))
    wanted = {pair for pair in set[tuple[str, str]]().union(*(pair[1] for pair in found)) if pair[0] not in defined}
    with tempfile.TemporaryDirectory() as temporary:
        code, script = Path(temporary, "stub.c"), Path(temporary, "versions")
        code.write_text(source({name for name, _ in wanted}))
        script.write_text(versions(wanted))
        options = ["-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,--version-script={script}"]
        subprocess.run(["cc", *options, "-o", str(folder / STUB), str(code)], check=True)
    for name in missing:
        (folder / name).symlink_to(STUB)
    return sorted(missing)


if __name__ == "__main__":
    print("stubs:", " ".join(make(Path(sys.argv[1]))))
