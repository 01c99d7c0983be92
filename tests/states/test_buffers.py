import gc
import threading

import numpy as np
import pytest
import torch

from bertvision.states.memory import Buffers, made_ahead


def test_memory_is_used_again_when_the_last_view_of_it_is_gone():
    buffers = Buffers()
    first = buffers.take((3, 4), torch.float32)
    place, view = first.data_ptr(), first.transpose(0, 1)[1:]
    del first
    assert buffers.take((3, 4), torch.float32).data_ptr() != place
    del view
    gc.collect()
    assert buffers.take((2, 4), torch.float32).data_ptr() == place


def test_what_autograd_has_saved_is_not_given_away():
    buffers = Buffers()
    states = buffers.take((4,), torch.float32)
    states.fill_(2.0)
    weight = torch.ones(4, requires_grad=True)
    loss = (weight * states).sum()
    del states
    buffers.take((4,), torch.float32).fill_(9.0)
    loss.backward()
    assert weight.grad.tolist() == [2.0] * 4


def test_a_buffer_has_the_shape_and_type_that_are_asked_for():
    buffers = Buffers()
    for shape, dtype in (((2, 3), torch.bfloat16), ((50, 7), torch.float32), ((1,), torch.float32)):
        tensor = buffers.take(shape, dtype)
        assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype)


def test_errors_of_the_thread_come_out_where_its_things_are_used():
    def make(number):
        if number == 2:
            raise OSError("the disk is gone")
        return number

    things = made_ahead(make, range(9))
    assert [next(things), next(things)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(things)


def test_the_next_thing_and_no_further_one_is_made_while_the_last_one_is_used():
    made, events = [], [threading.Event() for _ in range(5)]

    def make(number):
        made.append(number)
        events[number].set()
        return number

    things = made_ahead(make, range(5))
    assert next(things) == 0
    assert events[1].wait(timeout=60)
    assert made == [0, 1]
    assert list(things) == [1, 2, 3, 4]


def test_the_thread_ends_when_its_things_are_no_longer_wanted():
    before = threading.active_count()
    things = made_ahead(np.sqrt, range(1000))
    next(things)
    assert threading.active_count() == before + 1
    things.close()
    assert threading.active_count() == before


def test_nothing_to_make_gives_nothing():
    assert list(made_ahead(np.sqrt, [])) == []
