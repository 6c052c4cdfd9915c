"""Streams of seeds: equal seeds agree, consecutive calls differ, a resumed stream continues."""

import json

import pytest

from qboltz.seeds import SeedStream, integer_seed


def take(stream, number):
    return [integer_seed(stream.next()) for _ in range(number)]


def test_equal_seeds_agree_and_calls_differ():
    first = take(SeedStream(7), 100)
    assert first == take(SeedStream(7), 100)
    assert len(set(first)) == 100
    assert not set(first) & set(take(SeedStream(8), 100))


def test_keys_separate_ranks():
    assert not set(take(SeedStream(7, key=(0,)), 50)) & set(take(SeedStream(7, key=(1,)), 50))


def test_a_stream_continues_where_its_state_was_taken():
    stream = SeedStream(7, key=(3,))
    take(stream, 5)
    state = json.loads(json.dumps(stream.state_dict()))
    expected = take(stream, 5)
    other = SeedStream(99)
    other.load_state_dict(state)
    assert take(other, 5) == expected


def test_no_seed_draws_one_and_says_which():
    stream = SeedStream()
    again = SeedStream(stream.entropy)
    assert SeedStream().entropy != stream.entropy
    assert take(stream, 3) == take(again, 3)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="seed must be a non-negative integer or None"):
        SeedStream(seed)
