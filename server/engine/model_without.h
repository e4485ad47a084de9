#pragma once

#include "core/ids.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// The model of a round that one of its clients is left out of (evaluation.leave_one_out).
struct ModelWithout {
  ClientId client;
  fleet::Blob model;
};

}  // namespace macaw::server
