"""How many threads every library may use. This comes before any of them is loaded: most decide while they are."""

import os


def limit(threads: int) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    # JAX has no setting of its own: it starts a thread for each core that the process may use.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
