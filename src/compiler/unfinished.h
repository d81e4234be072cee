// What becomes of recorded calls when one of them fails while a recording runs.
#pragma once

#include <string>
#include <vector>

#include "compiler/plan.h"

namespace mica::recording {

// Which calls can still run as the program asked for them, and which slots have values that nobody can compute any
// more.
struct Unfinished {
  std::vector<char> stays;  // by call
  std::vector<char> lost;   // by slot
};

// `told`: the error reaches the program whose calls they are, as it does where a call without a recording fails. Then
// memory that there was before the calls keeps its values where a call that no longer runs should have changed it.
// Slots that were written say no longer that they are promised. `capture_failed`: the calls were captured for a graph
// that there will not be. None of them stays; what they should have made is lost, and all other memory is as it was.
Unfinished sort_out(const Call* calls, const std::vector<Progress>& progress, std::vector<Slot>& slots, bool told,
                    bool capture_failed);

// Storages whose values were never computed: whoever asks for them gets an error that tells the reason. They have to be
// held and marked as written later.
void lose(const Storage& storage, const std::string& reason);
void refuse_lost(const StorageImpl& storage);
void forget_lost();  // those that nobody knows any more

}  // namespace mica::recording
