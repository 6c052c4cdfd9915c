"""Whatever goes wrong between here and a machine: one fault at a time, through the unmodified client."""

import threading
import time
import traceback
from dataclasses import replace

import numpy as np
import pytest
from loopback import TOKEN, Fault
from machine_client import QUICK, chosen, machine, request

import qboltz
from qboltz.errors import (
    JobCancelledError,
    JobFailedError,
    JobPendingError,
    JobResultError,
    SubmissionError,
)
from qboltz.machine.backend import Machine
from qboltz.machine.limits import ServiceLimits
from qboltz.machine.patience import NoAnswerError, Patience, fault_of, pauses, redacted, within
from qboltz.machine.store import JobStore


@pytest.fixture
def expected(service):
    """The spins of ``request()``; the service gives the same to everybody who asks for them."""
    spins = machine().sample(request())
    service.reset()
    return spins


def the_job(service):
    (job,) = service.jobs.values()
    return job


def stored(run="mine"):
    return JobStore().jobs(run=run)


# -- the account ------------------------------------------------------------------------------------------------------


def test_a_refused_token(service, monkeypatch):
    monkeypatch.setenv("QISKIT_IBM_TOKEN", "another-secret-token")
    with pytest.raises(ValueError, match="refuse") as caught:
        Machine("ibm_small", chosen()).sample(request())
    assert "another-secret-token" not in "".join(traceback.format_exception(caught.value))
    assert not service.count("POST /jobs")


def test_a_token_that_is_refused_while_a_job_runs(service, expected):
    user = machine(run="mine")
    user.runtime()
    service.faults = [Fault("GET /jobs/[^/]+$", times=99, status=401)]
    with pytest.raises(
        qboltz.errors.JobError, match="nothing is lost. Check the account and its instance, then"
    ) as caught:
        user.sample(request())
    assert caught.value.job_ids == (the_job(service).id,)
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    service.faults = []
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)
    assert service.count("POST /jobs$") == 1


def test_a_token_that_is_refused_for_a_moment_only(service, expected):
    service.faults = [Fault("GET /jobs/[^/]+$", times=2, status=401)]
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)
    assert service.count("POST /jobs$") == 1


def test_a_submission_that_is_refused_is_not_repeated(service):
    service.faults = [Fault("POST /jobs$", times=99, status=401)]
    with pytest.raises(SubmissionError, match="did not take a job.*The account is refused"):
        machine(run="mine").sample(request())
    assert service.count("POST /jobs$") == 1
    assert [job.state for job in stored()] == ["intended"]


@pytest.mark.parametrize(("status", "message"), [(400, "mend what it complains"), (409, "has no QPU time left")])
def test_what_does_not_pass_by_itself_is_not_repeated(service, status, message):
    service.faults = [Fault("POST /jobs$", times=99, status=status)]
    with pytest.raises(SubmissionError, match=message):
        machine().sample(request())
    assert service.count("POST /jobs$") == 1


def test_a_machine_that_is_paused_gets_no_job(service):
    user = machine(run="mine")
    user.runtime()
    service.status = "maintenance"
    with pytest.raises(
        SubmissionError, match="ibm_small takes no jobs now: its state is 'maintenance'. Nothing was sub"
    ):
        user.sample(request())
    assert not service.count("POST /jobs")
    assert stored() == []


def test_an_account_without_time_gets_no_job(service):
    service.seconds_limit = 0.0
    with pytest.raises(SubmissionError, match=r"no QPU time left for ibm_small: 0 of 0.0 s are used. Nothing was subm"):
        machine(run="mine").sample(request())
    assert stored() == []


# -- requests ---------------------------------------------------------------------------------------------------------


def test_too_many_requests_are_repeated_when_the_service_says(service, expected):
    service.faults = [Fault("POST /jobs$", times=2, status=429, headers={"Retry-After": "0.4"})]
    began = time.monotonic()
    np.testing.assert_array_equal(machine().sample(request()), expected)
    assert time.monotonic() - began > 0.8
    assert service.count("POST /jobs$") == 3
    assert len(service.jobs) == 1


def test_too_many_requests_without_end_are_given_up(service):
    service.faults = [Fault("POST /jobs$", times=99, status=429)]
    with pytest.raises(SubmissionError, match="Too many submissions; wait a few minutes"):
        machine(run="mine").sample(request())
    assert service.count("POST /jobs$") == QUICK.attempts
    service.faults = []
    machine(run="mine").sample(request())
    assert len(service.jobs) == 1
    assert [job.state for job in stored()] == ["done"]


def test_unavailable_then_available(service, expected):
    service.faults = [
        Fault("POST /jobs$", status=503),
        Fault("GET /jobs/[^/]+$", status=503),
        Fault("results", status=503),
    ]
    np.testing.assert_array_equal(machine().sample(request()), expected)
    assert len(service.jobs) == 1


@pytest.mark.parametrize("known", [True, False], ids=["answer-lost", "request-lost"])
def test_a_submission_without_an_answer_is_looked_for_not_repeated(service, expected, known):
    service.faults = [Fault("POST /jobs$", drop=True, after=known)]
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)
    assert len(service.jobs) == 1
    assert service.count("POST /jobs$") == (1 if known else 2)
    assert service.count("GET /jobs$") >= 1
    assert stored()[0].job_id == the_job(service).id
    assert the_job(service).tags == [stored()[0].tag]


def test_a_job_that_is_listed_late_is_waited_for(service, expected):
    nothing = '{"jobs": [], "count": 0}'
    service.faults = [Fault("POST /jobs$", drop=True, after=True), Fault("GET /jobs$", status=200, body=nothing)]
    user = machine(run="mine", patience=replace(QUICK, lookup=3.0))
    np.testing.assert_array_equal(user.sample(request()), expected)
    assert len(service.jobs) == service.count("POST /jobs$") == 1


def test_questions_are_repeated_after_too_many_requests(service, expected):
    service.faults = [Fault(on, status=429) for on in ("GET /instances/usage", "small/status", "metrics")]
    np.testing.assert_array_equal(machine().sample(request()), expected)
    assert not service.faults[0].times + service.faults[1].times + service.faults[2].times
    assert JobStore().jobs()[0].usage is not None


def test_a_submission_that_takes_too_long_is_not_repeated_by_the_same_process(service, expected):
    service.faults = [Fault("POST /jobs$", delay=1.0, after=True)]
    patience = replace(QUICK, submission=0.5, lookup=0.0)
    service.faults.append(Fault("GET /jobs$", body='{"jobs": [], "count": 0}', status=200))  # not listed yet
    with pytest.raises(
        SubmissionError, match="no answer within 0.5 s.*may have arrived: it is looked for under tag qb"
    ):
        machine(run="mine", patience=patience).sample(request())
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)
    assert len(service.jobs) == 1


def test_a_slow_service_is_waited_for(service, expected):
    user = machine()
    user.runtime()
    service.faults = [Fault("/jobs", times=99, delay=0.4)]
    np.testing.assert_array_equal(user.sample(request()), expected)
    assert len(service.jobs) == 1


def test_a_service_that_never_answers_is_not_waited_for_for_ever(service, expected):
    user = machine(run="mine", timeout=1.0, patience=replace(QUICK, request=0.2))
    user.runtime()
    service.faults = [Fault("GET /jobs/[^/]+$", times=99, delay=1.5)]
    with pytest.raises(JobPendingError, match="have not ended within 1 s") as caught:
        user.sample(request())
    assert caught.value.job_ids == (the_job(service).id,)
    service.faults = []
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)


def test_a_service_that_is_gone_and_comes_back(service, expected):
    service.delay = 0.3
    user = machine(run="mine")
    user.runtime()

    def leave():
        def gone():
            service.stop()
            time.sleep(1.0)
            service.start()

        threading.Thread(target=gone).start()
        time.sleep(0.2)

    service.faults = [Fault("GET /jobs/[^/]+$", call=leave)]
    np.testing.assert_array_equal(user.sample(request()), expected)
    assert len(service.jobs) == 1


@pytest.mark.slow
def test_a_service_that_stays_away_is_given_up_and_its_jobs_are_not(service, expected):
    user = machine(run="mine", patience=replace(QUICK, outage=0.5))
    user.runtime()
    service.faults = [Fault("GET /jobs/[^/]+$", call=service.stop)]
    with pytest.raises(
        JobPendingError, match=r"the service has not answered for \d+ s: .*nothing is lost. Resume when"
    ):
        user.sample(request())
    service.start()
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)
    assert len(service.jobs) == 1


# -- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        ("failed", JobFailedError, r"failed: .*on fire.* Its 5 rows have no result \(0.0 s were charged\)"),
        ("cancelled", JobCancelledError, "was cancelled: cancelled by the operator Its 5 rows"),
        ("too_long", JobCancelledError, "was cancelled: .*longer than maximum execution time"),
    ],
)
def test_a_job_that_ends_badly_is_submitted_once_more_when_resumed(service, expected, outcome, error, message):
    service.outcomes = [outcome]
    with pytest.raises(error, match=f"(?s)job d[0-9a-f]+ on ibm_small {message}.*nothing is lost") as caught:
        machine(run="mine").sample(request())
    assert caught.value.job_ids == (the_job(service).id,)
    assert service.count("POST /jobs$") == 1
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)
    assert len(service.jobs) == 2
    assert [(job.attempt, job.state) for job in stored()] == [(0, error.__name__[3:-5].lower()), (1, "done")]


def test_of_several_jobs_only_the_failed_one_is_submitted_once_more(service):
    limits = ServiceLimits(executions=request().shots)
    rows = 3 * machine().compiled(2, request().schedule).packed.num_lines
    service.outcomes = ["ok", "failed", "ok"]
    service.delays = [0.0, 0.3, 0.6]
    with pytest.raises(JobFailedError) as caught:
        machine(run="mine", limits=limits).sample(request(rows))
    (failed,) = [job.id for job in service.jobs.values() if job.state == "Failed"]
    assert caught.value.job_ids[0] == failed
    assert all(job_id in str(caught.value) for job_id in caught.value.job_ids)
    spins = machine(run="mine", limits=limits).sample(request(rows))
    assert len(service.jobs) == 4
    np.testing.assert_array_equal(spins, machine(limits=limits).sample(request(rows)))


def test_a_result_that_never_comes(service):
    service.outcomes = ["never"]
    with pytest.raises(JobPendingError, match="have not ended within 0.3 s.*nothing is lost. Resume later") as caught:
        machine(run="mine", timeout=0.3).sample(request())
    assert caught.value.job_ids == (the_job(service).id,)
    assert [job.state for job in stored()] == ["submitted"]


@pytest.mark.parametrize(
    ("sampler", "outcome", "complaint"),
    [
        ("executor", "truncated", ""),
        ("executor", "malformed", ""),
        ("executor", "empty", ""),
        ("executor", "wrong_shots", r"\(circuits, shots, bits\) = \(3, 33, 4\), expected \(3, 32, 4\)"),
        ("executor", "fewer_rows", r"= \(2, 32, 4\), expected \(3, 32, 4\)"),
        ("executor", "other_register", r"it has the registers \['other_spins'\], expected 'spins'"),
        ("legacy", "truncated", ""),
        ("legacy", "wrong_shots", r"= \(3, 33, 4\), expected \(3, 32, 4\)"),
    ],
)
def test_a_result_that_cannot_be_believed(service, expected, sampler, outcome, complaint, capsys):
    from qboltz.cli import main

    service.outcomes = [outcome]
    with pytest.raises(
        JobResultError, match=f"(?s)is not its result: .*{complaint}.*reads it again at no cost"
    ) as caught:
        machine(run="mine", sampler=sampler).sample(request())
    job_id = the_job(service).id
    assert caught.value.job_ids == (job_id,)
    assert f"qboltz jobs cancel {job_id}" in str(caught.value)
    assert [job.state for job in stored()] == ["submitted"]
    assert service.count("POST /jobs$") == 1
    if outcome == "truncated":  # the advice of the message works
        main(["jobs", "cancel", job_id])
        assert "its result is given up" in capsys.readouterr().out
        np.testing.assert_array_equal(machine(run="mine", sampler=sampler).sample(request()), expected)
        assert len(service.jobs) == 2


def test_a_job_that_the_service_has_forgotten_can_be_given_up(service, expected, capsys):
    from qboltz.cli import main

    service.outcomes = ["never"]
    with pytest.raises(JobPendingError):
        machine(run="mine", timeout=0.1).sample(request())
    job_id = the_job(service).id
    service.jobs.clear()
    with pytest.raises(qboltz.errors.JobError, match="not found.*gone for good is given up with `qboltz jobs"):
        machine(run="mine").sample(request())
    assert not service.jobs, "it may still be there for another account"
    main(["jobs", "cancel", job_id])
    assert "the service does not know it" in capsys.readouterr().out
    np.testing.assert_array_equal(machine(run="mine").sample(request()), expected)


def test_a_session_that_the_service_has_closed_is_opened_anew(service):
    user = machine(mode="session")
    user.sample(request())
    for session in service.sessions.values():
        session |= {"state": "closed", "accepting_jobs": False}
    user.sample(request(number=1))
    assert len(service.sessions) == 2
    user.close()
    assert all(session["state"] == "closed" for session in service.sessions.values())


def test_a_result_that_was_cut_short_on_the_way_is_read_again(service, expected):
    service.faults = [Fault("results", status=200, body='{"schema_version": "v2.0", "data": [')]
    np.testing.assert_array_equal(machine().sample(request()), expected)
    assert len(service.jobs) == 1


def test_an_unknown_usage_is_asked_for_before_more_is_spent(service):
    pending = '{"usage": {"status": "pending"}}'
    service.faults = [Fault("metrics", status=200, body=pending)]
    user = machine(run="mine", max_qpu_seconds=30)
    user.sample(request())
    assert stored()[0].usage is None
    user.sample(request(number=1))
    assert all(job.usage is not None and 0 < job.usage < 1 for job in stored())


# -- without a service ------------------------------------------------------------------------------------------------


def test_the_pauses_double_and_end():
    assert list(pauses(Patience(attempts=5, pause=1.0, longest_pause=5.0))) == [1, 2, 4, 5]
    assert list(pauses(Patience(attempts=1))) == []


def test_a_call_ends_in_time_or_not_at_all():
    assert within(5.0, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0)
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.05 s"):
        within(0.05, lambda: time.sleep(1))


def test_an_error_that_is_no_matter_of_the_network_is_left_alone():
    assert fault_of(KeyError("x")) is None
    assert redacted("Bearer abc and abc", ("abc", "")) == "Bearer *** and ***"
