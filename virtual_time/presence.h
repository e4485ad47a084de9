#pragma once

#include "core/ids.h"

namespace macaw::virtual_time {

// When clients are there, in seconds since the run began. It follows from a table, a seed and the
// client alone. Thread-safe.
class Presence {
 public:
  virtual ~Presence() = default;
  virtual bool On(ClientId client, double seconds) const = 0;
  // The first moment from `seconds` on at which the client is there; infinity: never again.
  virtual double NextOn(ClientId client, double seconds) const = 0;
  // The share of all time.
  virtual double ShareOn(ClientId client) const = 0;
};

}  // namespace macaw::virtual_time
