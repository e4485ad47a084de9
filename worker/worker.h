#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "data/dataset.h"
#include "plan/run_plan.h"
#include "proto/fleet/link.h"
#include "state/open.h"
#include "training/backends.h"
#include "worker/acceptance.h"
#include "worker/emulation.h"
#include "worker/stand_by.h"

namespace macaw::worker {

// Part of the node's configuration; never leaves the node.
struct Options {
  std::string name = "worker-0";         // stable over restarts
  std::string program = "macaw-worker";  // with its version, for the server's operators
  // Whether the run identifies the clients of the dataset by name. Otherwise it uses their numbers,
  // and every node has the same clients.
  bool by_name = false;
  bool owner = false;  // the clients belong to this node: no other node trains
                       // them
  uint32_t slots = 1;  // clients trained at the same time
  training::BackendChoice backend;
  EmulationConfig emulation;  // uneven hardware, per slot of the whole run; never changes a result
  uint32_t first_slot = 0;    // number of its first slot in the run, from 0
  uint32_t run_slots = 0;     // slots of the whole run; 0: only its own
  std::string
      scratch_dir;  // a folder of this node's own for what should outlive a crash; empty: none
  std::vector<std::string> plugins;  // loaded by this node; must match RunPlan::plugins
  state::StoreOptions state;         // where the states of its clients are kept, if the run has any
  std::string script;     // the file of a run's scripted module (model.torchscript), if it has one
  AcceptConfig accept;    // which runs this node takes part in, and when
  bool enrolled = false;  // the node of a fleet, whose data is real: no simulated attackers
  bool redact_errors = false;  // the words of clients' errors stay in this node's log
  // Models of former rounds are kept for changes that come as such, up to so many bytes together. A
  // larger one goes before its update is sent, where nothing needs it again.
  uint64_t kept_models_bytes = uint64_t{1} << 30;
  std::string trace;  // a file to which each turn's batches are written (trace.h); empty: none
  Duration reconnect_for =
      FromSeconds(60);                      // how long a lost server is looked for before giving up
  Duration longest_pause = FromSeconds(2);  // the mean pause between two tries doubles up to this
  StandByPauses stand_by;                   // of an enrolled node
  // Called when the server does not believe the node's certificate; null: there is none. It may get
  // another one.
  std::function<absl::Status()> renew;
  // Replaces this process of an enrolled node, which cannot use its device any more; null: it waits
  // for a supervisor's hand. If it returns, the worker ends with the error.
  std::function<void(const std::string& why)> start_again;
};

// What a node's owner learns before the node joins a run.
struct Trial {
  std::string profile;                    // the back end and its numeric profile
  uint64_t parameters = 0;                // of the model
  uint64_t largest = 0;                   // training rows of its largest client
  uint64_t steps = 0;                     // local steps of its longest turn
  uint64_t bytes_up = 0, bytes_down = 0;  // that it moves in a round, about
  uint64_t base_bytes = 0;                // of the model's frozen tensors, which it fetches once
};

// Trains one step of a run on this node's data, without a server. An error says what is wrong:
// kPermissionDenied if the owner does not accept the run.
absl::StatusOr<Trial> Try(const Options& options, const data::Dataset& dataset, const RunPlan& run,
                          const algorithms::Registry& registry, training::Backends& backends);

// Why the node's owner does not let it work at this moment (AcceptConfig); empty: it may. Without a
// scratch folder, what the node has moved today is not asked.
absl::StatusOr<std::string> WhyNotNow(const Options& options);

// Leases clients, trains them one after another on each slot, adds up their contributions, and
// commits one part per round. Returns OK when the server says that the run is over, or when `stop`
// is requested (leases are given back). An error names what cannot go on; kPermissionDenied: the
// node's owner does not accept the run, and the server was told. An enrolled node ends with an
// error only for its own files: whatever a server says, and a run that does not fit the node, is
// waited out (stand_by.h). All that is passed by reference must outlive the call. A broken link is
// dialled again. After a restart of the server the worker registers again.
absl::Status Run(const Options& options, const data::Dataset& dataset, fleet::FleetLink& link,
                 const algorithms::Registry& registry, training::Backends& backends,
                 std::stop_token stop);

}  // namespace macaw::worker
