"""kill -9 at every stage of a job, with real processes: the resumed run ends like one that was never killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import machine_worker
import pytest
import torch
from loopback import TOKEN, Fault

from qboltz.experiments.checkpoint import load_checkpoint
from qboltz.machine.store import JobStore

# Requests around a job: "instances/usage" is asked once by this package before it writes the job down, and once more
# by the client's sampler right before it submits.
STAGES = {
    "before it is written down": Fault("GET /backends/ibm_small/status", skip=0),
    "between writing it down and submitting": Fault("GET /instances/usage", skip=1),
    "between submitting and learning its id": Fault("POST /jobs$", after=True),
    "while it waits": Fault("GET /jobs/[^/]+$", after=True),
    "after its result, before it is stored": Fault("GET /jobs/[^/]+/results", after=True),
    "after it is stored, before the optimizer's step": Fault("GET /jobs/[^/]+/metrics"),
    "before the second job is written down": Fault("GET /backends/ibm_small/status", skip=2),
    "between submitting the third and learning its id": Fault("POST /jobs$", skip=2, after=True),
}
#: Requests of the first two stages come once per job, so these suffice to see the principle in every run of the tests.
QUICK = ["between submitting and learning its id", "after it is stored, before the optimizer's step"]


@pytest.fixture(scope="module")
def undisturbed(running, tmp_path_factory):
    """Parameters after a run that nobody kills."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(machine_worker.start(folder, environment(running)))
    assert len(running.jobs) == machine_worker.STEPS
    return torch.load(folder / "parameters.pt")


def environment(service):
    return {**service.environment(), "QBOLTZ_CACHE": str(service.directory.parent / "cache")}


def finish(process):
    process.join(120)
    assert process.exitcode == 0, process


def kill_at(fault, service, folder, **options):
    """Start a run and kill it when the service gets the request of ``fault``."""
    workers = []
    fault.call = lambda: (os.kill(workers[0].pid, signal.SIGKILL), time.sleep(0.1))
    service.faults = [fault]
    workers.append(machine_worker.start(folder, environment(service), **options))
    workers[0].join(120)
    assert workers[0].exitcode == -signal.SIGKILL
    service.faults = []


@pytest.mark.parametrize(
    "stage", [stage if stage in QUICK else pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES]
)
def test_a_killed_run_ends_like_an_undisturbed_one(running, undisturbed, tmp_path, stage):
    running.reset()
    kill_at(STAGES[stage], running, tmp_path)
    assert not (tmp_path / "parameters.pt").exists()
    assert load_checkpoint(tmp_path / "run")["step"] == 0
    finish(machine_worker.start(tmp_path, environment(running), resume=True))
    parameters = torch.load(tmp_path / "parameters.pt")
    for name, values in undisturbed.items():
        assert torch.equal(parameters[name], values), name
    assert len(running.jobs) == machine_worker.STEPS, "a job was submitted twice"
    jobs = JobStore(tmp_path / "jobs.sqlite").jobs()
    assert {job.state for job in jobs} == {"done"}
    assert {job.job_id for job in jobs} == set(running.jobs)
    assert len({job.run for job in jobs}) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_all_the_same(running, undisturbed, tmp_path):
    running.reset()
    for number, stage in enumerate(["POST /jobs$", "results", "POST /jobs$", "metrics"]):
        kill_at(Fault(stage, after=number % 2 == 0), running, tmp_path, resume=number > 0)
    finish(machine_worker.start(tmp_path, environment(running), resume=True))
    parameters = torch.load(tmp_path / "parameters.pt")
    assert all(torch.equal(parameters[name], values) for name, values in undisturbed.items())
    assert len(running.jobs) == machine_worker.STEPS


@pytest.mark.slow
def test_the_budget_counts_over_a_kill(running, undisturbed, tmp_path):
    running.reset()
    limit = 2.9  # each job is expected to take 2 s and is charged half a second: two are allowed
    kill_at(Fault("POST /jobs$", skip=1, after=True), running, tmp_path, max_qpu_seconds=limit)
    process = machine_worker.start(tmp_path, environment(running), resume=True, max_qpu_seconds=limit)
    process.join(120)
    assert process.exitcode == 1
    spent = sum(JobStore(tmp_path / "jobs.sqlite").spent(load_run(tmp_path)))
    assert spent <= limit
    assert len(running.jobs) < machine_worker.STEPS


def load_run(folder):
    (state,) = load_checkpoint(folder / "run")["processes"]
    return state["stateful"]["solver"]["backend"]["run"]


def test_two_runs_with_one_seed_share_nothing(running, undisturbed, tmp_path):
    """The name of the run is drawn, and is in the checkpoint before anything is submitted."""
    running.reset()
    names = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_at(Fault("GET /instances/usage"), running, folder)
        names.append(load_run(folder))
    assert names[0] != names[1]
    assert not running.jobs


EXAMPLE = Path(__file__).parents[1] / "examples" / "train_dqa.py"
RECALL = [
    *("--backend", "ibm_small", "--length", "3", "--steps", "4", "--batch-size", "4", "--shots", "16"),
    *("--layers", "1", "--eval-size", "8", "--no-twin"),
]


def serve(directory, port=0):
    """The service as a process of its own, and the environment it tells its clients to have."""
    command = [sys.executable, Path(__file__).with_name("loopback.py"), "--directory", directory, "--delay", "0.3"]
    process = subprocess.Popen([*map(str, command), "--port", str(port)], stdout=subprocess.PIPE, text=True)
    lines = [line.removeprefix("export ").strip().split("=", 1) for line in iter(process.stdout.readline, "\n")]
    return process, {name: value.strip("'") for name, value in lines}


def wait_until(condition, process):
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def processes():
    """Processes that do not outlive the test."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_the_main_job_survives_its_own_death_and_that_of_the_service(tmp_path, processes):
    jobs = tmp_path / "service"
    server, variables = serve(jobs)
    processes.append(server)
    port = int(variables["IAM_URL"].rsplit(":", 1)[1])

    def run(name, *arguments):
        env = {**os.environ, **variables, "QBOLTZ_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        env["QBOLTZ_JOBS"] = str(tmp_path / f"{name}.sqlite")
        command = [sys.executable, str(EXAMPLE), *arguments, "--out", str(tmp_path / name)]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        processes.append(process)
        return process

    def submitted():
        return len(list(jobs.glob("*.job")))

    def finish(process):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert TOKEN not in output

    finish(run("undisturbed", *RECALL))
    count = submitted()
    killed = run("killed", *RECALL)
    wait_until(lambda: submitted() == count + 2, killed)
    server.kill()  # while the second job runs
    server.wait(30)
    time.sleep(0.5)
    server, _ = serve(jobs, port)
    processes.append(server)
    wait_until(lambda: submitted() == count + 3, killed)  # it went on by itself
    killed.kill()
    killed.wait(30)
    finish(run("killed", "--resume"))
    assert submitted() == 2 * count, "a job was submitted twice"
    one, other = (load_checkpoint(tmp_path / name) for name in ("undisturbed", "killed"))
    assert all(torch.equal(other["model"][name], values) for name, values in one["model"].items())
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("undisturbed", "killed")]
    for name in ("loss", "accuracy", "magnetization_rmse"):
        assert summaries[0][name] == summaries[1][name]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]
