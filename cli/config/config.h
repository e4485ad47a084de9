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
  uint32_t workers = 0;  // rounds begin when so many have registered; 0: as [workers] says
  bool keeps_commits() const { return durability == "commit"; }
};

struct SchedulerSection {
  std::string policy = "planned_stealing";  // who trains where; never a result
};

struct WorkersSection {
  uint32_t processes = 1;
  uint32_t owners = 0;           // the first clients, each with a process and a folder of its own
  uint32_t slots = 0;            // per process; 0: the cores, shared out
  std::vector<double> slowdown;  // emulation, per slot of the run
};

// Where the workers of this node keep what clients keep between rounds.
struct StateSection {
  std::string store = "disk";
  std::string path;  // a folder; "": state/ in the run's
  std::string url;   // of a Redis; "spawn": one of the run's own
  bool sync = true;  // outlasts a crash of the machine, not only of the process
  bool keep = true;  // false: dropped when the run is over, which then cannot go on
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

// Which keys of data.normalise are given. The data's own constants stand in for each that is not.
struct NormaliseGiven {
  bool scale = false, mean = false, std = false;
  bool all() const { return scale && mean && std; }
};

using AlgorithmTables = std::map<std::string, std::map<std::string, ParameterValue>>;

struct Config {
  RunConfig run;
  std::vector<std::string> plugins;  // shared libraries, loaded before the rest is read (sdk/)
  std::string task = "auto";         // auto | classification | binary | regression | next-token
  double cohort_fraction = 0;        // > 0: run.cohort.size follows from the population
  std::vector<std::string> splits = {"test"};  // evaluation.splits
  std::string model_script;  // TorchScript file whose module is the model; "": a model of layers
  std::string model_init;    // safetensors file that the model starts from, or "zero"; "": from the
                             // seed
  NormaliseGiven normalise_given;
  std::vector<std::string> class_names;  // data.class_names, for people; empty: numbers
  AlgorithmTables algorithm_tables;      // [algorithm.NAME]; the chosen one's table is complete

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
