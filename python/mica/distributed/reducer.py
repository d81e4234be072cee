"""Averages gradients over processes while the backward pass still runs.

Each parameter's gradient has a place in a bucket. A hook puts the gradient there as soon as backward has it; a bucket
that is full is reduced at once, in another thread, while backward goes on. Buckets are reduced in one order on all
processes. When all are under way, a callback at the end of backward waits for them and hands the results out.
"""

import mica
from mica.autograd.variable import Variable
from mica.distributed._in_backward import step_in_backward
from mica.distributed.gradient_buckets import FIRST_BUCKET_BYTES, Bucket, assign
from mica.futures import Future


class Reducer:
    """The buckets of one DistributedDataParallel, and what a backward pass has done with them so far."""

    def __init__(
        self, parameters, names, group, limit, *, sparse=(), find_unused=False, static=False, as_views=False,
        reduce_dtype=None, skip_unused=False,
    ):  # fmt: skip
        from mica.distributed import get_world_size

        self.parameters, self.names, self.group = parameters, names, group
        self.limit, self.sparse = limit, frozenset(sparse)
        self.find_unused, self.static, self.as_views = find_unused, static, as_views
        self.reduce_dtype, self.skip_unused = reduce_dtype, skip_unused
        self.hook = None  # (state, function) of a communication hook
        self.size = self.divisor = get_world_size(group)
        self.join_work, self.divide_by_running = None, False  # in a Join: the count of processes that still run
        self._index = {id(parameter): i for i, parameter in enumerate(parameters)}
        first = [FIRST_BUCKET_BYTES if limit >= FIRST_BUCKET_BYTES else limit, limit]
        self._lay_out(assign(parameters, first, self.sparse)[::-1])
        self._order = []  # the order of arrival in the first backward pass; None once buckets follow it
        self._iterations = 0
        self._uses = [0] * len(parameters)  # how often each parameter is used in a backward pass of a static graph
        self._expecting = self._unfinished = False
        self._begin([])
        self._stepping = []  # parameters whose optimizers step at the end of a pass
        self._handles = [p.register_post_accumulate_grad_hook(self._on_gradient) for p in parameters]

    def remove(self):
        """Takes the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # ---- before a pass -------------------------------------------------------------------------------------------

    def _lay_out(self, lists):
        self._buckets = [
            Bucket(
                indices,
                [self.parameters[i] for i in indices],
                is_sparse=indices[0] in self.sparse,
                dtype=self.reduce_dtype,
            )
            for indices in lists
        ]
        self._place = [None] * len(self.parameters)
        for bucket in self._buckets:
            for position, index in enumerate(bucket.indices):
                self._place[index] = bucket, position

    def rebuild(self):
        """After the first backward pass: buckets in the order in which gradients came, on rank 0."""
        if self._order is None or len(self._order) < len(self.parameters) or (self.find_unused and not self.static):
            return False
        from mica.distributed import broadcast, get_global_rank

        device = self.parameters[0].device
        order = mica.tensor(self._order, dtype=mica.int64, device=device)
        broadcast(order, get_global_rank(self.group, 0), self.group)
        order, self._order = order.tolist(), None
        limits = [FIRST_BUCKET_BYTES if self.limit >= FIRST_BUCKET_BYTES else self.limit, self.limit]
        came = [self.parameters[i] for i in order]
        alone = {at for at, i in enumerate(order) if i in self.sparse}
        before = {i: self._place[i] for i in range(len(self.parameters))}
        self._lay_out([[order[at] for at in indices] for indices in assign(came, limits, alone)])
        if self.as_views:
            self._move_gradients(before)
        return True

    def _move_gradients(self, before):
        """Move gradients from the old buckets to the new ones."""
        for i, (bucket, position) in before.items():
            parameter = self.parameters[i]
            if bucket.is_sparse or parameter.grad is None or self.reduce_dtype is not None:
                continue
            if parameter.grad.data_ptr() == bucket.views[position].data_ptr():
                new, at = self._place[i]
                new.views[at].copy_(parameter.grad)
                parameter.grad = new.views[at]

    def check_finished(self):
        """Refuses a new pass while the last one has left parameters without a gradient."""
        if not self._unfinished:
            return
        missing = [i for i in range(len(self.parameters)) if i not in self._ready]
        listed = ", ".join(self.names[i] for i in missing[:20]) + (" ..." if len(missing) > 20 else "")
        detection = (
            "making sure all `forward` function outputs participate in calculating loss"
            if self.find_unused
            else "passing the keyword argument `find_unused_parameters=True` to "
            "`torch.nn.parallel.DistributedDataParallel`, and by making sure all `forward` function outputs participate "
            "in calculating loss"
        )
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
            "that your module has parameters that were not used in producing loss. You can enable unused parameter "
            f"detection by {detection}.\nParameters which did not receive grad for rank {mica.distributed.get_rank()}: "
            f"{listed}\nParameter indices which did not receive grad for rank {mica.distributed.get_rank()}: "
            + " ".join(map(str, missing))
        )

    def expect_nothing(self):
        """Gradients of the pass that comes stay on this process."""
        self._expecting = False

    def prepare(self, outputs):
        """A forward pass that is to be followed by a backward pass has returned these tensors."""
        self.check_finished()
        if self._iterations == 0:
            self._take_optimizers()
        self._iterations += 1
        unused = []
        if self.static:
            if self._iterations > 1:
                unused = [i for i, uses in enumerate(self._uses) if not uses]
        elif self.find_unused:
            unused = self._unreached(outputs)
        self._begin(unused)
        self._expecting = True

    def _begin(self, unused):
        self._unused, self._ready, self._used = unused, set(), set()
        self._next, self._used_work, self._delayed = 0, None, False
        self._remaining = list(self._uses)
        for bucket in self._buckets:
            bucket.pending, bucket.work = len(bucket.indices), None

    def _unreached(self, outputs):
        """The parameters that no output depends on."""
        seen, stack = set(), [t.grad_fn for t in outputs if t.grad_fn is not None]
        reached = {self._index.get(id(t)) for t in outputs if t.grad_fn is None}
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                reached.add(self._index.get(id(variable)))
            stack += [following for following, _ in node.next_functions if following is not None]
        return [i for i in range(len(self.parameters)) if i not in reached]

    # ---- while backward runs -------------------------------------------------------------------------------------

    def _on_gradient(self, parameter):
        if not self._expecting:
            return
        index = self._index[id(parameter)]
        if self.static and self._iterations == 1:
            self._count(index)
            return
        if self.static:
            self._remaining[index] -= 1
            if self._remaining[index] > 0:
                return
        if index in self._ready:
            raise RuntimeError(
                "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) "
                "Use of a module parameter outside the `forward` function. 2) Reused parameters in multiple reentrant "
                "backward passes, for example several `checkpoint` functions around the same part of a model. Try to use "
                f"_set_static_graph() if the graph does not change. The parameter is {self.names[index]}."
            )
        if not self._unfinished:
            self._unfinished = True
            self._choose_divisor()
            for other in self._unused:
                self._mark_ready(other)
        if self._order is not None and len(self._order) < len(self.parameters):
            self._order.append(index)
        self._used.add(index)
        self._mark_ready(index)

    def _choose_divisor(self):
        self.divisor = self.size
        if self.join_work is not None and self.divide_by_running:
            self.join_work.wait()
            self.divisor = int(self.join_work.running.item())

    def _count(self, index):
        """The first pass of a static graph counts uses, and reduces at its end."""
        self._uses[index] += 1
        if self._uses[index] == 1 and self._order is not None:
            self._order.append(index)
        if not self._delayed:
            self._delayed = self._unfinished = True
            Variable._execution_engine.queue_callback(self._reduce_all)

    def _reduce_all(self):
        self._choose_divisor()
        self._used = {i for i, uses in enumerate(self._uses) if uses}
        if self._order is not None:  # parameters that are never used come last
            self._order += [i for i, uses in enumerate(self._uses) if not uses]
        for index in range(len(self.parameters)):
            self._mark_ready(index)

    def _mark_ready(self, index):
        self._ready.add(index)
        bucket, position = self._place[index]
        if not bucket.is_sparse:
            self._fill(bucket.views[position], self.parameters[index])
        bucket.pending -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].pending == 0:
            self._send(self._next)
            self._next += 1
            if self._next == len(self._buckets):
                self._send_used()
                Variable._execution_engine.queue_callback(self._finish)

    def _fill(self, view, parameter):
        gradient = parameter.grad
        if gradient is None:
            view.zero_()
            return
        if gradient.layout is not mica.strided:
            raise RuntimeError(
                "DistributedDataParallel found a sparse gradient of a parameter that no module with sparse=True holds"
            )
        gradient = gradient.detach()
        if self.hook is not None:
            if gradient.data_ptr() != view.data_ptr():
                view.copy_(gradient)
        elif gradient.dtype is view.dtype:
            mica.mul(gradient, 1.0 / self.divisor, out=view)
        else:
            view.copy_(gradient)
            view.mul_(1.0 / self.divisor)
        if self.as_views and gradient.dtype is view.dtype:
            parameter.grad = view

    def _send(self, number):
        from mica.distributed import all_reduce

        bucket = self._buckets[number]
        if self.skip_unused and self._used.isdisjoint(bucket.indices):
            return  # the program promises that all processes have the same unused parameters
        if self.hook is not None:
            state, function = self.hook
            seen = bucket.as_seen(number, number == len(self._buckets) - 1)
            bucket.work = function(state, seen)
            if not isinstance(bucket.work, Future):
                raise RuntimeError("Communication hook: the return value should be a torch.futures.Future.")
        elif bucket.is_sparse:
            bucket.work = None  # its sizes differ by process, so it is sent at the end
        else:
            bucket.work = all_reduce(bucket.buffer, group=self.group, async_op=True)

    def _send_used(self):
        """Tells all processes which parameters this one has used, where they may differ."""
        if not self.find_unused or self.static:
            return
        from mica.distributed import all_reduce

        used = mica.zeros(len(self.parameters), dtype=mica.int32)
        used[list(self._used)] = 1
        used = used.to(self.parameters[0].device)
        self._used_work = all_reduce(used, group=self.group, async_op=True), used

    # ---- when backward is over -----------------------------------------------------------------------------------

    def _finish(self):
        for bucket in self._buckets:
            self._take_results(bucket)
        everywhere = self._used
        if self._used_work is not None:
            work, used = self._used_work
            work.wait()
            everywhere = set(used.cpu().nonzero().flatten().tolist())
        if self.join_work is not None:
            self.join_work.wait()
            self.join_work = None
        with mica.no_grad():
            for bucket in self._buckets:
                self._hand_out(bucket, everywhere)
        self._expecting = self._unfinished = False
        for parameter in self._stepping:
            step_in_backward(parameter)

    def _take_optimizers(self):
        """Optimizers that would step in backward wait for the mean over processes."""
        self._stepping = [each for each in self.parameters if hasattr(each, "_in_backward_optimizers")]
        for parameter in self._stepping:
            if parameter._in_backward_hook is not None:
                parameter._in_backward_hook.remove()

    def _take_results(self, bucket):
        if self.skip_unused and self._used.isdisjoint(bucket.indices):
            bucket.result = None
            return
        if bucket.is_sparse:
            parameter = bucket.parameters[0]
            if bucket.work is None:
                bucket.result = reduce_sparse(parameter, self.group, self.divisor)
            else:
                bucket.result = _tensor_of(bucket.work.wait())
            return
        if self.hook is None:
            bucket.work.wait()
            return
        result = _tensor_of(bucket.work.wait())
        if result.data_ptr() != bucket.buffer.data_ptr():
            bucket.buffer.copy_(result.reshape(-1))

    def _hand_out(self, bucket, everywhere):
        if bucket.is_sparse:
            if bucket.indices[0] in everywhere:
                bucket.parameters[0].grad = bucket.result
            return
        targets, sources = [], []
        for index, parameter, view in zip(bucket.indices, bucket.parameters, bucket.views, strict=True):
            if index not in everywhere:
                continue
            if parameter.grad is None:
                parameter.grad = view if self.as_views else view.to(parameter.dtype, copy=True)
            elif parameter.grad.data_ptr() != view.data_ptr():
                targets.append(parameter.grad.detach())
                sources.append(view)
        if targets:
            mica._foreach_copy_(targets, sources)

    # ---- for processes that have run out of inputs ---------------------------------------------------------------

    def reduce_zeros(self):
        """Takes part, with zeros, in the reductions of a pass in which this process has no gradients."""
        for parameter in self.parameters:
            parameter.grad = None
        self._used = set()
        self._begin([])
        for number, bucket in enumerate(self._buckets):
            if not bucket.is_sparse:
                bucket.buffer.zero_()
            self._send(number)
        self._send_used()
        for bucket in self._buckets:
            self._take_results(bucket)
        if self._used_work is not None:
            self._used_work[0].wait()


def _tensor_of(result):
    return result[0] if isinstance(result, (list, tuple)) else result


def reduce_sparse(parameter, group, divisor):
    """The mean of a sparse gradient over the processes; each sends the rows that it has."""
    from mica.distributed import all_gather, get_world_size

    size = get_world_size(group)
    gradient = parameter.grad
    if gradient is None:
        gradient = mica.sparse_coo_tensor(
            mica.empty(1, 0, dtype=mica.int64), parameter.new_empty(0, *parameter.shape[1:]), parameter.shape,
            device=parameter.device,
        )  # fmt: skip
    gradient = gradient.coalesce()
    indices, values = gradient.indices(), gradient.values()
    counts = [mica.zeros(1, dtype=mica.int64, device=values.device) for _ in range(size)]
    all_gather(counts, mica.tensor([indices.shape[1]], device=values.device), group=group)
    counts = [int(count) for count in counts]
    most = max(counts)
    # All processes send as many rows as the one with the most, and the surplus is cut off.
    sent_indices = indices.new_zeros(indices.shape[0], most)
    sent_indices[:, : indices.shape[1]] = indices
    sent_values = values.new_zeros(most, *values.shape[1:])
    sent_values[: values.shape[0]] = values
    all_indices = [mica.empty_like(sent_indices) for _ in range(size)]
    all_values = [mica.empty_like(sent_values) for _ in range(size)]
    all_gather(all_indices, sent_indices, group=group)
    all_gather(all_values, sent_values, group=group)
    indices = mica.cat([piece[:, :count] for piece, count in zip(all_indices, counts, strict=True)], 1)
    values = mica.cat([piece[:count] for piece, count in zip(all_values, counts, strict=True)])
    return mica.sparse_coo_tensor(indices, values / divisor, gradient.shape).coalesce()
