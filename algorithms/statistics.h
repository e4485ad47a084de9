#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/description.h"
#include "algorithms/kept_state.h"
#include "training/api/row_statistics.h"

namespace macaw::algorithms {

// The halves that rules of statistics share: clients send sums over their rows and train nothing,
// and the server solves for the model. A rule adds which sums (a training::RowStatistics for each
// phase of a round) and what Apply makes of them.

// The channel of a phase: "sums", then "sums1", "sums2", …
std::string SumsOf(Phase phase);

// The model down, and the sums of each phase up, exact. `layouts`: by phase; one phase or several.
// `metrics`: the names of the rule's own; that of ReportOnSums comes after them.
Schema StatisticsSchema(const Setup& setup, std::vector<LayoutPtr> layouts,
                        const std::vector<std::string>& metrics);

// The same rule as one of statistics: it ignores what [local] says of training, and unless it says
// otherwise rows pass forth once.
Description StatisticsRule(Description rule);

// `sums` over all training rows, at the server's model.
training::LocalPlan StatisticsPlan(const ClientContext& context,
                                   std::shared_ptr<const training::RowStatistics> sums);

// By phase of a round.
using PhaseSums = std::vector<std::shared_ptr<const training::RowStatistics>>;

// Sends a phase's sums. Stateless and thread-safe.
class StatisticsClient : public ClientAlgorithm {
 public:
  explicit StatisticsClient(PhaseSums sums) : sums_(std::move(sums)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override;
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override;

 protected:
  const LayoutPtr& SumsLayout(Phase phase) const { return sums_[phase.value]->layout(); }

 private:
  const PhaseSums sums_;
};

// Owns the model; Apply is the rule's. One thread.
class StatisticsServer : public ServerAlgorithm {
 public:
  explicit StatisticsServer(FlatVector model) : model_(kept_.Vector("model", std::move(model))) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}};
  }
  ConstVectorView Model() const final { return model_; }
  ServerState Save() const final { return kept_.Save(); }
  absl::Status Load(const ServerState& state) final { return kept_.Load(state); }

 protected:
  KeptState kept_;  // a rule adds what it keeps besides the model
  const VectorView model_;
};

// For a server half whose solution may overflow, since a client can send any sums within the bound.
bool IsFinite(ConstVectorView v);
// Reports whether the round's sums were thrown away (the column rule_thrown_away), because they
// have no finite solution or are of less than no rows, and says so in the log.
void ReportOnSums(const ServerContext& context, absl::string_view rule, bool kept);

// Entry `e` of a vector of sums.
template <typename View>
auto SumsEntry(View sums, size_t e) {
  const LayoutEntry& entry = sums.layout->entries()[e];
  return sums.template As<double>().subspan(entry.offset, entry.size);
}

}  // namespace macaw::algorithms
