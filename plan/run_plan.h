#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/settings/section.h"
#include "core/vector.h"
#include "plan/algorithm.h"
#include "plan/asynchronous.h"
#include "plan/attack.h"
#include "plan/broadcast.h"
#include "plan/cohort.h"
#include "plan/devices.h"
#include "plan/evaluation.h"
#include "plan/local.h"
#include "plan/model.h"
#include "plan/privacy.h"
#include "plan/task.h"
#include "plan/transform.h"
#include "plan/update.h"

namespace macaw {

// What all nodes of a run agree on. The server sends it to each worker, and its digest is part of
// every checkpoint. It holds no path, no address and nothing else that belongs to a single node.
struct RunPlan {
  std::string name;
  std::vector<std::string> plugins;  // "NAME VERSION DIGEST" of each; the same on all nodes
  uint64_t seed = 0;                 // the default for sections without a seed of their own
  uint32_t rounds = 1;
  uint64_t clients = 0;  // the population; 0: not known before the workers register
  // Of the clients that can be drawn: those with training rows that cohort.eligible and
  // cohort.min_rows do not leave out.
  uint64_t train_clients = 0;  // how many there are; 0: all clients
  // Their training rows, and the tokens of these for sequences (0: the data has none), of each
  // client as many as count (CountedOf).
  uint64_t train_examples = 0, train_tokens = 0;
  DType dtype = DType::kF32;
  TaskKind task = TaskKind::kAuto;
  ModelConfig model;
  TransformConfig transform;
  LocalConfig local;
  AlgorithmConfig algorithm;
  AttackConfig attack;
  PrivacyConfig privacy;
  UpdateConfig update;
  BroadcastConfig broadcast;
  CohortConfig cohort;
  AsynchronousConfig asynchronous;  // [round]
  DevicesConfig devices;
  EvaluationConfig evaluation;
  // M: a contribution with a larger |value| is refused (aggregation/channel.h).
  double contribution_bound = 65536;
  friend bool operator==(const RunPlan&, const RunPlan&) = default;
};

// What only a simulation can have: an error names the section.
absl::Status CheckForFleet(const RunPlan& plan);

// Every key but the parameters of the algorithm, with its whole name ("local.lr").
const settings::Section<RunPlan>& PlanSection();

// The settings that are not at their defaults, the algorithm's parameters among them
// ("algorithm.fedprox.mu"): what travels and what PlanOf reads back to the same plan.
std::vector<settings::Setting> SettingsOf(const RunPlan& plan);

// The longest text of a setting. The wire takes no longer one.
constexpr size_t kMostSettingBytes = 4096;
// The key of the first setting with a longer text, alone or in a list; "": there is none.
std::string KeyOfLongText(const RunPlan& plan);

// Errors: kInvalidArgument for a value out of its range; kUnimplemented for keys that this release
// does not know. Both name the keys.
absl::StatusOr<RunPlan> PlanOf(const std::vector<settings::Setting>& settings);

// All that decides the bits of a result, as key → value. A run goes on only under an equal
// fingerprint; its name and the number of its rounds may differ.
std::map<std::string, std::string> Fingerprint(const RunPlan& plan);

// N in the papers: the number of clients that can be drawn. Clients that are held out, have no rows
// or are left out by cohort.eligible and cohort.min_rows do not count.
inline uint64_t TrainClients(const RunPlan& plan) {
  return plan.train_clients > 0 ? plan.train_clients : plan.clients;
}

// Of this run, whose population must be known.
inline HostileClients HostileOf(const RunPlan& plan) {
  return {plan.attack, plan.clients, plan.seed};
}

// How many classes labels have: two for a binary task, whose model has one output.
inline int64_t LabelClasses(const RunPlan& plan) {
  return plan.task == TaskKind::kBinary ? 2 : plan.model.classes;
}

// W: Σ w_i over the same clients, by the plan's weight policy.
double TotalWeight(const RunPlan& plan);
// The key that gives W: "run.train_examples".
std::string TotalWeightKey(WeightPolicy weight);

// Which of these two a rule computes with (algorithms/around/registry.h). A fleet whose clients
// have other totals than its plan says gets a wrong result from such a rule.
struct TotalsUsed {
  bool clients = false;  // N
  bool weight = false;   // W
};

}  // namespace macaw
