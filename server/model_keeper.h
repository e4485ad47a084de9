#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "algorithms/around/registry.h"
#include "plan/evaluation.h"
#include "proto/fleet/messages.h"
#include "server/client_parts.h"
#include "server/engine/phase.h"
#include "server/leave_one_out.h"
#include "server/split_model.h"
#include "server/unlearning.h"

namespace macaw::server {

// How large the sums of a part may be, in bytes: of the whole cohort, and of some of its clients.
struct LargestSums {
  uint64_t bytes = 0;
  uint64_t of_a_client = 0;  // vectors that are kept client by client
  uint64_t clients = 0;
  uint64_t alone = 0;  // of one client, in the largest form that a node may count (bytes_up)

  uint64_t Of(uint64_t some) const {
    return bytes - (clients - std::min(some, clients)) * of_a_client;
  }
};

// Holds all vectors of a run: the server half of the algorithm and the open phase's exact sum. One
// thread (the sums thread), so that nothing here needs a lock and the engine never waits for
// arithmetic.
class ModelKeeper {
 public:
  // `evaluation`: which clients are left out of which rounds.
  static absl::StatusOr<ModelKeeper> Make(const algorithms::Description& algorithm,
                                          algorithms::Setup setup, FlatVector initial,
                                          const EvaluationConfig& evaluation = {});

  // Starts a phase with an empty sum and the grids of `order`. Returns what the clients get. A
  // channel that holds the same bytes as when it was sent last is the same blob. Keeps the models
  // from which later clients will have trained (PhaseOrder::kept).
  absl::StatusOr<PhaseModels> Open(const PhaseOrder& order);

  // The largest size of a part's sums in the open phase.
  absl::StatusOr<LargestSums> MostSums() const;
  // Decodes a part's sums and checks them against the open phase and the part's records.
  absl::StatusOr<aggregation::ExactSum> Decode(const fleet::Part& part) const;
  // `client`: whose sum it is, if it is of one client alone.
  absl::Status Add(aggregation::ExactSum&& sum, ClientId client = {});

  // Forgets the open phase's sum: Apply then moves the model as if no client had been counted.
  void DropSum();
  // Divides the sum and lets the algorithm move the model. True: the algorithm wants another phase.
  absl::StatusOr<bool> Apply(Round round, Phase phase);
  // Between two rounds: no client has a state any more, and the algorithm forgets its sums of them.
  // Of an algorithm that BeginsAnew.
  absl::Status ForgetStates();
  using Numbers = std::vector<std::pair<std::string, double>>;  // (name, value), in column order
  // The largest |value| of each channel in the applied phases of the round, as a fraction of the
  // channel's bound.
  const Numbers& headroom() const { return headroom_; }
  // The channels that are sums of float32 and have the run's own bound (run.contribution_bound).
  std::vector<std::string> BoundedByTheRun() const;
  // The algorithm's own metrics in the applied phases of the round. A metric of kind sum is added
  // over the phases. Of any other metric the last phase's value is kept.
  Numbers metrics() const;

  // The algorithm's Result: the model that is evaluated and written; of a model with frozen tensors
  // what is trained (split).
  ConstVectorView Model() const { return algorithm_->Result(); }
  // The algorithm's further models, and their names. Such a rule has no frozen tensors.
  std::vector<ConstVectorView> MoreModels() const { return algorithm_->MoreModels(); }
  const std::vector<std::string>& model_names() const { return schema_.models; }
  // The model as a blob with its digest. It is encoded once and cached until Model changes.
  fleet::Blob ModelBlob() { return Whole(SentModel()); }
  // What an evaluation gets: Model() and the further models, in one blob.
  fleet::Blob EvaluatedBlob();
  // Null: the run has no frozen tensors.
  const std::shared_ptr<const SplitModel>& split() const { return split_; }
  // Takes another base, which a run has kept (a vector of split()->parts().base).
  void SetBase(ConstVectorView base);
  // Of the newest round that evaluation.leave_one_out is due in, by client; empty: there was none,
  // or they are forgotten. Of a loaded state they have the clients and models alone.
  const std::vector<WithoutClient>& without() const { return without_; }
  void ForgetWithout() { without_.clear(); }
  // Of evaluation.unlearn: the models of the clients that some round has counted, by client.
  std::vector<UnlearnedModel> UnlearnedModels();
  // The same as vectors, until the next Apply or Load: of a split model what is trained.
  std::vector<Unlearning::Model> Unlearned() const {
    return unlearning_.has_value() ? unlearning_->Models() : std::vector<Unlearning::Model>();
  }
  // With the older models that are kept, and those without a client.
  algorithms::ServerState Save() const;
  // If phases of the open round have been applied and more are to come, takes them back: everything
  // is then that of the last complete round. False: the state from before the round was not kept,
  // as of a rule whose schema does not tell of later phases, in its first round of several.
  absl::StatusOr<bool> LeaveRound();
  absl::Status Load(const algorithms::ServerState& state);
  // Whether clients keep a state between rounds.
  bool stateful() const { return !schema_.state.empty(); }
  // Whether the algorithm sums something that they keep, and whether it sums all of it, so that it
  // forgets its sums once some of it is lost.
  bool sums_states() const {
    return std::ranges::any_of(schema_.state, &algorithms::NamedLayout::summed);
  }
  bool begins_anew() const { return algorithms::BeginsAnew(schema_); }
  // Whether a channel keeps each client's vector, and these are more than a few numbers.
  bool collects() const;
  // All layouts that a saved vector may have.
  std::vector<LayoutPtr> Layouts() const;

 private:
  ModelKeeper() = default;
  // A channel down as a blob, with its short forms.
  fleet::Blob Encode(const algorithms::DownChannel& channel, const algorithms::DownVector& down);
  fleet::Blob SentModel();  // Model() as it is sent, without the base
  // The model of which this is what is sent.
  fleet::Blob Whole(fleet::Blob sent) {
    return names_.has_value() ? names_->Of(std::move(sent)) : std::move(sent);
  }
  // The base of a whole model, unless it is the one that is here.
  void TakeBaseOf(const FlatVector& model);
  // That of a state of release 0.1.0, which has a whole model.
  absl::Status TakeSavedBase(const algorithms::ServerState& state);
  // A saved model as it is sent: it may have frozen tensors, too.
  FlatVector AsSent(const FlatVector& model) const;
  // A model that was sent, as it was sent: in a broadcast that was kept, or alone.
  absl::StatusOr<ConstVectorView> ModelOf(const fleet::Broadcast& broadcast) const;
  absl::StatusOr<ConstVectorView> ModelOf(const fleet::Blob& model) const;
  // Names the model as one with its base, and takes the digest of all of it.
  absl::Status MakeWhole(WithoutClient& without);
  // Of the values of the model of which this is sent.
  Digest DigestOfWhole(ConstVectorView sent) const;
  void TakeMetrics(Phase phase, aggregation::Aggregate& aggregate);
  // Whether each client of the open round is left out of it once.
  bool leaves_out() const {
    return leave_one_out_.has_value() && order_.has_value() && leave_one_out_->Due(order_->round);
  }
  // Whether parts of the open round are kept one by one, those of the clients that IsApart says.
  bool keeps_parts() const {
    return leaves_out() || (unlearning_.has_value() && order_.has_value());
  }
  bool IsApart(ClientId client) const {
    return leaves_out() || (unlearning_.has_value() && unlearning_->Asks(client));
  }
  algorithms::ServerContext ContextOf(Round round, Phase phase) {
    return {
        .round = round, .phase = phase, .seed = seed_, .metrics = &metrics_, .schema = &schema_};
  }
  algorithms::Schema schema_;
  LayoutPtr layout_, sent_layout_;  // of the model, and of what is sent of it
  std::shared_ptr<const SplitModel> split_;
  std::optional<WholeNames> names_;  // with split_
  uint64_t seed_ = 0;                // the run's
  double bound_ = 0;                 // run.contribution_bound
  std::unique_ptr<algorithms::ServerAlgorithm> algorithm_;
  std::optional<fleet::Blob> sent_model_;    // until the model changes
  std::map<std::string, fleet::Blob> sent_;  // by channel: its newest blob
  bool keeps_older_ = false;                 // where rounds do not wait for each other
  // The models that were sent, by the round after which they were the newest.
  std::map<Round, fleet::Broadcast> models_;
  std::optional<PhaseOrder> order_;
  std::optional<aggregation::ExactSum> sum_;  // of the open phase; none before its first part
  ClientParts parts_;                         // in its place where parts are kept
  std::optional<LeaveOneOut> leave_one_out_;
  std::optional<Unlearning> unlearning_;
  std::vector<WithoutClient> without_;
  bool several_phases_ = false;  // a round may have
  bool inside_round_ = false;    // phases of the open round have been applied, and more are to come
  std::optional<algorithms::ServerState> before_round_;  // of such a round, for LeaveRound
  // Metrics of the round.
  Numbers headroom_;
  std::map<std::string, double> metrics_;
};

}  // namespace macaw::server
