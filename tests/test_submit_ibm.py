"""The example that submits in one process and collects in another: on a fake device and through the loopback."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "submit_ibm.py"
WORK = ["--spins", "3", "--rows", "4", "--layers", "1", "--shots", "64"]


@pytest.fixture(scope="module")
def main():
    """``main`` of the script, in this process."""
    spec = importlib.util.spec_from_file_location("submit_ibm", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def shell(*arguments):
    command = [sys.executable, "-W", "error::UserWarning", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))


def check_result(folder, shape):
    result = json.loads((folder / "result.json").read_text())
    exact = np.array(result["exact"])
    assert exact.shape == shape
    for estimator in ("plain", "conditional"):
        m, error = (np.array(result[estimator][name]) for name in ("magnetization", "standard_error"))
        assert m.shape == error.shape == shape
        assert result[estimator]["rms_error"] == pytest.approx(np.sqrt(np.mean((m - exact) ** 2)))
        assert np.corrcoef(m.ravel(), exact.ravel())[0, 1] > 0.9  # a wrong row or spin would not follow
    assert (folder / "magnetizations.png").stat().st_size > 5000
    return result


def test_two_processes_submit_and_collect(service, tmp_path):
    service.delay = 0.5  # the first process does not wait for it
    folder = tmp_path / "batch"
    submitted = shell("submit", "--backend", "ibm_small", "--folder", folder, *WORK)
    assert submitted.returncode == 0, submitted.stderr
    assert "QPU seconds  2.1 = " in submitted.stdout
    (job,) = service.jobs.values()
    assert f"1 jobs are submitted to ibm_small: {job.id}." in submitted.stdout
    assert not (folder / "spins.npy").exists()
    service.wait()
    collected = shell("collect", "--folder", folder)
    assert collected.returncode == 0, collected.stderr
    assert len(service.jobs) == 1, "collecting must not submit"
    check_result(folder, (4, 3))


def test_a_batch_is_collected_again_without_the_service(service, main, tmp_path, monkeypatch):
    folder = str(tmp_path / "batch")
    main(["submit", "--backend", "least_busy", "--folder", folder, *WORK])
    assert json.loads((tmp_path / "batch" / "batch.json").read_text())["backend"] == "ibm_loopback"
    main(["collect", "--folder", folder])
    first = check_result(tmp_path / "batch", (4, 3))
    before = service.count("POST /jobs")
    main(["collect", "--folder", folder])
    assert check_result(tmp_path / "batch", (4, 3)) == first
    assert service.count("POST /jobs") == before == 1


def test_a_fake_device_runs_at_once(main, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "batch"
    main(["submit", "--backend", "fake_manila", "--folder", str(folder), *WORK, "--dry-run"])
    assert not folder.exists()
    assert "dry run: nothing was run" in capsys.readouterr().out
    main(["submit", "--backend", "fake_manila", "--folder", str(folder), *WORK])
    main(["collect", "--folder", str(folder)])
    check_result(folder, (4, 3))
    with pytest.raises(SystemExit, match="holds a batch already"):
        main(["submit", "--backend", "fake_manila", "--folder", str(folder), *WORK])


def test_nothing_is_submitted_by_a_dry_run_beyond_the_budget_or_by_collecting(service, main, tmp_path, capsys):
    folder = tmp_path / "batch"
    submit = ["submit", "--backend", "ibm_small", "--folder", str(folder), *WORK]
    main([*submit, "--dry-run"])
    assert "Compiled and checked; nothing was submitted." in capsys.readouterr().out
    assert not folder.exists()
    with pytest.raises(SystemExit, match="may use 1 QPU seconds"):
        main([*submit, "--max-qpu-seconds", "1"])
    with pytest.raises(SystemExit, match="has no job of this batch"):
        main(["collect", "--folder", str(folder)])
    with pytest.raises(SystemExit, match="must be ibm_"):
        main([*submit[:2], "aer_simulator", *submit[3:]])
    assert not service.count("POST /jobs")
