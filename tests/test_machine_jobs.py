"""Jobs through the unmodified runtime client and a loopback service: both samplers, all modes, the store, resuming."""

import copy
import json
import multiprocessing
import os
import pickle
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from loopback import CRN, TOKEN
from machine_client import SCHEDULE, SHOTS, chosen, machine, request

import qboltz
from qboltz.backends import resolve_backend
from qboltz.cli import main
from qboltz.errors import BudgetError, DryRunError, JobError, StoreError
from qboltz.machine.backend import Machine
from qboltz.machine.limits import Chunker, ServiceLimits
from qboltz.machine.price import Tariff
from qboltz.machine.records import JobRecord, draw_name, pack_models, pack_spins, unpack_models, unpack_spins
from qboltz.machine.store import Intent, JobStore

# -- the way of a job -------------------------------------------------------------------------------------------------


def test_spins_follow_the_fields_of_their_row(service):
    asked = request(rows=7, shots=256)
    asked = replace(asked, fields=np.array([[2.0, -2.0], [-2.0, 2.0], [2, 2], [-2, -2], [0, 2], [2, 0], [-2, 0]]))
    asked = replace(asked, couplings=np.zeros((7, 2, 2)))
    m = machine().sample(asked).mean(1)
    # 256 shots: a mean of independent spins is off by more than 0.32 with a probability below 1e-6
    np.testing.assert_allclose(m, np.tanh(asked.fields), atol=0.4)


@pytest.mark.parametrize("name", ["ibm_small", "least_busy"])
def test_a_machine_is_looked_up_by_name_on_first_use(service, name):
    solver = qboltz.AnnealingSolver(Machine(name, chosen()), SCHEDULE, SHOTS, seed=1)
    assert not service.requests
    assert (solver.backend.label, solver.backend.billed, solver.backend.ideal) == (name, True, False)
    fields = torch.tensor([[2.0, -2.0], [-2.0, 2.0]])
    signs = solver.solve(qboltz.IsingModel(fields, torch.zeros(2, 2))).spins.double().mean(-2).sign()[0]
    np.testing.assert_array_equal(signs, fields.sign())
    assert {job.backend for job in service.jobs.values()} == {"ibm_loopback" if name == "least_busy" else "ibm_small"}
    other = pickle.loads(pickle.dumps(solver))
    assert other.backend._runtime is None
    assert other.backend.run == solver.backend.run


def test_copies_share_run_and_connection(service):
    user = machine()
    runtime = user.runtime()
    other = copy.deepcopy(user)
    assert other.run == user.run
    assert other.runtime() is runtime
    assert other.store is not user.store
    assert resolve_backend(runtime.device).label == "ibm_small"
    assert pickle.loads(pickle.dumps(user)).run == user.run


@pytest.mark.parametrize("sampler", ["executor", "legacy"])
@pytest.mark.parametrize("mode", ["job", "batch", "session"])
def test_samplers_and_modes_give_the_same_spins(service, sampler, mode):
    user = machine(sampler=sampler, mode=mode)
    spins = user.sample(request())
    closed = {session["mode"]: session["state"] == "closed" for session in service.sessions.values()}
    assert closed == {"job": {}, "batch": {"batch": True}, "session": {"dedicated": False}}[mode]
    user.close()
    assert spins.shape == (5, SHOTS, 2)
    assert spins.dtype == np.int8
    np.testing.assert_array_equal(spins, machine().sample(request()))
    (job,) = [job for job in service.jobs.values() if job.session or mode == "job"][:1]
    assert job.program == {"executor": "executor", "legacy": "sampler"}[sampler]
    assert all(session["state"] == "closed" for session in service.sessions.values())


@pytest.mark.parametrize("sampler", ["executor", "legacy"])
def test_decoupling_and_twirling_reach_the_service(service, sampler):
    twirling = ("gates", "measurements")
    asked = request(shots=48)
    plain = machine(sampler=sampler).sample(asked).mean(1)
    spins = machine(sampler=sampler, dynamical_decoupling="XY4", twirling=twirling).sample(asked)
    assert spins.shape == (5, 48, 2)
    assert np.abs(spins.mean(1) - plain).max() < 1  # two samples of 48 shots: five standard deviations
    texts = [path.read_text() for path in service.directory.glob("*.params")]
    if sampler == "legacy":
        (options,) = [text for text in texts if "XY4" in text]
        assert json.loads(options)["options"]["twirling"]["shots_per_randomization"] * 48 >= 48
    else:
        assert sum('"item_type": "samplex"' in text for text in texts) == 1


def test_many_rows_are_several_jobs_in_flight_and_come_back_in_any_order(service):
    service.last_first = 3  # none runs before all three are there
    limits = ServiceLimits(executions=2 * SHOTS, in_flight=3)
    user = machine(limits=limits)
    lines = user.compiled(2, SCHEDULE).packed.num_lines
    asked = request(rows=6 * lines)
    spins = user.sample(asked)
    assert len(service.jobs) == 3
    finished = [job.finished for job in service.jobs.values()]
    assert finished == sorted(finished, reverse=True)
    np.testing.assert_array_equal(spins, machine(limits=limits).sample(asked))


def test_equal_draws_of_two_runs_are_two_jobs(service):
    machine().sample(request())
    machine().sample(request())
    assert len(service.jobs) == 2
    assert len({job.run for job in JobStore().jobs()}) == 2


def test_a_draw_that_is_asked_for_again_is_not_paid_again(service):
    first = machine(run="mine").sample(request())
    before = list(service.requests)
    again = machine(run="mine").sample(request())
    np.testing.assert_array_equal(first, again)
    assert len(service.jobs) == 1
    assert not any(name.startswith(("POST /jobs", "GET /jobs")) for name in service.requests[len(before) :])


def test_rounding_makes_no_new_question_but_another_question_does(service):
    user = machine(run="mine")
    asked = request()
    user.sample(asked)
    user.sample(replace(asked, fields=asked.fields.astype(np.float32).astype(np.float64)))
    assert len(service.jobs) == 1
    user.sample(replace(asked, fields=asked.fields + 0.01))
    assert len(service.jobs) == 2
    user.sample(replace(asked, shots=16))
    assert len(service.jobs) == 3


def test_rows_that_an_earlier_session_did_not_get_to_are_submitted_alone(service):
    limits = ServiceLimits(executions=SHOTS)
    user = machine(run="mine", limits=limits)
    lines = user.compiled(2, SCHEDULE).packed.num_lines
    asked = request(rows=3 * lines)
    whole = user.sample(asked)
    store = user.store
    store.delete([job for job in store.jobs() if job.first_row == lines])
    again = machine(run="mine").sample(asked)  # other limits: the rows that are there keep their jobs
    np.testing.assert_array_equal(again, whole)
    assert len(service.jobs) == 4


def test_a_solver_trains_through_jobs_and_its_state_names_the_run(service):
    torch.manual_seed(0)
    fields = torch.randn(3, 2, requires_grad=True)
    couplings = torch.zeros(2, 2, requires_grad=True)
    solver = qboltz.AnnealingSolver(machine(), SCHEDULE, shots=SHOTS, seed=1)
    qboltz.magnetization(fields, couplings, solver=solver).sum().backward()
    assert fields.grad.abs().sum() > 0
    assert solver.state_dict()["backend"] == {"run": solver.backend.run}
    other = qboltz.AnnealingSolver(machine(), SCHEDULE, shots=SHOTS, seed=9)
    other.load_state_dict(solver.state_dict())
    assert other.backend.run == solver.backend.run
    assert [job.run for job in JobStore().jobs()] == [solver.backend.run]
    assert solver.circuits_run == 3


def test_a_dry_run_checks_and_prices_and_submits_nothing(service):
    with pytest.raises(DryRunError, match=r"5 rows on \d lines are \d circuits, .* executions, 1 jobs, about 2\.\d s"):
        machine(dry_run=True).sample(request())
    assert not service.jobs
    assert not service.count("POST /jobs")


# -- money ------------------------------------------------------------------------------------------------------------


def test_the_budget_stops_before_submission_and_counts_over_sessions(service):
    for number in range(3):  # each expected to take 2 s, and charged 0.5 s
        machine(run="mine", max_qpu_seconds=3.4).sample(request(number=number))
    with pytest.raises(
        BudgetError, match=r"Charged so far are 1\.6 s.*1\.[78] s are left. Nothing was submitted"
    ) as caught:
        machine(run="mine", max_qpu_seconds=3.4).sample(request(number=3))
    assert "run mine" in str(caught.value)
    assert len(service.jobs) == len(JobStore().jobs()) == 3
    machine(run="other", max_qpu_seconds=3.4).sample(request(number=3))
    machine(run="mine", max_qpu_seconds=9).sample(request(number=3))


def test_what_is_expected_counts_until_the_charge_is_known(service):
    user = machine(run="mine", max_qpu_seconds=4.5)
    service.outcomes = ["never"]
    with pytest.raises(JobError):
        machine(run="mine", max_qpu_seconds=4.5, timeout=0.05).sample(request())
    assert user.store.spent("mine") == (0, pytest.approx(2, abs=0.1))
    service.cancel(next(iter(service.jobs.values())))
    with pytest.raises(JobError):
        user.sample(request())
    assert user.store.spent("mine") == (0, 0)


@pytest.mark.parametrize("sampler", ["executor", "legacy"])
def test_the_service_is_told_the_limit(service, sampler):
    machine(max_qpu_seconds=7.9, sampler=sampler).sample(request())
    (job,) = service.jobs.values()
    assert job.max_seconds == 7


def test_limits_split_and_refuse():
    class Wide:
        num_lines, num_spins = 10, 8
        circuit = type("Circuit", (), {"num_parameters": 500})

        def num_circuits(self, rows):
            return -(-rows // 10)

    def sizes(rows, limits, shots=256):
        chunker = Chunker(Wide(), Tariff(circuit=20e-6, repetition=250e-6, job=2.0), limits)
        return [count for _, count in chunker.parts(0, rows, request(rows, shots=shots))]

    assert sizes(384, ServiceLimits()) == [384]
    assert sizes(384, ServiceLimits(executions=256 * 13)) == [130, 130, 124]
    assert sizes(384, ServiceLimits(payload_bytes=4000 * 20)) == [200, 184]
    assert sizes(25, ServiceLimits(seconds=2.001 + 256 * 270e-6)) == [10, 10, 5]
    with pytest.raises(
        ValueError, match=r"one circuit of 256 shots is more than a job may be \(executions at most 100\)"
    ):
        sizes(5, ServiceLimits(executions=100))


# -- the store --------------------------------------------------------------------------------------------------------


def intent(key="k", run="r", draw="1/0", rows=2, estimate=2.0, **more):
    values = {
        "attempt": 0,
        "first_row": 0,
        "shots": 4,
        "num_spins": 3,
        "backend": "ibm_x",
        "circuit": "c",
        "digest": key,
    }
    record = JobRecord(
        key=key, run=run, draw=draw, rows=rows, estimate=estimate, options={"schedule": {}}, **values | more
    )
    return Intent(record, b"qpy", pack_models(np.zeros((rows, 3)), np.zeros((rows, 3, 3))))


def test_arrays_survive_packing():
    rng = np.random.default_rng(0)
    fields, couplings = rng.normal(size=(4, 5)), rng.normal(size=(4, 5, 5))
    for one, other in zip(unpack_models(pack_models(fields, couplings), 4, 5), (fields, couplings), strict=True):
        np.testing.assert_array_equal(one, other)
    spins = rng.choice([-1, 1], size=(4, 7, 5)).astype(np.int8)
    np.testing.assert_array_equal(unpack_spins(pack_spins(spins), spins.shape), spins)
    assert draw_name(np.random.SeedSequence(255, spawn_key=(1, 2))) == "ff/1.2"


def test_only_the_owner_can_read_the_store(tmp_path):
    store = JobStore(tmp_path / "deep" / "jobs.sqlite")
    store.reserve([intent()])
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_a_store_that_others_can_read_is_closed_to_them(tmp_path):
    path = tmp_path / "jobs.sqlite"
    path.touch(mode=0o644)
    JobStore(path).jobs()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_store_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("QBOLTZ_JOBS", str(tmp_path / "a.sqlite"))
    assert JobStore().path == tmp_path / "a.sqlite"
    monkeypatch.delenv("QBOLTZ_JOBS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert JobStore().path.name == "jobs.sqlite"


def test_jobs_of_one_reservation_are_all_written_or_none(tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite")
    with pytest.raises(BudgetError):
        store.reserve([intent("a"), intent("b", first_row=2)], 3.0)
    assert store.jobs() == []
    store.reserve([intent("a"), intent("b", first_row=2)], 4.0)
    with pytest.raises(StoreError, match="UNIQUE"):
        store.reserve([intent("c", first_row=4), intent("a")])
    assert [job.key for job in store.jobs()] == ["a", "b"]


def test_a_job_is_found_by_its_id_or_the_beginning_of_its_key(tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite")
    store.reserve([intent("abc"), intent("abd", first_row=2)])
    store.submitted(store.find("abc"), "d123")
    assert store.find("d12").key == "abc"
    assert store.find("abd").state == "intended"
    for name in ("ab", "x", ""):
        with pytest.raises(ValueError, match="which fits [02] jobs"):
            store.find(name)


def test_a_full_disk_is_an_error_before_money_is_spent(service, tmp_path):
    user = machine()
    user.store.jobs()
    pages = user.store._database.open().execute("PRAGMA page_count").fetchone()[0]
    user.store._database.open().execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"before they are submitted \(none was submitted\): database or disk is full"):
        user.sample(request(rows=400, shots=4))
    assert not service.count("POST /jobs")


def test_too_little_room_for_the_results_is_an_error_before_money_is_spent(service, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 2**20}))
    with pytest.raises(StoreError, match="MiB of free disk for the results, 1 MiB are left. Nothing was submitted"):
        machine().sample(request())
    assert not service.count("POST /jobs")


def _write_as_nobody(path, result):
    if os.geteuid() == 0:  # root may write anywhere
        os.setgid(65534)
        os.setuid(65534)
    try:
        JobStore(path).reserve([intent()])
    except StoreError as error:
        result.put(str(error))
    else:
        result.put("written")


def test_a_read_only_store_is_an_error_before_money_is_spent(tmp_path):
    JobStore(tmp_path / "jobs.sqlite").jobs()
    for path in tmp_path.iterdir():
        path.chmod(0o444)
    tmp_path.chmod(0o555)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o011)
    context = multiprocessing.get_context("fork")
    result = context.Queue()
    worker = context.Process(target=_write_as_nobody, args=(tmp_path / "jobs.sqlite", result))
    worker.start()
    text = result.get(timeout=30)
    worker.join(30)
    assert text.startswith(f"the store of jobs {tmp_path / 'jobs.sqlite'} c"), text
    assert "readonly" in text or "unable to open" in text or "Permission denied" in text


def _fill(path, run, count):
    store = JobStore(path)
    for number in range(count):
        store.reserve([intent(f"{run}-{number}", run=run, draw=f"{number}/0")], 1000.0)
        job = store.submitted(store.find(f"{run}-{number}"), f"id-{run}-{number}")
        store.done(job, np.ones((2, 4, 3), dtype=np.int8))


def test_two_processes_share_one_store(tmp_path):
    path = tmp_path / "jobs.sqlite"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(path, run, 25)) for run in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    jobs = JobStore(path).jobs()
    assert len(jobs) == 50
    assert {job.state for job in jobs} == {"done"}


def _spend(path, barrier, result):
    store = JobStore(path)
    store.jobs()
    barrier.wait(30)
    try:
        store.reserve([intent(str(os.getpid()), draw=f"{os.getpid()}/0")], 3.0)
        result.put("reserved")
    except BudgetError:
        result.put("refused")


def test_two_processes_cannot_spend_the_same_seconds(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, result = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_spend, args=(tmp_path / "jobs.sqlite", barrier, result)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert sorted(result.get(timeout=30) for _ in workers) == ["refused", "reserved"]
    for worker in workers:
        worker.join(30)


def _hold(path, locked, release):
    with JobStore(path).lock("run", "draw"):
        locked.set()
        release.wait(30)


def test_a_draw_is_collected_by_one_process_at_a_time(tmp_path):
    context = multiprocessing.get_context("fork")
    locked, release = context.Event(), context.Event()
    store = JobStore(tmp_path / "jobs.sqlite")
    store.jobs()
    worker = context.Process(target=_hold, args=(store.path, locked, release))
    worker.start()
    assert locked.wait(30)
    with pytest.raises(JobError, match="being submitted or collected by another process"), store.lock("run", "draw"):
        pass
    with store.lock("run", "another draw"):
        pass
    worker.kill()  # the lock ends with the process
    worker.join(30)
    with (
        store.lock("run", "draw"),
        pytest.raises(JobError, match="another process"),
        JobStore(store.path).lock("run", "draw"),
    ):
        pass


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_the_token_is_in_no_store_no_pickle_and_no_text(service, tmp_path, caplog):
    from qboltz.machine.account import Account

    caplog.set_level("DEBUG", logger="qboltz")
    account = Account(token=TOKEN, instance=CRN, url=os.environ["QISKIT_IBM_URL"])
    user = Machine("ibm_small", chosen(account=account))
    solver = qboltz.AnnealingSolver(user, SCHEDULE, shots=SHOTS, seed=1)
    solver.solve(qboltz.IsingModel(torch.ones(2, 2), torch.zeros(2, 2)))
    torch.save(solver.state_dict(), tmp_path / "state.pt")
    user.store._database.open().close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(stored) > 1000
    secret = TOKEN.encode()
    assert secret not in stored
    assert secret not in pickle.dumps(solver)
    assert TOKEN not in caplog.text + repr(user) + repr(user.options) + repr(solver)
    assert pickle.loads(pickle.dumps(user)).options.account.token is None


# -- the command ------------------------------------------------------------------------------------------------------


def run_cli(capsys, *arguments):
    assert main(["jobs", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list_show_export_and_prune(service, tmp_path, capsys):
    asked = request()
    spins = machine(run="mine").sample(asked)
    machine(run="other").sample(request(number=1))
    listed = run_cli(capsys, "list")
    assert [job["run"] for job in listed] == ["mine", "other"]
    assert listed[0]["state"] == "done"
    (job,) = run_cli(capsys, "list", "--run", "mine")
    (shown,) = run_cli(capsys, "show", job["job_id"][:8])
    assert shown == job
    assert shown["options"]["schedule"] == SCHEDULE.as_dict()
    assert run_cli(capsys, "export", "--run", "mine", "--output", str(tmp_path / "all.npz")) == [job["job_id"]]
    with np.load(tmp_path / "all.npz") as arrays:
        np.testing.assert_array_equal(arrays[f"{job['job_id']}/spins"], spins)
        np.testing.assert_allclose(arrays[f"{job['job_id']}/fields"], asked.fields)
    assert run_cli(capsys, "prune", "--older-than", "1") == []
    assert run_cli(capsys, "prune", "--run", "mine") == [job["key"]]
    assert [job["run"] for job in run_cli(capsys, "list")] == ["other"]
    assert main(["jobs", "list"]) == 0
    assert "1 jobs in" in capsys.readouterr().out


def test_replay_recomputes_moments_and_gradients_without_the_service(service, capsys, tmp_path, monkeypatch):
    fields = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    couplings = torch.tensor([[0.0, 0.7], [0.7, 0.0]], dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 2, dtype=torch.float64)
    solver = qboltz.AnnealingSolver(machine(), SCHEDULE, shots=SHOTS, seed=1)
    m = qboltz.magnetization(fields, couplings, solver=solver)
    (m * upstream).sum().backward()
    np.save(tmp_path / "upstream.npy", upstream.numpy())
    monkeypatch.setenv("QISKIT_IBM_URL", "http://127.0.0.1:1/experimental")
    (replayed,) = run_cli(capsys, "replay", "--state", "done", "--upstream", str(tmp_path / "upstream.npy"))
    np.testing.assert_allclose(replayed["magnetization"], m.detach(), atol=1e-12)
    np.testing.assert_allclose(replayed["grad_fields"], fields.grad, atol=1e-12)
    np.testing.assert_allclose(np.sum(replayed["grad_couplings"], 0), couplings.grad, atol=1e-12)


def test_wait_resume_and_cancel_from_another_process(service, capsys):
    store = JobStore()
    service.delays = [0.4]
    with pytest.raises(JobError, match="have not ended within 0.05 s"):
        machine(run="mine", timeout=0.05).sample(request())
    (job,) = run_cli(capsys, "wait", "--run", "mine")
    assert job["state"] == "done"
    assert job["usage"] > 0
    spins = machine(run="mine").sample(request())
    np.testing.assert_array_equal(spins, machine().sample(request()))

    service.outcomes = ["never"]
    with pytest.raises(JobError):
        machine(run="stuck", timeout=0.05).sample(request())
    (job,) = run_cli(capsys, "cancel", "--run", "stuck")
    assert job["state"] == "cancelled"
    assert service.jobs[job["job_id"]].state == "Cancelled"

    # Intended, but never submitted: as if the process had died in between.
    (done,) = store.jobs(run="mine")
    store.delete([done])
    lost = replace(done, state="intended", job_id=None, usage=None, finished=None, submitted=None, tried=None)
    user = machine(run="mine")
    compiled = user.compiled(2, SCHEDULE)
    assert compiled.digest == done.circuit
    store.reserve([Intent(lost, compiled.qpy, pack_models(request().fields, request().couplings))])
    (job,) = run_cli(capsys, "resume", "--run", "mine")
    assert job["state"] == "done"
    np.testing.assert_array_equal(store.spins(store.find(job["key"])), spins)


def test_bad_arguments_of_the_command_are_errors_with_advice(service, capsys):
    with pytest.raises(SystemExit):
        main(["jobs", "cancel"])
    assert "say which jobs" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["jobs", "show", "nothing"])
    assert "which fits 0 jobs" in capsys.readouterr().err


def test_no_other_file_of_the_store_is_left_open_for_everybody(tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite")
    with store.lock("run", "draw"):
        store.reserve([intent()])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert store._database.open().execute("PRAGMA journal_mode").fetchone()[0] == "wal"
