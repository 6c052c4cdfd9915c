"""Accounts and names of machines: a message of its own for everything that can be wrong, and no token anywhere."""

import json
import os
import pickle
import traceback
import warnings

import pytest
from loopback import CRN, TOKEN, Fault
from machine_client import machine, request

from qboltz.errors import (
    AccountError,
    BackendNotFoundError,
    ServiceUnreachableError,
    SubmissionError,
    TooManySpinsError,
)
from qboltz.machine import diagnosis
from qboltz.machine.account import Account, connect, find_machine, seconds_left

NOWHERE = "http://127.0.0.1:1"
OTHER = CRN.replace("us-east", "eu-de").replace("loopback-instance", "european")


@pytest.fixture
def home(monkeypatch, tmp_path):
    """An account file that is not the user's; the client fixes its place when it is imported."""
    from qiskit_ibm_runtime.accounts import management

    path = tmp_path / "home" / ".qiskit" / "qiskit-ibm.json"
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(management, "_DEFAULT_ACCOUNT_CONFIG_JSON_FILE", str(path))
    for name in ("TOKEN", "INSTANCE", "URL", "CHANNEL"):
        monkeypatch.delenv(f"QISKIT_IBM_{name}", raising=False)
    return path


@pytest.fixture
def service(home, service):
    """The service, beside an account file that is not the user's."""
    return service


def explanation(kind, name="ibm_loopback", spins=2, account=None):
    """The message; that it has no token in it, traceback included, is checked each time."""
    with pytest.raises(kind) as caught:
        find_machine(name, spins, account)
    assert type(caught.value) is kind
    text = "".join(traceback.format_exception(caught.value))
    assert TOKEN not in text
    assert "another-secret" not in text
    return str(caught.value)


def instances(*crns):
    """The account has these instances, called after the word in their CRN."""
    items = [
        {
            "crn": crn,
            "name": crn.split(":")[7],
            "service_plan_unique_id": "open",
            "tags": [],
            "doc": {"extensions": {"allocation": 600}},
        }
        for crn in crns
    ]
    return Fault("POST /v3", times=99, status=200, body=json.dumps({"items": items, "limit": 100}))


# -- who -------------------------------------------------------------------------------------------------------------


def test_a_machine_by_name_and_the_least_busy_one(service):
    assert find_machine("ibm_loopback", 8).name == "ibm_loopback"
    assert find_machine("least_busy", 2).name == "ibm_loopback"  # the other one has a job before it
    assert seconds_left(connect()) == 600


def test_the_account_can_be_handed_in_saved_or_taken_from_the_environment(service, home, monkeypatch, tmp_path):
    from qiskit_ibm_runtime import QiskitRuntimeService

    url = os.environ["QISKIT_IBM_URL"]
    assert connect().active_instance() == CRN
    for name in ("TOKEN", "INSTANCE", "URL"):
        monkeypatch.delenv(f"QISKIT_IBM_{name}")
    given = Account(token=TOKEN, url=url, channel="ibm_cloud", instance="loopback", verify=False)
    chosen = connect(given).active_account()
    assert {"channel": "ibm_cloud", "url": url, "instance": CRN, "verify": False}.items() <= chosen.items()
    file = tmp_path / "accounts.json"
    QiskitRuntimeService.save_account(token=TOKEN, url=url, instance=CRN, name="mine", filename=str(file))
    file.chmod(0o600)
    assert connect(Account(name="mine", filename=str(file))).active_instance() == CRN
    assert "account 'other' is not in " in explanation(AccountError, account=Account(name="other", filename=str(file)))


def test_proxies_reach_the_client(service, monkeypatch):
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy")
    account = Account(proxies={"urls": {"http": NOWHERE, "https": NOWHERE}})
    message = explanation(ServiceUnreachableError, account=account)
    assert "the proxy does not let it through" in message


def test_no_token_is_shown_or_pickled():
    account = Account(token=TOKEN, proxies={"username_ntlm": "me", "password_ntlm": TOKEN}, instance=CRN)
    assert TOKEN not in repr(account)
    data = pickle.dumps(account)
    assert TOKEN.encode() not in data
    assert pickle.loads(data) == Account(instance=CRN)


# -- what can be wrong, each with words of its own -------------------------------------------------------------------


def test_no_account(service, home, monkeypatch):
    monkeypatch.delenv("QISKIT_IBM_TOKEN")
    message = explanation(AccountError)
    assert f"neither in the environment (QISKIT_IBM_TOKEN) nor in {home}" in message
    assert "save_account" in message
    assert "fake_fez" in message


def test_a_bad_token(service, monkeypatch):
    monkeypatch.setenv("QISKIT_IBM_TOKEN", "another-secret")
    message = explanation(AccountError)
    assert "was refused (400, Provided API key could not be found.)" in message
    assert "The API key from QISKIT_IBM_TOKEN is wrong" in message


@pytest.mark.parametrize("variable", ["IAM_URL", "GLOBAL_SEARCH_URL"])
def test_an_unreachable_sign_in_service(service, monkeypatch, variable):
    monkeypatch.setenv(variable, NOWHERE)
    message = explanation(ServiceUnreachableError)
    assert message.startswith("IBM's sign-in service (127.0.0.1:1) cannot be reached: the connection fails.")


def test_a_sign_in_service_whose_name_is_unknown(service, monkeypatch):
    monkeypatch.setenv("IAM_URL", "http://there.is.no.such.host.invalid")
    assert "its name is not known here. There is no network" in explanation(ServiceUnreachableError)


def test_a_certificate_that_is_not_trusted(service, monkeypatch):
    monkeypatch.setenv("IAM_URL", f"https://127.0.0.1:{service.port}")
    assert "its certificate is not trusted" in explanation(ServiceUnreachableError)


def test_a_sign_in_service_in_trouble(service):
    service.faults = [Fault("POST /v3", times=99, status=403, body="{}")]
    assert "was refused (403" in explanation(AccountError)
    service.faults = [Fault("POST /identity", times=99, status=429, body="{}")]
    assert "IBM's sign-in service is in trouble (429" in explanation(ServiceUnreachableError)


def test_a_sign_in_service_that_does_not_answer(service, monkeypatch):
    monkeypatch.setattr("qboltz.machine.account.CONNECT_SECONDS", 0.2)
    service.faults = [Fault("POST /identity", times=9, delay=1.0)]
    assert "gave no answer within 0.2 s" in explanation(ServiceUnreachableError)


def test_a_service_that_cannot_be_reached(service, monkeypatch):
    found = connect()
    monkeypatch.setattr(diagnosis, "api_url", lambda service: NOWHERE)
    message = str(diagnosis.no_machine(found, "ibm_loopback", ()))
    assert message.startswith(f"the IBM Quantum service at {NOWHERE} cannot be reached: the connection fails.")


@pytest.mark.slow  # the client repeats each of two requests for six seconds
def test_a_service_that_cannot_be_reached_through_the_client(service, monkeypatch):
    monkeypatch.setenv("QISKIT_IBM_URL", f"{NOWHERE}/experimental/api/v1")
    message = explanation(ServiceUnreachableError)
    assert f"the IBM Quantum service at {NOWHERE}/experimental/api/v1 cannot be reached" in message


def test_a_service_in_trouble(service):
    found = connect()
    service.faults = [Fault("GET /backends$", times=9, status=503)]
    error = diagnosis.no_machine(found, "ibm_loopback", ())
    assert type(error) is ServiceUnreachableError
    assert "is in trouble (status 503)" in str(error)


def test_a_service_that_refuses_the_account(service):
    service.faults = [Fault("GET /(backends|instances)", times=99, status=403)]
    message = explanation(AccountError)
    assert "the IBM Quantum service refuses this account for region us-east" in message


def test_an_unknown_machine(service):
    message = explanation(BackendNotFoundError, "ibm_lopback")
    assert "(region us-east): ibm_loopback, ibm_small. Did you mean 'ibm_loopback'?" in message


def test_a_machine_of_another_region(service):
    fez = {"name": "ibm_munich", "status": {"name": "online", "reason": ""}, "queue_length": 0}
    listed = json.dumps({"devices": [fez]})
    service.faults = [
        instances(CRN, OTHER),
        # Signing in, looking up, probing and listing see the first instance, what follows the second one.
        Fault("GET /backends$", times=99, skip=4, status=200, body=listed),
        Fault("GET /backends/ibm_munich/configuration", times=99, status=200, body=configuration(service)),
    ]
    message = explanation(BackendNotFoundError, "ibm_munich")
    assert "is not in the instance in use (region us-east) but in another one" in message
    assert "'european' (region eu-de). Name that one: instance='european'" in message


def configuration(service):
    from loopback import _files

    return json.dumps({**_files("fake_manila")[0], "backend_name": "ibm_munich", "simulator": False})


def test_a_region_without_an_instance(service, monkeypatch):
    monkeypatch.delenv("QISKIT_IBM_INSTANCE")
    message = explanation(AccountError, account=Account(region="eu-de"))
    assert "the account has no instance for this" in message
    assert "region: eu-de" in message
    assert "Choose another region (us-east, eu-de)" in message


def test_an_instance_of_somebody_else(service, monkeypatch):
    monkeypatch.setenv("QISKIT_IBM_INSTANCE", OTHER)
    assert "the account has no such instance" in explanation(AccountError)
    assert "'nobody'" not in explanation(AccountError, account=Account(instance="nobody"))
    assert "(nobody) is not a valid instance name" in explanation(AccountError, account=Account(instance="nobody"))


def test_a_machine_that_is_paused(service):
    service.status = "paused"
    with pytest.raises(
        SubmissionError, match="ibm_small takes no jobs now: its state is 'paused'. Nothing was submitted"
    ):
        machine().sample(request())
    message = explanation(BackendNotFoundError, "least_busy")
    assert "takes jobs now: ibm_loopback (paused), ibm_small (paused). Try again later" in message


def test_too_few_qubits(service):
    message = explanation(BackendNotFoundError, "least_busy", 300)
    assert "no machine of this IBM Quantum account has 300 qubits; the largest has 156" in message
    user = machine()
    with pytest.raises(TooManySpinsError, match="at most 5, the qubits of ibm_small, got 6"):
        user.compiled(6, request().schedule)


# -- the file --------------------------------------------------------------------------------------------------------


def test_an_account_file_that_others_can_read_is_pointed_out(service, home, monkeypatch):
    account = {"channel": "ibm_quantum_platform", "token": TOKEN, "url": os.environ["QISKIT_IBM_URL"], "instance": CRN}
    home.write_text(json.dumps({"default-ibm-quantum-platform": account}))
    home.chmod(0o644)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect()  # the environment goes first: the file is not used
    monkeypatch.delenv("QISKIT_IBM_TOKEN")
    with pytest.warns(UserWarning, match=f"{home} .mode 0644., which has your token in plain text.*chmod 600 {home}"):
        connect()
    home.chmod(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert connect().active_instance() == CRN
