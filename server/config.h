#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/settings/section.h"

namespace macaw::server {

// Ends a run before its last round: when `metric` (a column of metrics.jsonl, "test_accuracy")
// reaches `at_least`, or has not improved for `patience` evaluations. Evaluation then stands
// between two rounds instead of beside them, so that the run always stops after the same round.
struct StopRule {
  std::string metric;  // "": no rule
  std::optional<double> at_least;
  uint32_t patience = 0;  // 0: for ever
  bool active() const { return !metric.empty(); }
};

// What the server's own file says: where it listens, what it keeps and when it ends the run.
struct ServerConfig {
  std::string out;                 // the run's folder; "": runs/<name>
  uint32_t checkpoint_every = 10;  // rounds; the last round is always kept
  bool client_records = false;     // also write clients.jsonl
  StopRule stop;
  std::string scheduling_policy = "planned_stealing";  // a name of scheduler::SchedulingPolicies
  std::string listen;                     // "": a private Unix socket, as `macaw simulate` wants
  std::string durability = "checkpoint";  // or "commit": what a crash of the server leaves
  double lease_timeout = 30;              // seconds without a heartbeat
  uint32_t workers = 0;  // rounds begin when this many have registered; 0: as [workers] says
  // What a run puts up with (engine/round_policy.h).
  uint32_t max_deaths = 3;
  uint32_t max_lost_rounds = 5;
  // Accepted commits outlive this process: after a crash a resume opens the same round again.
  bool keeps_commits() const { return durability == "commit"; }
};

// The keys of [run] that only the server needs, of [scheduler] and of [server], with whole names.
settings::Section<ServerConfig> ServerSection();

}  // namespace macaw::server
