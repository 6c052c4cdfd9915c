"""The circuit gallery: every file is the circuit that the builder makes, and does what its manifest says."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import brute_force
from qiskit import qasm3
from qiskit.quantum_info import Operator, Statevector

from qboltz import AnnealingSchedule, IsingModel, annealing_circuit

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "circuits"
ENTRIES = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["circuits"]


def load(entry):
    return qasm3.loads((FOLDER / entry["file"]).read_text(encoding="utf-8"))


def model_of(entry):
    fields = torch.tensor(entry["fields"], dtype=torch.float64)
    return IsingModel(fields, torch.tensor(entry["couplings"], dtype=torch.float64), torch.tensor(entry["visible"]))


def built(entry):
    circuit, bindings = annealing_circuit(entry["num_spins"], AnnealingSchedule(**entry["schedule"])).bind(
        model_of(entry)
    )
    return bindings.bind(circuit, (0,))


def gates_only(circuit):
    return circuit.remove_final_measurements(inplace=False)


def magnetizations(circuit):
    """Plain and per configuration: spins ``(2**n, n)`` and their probabilities, bit i of the number being qubit i."""
    probabilities = Statevector(gates_only(circuit)).probabilities()
    numbers = np.arange(len(probabilities))
    return 1 - 2 * (numbers[:, None] >> np.arange(circuit.num_qubits) & 1), probabilities


by_name = pytest.mark.parametrize("entry", ENTRIES, ids=[entry["name"] for entry in ENTRIES])


def test_the_gallery_shows_small_and_large_shallow_and_deep():
    assert {entry["num_spins"] for entry in ENTRIES} == {2, 3, 4, 8}
    assert {entry["num_layers"] for entry in ENTRIES} == {1, 2, 4}
    assert any(not all(entry["visible"]) for entry in ENTRIES)
    assert {path.name for path in FOLDER.glob("*.qasm")} == {entry["file"] for entry in ENTRIES}


@by_name
def test_a_file_is_the_circuit_of_the_builder(entry):
    loaded, ours = load(entry), built(entry)
    difference = np.abs(Operator(gates_only(loaded)).data - Operator(gates_only(ours)).data).max()
    assert difference < 1e-12
    assert np.abs(np.abs(Operator(gates_only(loaded)).data) ** 2 - 2.0 ** -entry["num_spins"]).max() > 1e-3
    measured = [
        (loaded.find_bit(step.qubits[0]).index, loaded.find_bit(step.clbits[0]).index)
        for step in loaded.data
        if step.operation.name == "measure"
    ]
    assert measured == [(i, i) for i in range(entry["num_spins"])]


@by_name
def test_gate_counts_and_depths(entry):
    circuit = load(entry)
    assert dict(circuit.count_ops()) == entry["gate_counts"]
    assert circuit.depth() == entry["depth"]
    assert circuit.depth(lambda step: len(step.qubits) == 2) == entry["two_qubit_depth"]


@by_name
def test_magnetizations(entry):
    spins, probabilities = magnetizations(load(entry))
    visible = np.array(entry["visible"])
    h, J = np.array(entry["fields"]), np.array(entry["couplings"])
    h, J = h * visible, J * np.outer(visible, visible)
    np.testing.assert_allclose(probabilities @ spins * visible, entry["circuit_magnetization"], atol=1e-6)
    conditional = probabilities @ np.tanh(h + spins @ J) * visible
    np.testing.assert_allclose(conditional, entry["conditional_magnetization"], atol=1e-6)
    model = model_of(entry)
    exact = brute_force(model.fields, model.couplings, model.visible).mean.numpy()
    np.testing.assert_allclose(exact, entry["boltzmann_magnetization"], atol=1e-6)
    assert np.abs(exact).max() > 0.3
    errors = [np.sqrt(np.mean((values - exact) ** 2)) for values in (probabilities @ spins * visible, conditional)]
    assert errors[1] < errors[0] < 0.15  # what the table of the README shows


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("regenerate", FOLDER / "regenerate.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "regenerate", module)
    spec.loader.exec_module(module)
    return module


def test_text_files_are_up_to_date(script, monkeypatch):
    monkeypatch.setattr(script, "picture", lambda circuit: "")
    files = {name: text for name, text in script.gallery().items() if not name.endswith(".svg")}
    assert len(files) == len(ENTRIES) + 2
    assert [name for name, text in files.items() if script.differs(FOLDER / name, text)] == []


def test_a_difference_is_reported(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    monkeypatch.setattr(script, "picture", lambda circuit: "<svg/>")
    monkeypatch.setattr(sys, "argv", ["regenerate.py"])
    assert script.main() == 0
    monkeypatch.setattr(sys, "argv", ["regenerate.py", "--check"])
    assert script.main() == 0
    victim = tmp_path / "pair_n2_p1.qasm"
    victim.write_text(victim.read_text().replace("rz(", "rz(-", 1))
    (tmp_path / "stray.qasm").write_text("")
    capsys.readouterr()
    assert script.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "out of date: pair_n2_p1.qasm",
        "not part of the gallery: stray.qasm",
    ]
    assert "rz(-" in victim.read_text()  # --check writes nothing


@pytest.mark.slow
def test_the_gallery_with_its_pictures_is_up_to_date():
    done = subprocess.run(
        [sys.executable, "circuits/regenerate.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_inspect_circuit_prints_what_it_promises():
    command = [sys.executable, "examples/inspect_circuit.py", "--num-spins", "3", "--layers", "3", "--shots", "500"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    lines = done.stdout.splitlines()
    assert "gates: 3 h, 3 measure, 9 rx, 9 rz, 9 rzz" in lines
    assert "k_hj" in done.stdout
    (header,) = [number for number, line in enumerate(lines) if line.startswith("spin ")]
    assert lines[header].split() == ["spin", "exact", "circuit", "sampled", "conditional"]
    rms = [float(value) for value in lines[header + 4].split()[1:]]
    assert rms[0] == 0
    assert 0 < max(rms) < 0.2
