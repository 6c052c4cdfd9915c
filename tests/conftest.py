import os
import random
import tempfile

# Read by OpenMP and BLAS when torch and Aer load, so this comes first; subprocesses of the tests inherit it.
# Two threads are what a small machine has, and under xdist the workers are the parallelism.
os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2")

# Compiled circuits and jobs of the tests stay out of the user's folders.
os.environ.setdefault("QBOLTZ_CACHE", tempfile.mkdtemp(prefix="qboltz-cache-"))
os.environ.setdefault("QBOLTZ_JOBS", os.path.join(tempfile.mkdtemp(prefix="qboltz-jobs-"), "jobs.sqlite"))

import hypothesis
import numpy as np
import pytest
import torch

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A loopback service for the tests of a module."""
    from loopback import Loopback

    with Loopback(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def service(running, monkeypatch, tmp_path):
    """The service, forgetful, as the account of this process; jobs are stored in ``tmp_path``."""
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("QBOLTZ_JOBS", str(tmp_path / "jobs.sqlite"))
    running.reset()
    return running


@pytest.fixture(autouse=True)
def seeds():
    """Every test starts from the same global random state, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
