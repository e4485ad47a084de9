#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/settings/section.h"
#include "worker/acceptance.h"
#include "worker/emulation.h"

namespace macaw::worker {

// A node of a fleet that runs beyond this host.
struct FleetConfig {
  std::string server;    // host:port
  std::string identity;  // folder with node.key, node.crt and authority.crt (identity/node_files.h)
  // The most bytes a second that this node sends and receives; 0: no limit.
  uint64_t max_upload = 0, max_download = 0;
  bool owner = false;          // the clients of [data] are this node's own: nobody else trains them
  bool redact_errors = false;  // the words of clients' errors stay in this node's log
  AcceptConfig accept;         // what its owner lets it be used for
};

// The keys of [node] and [accept], with full names.
settings::Section<FleetConfig> FleetSection();

// The worker processes of a host.
struct WorkersConfig {
  uint32_t processes = 1;
  uint32_t owners = 0;  // this many first clients each get a process and a folder of their own
  uint32_t slots = 0;   // per process; 0: the machine's cores, divided among the processes
  std::string backend = "auto";          // that trains the clients (training/backends.h)
  std::string instruction_set = "auto";  // of the fused kernels (training/fused/isa.h)
  // Of backend = "process" (training/process): the program, the folder in which it runs, and the
  // longest that one of its turns may take.
  std::vector<std::string> command;
  std::string folder;
  double turn_seconds = 3600;
  EmulationConfig emulation;
};

// The keys of [workers] and [emulation], with full names.
settings::Section<WorkersConfig> WorkersSection();

}  // namespace macaw::worker
