#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "aggregation/channel.h"
#include "algorithms/around/registry.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "proto/fleet/link.h"
#include "server/coordinator.h"
#include "server/log/history.h"
#include "testing/temporary_folder.h"

// A run that can be computed by hand, with workers that consist only of calls of the fleet's API.
namespace macaw::server::fixtures {

using macaw::testing_support::TemporaryFolder;

// Eight clients with 3, 4, … 10 examples. Four of them train in each round. The model has three
// weights and a bias.
RunPlan TinyRun(uint32_t rounds);
LayoutPtr TinyLayout();
// What clients of a run with this layout send in the first phase: with [privacy] the bound of their
// sums is the clip.
std::vector<aggregation::ChannelSpec> ChannelsOf(const RunPlan& run);
FlatVector TinyModel();  // 1, 2, 3 and 4
std::vector<uint32_t> TinyExamples();
// What client k sends when the model is x: half of the difference to the point that has (k + j) in
// place j.
FlatVector TinyDelta(ClientId client, ConstVectorView model);

std::string Slurp(const std::string& path);  // fails the test if the file cannot be read
std::vector<std::string> Lines(const std::string& path);
log::History HistoryOf(
    const TemporaryFolder& folder);  // of its rounds.log; fails the test on an error
std::vector<nlohmann::json> ContributionsOf(const TemporaryFolder& folder);  // contributions.jsonl

// The first `size` bytes of a blob.
fleet::Blob CutTo(const fleet::Blob& blob, size_t size);

struct Summand {
  ClientId client;
  double weight = 1;
  uint32_t multiplicity = 1;
};

// One worker, driven step by step.
class FakeWorker {
 public:
  explicit FakeWorker(fleet::FleetHandler& server, const std::string& name = "worker-0");
  FakeWorker(std::unique_ptr<fleet::FleetLink> link, const std::string& name);

  fleet::RegisterRequest& identity() { return identity_; }  // change it before Register
  // Of a rule with other channels up than FedAvg's; before Register.
  void SendOn(std::vector<aggregation::ChannelSpec> channels) { channels_ = std::move(channels); }
  absl::StatusOr<fleet::RegisterReply> Register();
  fleet::LeaseReply Lease();
  // Where rounds do not wait for each other: asks in which round the clients of this lease count,
  // until it is told. Without training: they do not count any more.
  fleet::LeaseReply Arrive(const fleet::TrainingLease& lease);
  // Leases, trains and evaluates until a commit is due, and returns it. nullopt: the run is over.
  std::optional<fleet::CommitRequest> Work();
  // The same, but until the commit has a part. Commits evaluation results on the way.
  std::optional<fleet::CommitRequest> WorkOnPart();
  fleet::CommitReply Commit(const fleet::CommitRequest& request);
  // The same with a part for each of its clients. Returns the last answer, or the first refusal.
  fleet::CommitReply CommitApart(const fleet::CommitRequest& request);
  void GiveBackEverything();
  // Works and commits honestly until `last_round` has been committed, or until the end of the run.
  void RunThrough(uint32_t last_round);
  void RunToEnd() { RunThrough(UINT32_MAX); }

  // Adds the results of a lease to the commit, as an honest worker does. Does not make the sums of
  // the clients.
  void Train(const fleet::TrainingLease& lease, fleet::CommitRequest& request);
  void Evaluate(const fleet::EvaluationLease& lease, fleet::CommitRequest& request);

  SessionId session() const { return session_; }
  fleet::FleetLink& link() { return *link_; }
  // The sums of these clients in the last leased round, on any channels.
  fleet::Blob Sums(const std::vector<Summand>& summands,
                   std::vector<aggregation::ChannelSpec> channels) const;
  fleet::Blob Sums(const std::vector<Summand>& summands) const { return Sums(summands, channels_); }
  const std::vector<aggregation::ChannelSpec>& channels() const { return channels_; }

  // Sets the test accuracy that it reports for the model after each round.
  std::function<double(Round)> accuracy = [](Round) { return 0.5; };
  // Instead of it: of the model that is evaluated.
  std::function<double(ConstVectorView)> accuracy_of;
  bool apart = false;  // whether RunThrough sends a part for each client
  // The same on the central validation set, if identity() has one.
  std::function<double(Round)> val_accuracy = [](Round) { return 0.5; };

 private:
  std::unique_ptr<fleet::FleetLink> link_;
  fleet::RegisterRequest identity_;
  SessionId session_;
  uint64_t commits_ = 0;
  std::vector<aggregation::ChannelSpec> channels_;
  aggregation::GridOrder order_;
  FlatVector model_;
  std::vector<Attempt> held_;
};

// The built-in algorithms.
const algorithms::Registry& Registry();
Options TinyOptions(const std::string& run_dir, uint32_t rounds);
std::unique_ptr<Coordinator> StartTiny(Options options);  // fails the test on an error
absl::Status StartError(Options options);
// With one worker; fails the test on an error. In a run with contributions.jsonl the worker sends a
// part for each client, and the accuracy of a model is its first weight ÷ 100.
Outcome Finish(Options options);
void SendApart(FakeWorker& worker);  // makes it such a worker

// The parts of a run's result that must not depend on how the run was executed.
struct RunBytes {
  explicit RunBytes(const std::string& run_dir);
  std::string metrics, model, digest;
  friend bool operator==(const RunBytes&, const RunBytes&) = default;
};

}  // namespace macaw::server::fixtures
