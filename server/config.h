#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/settings/section.h"
#include "server/engine/round_policy.h"

namespace macaw::server {

// Ends a run before its last round: when `metric` (a column of metrics.jsonl, such as
// "test_accuracy") reaches `at_least`, or has not improved for `patience` evaluations. With a stop
// rule, evaluation runs between two rounds instead of beside them, so that the run always stops
// after the same round.
struct StopRule {
  std::string metric;  // "": no rule
  std::optional<double> at_least;
  uint32_t patience = 0;  // 0: no limit
  bool active() const { return !metric.empty(); }
};

// What the rounds of a run may take in all. It ends after the first evaluated round with which one
// of these is spent.
struct RunBudget {
  struct Limit {
    const char* column;  // of metrics.jsonl, of which each round has a part
    std::optional<double> RunBudget::*limit;
  };
  std::optional<double> virtual_seconds, bytes_up, bytes_down;
  static std::span<const Limit> Limits();
  bool on() const { return virtual_seconds || bytes_up || bytes_down; }
};

// The server's own configuration: where it listens, what it keeps and when it ends the run.
struct ServerConfig {
  std::string out;                 // the run's folder; "": runs/<name>
  uint32_t checkpoint_every = 10;  // rounds; the last round is always kept
  bool client_records = false;     // also write clients.jsonl
  StopRule stop;
  RunBudget budget;
  std::string scheduling_policy = "planned_stealing";  // a name of scheduler::SchedulingPolicies
  std::string listen;     // "": a private Unix socket, for `macaw simulate`
  std::string authority;  // folder of the fleet's authority (identity/authority.h): TLS; "": plain
  // "checkpoint" or "commit": what survives a crash of the server. With "commit", accepted commits
  // are durable, and a resume opens the same round again.
  std::string durability = "checkpoint";
  double lease_timeout = 30;  // seconds without a heartbeat until a lease expires
  // What ends a lease although its node is heard (engine/engine_options.h, WaitLimits).
  double lease_factor = 10;   // times the expected duration
  double lease_limit = 3600;  // seconds for a client, or without any result of an evaluation
  // Vectors, sums and blobs of so many bytes lie in files of the run's folder; 0: none.
  uint64_t files_from = 0;
  // Nodes that fetch a large model at once (wire::TurnLimits); 0: all.
  uint32_t downloads_at_once = 0;
  uint32_t workers = 0;  // rounds begin when this many have registered; 0: as in [workers]
  // Workers may have other numeric profiles than the run's; then its summary says that it cannot be
  // reproduced.
  bool mixed_profiles = false;
  // Of the profile that every worker must have; "auto": the first worker decides.
  std::string instruction_set = "auto";
  // Deaths of one client's workers in one round, and rounds in a row that lose every client, until
  // the policy acts (engine/round_policy.h).
  uint32_t max_deaths = 3;
  uint32_t max_lost_rounds = 5;
  RoundRules round;
  // Where operators reach the server, unix:PATH or host:port. "": the socket admin.sock in the
  // run's folder; "off": nowhere.
  std::string admin;
  std::string http;        // of the status page; "": there is none
  std::string http_token;  // a file with the token that the page asks for
  bool may_end_early() const { return stop.active() || budget.on(); }
  bool keeps_commits() const { return durability == "commit"; }
};

// The keys of [scheduler], of [server], of [round], and of [run] as far as only the server needs
// them, with their full names.
settings::Section<ServerConfig> ServerSection();

}  // namespace macaw::server
