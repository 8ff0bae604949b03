"""Command line of the benchmark of Kiln against NumPy, PyTorch, JAX and onnxruntime. See `./run --help`."""

import argparse
import signal
import sys
from pathlib import Path

import threads


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description="Benchmarks Kiln against other libraries on the same data.")
    parser.add_argument("--kiln", type=Path, required=True, help="path of the `kiln` program")
    parser.add_argument("--only", action="append", metavar="TEXT", help="workloads whose name contains the text; repeatable")
    parser.add_argument("--skip", action="append", default=[], metavar="PEER", help="library to skip; repeatable")
    parser.add_argument("--dtype", choices=["f32", "f16"], help="default: both")
    parser.add_argument("--threads", type=int, default=2, help="threads of each library (default: 2)")
    parser.add_argument("--quick", action="store_true", help="take few samples: a smoke test")
    parser.add_argument("--memory", action="store_true", help="peak resident bytes instead of times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--serve", metavar="PEER", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    options = parse(sys.argv[1:])
    # So that `atexit` handlers run and end the children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    threads.limit(options.threads)
    # After the limit, because these load the libraries.
    if options.serve:
        import server
        from workloads import list_workloads

        server.serve(options.serve, options.threads, list_workloads(options.kiln))
        return 0
    import session

    return session.run(options)


if __name__ == "__main__":
    sys.exit(main())
