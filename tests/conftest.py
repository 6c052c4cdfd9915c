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


@pytest.fixture(autouse=True)
def seeds():
    """Every test starts from the same global random state, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
