#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/standing/standing.h"

namespace macaw::cli {

// The command line of `macaw-server`, but for --standing.
struct ServerArguments {
  std::string config, run_dir, listen, sync_state, replay, callers, authority, admin, http,
      http_token;
  bool resume = false, resume_if_begun = false;
  int ready_fd = -1, report_fd = -1, lock_fd = -1, step_fd = -1;
  std::vector<uint64_t> state_reset, without;
  std::vector<uint32_t> evaluate_after;
  bool by_hand() const { return lock_fd < 0; }  // not by `macaw simulate`, which locks the folder
  std::string kept_config() const { return run_dir + "/config.toml"; }
  std::string node_config() const { return run_dir + "/node.toml"; }  // the part for the workers
};

// Binds the command line to both.
void AddOptions(CLI::App& app, ServerArguments& arguments, StandingOptions& standing);

// What is wrong with a command line that has options of another kind of start, and nothing reads
// them; "": nothing is.
std::string MisplacedOption(const CLI::App& app);

// Which option names a descriptor that is not open; "": none does.
std::string ClosedDescriptor(const ServerArguments& arguments);

}  // namespace macaw::cli
