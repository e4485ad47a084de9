#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/settings/section.h"
#include "training/api/backend_choice.h"
#include "worker/acceptance.h"
#include "worker/emulation.h"

namespace macaw::worker {

// A node of a fleet that runs beyond this host.
struct FleetConfig {
  std::string server;    // host:port
  std::string identity;  // folder with node.key, node.crt and authority.crt (identity/node_files.h)
  // The most bytes a second that this node sends and receives; 0: no limit.
  uint64_t max_upload = 0, max_download = 0;
  // Vectors, sums and blobs of so many bytes lie in files of the scratch folder; 0: none.
  uint64_t files_from = 0;
  bool owner = false;          // the clients of [data] are this node's own: nobody else trains them
  bool redact_errors = false;  // the words of clients' errors stay in this node's log
  AcceptConfig accept;         // what its owner lets it be used for
};

// The keys of [node] and [accept], with full names.
settings::Section<FleetConfig> FleetSection();

// Slots for each device of a process that trains on devices, unless its file says how many. It
// trains as many clients side by side as fit into a device's memory, and has some more at hand.
inline constexpr uint32_t kDeviceSlots = 512;
// Of a process. A server refuses a node with more (server/engine/worker_calls.cc).
inline constexpr uint32_t kMostSlots = 4096;

// The worker processes of a host.
struct WorkersConfig {
  uint32_t processes = 1;
  uint32_t owners = 0;  // this many first clients each get a process and a folder of their own
  // Per process; 0: the cores that this process may use, divided among the processes, or on devices
  // kDeviceSlots for each, and of LibTorch one.
  uint32_t slots = 0;
  training::BackendChoice backend;  // that trains the clients
  EmulationConfig emulation;
};

// The keys of [workers] and [emulation], with full names.
settings::Section<WorkersConfig> WorkersSection();

}  // namespace macaw::worker
