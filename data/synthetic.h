#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/options.h"

namespace macaw::data {

// Synthetic(α, β) of FedProx (T. Li et al., "Federated Optimization in Heterogeneous Networks",
// MLSys 2020): 60 features, 10 classes; client k has n_k = ⌊LogNormal(4, 2)⌋ + 50 examples (at most
// max_size), u_k ~ N(0, α), B_k ~ N(0, β) (standard deviations), W_k [60 x 10] and b_k [10] ~
// N(u_k, 1), v_k [60] ~ N(B_k, 1), x ~ N(v_k, Σ) with Σ_jj = j^-1.2, y = argmax(W_kᵀx + b_k). iid:
// one W, b ~ N(0, 1) for all and v = 0.
//
// Client k is a function of (seed, k) alone. It is generated on demand (tens of microseconds) or,
// if resident, once at the start with the same bytes. Sizes are drawn at the start, 4 bytes per
// client. A client's first rows are for training, the next for validation (CountOf, splits.h), the
// last ⌊test_fraction⌋ for testing (they are exchangeable). The central test set consists of the
// test rows of the first 1000 clients, in order, and always stays in memory.
absl::StatusOr<std::unique_ptr<Dataset>> MakeSynthetic(const DataOptions& options);

}  // namespace macaw::data
