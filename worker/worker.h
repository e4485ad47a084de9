#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/api/registry.h"
#include "data/dataset.h"
#include "proto/fleet/link.h"
#include "state/open.h"
#include "worker/emulation.h"

namespace macaw::worker {

// Part of the node configuration: never leaves the node.
struct Options {
  std::string name = "worker-0";  // stable over restarts
  // How the run calls the dataset's clients: by their names, or by their numbers (where every node
  // has the same).
  bool by_name = false;
  bool owner = false;                    // they are this node's own: nobody else trains them
  uint32_t slots = 1;                    // clients trained at the same time, one thread each
  std::string instruction_set = "auto";  // of the fused kernels
  EmulationConfig emulation;  // uneven hardware, by the slots of the whole run; never a result
  uint32_t first_slot = 0;    // number of its first slot among those
  uint32_t run_slots = 0;     // how many those are; 0: only its own
  std::string
      scratch_dir;  // a folder of this node's own for what should outlive a crash; empty: none
  std::vector<std::string> plugins;  // loaded here, as RunPlan::plugins; the run's must be these
  state::StoreOptions state;         // where the states of its clients are kept, if the run has any
  std::string script;  // the file of a run's scripted module (model.torchscript), if it has one
  std::string trace;   // a file to which each turn's batches are written (trace.h); empty: none
  Duration reconnect_for =
      FromSeconds(60);  // how long a lost server is looked for before giving up
};

// Leases clients, trains them one after another on each slot, adds their contributions up, commits
// one part a round. Returns when the server says that the run is over (OK), when `stop` is
// requested (leases are given back; OK), or with an error that names what cannot go on. `dataset`,
// `link` and `registry` must outlive the call. A link that breaks is dialled again by itself; a
// server that has restarted gets a new registration.
absl::Status Run(const Options& options, const data::Dataset& dataset, fleet::FleetLink& link,
                 const algorithms::Registry& registry, std::stop_token stop);

}  // namespace macaw::worker
