"""torch.utils.weak: dictionaries by the identity of tensors."""

import copy
import gc

import mica
from mica.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakIdRef, WeakTensorKeyDictionary


def test_keys_are_told_apart_by_identity_and_not_kept():
    a, b = mica.ones(2), mica.ones(2)
    table = WeakIdKeyDictionary({a: 1})
    table[b] = 2
    assert table[a] == 1 and table[b] == 2 and len(table) == 2 and mica.ones(2) not in table and 3 not in table
    assert WeakIdRef(a) == WeakIdRef(a) != WeakIdRef(b) and [key is a for key in table] == [True, False]
    assert copy.copy(table) == table and (WeakTensorKeyDictionary() | table) == table
    reference = TensorWeakRef(b)
    assert reference() is b
    del b
    gc.collect()
    assert len(table) == 1 and reference() is None and list(table.values()) == [1]
    del table[a]
    assert not table
