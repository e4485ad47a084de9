#include "server/waits_for.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::server {
namespace {

using admin::RunState;
using admin::RunStatus;
using admin::Step;

constexpr size_t kMostNamed = 4;    // nodes in a sentence; the others are counted
constexpr double kMissedBeats = 3;  // one may come late; so many have not been sent

std::string Count(uint64_t count, const char* one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

std::string Gathering(const RunStatus& status) {
  std::vector<std::string> lacks;
  const size_t nodes = status.nodes.size();
  if (nodes < std::max(status.nodes_wanted, 1u)) {
    lacks.push_back(absl::StrCat(nodes, " of ", Count(std::max(status.nodes_wanted, 1u), "worker"),
                                 nodes == 1 ? " has" : " have", " joined"));
  }
  if (status.clients_wanted > 0 && status.clients_known < status.clients_wanted) {
    lacks.push_back(absl::StrCat(status.clients_known, " of ",
                                 Count(status.clients_wanted, "client"), " are there"));
  }
  if (lacks.empty()) lacks.push_back("the first round is about to begin");
  if (!status.quarantine.empty())
    lacks.push_back(absl::StrCat(status.quarantine.front().node, " is in quarantine"));
  return absl::StrJoin(lacks, ", ");
}

bool InQuarantine(const RunStatus& status, const std::string& name) {
  return std::ranges::any_of(status.quarantine,
                             [&](const admin::Quarantined& one) { return one.node == name; });
}

// Whom the open phase waits for: late nodes first, then those with most leases.
std::string Collecting(const RunStatus& status) {
  std::vector<const admin::NodeStatus*> busy;
  for (const admin::NodeStatus& node : status.nodes) {
    if (node.leased > 0) busy.push_back(&node);
  }
  std::ranges::stable_sort(busy, [&](const auto* a, const auto* b) {
    if (a->late != b->late) return a->late;
    return a->late ? a->silent_seconds > b->silent_seconds : a->leased > b->leased;
  });
  std::vector<std::string> parts;
  uint64_t unplaced = 0;
  for (const admin::Missing& missing : status.missing) {
    unplaced += missing.clients;
    if (missing.owner.empty()) {
      parts.push_back(
          absl::StrCat("no worker here has the rows of ", Count(missing.clients, "client")));
    } else {
      parts.push_back(
          absl::StrCat(missing.owner,
                       InQuarantine(status, missing.owner) ? " is in quarantine" : " is not there",
                       " (", Count(missing.clients, "client"), ")"));
    }
  }
  for (const admin::NodeStatus* node : busy) {
    parts.push_back(
        node->late ? absl::StrCat(node->name, " silent for ", DurationText(node->silent_seconds))
                   : absl::StrCat(node->name, " has ", Count(node->leased, "lease")));
  }
  if (parts.size() > kMostNamed) {
    const size_t others = parts.size() - kMostNamed;
    parts.resize(kMostNamed);
    parts.push_back(absl::StrCat("and ", others, " more"));
  }
  if (status.waiting > unplaced)
    parts.push_back(absl::StrCat(status.waiting - unplaced, " not leased yet"));
  std::string text =
      absl::StrCat(status.counted + status.given_up, " of ", Count(status.cohort, "client"));
  if (!parts.empty()) absl::StrAppend(&text, ": ", absl::StrJoin(parts, ", "));
  return text;
}

std::string EvaluationText(const RunStatus& status) {
  const uint64_t left = status.evaluation_tasks - status.evaluation_done;
  return absl::StrCat("the evaluation of round ", status.evaluated_round, ": ", left, " of ",
                      Count(status.evaluation_tasks, "task"), " left");
}

std::string Training(const RunStatus& status) {
  if (status.waiting > 0 || status.leased > 0 || status.evaluation_tasks == 0)
    return Collecting(status);
  return EvaluationText(status);
}

std::string Doing(const RunStatus& status) {
  switch (status.step) {
    case Step::kGathering:
      return Gathering(status);
    case Step::kAwaiting:
      return absl::StrCat("round ", status.completed + 1,
                          ": too few of its clients' nodes have been heard of lately");
    case Step::kPreparing:
      return absl::StrCat("the server encodes the model for round ", status.round);
    case Step::kTraining:
      return Training(status);
    case Step::kApplying:
      return absl::StrCat("the server applies the sum of round ", status.round);
    case Step::kEvaluating:
      return EvaluationText(status);
    case Step::kIdle:
      return "nothing";
  }
  return "nothing";
}

}  // namespace

std::string DurationText(double seconds) {
  const auto whole = static_cast<int64_t>(std::floor(std::max(seconds, 0.0)));
  if (whole < 120) return absl::StrCat(whole, " s");
  if (whole < 2 * 3600) return absl::StrCat(whole / 60, " min");
  return absl::StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

void MarkLateNodes(RunStatus& status) {
  if (status.state == RunState::kEnded) return;
  // In a large fleet heartbeats are so rare that a lease may end before the third one is due.
  const double patience =
      std::min(kMissedBeats * status.heartbeat_seconds, status.lease_seconds * 2 / 3);
  for (admin::NodeStatus& node : status.nodes) node.late = node.silent_seconds > patience;
}

std::string WaitsFor(const RunStatus& status) {
  switch (status.state) {
    case RunState::kEnded:
      return absl::StrCat("the run has ended: ", status.ended,
                          status.ending_reason.empty() ? "" : ", ", status.ending_reason);
    case RunState::kPaused: {
      std::string text = absl::StrCat("paused for ", DurationText(status.step_seconds),
                                      " after round ", status.completed);
      if (status.step == Step::kEvaluating) absl::StrAppend(&text, "; ", EvaluationText(status));
      return text;
    }
    case RunState::kPausing:
      return absl::StrCat(Doing(status), "; then the run pauses");
    case RunState::kDraining:
      return absl::StrCat(Doing(status), "; then the run ends");
    case RunState::kWaiting:
    case RunState::kRunning:
    case RunState::kEnding:
      return Doing(status);
  }
  return Doing(status);
}

}  // namespace macaw::server
