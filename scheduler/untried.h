#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "scheduler/feedback.h"
#include "scheduler/trainable.h"

namespace macaw::scheduler {

// The clients of `clients` that were asked before, by client. O(known clients).
std::vector<const KnownClient*> KnownAmong(const Feedback& feedback, const Trainable& clients);

// Positions in `clients` of `count` of those that were never asked, every subset equally likely,
// ascending. `known`: how many of `clients` are known; count + known is at most clients.size().
// O(count · log(known)) while at least half of the clients are unknown, else O(clients).
std::vector<uint64_t> DrawUntried(RandomStream& stream, const Feedback& feedback,
                                  const Trainable& clients, uint64_t known, uint64_t count);

}  // namespace macaw::scheduler
