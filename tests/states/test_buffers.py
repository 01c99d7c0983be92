import gc

import torch

from bertvision.states.cached import Buffers


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
