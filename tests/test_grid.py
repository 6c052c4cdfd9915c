"""Grids of benchmark runs: each cell once, resumed after a stop, on a cluster that loses a worker."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from grid import run_grid


def squares(log):
    def square(number):
        with open(log, "a") as file:
            file.write(f"{number} {os.getpid()}\n")
        time.sleep(0.2)
        return {"square": number**2}

    return square


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_finished_cells_are_not_run_again(tmp_path):
    out, log = tmp_path / "out.jsonl", tmp_path / "log"
    run_grid("squares", [{"number": 1}, {"number": 2}], squares(log), out)
    run_grid("squares", [{"number": n} for n in (1, 2, 3)], squares(log), out)
    assert [(r["cell"]["number"], r["square"]) for r in read(out)] == [(1, 1), (2, 4), (3, 9)]
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["1", "2", "3"]
    assert all(r["seconds"] >= 0.2 and r["commit"] and r["benchmark"] == "squares" for r in read(out))


def test_a_failing_cell_stops_the_grid_and_loses_nothing(tmp_path):
    def fail(number):
        if number == 2:
            raise RuntimeError("broken cell")
        return {}

    with pytest.raises(RuntimeError, match="broken cell"):
        run_grid("fail", [{"number": n} for n in (1, 2, 3)], fail, tmp_path / "out.jsonl")
    assert [r["cell"]["number"] for r in read(tmp_path / "out.jsonl")] == [1]


@pytest.mark.slow
def test_a_dask_cluster_of_two_workers_one_of_them_killed(tmp_path):
    """Every cell is recorded once, although a worker dies with cells in its hands."""
    import distributed

    out, log = tmp_path / "out.jsonl", tmp_path / "log"
    cells = [{"number": n} for n in range(16)]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        victim = cluster.workers[0].pid

        def kill():
            while not log.exists() or str(victim) not in log.read_text():
                time.sleep(0.02)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        run_grid("squares", cells, squares(log), out, dask=cluster.scheduler_address)
        killer.join()
    assert sorted(r["cell"]["number"] for r in read(out)) == list(range(16))
    started = [int(line.split()[0]) for line in log.read_text().splitlines()]
    assert len(started) > 16  # the cell of the killed worker was begun twice
