#pragma once

#include <cstdint>
#include <string>

#include "core/settings/section.h"
#include "state/open.h"

namespace macaw::state {

// Where a node stores what its clients keep between rounds.
struct StateConfig {
  std::string store = "disk";
  std::string path;  // a folder; "": state/ in the run's
  std::string url;   // of a Redis; "spawn": one of the run's own
  bool sync = true;  // survives a crash of the machine, not only of the process
  bool keep = true;  // false: states are deleted when the run is over, and it cannot be continued
  uint64_t memory_mb = 4096;
  uint64_t cache_mb = 64;  // per worker process

  // Without a password, which is in no file.
  StoreOptions Options() const;
};

// The keys of [state].
settings::Section<StateConfig> StateSection();

}  // namespace macaw::state
