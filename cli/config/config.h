#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/config/track.h"
#include "core/settings/section.h"
#include "data/options.h"
#include "plan/run_plan.h"
#include "server/config.h"
#include "state/config.h"
#include "worker/config.h"

namespace macaw::cli {

// What one node alone decides; it never leaves the node. Each section belongs to the room that uses
// it.
struct NodeConfig {
  std::vector<std::string> plugins;  // shared libraries, loaded before the rest is read (sdk/)
  std::string model_script;  // a TorchScript file; its module is the model. "": a model of layers
  // A safetensors file with the initial weights, or "zero"; "": from the seed.
  std::string model_init;
  // Tables of devices and of their presence (virtual_time/table.h); "": none.
  std::string devices_file, devices_presence;
  data::DataOptions data;
  data::PartitionOptions partition;
  server::ServerConfig server;
  worker::FleetConfig fleet;
  worker::WorkersConfig workers;
  state::StateConfig state;
  TrackConfig track;
};

using AlgorithmTables = std::map<std::string, std::map<std::string, ParameterValue>>;

// A key that was given, has no effect, and was left out for that reason (idle_keys.h).
struct IdleKey {
  std::string key;            // "local.nesterov"
  std::string why;            // "without local.momentum above 0"; completes "… has no effect"
  bool switched_off = false;  // by the same file (idle_keys.h)
};

// One file configures a run: what all nodes agree on and what this node alone decides.
struct Config {
  RunPlan run;
  NodeConfig node;
  AlgorithmTables algorithm_tables;  // [algorithm.NAME]; the chosen algorithm's table is complete
  std::vector<IdleKey> idle;         // each has its default here
  // partition.train_together follows from the rule, so the effective file leaves it out, and
  // another rule can take the file.
  bool pooled_by_rule = false;
};

using Field = settings::Field<Config>;

// The keys of a node. `data_sources`: what plug-ins add to the values of data.source.
settings::Section<NodeConfig> NodeSection(const std::vector<std::string>& data_sources = {});

// Every key of a file, except those of [algorithm.NAME], which the registry knows. In the order of
// the effective file.
const std::vector<Field>& AllFields();
// The same, with what plug-ins add to the values of data.source.
std::vector<Field> FieldsWith(const std::vector<std::string>& data_sources);

}  // namespace macaw::cli
