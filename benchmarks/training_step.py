"""Where the time of one training step of the main job goes.

    python benchmarks/training_step.py [--quick] [--backends exact statevector aer_simulator] [--out FILE]

The options are the defaults of examples/train_dqa.py (recall, three pairs, 64 sequences a step, six fitted layers,
128 shots); only the backend differs. The correctness gate comes first: a model that is trained with the clocks on ends
with the same bits as one that is trained without, else exit status 1. Then every backend runs in turn, a few steps at a
time, and a record (one JSON line per backend) holds the median per step of each part, in milliseconds (medians of
parts need not add up to that of the whole).
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from records import environment, place, write

from qboltz.backends import program
from qboltz.circuits import AnnealingCircuit
from qboltz.ensemble import SpinEnsemble
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig
from qboltz.experiments.options import make_parser, model_from, parse, solver_from, task_from
from qboltz.experiments.training import train
from qboltz.tasks import RecallTask

WARM_UP = 3  # steps left out: compiling the circuit, the self-test of the backend, allocations
Clock = defaultdict[str, float]


class StepTimes:
    """A display that collects what the clock read at the end of each step."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.steps, self.seconds = clock, list[dict[str, float]](), 0.0

    def start(self, steps: int, done: int) -> None:
        self.clock.clear()

    def step(self, record: dict[str, Any]) -> None:
        self.steps.append(dict(self.clock, step=record["seconds"] - self.seconds))
        self.seconds = record["seconds"]
        self.clock.clear()

    def stop(self) -> None:
        pass


@contextmanager
def timed(owner: Any, name: str, clock: Clock, label: str) -> Iterator[None]:
    """While entered, the time spent in ``owner.name`` is added to ``clock[label]``."""
    own = vars(owner).get(name)
    call: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(call)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*arguments, **options)
        finally:
            clock[label] += time.perf_counter() - began

    setattr(owner, name, wrapper)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def ensemble_kinds() -> list[type[SpinEnsemble]]:
    return [kind for kind in SpinEnsemble.__subclasses__() if "magnetization" in vars(kind)]


def run(backend: str, steps: int, seed: int, clocks: bool) -> tuple[OneLayerTransformer, list[dict[str, float]]]:
    """Train for ``steps`` steps; the model, and per step the seconds of each label (nested ones overlap)."""
    args = parse(make_parser(), ["--backend", backend, "--seed", str(seed)])
    task, solver = task_from(args), solver_from(args)
    model = model_from(args, task, args.variant, solver)
    config = TrainingConfig(steps=steps, batch_size=args.batch_size, lr=args.lr, clip=args.clip, seed=seed)
    clock: Clock = defaultdict(float)
    display = StepTimes(clock)
    with ExitStack() as stack:
        if clocks:
            places = [
                (RecallTask, "batch", "data"),
                (OneLayerTransformer, "forward", "forward"),
                (type(solver), "solve", "solve"),
                (AnnealingCircuit, "bindings", "bind"),
                (program, "read_spins", "spins"),
                (torch.Tensor, "backward", "backward"),
                (torch.nn.utils, "clip_grad_norm_", "optimizer"),
                (torch.optim.AdamW, "step", "optimizer"),
                *((kind, "magnetization", "moments") for kind in ensemble_kinds()),
                *((kind, "pullback", "gradients") for kind in ensemble_kinds()),
            ]
            for owner, name, label in places:
                stack.enter_context(timed(owner, name, clock, label))
        train(model, task, config, display=display)
    return model, display.steps


def parts_of(step: dict[str, float]) -> dict[str, float]:
    """Milliseconds of each part of one step; they add up to ``step``."""
    t: Clock = defaultdict(float, step)
    seconds = {
        "data": t["data"],
        "network forward": t["forward"] - t["solve"] - t["moments"],
        "binding parameters": t["bind"],
        "running circuits, or enumerating": t["solve"] - t["bind"] - t["spins"],
        "reading spins": t["spins"],
        "magnetizations from spins": t["moments"],
        "gradients from spins": t["gradients"],
        "network backward": t["backward"] - t["gradients"],
        "optimizer": t["optimizer"],
    }
    seconds["everything else"] = t["step"] - sum(seconds.values())
    return {name: 1e3 * value for name, value in {**seconds, "step": t["step"]}.items()}


def same_bits(backend: str, seed: int) -> bool:
    plain, clocked = (run(backend, 4, seed, clocks)[0].state_dict() for clocks in (False, True))
    return all(torch.equal(plain[name], clocked[name]) for name in plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer steps: under a minute")
    parser.add_argument("--backends", nargs="+", default=["exact", "statevector", "aer_simulator"])
    parser.add_argument("--threads", type=int, default=1, help="of torch; the default of the main job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "training_step", options.quick)
    torch.set_num_threads(options.threads)

    for backend in options.backends:
        if not same_bits(backend, options.seed):
            print(f"{backend}: the clocks change the result; no timing is worth reporting.", file=sys.stderr)
            return 1
    print("the clocks change no bit of the result")

    rounds, steps = (2, 8) if options.quick else (5, 20)
    times: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(rounds):
        for backend in options.backends:
            _, measured = run(backend, WARM_UP + steps, options.seed + number, clocks=True)
            times[backend] += [parts_of(step) for step in measured[WARM_UP:]]

    defaults = vars(parse(make_parser(), []))
    settings = {name: defaults[name] for name in ("task", "batch_size", "layers", "schedule", "shots", "width")}
    records = []
    for backend, measured in times.items():
        medians = {name: statistics.median(step[name] for step in measured) for name in measured[0]}
        whole = medians.pop("step")
        quartiles = statistics.quantiles([step["step"] for step in measured], n=4)
        print(f"\n{backend}: {whole:.1f} ms per step (quartiles {quartiles[0]:.1f} to {quartiles[2]:.1f})")
        for name, value in medians.items():
            print(f"  {name:34}{value:8.2f} ms {value / whole:6.0%}")
        records.append(
            {"backend": backend, "step_ms": whole, "step_quartiles_ms": quartiles, "parts_ms": medians}
            | {
                "steps": len(measured),
                "length": RecallTask.length,
                **settings,
                "benchmark": "training_step",
                "seed": options.seed,
                **environment(),
            }
        )
    write(options.out, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
