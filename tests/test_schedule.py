"""Temperatures of a schedule, in closed form and on the state itself."""

import json
import math

import numpy as np
import pytest
import scipy.linalg

from qboltz import AnnealingSchedule
from qboltz.schedule import DEFAULT_ENSEMBLE, fitted_table

SCHEDULES = {
    "linear 1": AnnealingSchedule.linear(1),
    "linear 4": AnnealingSchedule.linear(4),
    "fitted 3": AnnealingSchedule.fitted(3),
    "fitted 6": AnnealingSchedule.fitted(6),
    "free": AnnealingSchedule((0.3, 0.1, 0.4), (0.2, 0.6, 0.5), (0.7, 0.2, 0.4)),
}


def magnetizations(schedule, fields, couplings):
    """Dense matrices and matrix exponentials: <Z_i> after the anneal. Spin i is bit i of the state number."""
    n = len(fields)
    numbers = np.arange(2**n)
    Z = 1 - 2 * ((numbers[:, None] >> np.arange(n)) & 1)
    X = sum((np.eye(2**n)[numbers ^ (1 << i)] for i in range(n)), np.zeros((2**n, 2**n)))
    field_energy = np.diag(Z @ fields)
    coupling_energy = np.diag(0.5 * np.einsum("ci,ij,cj->c", Z, couplings, Z))
    state = np.full(2**n, 2 ** (-n / 2), dtype=complex)
    for layer in schedule.layers():
        state = scipy.linalg.expm(1j * layer.field_angle * field_energy) @ state
        state = scipy.linalg.expm(1j * layer.coupling_angle * coupling_energy) @ state
        state = scipy.linalg.expm(1j * layer.mixer_angle * X) @ state
    return np.abs(state) ** 2 @ Z


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_temperatures_are_the_leading_response_of_the_circuit(schedule):
    small = 1e-4
    one_field = magnetizations(schedule, np.array([small, 0]), np.zeros((2, 2)))
    assert one_field[0] / small == pytest.approx(schedule.beta_fields, abs=1e-6)
    # <s_0> from a field on spin 1 through the coupling: the mixed derivative, by a difference in J
    J = np.array([[0, small], [small, 0]])
    mixed = magnetizations(schedule, np.array([0, small]), J) - magnetizations(schedule, np.array([0, small]), -J)
    assert mixed[0] / (2 * small**2) == pytest.approx(schedule.k_hj, abs=1e-5)
    # <s_0 s_1> from the coupling alone: two spins flip together, seen as a field on spin 0 would see it
    n, Z = 2, 1 - 2 * ((np.arange(4)[:, None] >> np.arange(2)) & 1)
    state = np.full(4, 0.5, dtype=complex)
    X = sum((np.eye(4)[np.arange(4) ^ (1 << i)] for i in range(n)), np.zeros((4, 4)))
    for layer in schedule.layers():
        state = np.exp(1j * layer.coupling_angle * small * Z[:, 0] * Z[:, 1]) * state
        state = scipy.linalg.expm(1j * layer.mixer_angle * X) @ state
    correlation = np.abs(state) ** 2 @ (Z[:, 0] * Z[:, 1])
    assert correlation / small == pytest.approx(schedule.beta_couplings, abs=1e-6)


@pytest.mark.parametrize("num_layers", [1, 2, 3, 4, 8, 16, 40])
def test_linear_schedules_are_calibrated(num_layers):
    schedule = AnnealingSchedule.linear(num_layers)
    assert schedule.num_layers == num_layers
    assert schedule.beta_fields == pytest.approx(1, abs=1e-12)
    assert schedule.beta_couplings == pytest.approx(1, abs=1e-12)


def test_one_layer_passes_no_coupling_to_magnetizations():
    assert AnnealingSchedule((0.4,), (0.9,), (0.3,)).k_hj == 0


def test_two_layers_exact_to_second_order():
    a = 1 / math.sqrt(3)
    schedule = AnnealingSchedule((a, 0), (0, a), (math.pi / 6, math.pi / 6))
    assert (schedule.beta_fields, schedule.beta_couplings, schedule.k_hj) == pytest.approx((1, 1, 1), abs=1e-12)


def test_a_longer_anneal_can_be_asked_for_and_an_impossible_one_is_refused():
    assert sum(AnnealingSchedule.linear(4, anneal_time=4.0).mixer_angles) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="anneal_time 60.0 cannot be calibrated.*must be positive"):
        AnnealingSchedule.linear(2, anneal_time=60.0)
    with pytest.raises(ValueError, match="anneal_time must be a positive number, got -1"):
        AnnealingSchedule.linear(2, anneal_time=-1)


def test_fitted_schedules_come_from_the_table():
    entry = fitted_table()["weak"]["2"]
    assert AnnealingSchedule.fitted(2, "weak").field_angles == tuple(entry["field_angles"])
    assert AnnealingSchedule.fitted(2) == AnnealingSchedule.fitted(2, DEFAULT_ENSEMBLE)
    assert AnnealingSchedule.fitted(2) != AnnealingSchedule.fitted(2, "weak")
    with pytest.raises(ValueError, match="ensemble must be one of 'broad', 'middle', 'weak', got 'strong'"):
        AnnealingSchedule.fitted(2, "strong")
    with pytest.raises(ValueError, match=r"num_layers must be one of .*got 99.*AnnealingSchedule\.linear"):
        AnnealingSchedule.fitted(99)


def test_schedules_survive_json():
    schedule = AnnealingSchedule.fitted(4)
    assert AnnealingSchedule(**json.loads(json.dumps(schedule.as_dict()))) == schedule


@pytest.mark.parametrize(
    ("angles", "words"),
    [
        (((), (), ()), "at least one layer; got 0, 0 and 0"),
        (((1,), (1, 2), (1,)), "got 1, 2 and 1"),
        (((1,), (math.nan,), (1,)), r"coupling_angles must be finite, got \(nan,\)"),
        ((("a",), (1,), (1,)), "field_angles must be a sequence of numbers"),
        ((1, (1,), (1,)), "field_angles must be a sequence of numbers, got 1"),
    ],
)
def test_bad_angles_are_refused(angles, words):
    with pytest.raises(ValueError, match=words):
        AnnealingSchedule(*angles)


@pytest.mark.parametrize("num_layers", [0, -1, 1.5, True, "4"])
def test_bad_depths_are_refused(num_layers):
    with pytest.raises(ValueError, match="num_layers must be a positive integer"):
        AnnealingSchedule.linear(num_layers)
    with pytest.raises(ValueError, match="num_layers must be a positive integer"):
        AnnealingSchedule.fitted(num_layers)
