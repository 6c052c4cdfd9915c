"""Imports go down only, and `import qboltz` stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "qboltz"

# Bottom to top. A name stands for a module or for a subpackage with everything in it.
FLOORS = [
    {"errors", "spins", "seeds", "files"},
    {"ising", "schedule", "readout"},
    {"moments", "calibration"},
    {"ensemble", "modelset"},
    {"circuits", "simulator", "enumeration", "gibbs", "temperature"},
    {"fidelity", "calibrating", "noise"},
    {"fitting", "noisy_fidelity"},
    {"adaptive", "schedule_table"},
    {"solvers", "backends", "machine", "sampler"},
    {"device_noise"},
    {"noise_fit"},
    {"autograd"},
    {"functional"},
    {"attention"},
    {"tasks"},
    {"experiments"},
    {"cli", "schedule_cli", "jobs_cli", "machines_cli", "report", "__main__"},
]
# The package's __init__ hands names out lazily from every floor, so it is above them all.
ROOT = "__init__"
TOP = len(FLOORS)

# (importer, imported) on one floor; modules of one subpackage may always import each other.
SIBLINGS = {
    ("spins", "errors"),
    ("seeds", "errors"),
    ("solvers", "backends"),
    ("backends", "machine"),
    ("machine", "backends"),
    ("cli", "report"),
    ("cli", "schedule_cli"),
    ("cli", "jobs_cli"),
    ("cli", "machines_cli"),
    ("__main__", "cli"),
}

# The one way up: `AnnealingSchedule.fit` loads what it needs when it is called, so that users find it on the schedule.
ON_CALL = {("schedule", "modelset"), ("schedule", "fitting")}

# The physics and the layer: no Qiskit, neither by an import of their own nor through another module.
QISKIT_FREE = [
    "errors",
    "spins",
    "seeds",
    "ising",
    "schedule",
    "ensemble",
    "moments",
    "readout",
    "calibration",
    "temperature",
    "calibrating",
    "noise",
    "noisy_fidelity",
    "simulator",
    "solvers.exact",
    "solvers.statevector",
    "solvers.visible",
    "solvers.gibbs",
    "solvers.chains",
    "solvers.mean_field",
    "autograd",
    "functional",
    "attention",
]
HEAVY = ("torch", "qiskit", "qiskit_aer", "qiskit_ibm_runtime")


def test_every_module_imports_only_from_lower_floors():
    modules = sorted(PACKAGE.rglob("*.py"))
    assert modules, f"no modules below {PACKAGE}"
    complaints = [complaint for path in modules for complaint in floor_violations(path.read_text(), module_name(path))]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("module", QISKIT_FREE)
def test_physics_modules_have_no_qiskit_import_of_their_own(module):
    source = PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text()
    assert not qiskit_imports(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from qboltz.attention import BoltzmannAttention", "ising"),
        ("from qboltz import attention", "ising"),
        ("import qboltz.attention as layer", "ising"),
        ("from . import attention", "ising"),
        ("from .attention import BoltzmannAttention", "ising"),
        ("from ..attention import BoltzmannAttention", "solvers.exact"),
        ("def solve():\n    from qboltz.attention import BoltzmannAttention", "ising"),
        ("if TYPE_CHECKING:\n    from qboltz.attention import BoltzmannAttention", "ising"),
        ("import importlib\nimportlib.import_module('qboltz.attention')", "ising"),
        ("from qboltz import IsingModel", "solvers.exact"),  # the package's __init__ is the top floor
        ("import qboltz", "ising"),
        ("from qboltz.simulator import walk", "circuits"),  # one floor, not named as siblings
        ("from qboltz.gadgets import gadget", "experiments.training"),  # a module that has no floor
    ],
)
def test_an_upward_import_is_found(source, module):
    (complaint,) = floor_violations(source, module)
    assert complaint.startswith(f"qboltz.{module}:")


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from qboltz.ising import IsingModel", "attention"),
        ("from ..ising import IsingModel", "solvers.exact"),
        ("from . import exact", "solvers.__init__"),
        ("from .exact import ExactSolver", "solvers.annealing"),
        ("from qboltz.backends import resolve", "solvers.annealing"),
        ("from qboltz.attention import boltzmann_attention", "__init__"),
        ("import math, torch\nfrom qiskit import QuantumCircuit", "circuits"),
    ],
)
def test_a_downward_import_is_allowed(source, module):
    assert not floor_violations(source, module)


def test_lazy_names_are_those_the_type_checker_sees():
    import qboltz

    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module.removeprefix("qboltz.") for node in block.body for alias in node.names}
    assert seen == qboltz._HOME
    assert all(getattr(qboltz, name).__name__ == name for name in seen if name != "SOLVERS")


def test_a_module_without_a_floor_is_found():
    assert floor_violations("import math", "gadgets") == ["qboltz.gadgets has no floor in FLOORS"]


@pytest.mark.parametrize(
    "source",
    [
        "import qiskit",
        "def f():\n    from qiskit_aer import AerSimulator",
        "import qiskit.circuit as c",
    ],
)
def test_a_qiskit_import_is_found(source):
    assert qiskit_imports(source, "ising")


def test_importing_the_package_loads_neither_torch_nor_qiskit():
    assert heavy_after("import qboltz") == set()


def test_importing_attention_loads_torch_but_not_qiskit():
    assert heavy_after("import qboltz.attention") == {"torch"}


def test_importing_the_physics_modules_loads_no_qiskit():
    assert heavy_after("import " + ", ".join(f"qboltz.{module}" for module in QISKIT_FREE)) == {"torch"}


SOLVE = """
import qboltz, torch
solver = qboltz.make_solver({name!r}, shots=16, seed=0)
solver.solve(qboltz.IsingModel(torch.zeros(1, 2), torch.zeros(2, 2))).magnetization()
"""


def test_aer_does_without_the_ibm_runtime():
    assert heavy_after(SOLVE.format(name="aer_simulator")) == {"torch", "qiskit", "qiskit_aer"}


def test_a_fake_backend_loads_the_ibm_runtime():
    assert "qiskit_ibm_runtime" in heavy_after(SOLVE.format(name="fake_manila"))


def test_a_heavy_import_is_seen():
    assert heavy_after("import qiskit") == {"qiskit"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def floor_of(module: str) -> int | None:
    if module == ROOT:
        return TOP
    head = module.split(".")[0]
    return next((floor for floor, names in enumerate(FLOORS) if head in names), None)


def floor_violations(source: str, module: str) -> list[str]:
    """What the source of `qboltz.<module>` imports from its own floor or above, or from no known floor."""
    own_floor = floor_of(module)
    if own_floor is None:
        return [f"qboltz.{module} has no floor in FLOORS"]
    head = module.split(".")[0]
    complaints = []
    for line, imported in dict.fromkeys(package_imports(source, module)):
        target = imported.split(".")[0]
        floor = floor_of(imported)
        if floor is None:
            complaints.append(f"qboltz.{module}:{line} imports qboltz.{imported}, which has no floor")
        elif floor >= own_floor and target != head and (head, target) not in SIBLINGS | ON_CALL:
            complaints.append(f"qboltz.{module}:{line} (floor {own_floor}) imports qboltz.{imported} (floor {floor})")
    return complaints


def package_imports(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Line and name within qboltz of each module of the package that the source imports."""
    for line, name in imports(source, module):
        if name == "qboltz":
            yield line, ROOT
        elif name.startswith("qboltz."):
            yield line, name.removeprefix("qboltz.")


def qiskit_imports(source: str, module: str) -> list[str]:
    return [name for _, name in imports(source, module) if name.split(".")[0].startswith("qiskit")]


def imports(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = absolute_origin(node, module)
            for alias in node.names:
                yield node.lineno, submodule_or_origin(origin, alias.name)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(("import_module", "__import__"))
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def absolute_origin(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    parents = ["qboltz", *module.split(".")][: -node.level]
    return ".".join([*parents, node.module] if node.module else parents)


def submodule_or_origin(origin: str, name: str) -> str:
    """`from qboltz import ising` imports a module; `from qboltz import IsingModel` goes through __init__."""
    if origin == "qboltz" and floor_of(name) is not None:
        return f"qboltz.{name}"
    return origin


def heavy_after(statement: str) -> set[str]:
    """Which of HEAVY a fresh interpreter has loaded once it has run the statement."""
    report = f"\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", statement + report],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=PACKAGE.parent,
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())
