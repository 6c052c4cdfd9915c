"""Examples are short scripts without classes, and they run."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


def run(script, *arguments, cwd):
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=300, cwd=cwd
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_examples_are_short_and_define_no_classes(script):
    tree = ast.parse(script.read_text())
    assert ast.get_docstring(tree), "an example starts by saying what it shows"
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert len(script.read_text().splitlines()) <= 120


def test_the_quickstart_prints_the_weights_of_both_solvers(tmp_path):
    result = run(EXAMPLES / "quickstart.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    names, rows = [], []
    for line in result.stdout.splitlines():
        name, *weights = line.split()
        names.append(name)
        rows.append([float(weight) for weight in weights])
    assert names == ["ExactSolver", "AnnealingSolver"]
    for weights in rows:
        assert sum(weights) == pytest.approx(1, abs=0.031)  # six roundings to two digits
    # |dm| <= 0.05 (shots and the shortness of the anneal) moves a weight alpha / sum(alpha) by less than .03
    assert rows[0] == pytest.approx(rows[1], abs=0.04)
    assert rows[0] != rows[1]
