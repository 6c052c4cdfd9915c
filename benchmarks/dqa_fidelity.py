"""How far the annealing circuits are from the Boltzmann distribution, beside what a user would run instead.

    python benchmarks/dqa_fidelity.py [--quick] [--parts PART ...] [--sizes N ...] [--out FOLDER]

Random models, `h ~ N(0, sigma_h)` and `J ~ N(0, sigma_J)`, of seeds that no schedule was fitted on, and models recorded
from trained attention (`recorded_models.py`). Errors of magnetizations, attention weights and covariances and the
divergence, with standard errors over the models: at infinite shots (the error of the schedule), with 64, 256 and 1024
samples (in all, and from the sampler's own limit: the shot noise), plain, conditional and polished. Parts:

    schedules   linear (calibrated) and fitted to each ensemble, depths 1 to 8
    linear      the linear schedule with the anneal time that suits the cell best, n = 8
    controls    random spins, independent spins and exact samples with the same estimators and polish, Gibbs, mean field
    correction  a control variate for the conditional estimator, n = 8
    adaptive    refitted to each model's own J on 12 rows of fields, measured on 48 others
    recorded    all of these on the recorded models
    noise       circuits compiled for fake_torino, with its noise, beside the ideal ones
    refit       seconds per refit of an adaptive schedule

Each record is appended at once and not repeated: an interrupted grid goes on where it stopped.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
from fidelity_jobs import (
    CELLS,
    DEPTHS,
    NOISE,
    NOISE_COUNT,
    NOISE_SHOTS,
    SIZES,
    Job,
    adaptive_jobs,
    control_jobs,
    correction_jobs,
    linear_jobs,
    noise_jobs,
    recorded_jobs,
    refit_jobs,
    schedule_jobs,
)
from fidelity_records import FOLDER, place_of
from recorded_models import MODELS
from records import append, environment, read

PARTS = ("schedules", "linear", "controls", "correction", "recorded", "refit", "adaptive", "noise")


def jobs(part: str, sizes: list[int], models: Path) -> Iterator[Job]:
    """The whole grid of one part."""
    grids: dict[str, Callable[[], Iterator[Job]]] = {
        "schedules": lambda: schedule_jobs(sizes, DEPTHS, None),
        "linear": lambda: linear_jobs(DEPTHS[1:], None),
        "controls": lambda: control_jobs(sizes, None),
        "correction": lambda: correction_jobs([2, 4, 8], None),
        "recorded": lambda: recorded_jobs(models, DEPTHS, max_spins=14),
        "refit": lambda: refit_jobs([8, 12, 16]),
        "adaptive": lambda: adaptive_jobs(sizes, None, None),
        "noise": lambda: noise_jobs({n: NOISE[n] for n in sizes if n in NOISE}, NOISE_COUNT, NOISE_SHOTS),
    }
    return grids[part]()


def quick_jobs(part: str, models: Path) -> Iterator[Job]:
    """A few small models in every part."""
    grids: dict[str, Callable[[], Iterator[Job]]] = {
        "schedules": lambda: schedule_jobs([4], [2], 6),
        "linear": lambda: linear_jobs([2], 6, tuning=4),
        "controls": lambda: control_jobs([4], 6),
        "correction": lambda: correction_jobs([2], 6),
        "recorded": lambda: recorded_jobs(models, [2], max_spins=8, rows=6),
        "refit": lambda: refit_jobs([4]),
        "adaptive": lambda: adaptive_jobs([4], 2, [2]),
        "noise": lambda: noise_jobs({3: (CELLS[:1], [1])}, 2, 64),
    }
    return grids[part]()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two records of few and small models in every part")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=SIZES, default=SIZES, metavar="N", help="of random models"
    )
    parser.add_argument("--layers", type=int, nargs="+", choices=DEPTHS, metavar="P", help="these depths alone")
    parser.add_argument("--models", type=Path, default=MODELS, help="folder of recorded models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    folder = options.out or (Path(tempfile.gettempdir()) / "dqa_fidelity" if options.quick else FOLDER)
    torch.set_num_threads(options.threads)
    about = environment()
    known = [record for path in folder.glob("*.jsonl") for record in read(path)]
    done = [{key: value for key, value in r.items() if key != "errors" and key not in about} for r in known]
    for part in options.parts:
        grid = jobs(part, options.sizes, options.models)
        if options.quick:
            grid = islice(quick_jobs(part, options.models), 2)
        for key, work in grid:
            head = {"benchmark": "dqa_fidelity", **key}
            if head not in done and key.get("layers") in (options.layers or [key.get("layers")]):
                append(place_of(folder, key), {**head, "errors": work(), **environment()})
                print(" ".join(f"{name}={value}" for name, value in key.items()), flush=True)


if __name__ == "__main__":
    main()
