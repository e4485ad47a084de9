#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/ids.h"
#include "plan/local_steps.h"
#include "plan/run_plan.h"
#include "proto/admin/status.h"
#include "proto/fleet/messages.h"
#include "server/engine/model_without.h"
#include "server/engine/roster.h"
#include "server/engine/round_policy.h"
#include "server/engine/version_index.h"
#include "server/log/history.h"
#include "virtual_time/clock.h"
#include "virtual_time/devices.h"

namespace macaw::server {

// How long the engine waits for a node that is heard. The node's word cannot move these limits.
struct WaitLimits {
  // A lease ends after this many times the time that the estimator expects of its clients, but not
  // before kLeastLeases lease timeouts. No client gets more than `lease_limit`, which is also what
  // it gets while nothing is known of its node's speed. Each time that a client's lease runs out in
  // a round, the client's next lease is twice as long.
  double lease_factor = 10;
  Duration lease_limit = std::chrono::hours(1);
  static constexpr int kLeastLeases = 10;
};

// What a round engine begins with. It does not change while the run goes on.
struct EngineOptions {
  RunPlan run;
  uint32_t epoch = 1;
  Duration lease_timeout = FromSeconds(30);
  CompleteRounds::Limits limits;
  WaitLimits waits;
  uint32_t workers = 1;           // the first round begins when so many have registered
  bool evaluation_gates = false;  // the next round waits for the evaluation (a stop rule is set)
  // After each round the engine waits for GoOnTo or StopHere. Set evaluation_gates with it, so that
  // the round's row is written by then. The first round of a session does not wait.
  bool stepwise = false;
  uint32_t completed = 0;   // rounds already done (a resumed run)
  uint32_t stop_after = 0;  // the run stops after so many of its rounds; 0: it does them all
  std::string stop_reason;  // for stop_after
  std::optional<Digest> data_digest;     // a resumed run accepts only nodes with this data and
  std::vector<NumericProfile> profiles;  // the first of these profiles, unless …
  bool mixed_profiles = false;           // … nodes with any profile may join
  std::string instruction_set = "auto";  // of every node's profile; "auto": of the first one's
  std::optional<fleet::Blob>
      evaluate_first;  // the model after `completed`, if its evaluation is still owed
  std::vector<ModelWithout> evaluate_first_without;  // beside it
  Digest run_id;
  RoundRules round;          // when rounds end
  log::Decisions decisions;  // of the run that this one repeats; `round` should be the default
  Numbering numbering = Numbering::kByName;  // of clients, where cohort.eligible is set
  TotalsUsed totals;  // of the plan, which the rule or the sampling computes with
  // Whether the rule can do with the clients that have so many rows, 0 for those that are never
  // drawn; empty: with any.
  std::function<absl::Status(std::span<const uint32_t> rows)> check_rows;
  bool stateful = false;  // clients keep a state between rounds
  // The algorithm sums all that clients keep (algorithms::BeginsAnew): once some states are lost,
  // no client has one after the round, and the algorithm forgets its sums.
  bool sums_states = false;
  uint32_t models = 1;           // from which a client chooses in an evaluation
  bool personal_models = false;  // clients have their own models beside the common one
  bool evaluates_states = true;  // evaluations at clients' points read their states
  VersionIndex versions;         // of a resumed run
  // Of a resumed run: clients whose states are given up (not in `versions`), and whether states
  // were lost since `completed`, which a round was to follow after which all begin anew.
  std::vector<ClientId> reset_states = {};
  bool begins_anew = false;
  // Of a run with [devices]; null: it has no virtual time, and nobody says when clients are there.
  std::shared_ptr<const virtual_time::Devices> devices;
  std::shared_ptr<const virtual_time::Presence> presence;
  RowsOfTurn passes;               // what the rule's clients pass through the model
  virtual_time::ClockState clock;  // after `completed`
  // Of a resumed run whose sampling learns from rounds: scheduler::Feedback::Save after
  // `completed`.
  std::string feedback;
  bool paused = false;  // by an operator, who had not let it go on: of a resumed run, too,
  std::map<std::string, admin::Quarantined> quarantine;  // by name of the node
  std::map<std::string, std::string> given_up;  // owners for which nothing waits, and by whom
  // Returns session numbers: never 0, and no number twice. Default: 1, 2, 3, … (for tests). A
  // server uses random numbers.
  std::function<uint64_t()> session_numbers;
};

// Whether evaluation.every asks for an evaluation after the round, or it is the last. These are the
// rounds that run.stop looks at. `stop_after`: EngineOptions has it.
bool RegularEvaluationDue(const RunPlan& run, Round round, uint32_t stop_after = 0);

}  // namespace macaw::server
