"""Keys and values of many sequences in one cache, cut into pages that a table finds again."""

import mica
from mica.nn.attention.block_mask import BlockMask, noop_mask
from mica.nn.attention.flex_attention import _identity

__all__ = ["PagedAttention"]


def _expect(is_so, text):
    if not is_so:
        raise RuntimeError(text)


class PagedAttention:
    """A table of pages: where the pages of each sequence lie in a cache of keys and values.

    A page holds so many tokens. A sequence has as many pages as it needs, anywhere in the cache, so that sequences of
    different lengths share one cache. Masks and scores are written for the places in a sequence; they are converted to
    the places in the cache.
    """

    def __init__(self, n_pages, page_size, max_batch_size, device="cuda"):
        self.n_pages, self.page_size = n_pages, page_size
        sizes = (max_batch_size, n_pages)
        # The page of the cache for each page of a sequence, and the other way around; -1 where there is none.
        self.page_table = mica.full(sizes, -1, dtype=mica.int64, device=device)
        self.physical_to_logical = mica.full(sizes, -1, dtype=mica.int64, device=device)
        self.capacity = mica.zeros(max_batch_size, dtype=mica.int64, device=device)  # tokens that the pages can hold
        self.empty_pages = list(range(n_pages - 1, -1, -1))

    def reserve(self, batch_idx, seq_len):
        """Give a sequence pages for so many tokens at least. Both are tensors of one element."""
        capacity, wanted = int(self.capacity[batch_idx]), int(seq_len)
        if wanted <= capacity:
            return
        count = -(-(wanted - capacity) // self.page_size)
        if len(self.empty_pages) < count:
            raise AssertionError(f"requested {count} pages but there are only {len(self.empty_pages)} empty pages")
        first = capacity // self.page_size
        pages = mica.tensor(self.empty_pages[-count:], device=self.page_table.device)
        self.empty_pages = self.empty_pages[:-count]
        self.page_table[batch_idx, first : first + count] = pages
        self.physical_to_logical[batch_idx, pages] = mica.arange(first, first + count, device=pages.device)
        self.capacity[batch_idx] += count * self.page_size

    def erase(self, batch_idx):
        """Take the pages of one or several sequences back."""
        rows = self.page_table[batch_idx]
        self.empty_pages += rows[rows != -1].tolist()
        self.capacity[batch_idx] = 0
        self.physical_to_logical[batch_idx] = -1
        self.page_table[batch_idx] = -1

    def assign(self, batch_idx, input_pos, k_val, v_val, k_cache, v_cache):
        """Write keys and values of sequences into the caches.

        Args:
            batch_idx: which sequences; of shape (B)
            input_pos: the places in each sequence; of shape (B, S)
            k_val: the keys, of shape (B, H, S, D); `v_val` the values
            k_cache: where the keys lie, of shape (1, H, places, D); `v_cache` the same for values
        """
        _expect(not k_val.requires_grad, "val must not require gradient")
        (batch, heads, length, key_size), value_size = k_val.shape, v_val.shape[3]
        _expect(
            batch == batch_idx.shape[0],
            f"Expect val and batch_idx have the same batch size but got B={batch} and B={batch_idx.shape[0]}.",
        )
        _expect(
            heads == k_cache.shape[1],
            f"Expect val and cache has the same number of heads but got H={heads} and H={k_cache.shape[1]}.",
        )
        _expect(
            length == input_pos.shape[1],
            f"Expect val and input_pos has the same length but got S={length} and S={input_pos.shape[0]}.",
        )
        for name, size, cache in (("k", key_size, k_cache), ("v", value_size, v_cache)):
            _expect(
                size == cache.shape[3],
                f"Expect {name}_val and {name}_cache has the same hidden dim but got D={size} and D={cache.shape[3]}.",
            )
        pages = mica.gather(self.page_table[batch_idx], 1, (input_pos // self.page_size).to(mica.int64))
        places = (pages * self.page_size + input_pos % self.page_size).view(-1)
        for value, size, cache in ((k_val, key_size, k_cache), (v_val, value_size, v_cache)):
            cache[:, :, places, :] = value.permute(1, 0, 2, 3).reshape(1, heads, batch * length, size)

    def convert_logical_block_mask(self, block_mask, batch_idx=None, kv_len=None):
        """A mask of sequences as one of the cache.

        Args:
            block_mask: a mask whose blocks have as many columns as a page has tokens
            batch_idx: which sequences the mask is for, all in their order unless given; of shape (B)
            kv_len: how many tokens of each sequence count; of shape (B)
        """
        if block_mask.BLOCK_SIZE[1] != self.page_size:
            raise RuntimeError(
                "Expect block_mask has the same column block size as page_size"
                f"but got size={block_mask.BLOCK_SIZE[1]} and size={self.page_size}"
            )
        if batch_idx is None:
            batch_idx = mica.arange(block_mask.kv_indices.shape[0], device=block_mask.kv_indices.device)
        table = self.page_table[batch_idx]
        return BlockMask.from_kv_blocks(
            *self._converted(table, block_mask.kv_num_blocks, block_mask.kv_indices),
            *self._converted(table, block_mask.full_kv_num_blocks, block_mask.full_kv_indices),
            block_mask.BLOCK_SIZE,
            self.get_mask_mod(block_mask.mask_mod, kv_len),
            seq_lengths=(block_mask.seq_lengths[0], self.n_pages * self.page_size),
        )

    def _converted(self, table, num_blocks, indices):
        """The blocks of a mask by their pages in the cache, which has more columns than a sequence."""
        if num_blocks is None:
            return None, None
        batch, heads, rows, columns = indices.shape
        pages = mica.gather(table, 1, indices.reshape(batch, -1).to(mica.int64)).view(indices.shape)
        made = mica.zeros((batch, heads, rows, self.n_pages), dtype=mica.int32, device=indices.device)
        made[..., :columns] = pages.to(mica.int32)
        return num_blocks.clone(), made

    def _place(self, b, physical_kv_idx, kv_len):
        """The place in a sequence of a place in the cache, and whether it is one; the first where it is none."""
        page = self.physical_to_logical[b, physical_kv_idx // self.page_size]
        place = page * self.page_size + physical_kv_idx % self.page_size
        is_valid = page >= 0 if kv_len is None else (page >= 0) & (place < kv_len[b])
        return mica.where(is_valid, place, 0), is_valid

    def get_mask_mod(self, mask_mod, kv_len=None):
        """A mask of places in a sequence as one of places in the cache."""
        mask_mod = noop_mask if mask_mod is None else mask_mod

        def new_mask_mod(b, h, q_idx, physical_kv_idx):
            place, is_valid = self._place(b, physical_kv_idx, kv_len)
            return mica.where(is_valid, mask_mod(b, h, q_idx, place), False)

        return new_mask_mod

    def get_score_mod(self, score_mod, kv_len=None):
        """A change of scores by places in a sequence as one by places in the cache."""
        score_mod = _identity if score_mod is None else score_mod

        def new_score_mod(score, b, h, q_idx, physical_kv_idx):
            place, is_valid = self._place(b, physical_kv_idx, kv_len)
            return mica.where(is_valid, score_mod(score, b, h, q_idx, place), float("-inf"))

        return new_score_mod
