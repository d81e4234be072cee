// Collectives in rounds over the outboxes of shared memory.
#include <algorithm>
#include <cstring>

#include "fingerprint.h"
#include "reduce.h"
#include "shared_group.h"

namespace mica::distributed {
namespace {

constexpr size_t kSmall = 16 << 10;  // bytes up to which every rank reduces everything itself, in one round
constexpr size_t kAlign = 64;

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

// The most bytes that each of n parts of an outbox holds.
size_t part_bytes(size_t outbox, int n) { return outbox / static_cast<size_t>(n) / kAlign * kAlign; }

// The part of a buffer at `offset`, at most `limit` bytes.
Bytes piece(const Bytes& whole, size_t offset, size_t limit) {
  if (offset >= whole.size) return {whole.data, 0};
  return {whole.data + offset, std::min(limit, whole.size - offset)};
}

void copy_bytes(std::byte* to, const std::byte* from, size_t size) {
  if (size != 0 && to != from) std::memmove(to, from, size);
}

size_t largest(const std::vector<Bytes>& buffers) {
  size_t most = 0;
  for (const Bytes& each : buffers) most = std::max(most, each.size);
  return most;
}

}  // namespace

void SharedGroup::begin(Call& call) {
  throw_if_aborted();
  ++number_;
  hash_ = fingerprint(call);
  std::fill(checked_.begin(), checked_.end(), false);
  Member& own = me();
  Record& record = own.records[number_ % Member::kRecords];
  record.number.store(0, std::memory_order_relaxed);
  record.hash = hash_;
  record.kind = call.kind;
  record.dtype = call.dtype;
  record.reduction = call.reduction;
  record.root = call.root;
  record.dims = static_cast<int8_t>(std::min<size_t>(call.shape.size(), 8));
  std::copy_n(call.shape.begin(), record.dims, record.shape);
  const size_t length = std::min(call.place.size(), sizeof record.place - 1);
  std::memcpy(record.place, call.place.data() + (call.place.size() - length), length);
  record.place[length] = 0;
  record.number.store(number_, std::memory_order_release);
  own.number.store(number_, std::memory_order_release);
  own.inside.store(true, std::memory_order_release);
}

void SharedGroup::end() {
  me().still.store(false, std::memory_order_relaxed);
  me().inside.store(false, std::memory_order_release);
}

std::byte* SharedGroup::open_round(Call& call) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != options_.rank) wait(segment_.member(peer).finished, round_ - 1, peer, call);
  }
  return segment_.outbox(options_.rank, round_);
}

void SharedGroup::publish() { raise_to(me().published, round_ + 1); }

const std::byte* SharedGroup::read_from(int peer, Call& call) {
  if (peer != options_.rank) wait(segment_.member(peer).published, round_ + 1, peer, call);
  if (!checked_[static_cast<size_t>(peer)]) check_same(peer, call);
  return segment_.outbox(peer, round_);
}

void SharedGroup::close_round() {
  ++round_;
  raise_to(me().finished, round_);
}

void SharedGroup::check_same(int peer, Call& call) {
  checked_[static_cast<size_t>(peer)] = true;
  const Record& record = segment_.member(peer).records[number_ % Member::kRecords];
  if (record.number.load(std::memory_order_acquire) == number_ && record.hash == hash_) return;
  fail("ranks do not agree about " + describe(call) + ": rank " + std::to_string(peer) + " calls something else there");
}

void SharedGroup::run(Call& call) {
  begin(call);
  try {
    switch (call.kind) {
      case Kind::AllReduce:
      case Kind::Reduce:
        all_reduce(call);
        break;
      case Kind::Broadcast:
        broadcast(call);
        break;
      case Kind::AllGather:
        all_gather(call);
        break;
      case Kind::Gather:
        gather(call);
        break;
      case Kind::Scatter:
        scatter(call);
        break;
      case Kind::ReduceScatter:
        reduce_scatter(call);
        break;
      case Kind::AllToAll:
        all_to_all(call);
        break;
      case Kind::Barrier:
        barrier(call);
        break;
      case Kind::Send:
      case Kind::Recv:
        throw InvalidCall("a message is posted, not run");
    }
  } catch (const InvalidCall& error) {
    abort(error.what());
    throw;
  }
  end();
}

void SharedGroup::all_reduce_small(Call& call) {
  const Bytes in = call.inputs[0];
  std::byte* box = open_round(call);
  copy_bytes(box, in.data, in.size);
  publish();
  const bool wanted = call.kind == Kind::AllReduce || call.root == options_.rank;
  std::vector<const std::byte*> terms(static_cast<size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) {
    if (wanted) terms[static_cast<size_t>(peer)] = read_from(peer, call);
  }
  if (wanted)
    reduce(call.dtype, call.reduction, call.factor, terms, call.outputs[0].data, in.size / call.element_size());
  close_round();
}

// A free slot of this rank for a round, if there is one: the slot that was freed last, which is still in the cache.
std::byte* SharedGroup::take_slot(uint32_t round, const Counter& finished) {
  while (!used_slots_.empty() && reached(finished, used_slots_.front().first + 1)) {
    free_slots_.push_back(used_slots_.front().second);
    used_slots_.pop_front();
  }
  if (free_slots_.empty()) return nullptr;
  const uint8_t index = free_slots_.back();
  free_slots_.pop_back();
  used_slots_.emplace_back(round, index);
  me().slot_of[round % Member::kSlots] = index;
  return segment_.slot(options_.rank, index);
}

// Two ranks send each other everything, and both reduce it: half as many rounds as by shares, for a tenth more bytes. A
// rank writes two pieces ahead, and more while it would have to wait for the other.
void SharedGroup::all_reduce_pair(Call& call) {
  const Bytes in = call.inputs[0];
  const int peer = 1 - options_.rank;
  const bool wanted = call.kind == Kind::AllReduce || call.root == options_.rank;
  const auto pieces = static_cast<uint32_t>(divide_up(in.size, Segment::kSlotBytes));
  Member& other = segment_.member(peer);
  std::vector<const std::byte*> terms(2);
  uint32_t written = 0;
  for (uint32_t read = 0; read < pieces; ++read) {
    while (written < pieces && (written < read + 2 || !reached(other.published, round_ + read + 1))) {
      std::byte* slot = take_slot(round_ + written, other.finished);
      if (!slot && written > read) break;
      if (!slot) {
        wait(other.finished, used_slots_.front().first + 1, peer, call);
        continue;
      }
      const Bytes part = piece(in, written * Segment::kSlotBytes, Segment::kSlotBytes);
      copy_bytes(slot, part.data, part.size);
      ++written;
      raise_to(me().published, round_ + written);
    }
    wait(other.published, round_ + read + 1, peer, call);
    if (!checked_[static_cast<size_t>(peer)]) check_same(peer, call);
    if (wanted) {
      const Bytes out = piece(call.outputs[0], read * Segment::kSlotBytes, Segment::kSlotBytes);
      terms[static_cast<size_t>(peer)] = segment_.slot(peer, other.slot_of[(round_ + read) % Member::kSlots]);
      terms[static_cast<size_t>(options_.rank)] = piece(in, read * Segment::kSlotBytes, Segment::kSlotBytes).data;
      reduce(call.dtype, call.reduction, call.factor, terms, out.data, out.size / call.element_size());
    }
    raise_to(me().finished, round_ + read + 1);
  }
  round_ += pieces;
}

// A chunk takes two rounds. In the first, every rank gives the others their parts of its values and reduces its own
// part of everybody's; in the second it gives away the result. Its own part never passes through shared memory.
void SharedGroup::all_reduce(Call& call) {
  const Bytes in = call.inputs[0];
  if (in.size <= kSmall) return all_reduce_small(call);
  if (size_ == 2) return all_reduce_pair(call);
  const size_t part = part_bytes(segment_.outbox_bytes(), size_);
  const size_t n = static_cast<size_t>(size_), own = static_cast<size_t>(options_.rank);
  const bool wanted = call.kind == Kind::AllReduce || call.root == options_.rank;
  const size_t chunks = divide_up(in.size, part * n);
  std::vector<const std::byte*> terms(n);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    // The last chunk is divided evenly too.
    const size_t begin = chunk * part * n;
    const size_t left = std::min(in.size - begin, part * n);
    const size_t share = std::min(part, divide_up(divide_up(left, n), kAlign) * kAlign);
    const auto piece_of = [&](const Bytes& whole, size_t rank) {
      Bytes mine = piece(whole, begin + rank * share, share);
      mine.size = rank * share < left ? std::min(mine.size, left - rank * share) : 0;
      return mine;
    };
    std::byte* box = open_round(call);
    for (size_t rank = 0; rank < n; ++rank) {
      const Bytes theirs = piece_of(in, rank);
      if (rank != own) copy_bytes(box + rank * share, theirs.data, theirs.size);
    }
    publish();
    const Bytes mine = piece_of(in, own);
    for (size_t rank = 0; rank < n; ++rank) {
      terms[rank] = rank == own ? mine.data : read_from(static_cast<int>(rank), call) + own * share;
    }
    // The outbox of the next round is free: all others have published this round, so they have finished the round
    // before.
    std::byte* result = segment_.outbox(options_.rank, round_ + 1);
    reduce(call.dtype, call.reduction, call.factor, terms, result, mine.size / call.element_size());
    close_round();
    open_round(call);
    publish();
    if (wanted) {
      copy_bytes(piece_of(call.outputs[0], own).data, result, mine.size);
      for (size_t rank = 0; rank < n; ++rank) {
        const Bytes theirs = piece_of(call.outputs[0], rank);
        if (rank != own) copy_bytes(theirs.data, read_from(static_cast<int>(rank), call), theirs.size);
      }
    }
    close_round();
  }
}

void SharedGroup::broadcast(Call& call) {
  const size_t box_bytes = segment_.outbox_bytes();
  const bool root = call.root == options_.rank;
  const Bytes whole = root ? call.inputs[0] : call.outputs[0];
  size_t offset = 0;
  do {  // for no bytes there is one round, in which ranks compare what they call
    const Bytes part = piece(whole, offset, box_bytes);
    std::byte* box = open_round(call);
    if (root) copy_bytes(box, part.data, part.size);
    publish();
    if (!root) copy_bytes(part.data, read_from(call.root, call), part.size);
    close_round();
    offset += box_bytes;
  } while (offset < whole.size);
}

void SharedGroup::all_gather(Call& call) {
  const size_t box_bytes = segment_.outbox_bytes(), most = largest(call.outputs);
  size_t offset = 0;
  do {
    const Bytes given = piece(call.inputs[0], offset, box_bytes);
    std::byte* box = open_round(call);
    copy_bytes(box, given.data, given.size);
    publish();
    for (int peer = 0; peer < size_; ++peer) {
      const Bytes part = piece(call.outputs[static_cast<size_t>(peer)], offset, box_bytes);
      if (peer == options_.rank)
        copy_bytes(part.data, given.data, part.size);
      else
        copy_bytes(part.data, read_from(peer, call), part.size);
    }
    close_round();
    offset += box_bytes;
  } while (offset < most);
}

void SharedGroup::gather(Call& call) {
  const size_t box_bytes = segment_.outbox_bytes();
  const bool root = call.root == options_.rank;
  size_t offset = 0;
  do {
    const Bytes given = piece(call.inputs[0], offset, box_bytes);
    std::byte* box = open_round(call);
    if (!root) copy_bytes(box, given.data, given.size);
    publish();
    for (int peer = 0; root && peer < size_; ++peer) {
      const Bytes part = piece(call.outputs[static_cast<size_t>(peer)], offset, box_bytes);
      copy_bytes(part.data, peer == options_.rank ? given.data : read_from(peer, call), part.size);
    }
    close_round();
    offset += box_bytes;
  } while (offset < call.inputs[0].size);
}

void SharedGroup::scatter(Call& call) {
  const size_t step = part_bytes(segment_.outbox_bytes(), size_);
  const bool root = call.root == options_.rank;
  const size_t own = static_cast<size_t>(options_.rank);
  size_t offset = 0;
  do {
    std::byte* box = open_round(call);
    const Bytes taken = piece(call.outputs[0], offset, step);
    for (size_t rank = 0; root && rank < static_cast<size_t>(size_); ++rank) {
      const Bytes part = piece(call.inputs[rank], offset, step);
      copy_bytes(rank == own ? taken.data : box + rank * step, part.data, part.size);
    }
    publish();
    if (!root) copy_bytes(taken.data, read_from(call.root, call) + own * step, taken.size);
    close_round();
    offset += step;
  } while (offset < call.outputs[0].size);
}

void SharedGroup::reduce_scatter(Call& call) {
  const size_t step = part_bytes(segment_.outbox_bytes(), size_), n = static_cast<size_t>(size_);
  const size_t own = static_cast<size_t>(options_.rank), most = largest(call.inputs);
  std::vector<const std::byte*> terms(n);
  size_t offset = 0;
  do {
    std::byte* box = open_round(call);
    for (size_t rank = 0; rank < n; ++rank) {
      const Bytes part = piece(call.inputs[rank], offset, step);
      if (rank != own) copy_bytes(box + rank * step, part.data, part.size);
    }
    publish();
    const Bytes mine = piece(call.inputs[own], offset, step), out = piece(call.outputs[0], offset, step);
    for (size_t rank = 0; rank < n; ++rank) {
      terms[rank] = rank == own ? mine.data : read_from(static_cast<int>(rank), call) + own * step;
    }
    reduce(call.dtype, call.reduction, call.factor, terms, out.data, mine.size / call.element_size());
    close_round();
    offset += step;
  } while (offset < most);
}

// Parts may have any sizes, which the first round announces: every rank then knows how many rounds follow, and sees
// where two ranks do not agree.
void SharedGroup::all_to_all(Call& call) {
  const size_t step = part_bytes(segment_.outbox_bytes(), size_), n = static_cast<size_t>(size_);
  const size_t own = static_cast<size_t>(options_.rank);
  auto* sizes = reinterpret_cast<uint64_t*>(open_round(call));
  for (size_t rank = 0; rank < n; ++rank) sizes[rank] = call.inputs[rank].size;
  publish();
  size_t most = 0;
  for (size_t rank = 0; rank < n; ++rank) {
    const auto* theirs = reinterpret_cast<const uint64_t*>(read_from(static_cast<int>(rank), call));
    for (size_t to = 0; to < n; ++to) most = std::max<size_t>(most, theirs[to]);
    if (theirs[own] != call.outputs[rank].size) {
      fail("ranks do not agree about " + describe(call) + ": rank " + std::to_string(rank) + " sends " +
           std::to_string(theirs[own]) + " bytes to rank " + std::to_string(own) + ", which expects " +
           std::to_string(call.outputs[rank].size));
    }
  }
  close_round();
  for (size_t offset = 0; offset < most; offset += step) {
    std::byte* box = open_round(call);
    for (size_t rank = 0; rank < n; ++rank) {
      const Bytes part = piece(call.inputs[rank], offset, step);
      if (rank != own) copy_bytes(box + rank * step, part.data, part.size);
    }
    publish();
    for (size_t rank = 0; rank < n; ++rank) {
      const Bytes part = piece(call.outputs[rank], offset, step);
      if (rank == own)
        copy_bytes(part.data, piece(call.inputs[own], offset, step).data, part.size);
      else
        copy_bytes(part.data, read_from(static_cast<int>(rank), call) + own * step, part.size);
    }
    close_round();
  }
}

void SharedGroup::barrier(Call& call) {
  open_round(call);
  publish();
  for (int peer = 0; peer < size_; ++peer) read_from(peer, call);
  close_round();
}

}  // namespace mica::distributed
