#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"

// Sums of which a large run.contribution_bound leaves too little: whole updates are rounded away,
// and the model stays, without any error. Pure.
namespace macaw::server {

// The largest number of a round's updates as a fraction of their bound. Below 2^-40 a sum of
// float32 has at most ten bits for it (aggregation/channel.h: steps of about 2^-50 of the bound).
constexpr bool IsCoarse(double used) { return used > 0 && used < 0x1p-40; }

// Up to this bound steps are below 2^-30, finer than float32 holds weights of 0.01: where updates
// are as small, the run has converged, and nothing is lost.
constexpr bool MayBeCoarse(double bound) { return bound > 0x1p20; }

// What to say of the first such round: a sentence. Empty: the sums of `channels` are fine.
// `used`: of all channels (ModelKeeper::headroom).
std::string CoarseSumsText(Round round, const std::vector<std::pair<std::string, double>>& used,
                           const std::vector<std::string>& channels);

}  // namespace macaw::server
