"""Two processes under torchrun (gloo): the gradient of the whole batch, own seeds, one checkpoint."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from qboltz import ExactSolver, StatevectorSolver
from qboltz.experiments.checkpoint import load_checkpoint, read_metrics
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig
from qboltz.experiments.training import train
from qboltz.seeds import SeedStream
from qboltz.tasks import BracketTask

TASK = BracketTask(6, form="causal")
ONE_STEP = TrainingConfig(steps=1, batch_size=7, clip=None)  # 7 sequences: 3 for one process, 4 for the other
FOUR_STEPS = TrainingConfig(steps=4, batch_size=7)


def make_model(solver, **options):
    return OneLayerTransformer.for_task(TASK, seed=0, solver=solver, width=8, coupling_init=0.5, **options)


class StopOn:
    """Only one process is asked to stop, and only after its second step."""

    def __init__(self, index):
        self.steps_left = 2 if index == 1 else 100

    @property
    def requested(self):
        self.steps_left -= 1
        return self.steps_left == 0


def worker(folder):
    """What each of the two processes does."""
    from qboltz.experiments.processes import join_processes

    with join_processes() as processes:
        model = make_model(ExactSolver())
        train(model, TASK, ONE_STEP, folder / "exact")
        grads = {name: parameter.grad for name, parameter in model.named_parameters()}
        torch.save(grads, folder / f"grads-{processes.index}.pt")

        def sampled(place, **options):
            solver = StatevectorSolver(shots=8)
            solver.seeds = SeedStream(0, key=(processes.index,))
            return train(
                make_model(solver, dropout=0.2),
                TASK,
                FOUR_STEPS,
                folder / place,
                stateful={"solver": solver},
                count_circuits=lambda: solver.circuits_run,
                **options,
            )

        sampled("whole")
        stopped = sampled("parts", stop=StopOn(processes.index))
        (folder / f"stopped-{processes.index}").write_text(f"{stopped.interrupted} {stopped.steps}")
        sampled("parts", resume=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = subprocess.run([*command, __file__, str(folder)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_gradient_over_two_processes_is_that_of_one(folder):
    model = make_model(ExactSolver())
    result = train(model, TASK, ONE_STEP)
    for index in (0, 1):
        grads = torch.load(folder / f"grads-{index}.pt", weights_only=True)
        assert grads["attention.coupling_weights"].abs().max() > 1e-4
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(grads[name], parameter.grad, rtol=1e-4, atol=1e-7, msg=name)
    (record,) = read_metrics(folder / "exact")
    for name in ("loss", "accuracy", "grad_norm"):
        assert record[name] == pytest.approx(result.history[0][name], rel=1e-5)


def test_a_stop_of_one_process_stops_both(folder):
    assert [(folder / f"stopped-{index}").read_text() for index in (0, 1)] == ["True 2", "True 2"]


def test_a_resumed_run_of_two_processes_ends_with_the_same_bits(folder):
    whole, parts = load_checkpoint(folder / "whole"), load_checkpoint(folder / "parts")
    for name, parameter in whole["model"].items():
        assert torch.equal(parameter, parts["model"][name]), name
    records = []
    for place in ("whole", "parts"):
        records.append([dict(record, seconds=0) for record in read_metrics(folder / place)])
    assert records[0] == records[1]
    assert records[0][-1]["circuits"] == 4 * 7 * 3  # all processes' circuits: steps, sequences, closing brackets


def test_each_process_has_its_own_seeds(folder):
    states = [own["stateful"]["solver"] for own in load_checkpoint(folder / "whole")["processes"]]
    keys = [state["seeds"]["key"] for state in states]
    assert keys == [[0], [1]]
    assert [state["seeds"]["count"] for state in states] == [4, 4]


def test_another_number_of_processes_cannot_resume(folder):
    with pytest.raises(ValueError, match="processes was 2, is 1"):
        train(make_model(ExactSolver()), TASK, ONE_STEP, folder / "exact", resume=True)


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
