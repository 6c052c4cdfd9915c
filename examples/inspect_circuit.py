"""Look at one annealing circuit: what it is made of, and how close its magnetizations come to the exact ones.

python examples/inspect_circuit.py [--num-spins 4] [--layers 2] [--backend aer_simulator] [--shots 4096] [--seed 0]
"""

import argparse

import torch

import qboltz
from qboltz.ensemble import SampledEnsemble
from qboltz.simulator import annealing_probabilities
from qboltz.spins import spin_table

parser = argparse.ArgumentParser(description="Look at one annealing circuit and its magnetizations.")
parser.add_argument("--num-spins", type=int, default=4)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--backend", default="aer_simulator", help="aer_simulator, fake_..., ibm_...")
parser.add_argument("--shots", type=int, default=4096)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
upper = 0.2 * torch.randn(args.num_spins, args.num_spins).triu(1)
model = qboltz.IsingModel(0.6 * torch.randn(args.num_spins), upper + upper.mT)

schedule = qboltz.AnnealingSchedule.fitted(args.layers)
anneal = qboltz.annealing_circuit(args.num_spins, schedule)
print(anneal.circuit.draw("text", fold=110))
print("gates:", ", ".join(f"{count} {name}" for name, count in sorted(anneal.circuit.count_ops().items())))
print(f"depth: {anneal.circuit.depth()}, of two-qubit gates {anneal.circuit.depth(lambda gate: len(gate.qubits) == 2)}")
print(
    f"beta of fields {schedule.beta_fields:.3f}, of couplings {schedule.beta_couplings:.3f}, k_hj {schedule.k_hj:.3f} "
    "(each is 1 for the Boltzmann distribution)"
)

solver = qboltz.AnnealingSolver(args.backend, schedule, shots=args.shots, seed=args.seed)
sampled = solver.solve(model)
compiled = solver.backend.program(args.num_spins, schedule).circuit
print(f"on {args.backend}:", ", ".join(f"{count} {name}" for name, count in sorted(compiled.count_ops().items())))

weights = annealing_probabilities(model.groups.fields, model.groups.couplings, schedule)
circuit = SampledEnsemble(model, spin_table(args.num_spins), weights, "plain")
columns = {
    "exact": qboltz.ExactSolver().solve(model).magnetization(),
    "circuit": circuit.magnetization(),
    "sampled": SampledEnsemble(model, sampled.spins, estimator="plain").magnetization(),
    "conditional": sampled.magnetization(),
}
print(f"\nmagnetizations, {args.shots} shots on {args.backend} for the last two columns")
print("spin", *(f"{name:>12}" for name in columns))
for spin in range(args.num_spins):
    print(f"{spin:4}", *(f"{values[spin]:12.4f}" for values in columns.values()))
errors = [(values - columns["exact"]).square().mean().sqrt() for values in columns.values()]
print("rms ", *(f"{error:12.4f}" for error in errors))
