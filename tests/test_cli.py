"""The command `qboltz`."""

import json
from importlib.metadata import version

import pytest

from qboltz import AnnealingSchedule
from qboltz.cli import main


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"qboltz {version('qboltz')}\n"


def test_show_prints_the_schedule(capsys):
    assert main(["schedule", "show", "--layers", "3", "--linear", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    schedule = AnnealingSchedule.linear(3)
    assert facts == schedule.as_dict() | {
        "beta_fields": schedule.beta_fields,
        "beta_couplings": schedule.beta_couplings,
        "k_hj": schedule.k_hj,
    }
    assert main(["schedule", "show"]) == 0
    assert "beta_couplings" in capsys.readouterr().out


def test_compare_puts_fitted_beside_linear(capsys):
    arguments = ["--layers", "4", "--num-spins", "4", "--count", "6"]
    assert main(["schedule", "compare", *arguments, "--json"]) == 0
    linear, fitted = json.loads(capsys.readouterr().out)
    assert (linear["schedule"], fitted["schedule"]) == ("linear", "fitted")
    assert 0 < fitted["conditional"] < linear["conditional"]
    assert main(["schedule", "compare", *arguments]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_fit_extends_a_table(capsys, tmp_path, monkeypatch):
    for name, value in {"FIT_SIZES": (2,), "FIT_COUNT": 2, "HELD_OUT_SIZE": 2, "HELD_OUT_COUNT": 2}.items():
        monkeypatch.setattr(f"qboltz.schedule_table.{name}", value)
    command = ["schedule", "fit", "--layers", "1", "--ensemble", "weak", "--restarts", "1"]
    assert main([*command, "--output", str(tmp_path / "table.json")]) == 0
    assert "weak p=1" in capsys.readouterr().out
    assert list(json.loads((tmp_path / "table.json").read_text())["schedules"]["weak"]) == ["1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["schedule", "show", "--layers", "99"], "num_layers must be one of"),
        (["schedule", "compare", "--ensemble", "strong"], "ensemble must be one of 'broad', 'middle', 'weak'"),
        (["schedule", "show", "--layers", "two"], "invalid int value: 'two'"),
        (["schedule", "compare", "--num-spins", "40"], "at most 16 spins"),
        (["schedule", "compare", "--seed", "-1"], "seed must be at least 0, got -1"),
        (["schedule", "fit", "--layers", "1", "--output", "/does/not/exist/table.json"], "No such file or directory"),
        (["schedul"], "invalid choice: 'schedul'"),
        ([], "the following arguments are required"),
    ],
)
def test_bad_arguments_exit_with_2_and_a_message(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
