#pragma once

#include "core/ids.h"
#include "core/run_config.h"

namespace macaw::training {

// Emulated systems heterogeneity (Li et al. 2020, FedProx, §5.2): in each round a fraction of the
// clients is too slow to do its whole work. Who, and how much it still does, follows from the
// cohort's seed, the round and the client alone, so that compared algorithms meet the same
// stragglers and nothing that is timed enters a result.

bool IsStraggler(const CohortConfig& cohort, Round round, ClientId client);

// What `client` does of `local` in `round`: all of it, or, for a straggler under the "partial"
// policy, an amount uniform on 1 … E − 1 of its E epochs (or of its steps, where those are set).
// With E = 1 there is no less to do, and a straggler does all of it.
LocalConfig WorkOf(const CohortConfig& cohort, const LocalConfig& local, Round round,
                   ClientId client);

}  // namespace macaw::training
