"""What another process does with a tensor on a GPU that it was sent (tests/cuda/test_shared_memory.py)."""

import mica


def double(queue, answers):
    x = queue.get()
    x *= 2
    mica.cuda.synchronize()
    answers.put(x.sum().item())
    queue.get()
