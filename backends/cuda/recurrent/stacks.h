// Stacks of recurrent layers by cuDNN: extension("recurrent_library").
#pragma once

#include <string>

#include "mica/backend/recurrent_library.h"

namespace mica::cuda::recurrent {

const RecurrentLibrary& library();
// How often cuDNN ran a stack forwards and backwards, and why it last turned one down, if it did: JSON.
std::string library_facts();
// For measurements: one of cudnn::Algorithm for all stacks that come from now on; -1: the backend chooses again.
void give_algorithm(int algorithm);

}  // namespace mica::cuda::recurrent
