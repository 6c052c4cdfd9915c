"""Exact inference, forward and backward, against a softmax over all configurations; large models alone.

    python benchmarks/exact_speed.py [--quick] [--threads N] [--seed N] [--out FILE]

The correctness gate comes first: magnetizations and both gradients of the two methods must agree, else exit status 1.
Then both run in turn, and a record (one JSON line per case) holds medians over the repeats, quartiles and their ratio.
Both compute in float32 from the same tensors to the same three results; tables that do not depend on the data (all
configurations, their pair products) are made beforehand for the plain method.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from records import environment, in_turn, place, summary, write
from torch import Tensor

from qboltz.ising import IsingModel
from qboltz.solvers.exact import ExactSolver
from qboltz.spins import pair_indices, spin_table

COMPARED = [(12, 384), (14, 448), (16, 512)]
ALONE = [(18, 256), (20, 256), (24, 64)]
REQUIRED_RATIO = {14: 10.0, 16: 40.0}
MEMORY_LIMIT_MIB = 1024.0
#: Largest difference of a magnetization; of a gradient in units of its largest entry. Both methods round in float32.
TOLERANCE = 1e-4
FIELD_SCALE, COUPLING_SCALE = 1.0, 0.1

Answers = tuple[Tensor, Tensor, Tensor]


def problem(num_spins: int, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Fields, couplings and an upstream gradient: normal, of the scale of a trained attention layer."""
    generator = torch.Generator().manual_seed(seed)
    fields = FIELD_SCALE * torch.randn(rows, num_spins, generator=generator)
    upper = COUPLING_SCALE * torch.randn(num_spins, num_spins, generator=generator).triu(1)
    return fields, upper + upper.mT, torch.randn(rows, num_spins, generator=generator)


def factorized(fields: Tensor, couplings: Tensor, grad: Tensor) -> Answers:
    ensemble = ExactSolver().solve(IsingModel(fields, couplings))
    return (ensemble.magnetization(), *ensemble.pullback(grad))


class Plain:
    """``m = softmax(h . s + J . ss) @ s`` over all configurations, gradients by autograd."""

    def __init__(self, num_spins: int) -> None:
        self.pairs = pair_indices(num_spins)
        self.states = spin_table(num_spins)
        self.products = self.states[:, self.pairs[0]] * self.states[:, self.pairs[1]]

    def __call__(self, fields: Tensor, couplings: Tensor, grad: Tensor) -> Answers:
        h = fields.clone().requires_grad_()
        J = couplings[self.pairs].clone().requires_grad_()
        m = torch.softmax(h @ self.states.mT + self.products @ J, -1) @ self.states
        m.backward(grad)
        assert h.grad is not None
        assert J.grad is not None
        grad_couplings = torch.zeros_like(couplings)
        grad_couplings[self.pairs] = 0.5 * J.grad
        return m.detach(), h.grad, grad_couplings + grad_couplings.mT


def disagreement(one: Answers, other: Answers) -> float:
    scales = [1.0, *(max(1.0, part.abs().max().item()) for part in other[1:])]
    return max((a - b).abs().max().item() / scale for a, b, scale in zip(one, other, scales, strict=True))


def product_peak() -> float:
    """Multiply-adds per second, times two, of torch.matmul: the best over a few sizes."""
    best = 0.0
    for size in (512, 1024, 2048):
        a, b = torch.randn(size, size), torch.randn(size, size)
        (seconds,) = in_turn([lambda a=a, b=b: a @ b], 10)  # type: ignore[misc]
        best = max(best, 2 * size**3 / min(seconds))
    return best


def product_operations(num_spins: int, rows: int) -> float:
    """Floating point operations of the six products between half tables, each in two parity blocks."""
    return 6.0 * rows * 2.0**num_spins


def memory_growth_mib(num_spins: int, rows: int, seed: int, threads: int) -> float:
    """Peak growth of a fresh process over one forward and backward pass."""
    code = (
        f"import exact_speed as e; e.torch.set_num_threads({threads}); e.factorized(*e.problem(10, 64, 0));"
        f"p = e.problem({num_spins}, {rows}, {seed}); before = e.memory_mib('VmRSS'); e.factorized(*p);"
        "print(e.memory_mib('VmHWM') - before)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    return float(result.stdout)


def memory_mib(key: str) -> float:
    """``VmRSS`` or the peak ``VmHWM`` of this process (getrusage would report the peak of the parent)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 2**10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer repeats: under a minute")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "exact_speed", options.quick)
    torch.set_num_threads(options.threads)
    repeats = 5 if options.quick else 21
    records: list[dict[str, object]] = []

    for num_spins, rows in COMPARED:  # the gate, before any clock is started
        data = problem(num_spins, rows, options.seed)
        worst = disagreement(factorized(*data), Plain(num_spins)(*data))
        print(f"n={num_spins} rows={rows}: the methods differ by {worst:.1e} (at most {TOLERANCE:.0e} allowed)")
        if not worst <= TOLERANCE:
            print("The methods disagree: no timing is worth reporting.", file=sys.stderr)
            return 1
        records.append({"case": "compared", "num_spins": num_spins, "rows": rows, "difference": worst})

    peak = product_peak()
    print(f"matrix products: {peak / 1e9:.0f} GFLOP/s at most with {options.threads} threads")
    for record, (num_spins, rows) in zip(records, COMPARED, strict=True):
        data, plain = problem(num_spins, rows, options.seed), Plain(num_spins)
        ours, theirs = in_turn([lambda d=data: factorized(*d), lambda d=data, p=plain: p(*d)], repeats)  # type: ignore[misc]
        ratios = sorted(t / o for o, t in zip(ours, theirs, strict=True))
        record |= {"factorized": summary(ours), "plain": summary(theirs), "repeats": repeats}
        record |= {"ratio": statistics.median(theirs) / statistics.median(ours)}
        record |= {
            "ratio_quartiles": statistics.quantiles(ratios, n=4),
            "required_ratio": REQUIRED_RATIO.get(num_spins),
        }

    for num_spins, rows in ALONE:
        data = problem(num_spins, rows, options.seed)
        (ours,) = in_turn([lambda d=data: factorized(*d)], max(3, repeats // 3))  # type: ignore[misc]
        growth = memory_growth_mib(num_spins, rows, options.seed, options.threads)
        record = {"case": "alone", "num_spins": num_spins, "rows": rows, "factorized": summary(ours)}
        records.append(
            record | {"memory_growth_mib": growth, "memory_limit_mib": MEMORY_LIMIT_MIB, "repeats": len(ours)}
        )

    failed = False
    for record in records:
        n, rows, timing = record["num_spins"], record["rows"], record["factorized"]
        assert isinstance(n, int)
        assert isinstance(rows, int)
        assert isinstance(timing, dict)
        record["peak_gflops"] = peak / 1e9
        record["peak_fraction"] = product_operations(n, rows) / (1e-3 * timing["median_ms"]) / peak
        record |= {"benchmark": "exact_speed", "seed": options.seed, "threads": options.threads, **environment()}
        line = f"n={n} rows={rows}: {timing['median_ms']:.2f} ms, {record['peak_fraction']:.0%} of the product peak"
        if record["case"] == "compared":
            required = REQUIRED_RATIO.get(n)
            line += f", {record['ratio']:.1f}x plain" + (f" (required {required:.0f}x)" if required else "")
            failed |= required is not None and record["ratio"] < required  # type: ignore[operator]
        else:
            line += f", memory growth {record['memory_growth_mib']:.0f} MiB"
            failed |= record["memory_growth_mib"] > MEMORY_LIMIT_MIB  # type: ignore[operator]
        print(line)
    write(options.out, records)
    if failed:
        print("A requirement is not met.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
