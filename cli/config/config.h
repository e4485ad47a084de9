#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/emulation.h"
#include "core/run_config.h"
#include "data/options.h"

namespace macaw::cli {

// One file configures a run: what all nodes agree on (`run`) and what this node alone decides (the
// rest). Every field is a key of the file, declared once in config/fields.cc with its range,
// default and meaning.

struct ServerSection {
  std::string listen;                     // "" : a private Unix socket, as `macaw simulate` wants
  std::string durability = "checkpoint";  // or "commit": what a crash of the server leaves
  double lease_timeout = 30;              // seconds without a heartbeat
  uint32_t workers = 0;  // rounds begin when this many have registered; 0: as [workers] says
  bool keeps_commits() const { return durability == "commit"; }
};

struct SchedulerSection {
  // Which worker trains which client; never affects a result.
  std::string policy = "planned_stealing";
};

struct WorkersSection {
  uint32_t processes = 1;
  uint32_t owners = 0;           // the first clients each get a process and a folder of their own
  uint32_t slots = 0;            // per process; 0: the machine's cores, divided
  std::vector<double> slowdown;  // emulation: per slot of the run
};

// Where this node's workers store what clients keep between rounds.
struct StateSection {
  std::string store = "disk";
  std::string path;  // a folder; "": state/ in the run's
  std::string url;   // of a Redis; "spawn": one of the run's own
  bool sync = true;  // survives a crash of the machine, not only of the process
  bool keep = true;  // false: states are deleted when the run is over, and it cannot be continued
  uint64_t memory_mb = 4096;
  uint64_t cache_mb = 64;  // per worker process
};

struct StopSection {
  std::string metric;  // "" : no rule
  double at_least = 0;
  bool has_at_least = false;
  uint32_t patience = 0;
};

struct OutputSection {
  std::string out;  // the run's folder; "": runs/<name>
  uint32_t checkpoint_every = 10;
  bool client_records = false;
  StopSection stop;
};

// Which keys of data.normalise are given. The others take the data's own constants.
struct NormaliseGiven {
  bool scale = false, mean = false, std = false;
  bool all() const { return scale && mean && std; }
};

using AlgorithmTables = std::map<std::string, std::map<std::string, ParameterValue>>;

struct Config {
  RunConfig run;
  std::vector<std::string> plugins;  // shared libraries, loaded before the rest is read (sdk/)
  std::string task = "auto";         // auto | classification | binary | regression | next-token
  double cohort_fraction = 0;        // > 0: run.cohort.size is this fraction of the population
  std::vector<std::string> splits = {"test"};  // evaluation.splits
  std::string model_script;  // a TorchScript file; its module is the model. "": a model of layers
  // A safetensors file with the initial weights, or "zero"; "": from the seed.
  std::string model_init;
  NormaliseGiven normalise_given;
  std::vector<std::string> class_names;  // data.class_names, for people; empty: numbers
  AlgorithmTables algorithm_tables;  // [algorithm.NAME]; the chosen algorithm's table is complete

  data::DataOptions data;
  data::PartitionOptions partition;
  ServerSection server;
  SchedulerSection scheduler;
  WorkersSection workers;
  EmulationConfig emulation;  // its slowdown is workers.slowdown
  StateSection state;
  OutputSection output;
};

}  // namespace macaw::cli
