#pragma once

#include "core/ids.h"
#include "plan/cohort.h"
#include "plan/local.h"

namespace macaw::training {

// Emulated systems heterogeneity (Li et al. 2020, FedProx, §5.2): in each round a fraction of the
// clients is too slow to do its whole work. Which clients, and how much work they do, follows from
// the cohort's seed, the round and the client alone. So algorithms under comparison have the same
// stragglers, and no measured time affects a result.

bool IsStraggler(const CohortConfig& cohort, Round round, ClientId client);

// The share of the clients drawn that train: all but the stragglers under the policy "drop".
double ShareThatTrains(const CohortConfig& cohort);

// The part of `local` that `client`, which has `rows` training rows, does in `round`. A straggler
// under the "partial" policy does a number of epochs uniform on 1 … E − 1 of its E epochs. Where E
// is 1 or steps are set, it does 1 … S − 1 of its S steps. Other clients do everything, and so does
// a straggler with one step. `joins`: whether the model's batches are joined, as with batch norm
// (EpochBatches::Of); then S is one less for some.
LocalConfig WorkOf(const CohortConfig& cohort, const LocalConfig& local, Round round,
                   ClientId client, uint64_t rows, bool joins = false);

}  // namespace macaw::training
