"""vmap over objects that take their batch off by themselves."""

import mica
from mica._C._functorch import _add_batch_dim, _remove_batch_dim, is_batchedtensor, maybe_current_level
from mica.func import vmap


class Record:
    """Two tensors and the sizes that they share, as packages' dictionaries of tensors are."""

    def __init__(self, a, b, batch):
        self.a, self.b, self.batch = a, b, batch

    def dim(self):
        return len(self.batch)

    def size(self, dim):
        return self.batch[dim]

    def __getitem__(self, index):
        a, b = self.a[index], self.b[index]
        return Record(a, b, mica.zeros(self.batch)[index].shape)

    def _add_batch_dim(self, *, in_dim, vmap_level):
        parts = (_add_batch_dim(each, in_dim, vmap_level) for each in (self.a, self.b))
        return Record(*parts, self.batch[:in_dim] + self.batch[in_dim + 1 :])

    def _maybe_remove_batch_dim(self, funcname, vmap_level, batch_size, out_dim):
        parts = (_remove_batch_dim(each, vmap_level, batch_size, out_dim) for each in (self.a, self.b))
        return Record(*parts, (*self.batch[:out_dim], batch_size, *self.batch[out_dim:]))


def test_a_container_is_mapped_as_a_whole():
    def each(record):
        assert record.batch == (3,) and is_batchedtensor(record.a) and maybe_current_level() == 1
        return Record(record.a + 1, record.a @ record.b, record.batch)

    record = Record(mica.rand(2, 3, 4), mica.rand(2, 4), (2, 3))
    record.b = mica.rand(2, 4, 5)
    made = vmap(each)(record)
    assert made.batch == (2, 3) and mica.allclose(made.a, record.a + 1)
    assert mica.allclose(made.b, record.a @ record.b)
    assert maybe_current_level() is None


def test_a_container_in_chunks():
    record = Record(mica.arange(6.0).view(3, 2), mica.ones(3, 2), (3,))
    made = vmap(lambda r: r.a * r.b + 1, chunk_size=2)(record)
    assert made.tolist() == (record.a + 1).tolist()
