// What the files of the fusing backend share.
#pragma once

#include "mica/backend/fusion.h"

namespace fusing {

mica::TensorView on_host(const mica::TensorView& view);
// Follows a loop instruction by instruction.
void follow(const mica::FusedLoop& loop);

// Some other kernel than those below was started: the next one begins when it has ended.
void note_kernel();

bool takes_product(const mica::MatmulCall& call);
bool takes_tails(const mica::FusedProducts& products);
void run_products(const mica::FusedProducts& products);
bool takes_attention(const mica::TensorView& query, const mica::TensorView& key, const mica::TensorView& value,
                     const mica::TensorView& mask);
void run_attention(const mica::FusedAttention& attention);

}  // namespace fusing
