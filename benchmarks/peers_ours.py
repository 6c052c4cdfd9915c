"""The layer by the solvers of this package."""

from __future__ import annotations

from peers_problem import Method, Problem, Step, solved

from qboltz import AnnealingSchedule, AnnealingSolver, ExactSolver, GibbsSolver, Solver, StatevectorSolver

AER = "`AnnealingSolver`, Aer, plain"
SAMPLED = "`StatevectorSolver`, shots, plain"
CIRCUIT = "`StatevectorSolver`, no shots, circuit gradient"
GIBBS = "`GibbsSolver`, plain"
#: Gibbs sweeps of every chain from random spins; each chain gives one sample.
SWEEPS = 51

_COVARIANCE = "samples of the circuits, covariance rule on the same samples"


class Counted:
    """A solver with a step and a count."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver

    def step(self, problem: Problem) -> Step:
        return solved(problem, self.solver)

    def circuits(self) -> int:
        return int(getattr(self.solver, "circuits_run", 0))


def methods(num_spins: int, schedule: AnnealingSchedule, shots: int, seed: int) -> dict[str, Method]:
    """Circuits through Aer and through the batched simulator, and two solvers without circuits."""
    solvers: dict[str, tuple[Solver, str]] = {
        AER: (AnnealingSolver("aer_simulator", schedule, shots, "plain", seed), _COVARIANCE),
        "`AnnealingSolver`, Aer, conditional": (
            AnnealingSolver("aer_simulator", schedule, shots, "conditional", seed),
            _COVARIANCE,
        ),
        SAMPLED: (StatevectorSolver(schedule, shots, estimator="plain", seed=seed), _COVARIANCE),
        "`StatevectorSolver`, shots, conditional": (
            StatevectorSolver(schedule, shots, estimator="conditional", seed=seed),
            _COVARIANCE,
        ),
        "`StatevectorSolver`, shots, circuit gradient": (
            StatevectorSolver(schedule, shots, "circuit", "plain", seed=seed),
            "samples of the circuits, derivative of the circuits without shot noise (autograd)",
        ),
        CIRCUIT: (
            StatevectorSolver(schedule, None, "circuit", "plain"),
            "expectations of the circuits and their derivative (autograd)",
        ),
        GIBBS: (
            GibbsSolver(shots, 1, warmup=SWEEPS - 1, estimator="plain", seed=seed),
            "ends of Gibbs chains, covariance rule on the same samples; no circuit",
        ),
        "`ExactSolver`": (ExactSolver(), "sum over all configurations; no circuit"),
    }
    found = {}
    for name, (solver, computes) in solvers.items():
        counted = Counted(solver)
        found[name] = Method(counted.step, computes, counted.circuits)
    return found
