"""Write the circuit gallery: OpenQASM 3 files, manifest.json, README.md and pictures.

    python circuits/regenerate.py [--check]

With --check nothing is written; the exit status is 1 if a file differs from what would be. Pictures are compared only
if they were drawn by the installed version of matplotlib, since its drawings change from one version to the next.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib
import torch
from qiskit import QuantumCircuit, qasm3

import qboltz
from qboltz.ensemble import SampledEnsemble
from qboltz.simulator import annealing_probabilities
from qboltz.spins import spin_table

FOLDER = Path(__file__).parent
#: Larger circuits are too wide for a picture.
MAX_PICTURED_SPINS = 4


INTRODUCTION = """\
# Circuit gallery

The circuits that are sent to a machine, as OpenQASM 3 with their angles filled in. Each is the anneal of one query: `h`
on every qubit, then per layer `rz(-2 gh h_j)`, `rzz(-2 gJ J_jk)` and `rx(-2 b)`, then a measurement. Spin `i` is qubit
`i` and classical bit `i`; spin +1 (attend) is bit 0, spin -1 (ignore) is bit 1.

```python
import pathlib

from qiskit import qasm3

circuit = qasm3.loads(pathlib.Path("circuits/chain_n3_p2.qasm").read_text())  # needs qiskit-qasm3-import
```

`manifest.json` holds for every file `h`, `J`, the visible keys, the schedule, gate counts and depth, and three
magnetizations per spin: of the circuit with infinitely many shots (`circuit_`), of the conditional estimator on that
distribution (`conditional_`), and of the Boltzmann distribution that it stands for (`boltzmann_`). The table gives the
root mean square distance of the first two from the third. On a machine `rzz` becomes two `cx` or `cz` and an `rz`.

`python circuits/regenerate.py` writes everything here anew, `--check` tells whether it is up to date, and the tests
compare every file with the circuit builder as an operator.

| circuit | spins | layers | `rz` | `rzz` | `rx` | depth | two-qubit depth | error, plain | error, conditional |
|---|---|---|---|---|---|---|---|---|---|"""


class Example(NamedTuple):
    name: str
    about: str
    fields: list[float]
    couplings: dict[tuple[int, int], float]
    schedule: qboltz.AnnealingSchedule
    visible: list[bool] | None = None

    @property
    def model(self) -> qboltz.IsingModel:
        fields = torch.tensor(self.fields, dtype=torch.float64)
        upper = torch.zeros(len(fields), len(fields), dtype=torch.float64)
        for pair, value in self.couplings.items():
            upper[pair] = value
        visible = None if self.visible is None else torch.tensor(self.visible)
        return qboltz.IsingModel(fields, upper + upper.mT, visible)


fitted, linear = qboltz.AnnealingSchedule.fitted, qboltz.AnnealingSchedule.linear
EIGHT = [0.62, -0.35, 0.18, -0.8, 0.44, 0.05, -0.51, 0.27]

EXAMPLES = [
    Example(
        "pair_n2_p1",
        "two spins, one layer: the smallest anneal. One layer gives the fields their temperature, but passes no "
        "coupling to the magnetizations at leading order (`k_hj` is 0)",
        [0.6, -0.2],
        {(0, 1): 0.4},
        linear(1),
    ),
    Example(
        "chain_n3_p2",
        "a chain of three spins, two layers: the field of spin 0 reaches spin 2 through the couplings",
        [0.8, 0.1, -0.3],
        {(0, 1): 0.35, (1, 2): 0.25},
        fitted(2),
    ),
    Example(
        "all_to_all_n4_p2",
        "every pair coupled, values all different: exchanged qubits, bits or parameters cannot go unnoticed",
        [0.5, -0.3, 0.15, 0.7],
        {(0, 1): 0.12, (0, 2): -0.08, (0, 3): 0.21, (1, 2): 0.17, (1, 3): -0.14, (2, 3): 0.05},
        fitted(2),
    ),
    Example(
        "masked_n4_p4",
        "spin 2 is a masked key: all its angles are 0, so it stays uniform, touches no other spin, and does not count",
        [0.9, -0.45, 2.0, 0.3],
        {(0, 1): 0.2, (0, 2): 1.5, (0, 3): -0.1, (1, 2): -1.0, (1, 3): 0.15, (2, 3): 0.7},
        fitted(4),
        [True, True, False, True],
    ),
    Example(
        "chain_n8_p2",
        "eight keys, each coupled to the next",
        EIGHT,
        {(j, j + 1): 0.3 for j in range(7)},
        fitted(2),
    ),
    Example(
        "all_to_all_n8_p4",
        "eight keys, every pair coupled, with couplings of both signs that fade with distance",
        EIGHT,
        {(j, k): round(0.2 * (k - j) ** -1.5 * (-1) ** (j * k), 3) for j in range(8) for k in range(j + 1, 8)},
        fitted(4),
    ),
]


def circuit_of(example: Example) -> QuantumCircuit:
    anneal = qboltz.annealing_circuit(len(example.fields), example.schedule)
    circuit, bindings = anneal.bind(example.model)
    return bindings.bind(circuit, (0,))


def rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 6) + 0.0 for value in values.tolist()]  # + 0.0: no negative zero


def entry(example: Example, circuit: QuantumCircuit) -> dict[str, object]:
    """What the manifest says about one circuit."""
    model = example.model
    visible_model = model.decoupled()
    weights = annealing_probabilities(visible_model.groups.fields, visible_model.groups.couplings, example.schedule)

    def magnetization(estimator: str) -> list[float]:
        table = spin_table(model.num_spins, dtype=torch.float64)
        return rounded(SampledEnsemble(model, table, weights, estimator).magnetization())  # type: ignore[arg-type]

    return {
        "name": example.name,
        "file": f"{example.name}.qasm",
        "about": example.about,
        "num_spins": model.num_spins,
        "num_layers": example.schedule.num_layers,
        "fields": example.fields,
        "couplings": model.couplings.tolist(),
        "visible": [True] * model.num_spins if example.visible is None else example.visible,
        "schedule": example.schedule.as_dict(),
        "circuit_magnetization": magnetization("plain"),
        "conditional_magnetization": magnetization("conditional"),
        "boltzmann_magnetization": rounded(qboltz.ExactSolver().solve(model).magnetization()),
        "gate_counts": dict(sorted(circuit.count_ops().items())),
        "depth": circuit.depth(),
        "two_qubit_depth": circuit.depth(lambda step: len(step.qubits) == 2),
    }


def qasm(example: Example, circuit: QuantumCircuit) -> str:
    header = (
        f"// {example.name}: {example.about}.\n"
        "// Spin i is qubit i and classical bit i; spin +1 is bit 0, spin -1 is bit 1.\n"
        "// Written by circuits/regenerate.py.\n"
    )
    return header + qasm3.dumps(circuit) + "\n"


def picture(circuit: QuantumCircuit) -> str:
    style = {"svg.hashsalt": "qboltz", "svg.fonttype": "path"}  # the same file every time, with or without our fonts
    with matplotlib.rc_context(style):
        figure = circuit.draw("mpl", fold=24)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
        matplotlib.pyplot.close(figure)
    return re.sub(r"[ \t]+$", "", buffer.getvalue(), flags=re.MULTILINE)


def readme(entries: list[dict[str, object]], pictured: set[str]) -> str:
    lines = [INTRODUCTION]
    for item in entries:
        gates = item["gate_counts"]
        assert isinstance(gates, dict)
        plain, conditional = (
            rms(item[f"{kind}_magnetization"], item["boltzmann_magnetization"]) for kind in ("circuit", "conditional")
        )
        cells = [f"[{item['name']}]({item['file']})", item["num_spins"], item["num_layers"]]
        cells += [gates["rz"], gates["rzz"], gates["rx"], item["depth"], item["two_qubit_depth"]]
        lines.append("| " + " | ".join(map(str, [*cells, f"{plain:.4f}", f"{conditional:.4f}"])) + " |")
    for item in entries:
        lines += ["", f"## {item['name']}", "", f"{str(item['about'])[0].upper()}{str(item['about'])[1:]}."]
        if item["name"] in pictured:
            lines += ["", f"![The circuit {item['name']}](pictures/{item['name']}.svg)"]
    return "\n".join(lines) + "\n"


def rms(one: object, other: object) -> float:
    return float((torch.tensor(one) - torch.tensor(other)).square().mean().sqrt())


def gallery() -> dict[str, str]:
    """Every file of the gallery: path below this folder, and text."""
    files, entries, pictured = {}, [], set()
    for example in EXAMPLES:
        circuit = circuit_of(example)
        entries.append(entry(example, circuit))
        files[f"{example.name}.qasm"] = qasm(example, circuit)
        if len(example.fields) <= MAX_PICTURED_SPINS:
            pictured.add(example.name)
            files[f"pictures/{example.name}.svg"] = picture(circuit)
    files["manifest.json"] = json.dumps({"circuits": entries}, indent=1) + "\n"
    files["README.md"] = readme(entries, pictured)
    return files


def differs(path: Path, text: str) -> bool:
    if not path.exists():
        return True
    present = path.read_text(encoding="utf-8")
    if path.suffix == ".svg":
        drawn_by = f"Matplotlib v{matplotlib.__version__},"
        return drawn_by in present and present != text
    return present != text


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the circuit gallery.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a file is out of date")
    check = parser.parse_args().check
    matplotlib.use("svg")
    files = gallery()
    known = {FOLDER / name for name in files}
    strays = sorted({*FOLDER.glob("*.qasm"), *FOLDER.glob("pictures/*")} - known)
    changed = [name for name, text in files.items() if differs(FOLDER / name, text)]
    for name in changed:
        print(f"{'out of date' if check else 'written'}: {name}")
        if not check:
            (FOLDER / name).parent.mkdir(exist_ok=True)
            (FOLDER / name).write_text(files[name], encoding="utf-8")
    for path in strays:
        print(f"not part of the gallery: {path.name}")
    return int(check and bool(changed or strays))


if __name__ == "__main__":
    sys.exit(main())
