"""The built wheel works by itself, in an empty environment and away from the repository."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from test_readme import README, REPOSITORY, lines_of, python_blocks

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the sdist, so that both have to be whole."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = REPOSITORY / "qboltz"
    expected = {
        path.relative_to(REPOSITORY).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "qboltz/py.typed" in expected
    assert any(name.startswith("qboltz/data/") for name in expected)
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert shipped == expected


@pytest.mark.timeout(1800)
def test_the_readme_example_runs_from_the_wheel(wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "--constraint", REPOSITORY / "constraints.txt", wheel, cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = run(python, "-c", "import qboltz; print(qboltz.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(environment)

    example = python_blocks(README.read_text())[0]
    (elsewhere / "example.py").write_text(example.code)
    printed = run(python, "example.py", cwd=elsewhere)
    if example.output is not None:
        assert lines_of(printed) == lines_of(example.output)
