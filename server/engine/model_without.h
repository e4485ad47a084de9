#pragma once

#include <cstdint>

#include "core/ids.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// The model without a client.
struct ModelWithout {
  // Of the round that it is evaluated with (evaluation.leave_one_out), or of all rounds so far
  // (evaluation.unlearn).
  enum class Of : uint8_t { kRound, kRun };

  ClientId client;
  fleet::Blob model;
  Of of = Of::kRound;
};

}  // namespace macaw::server
