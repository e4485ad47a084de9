#include "worker/harvest_commits.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/status.h"

namespace macaw::worker {
namespace {

// Counts of classes in a commit: 2 MB of a message of 4.
constexpr size_t kMostCounts = 400'000;

// Leaves out results whose counts of classes would not fit a message; the server hands those tasks
// out again. It rarely happens, since it hands out few tasks with many counts.
void KeepToAMessage(std::vector<fleet::EvaluationResult>& results) {
  size_t counts = 0, kept = 0;
  while (kept < results.size() &&
         (kept == 0 || counts + results[kept].counts.size() <= kMostCounts))
    counts += results[kept++].counts.size();
  results.resize(kept);
}

// A server of 0.1.0 takes no NaN for a metric that was not reported: it gets 0.
void SayZero(std::vector<double>& sums) {
  for (size_t i = 2; i < sums.size(); ++i) {
    if (std::isnan(sums[i])) sums[i] = 0;
  }
}

}  // namespace

HarvestCommits::HarvestCommits(Harvest harvest, aggregation::SumForm form, bool knows_unsaid)
    : harvest_(std::move(harvest)), form_(form), knows_unsaid_(knows_unsaid) {
  KeepToAMessage(harvest_.evaluations);
}

absl::StatusOr<fleet::CommitRequest> HarvestCommits::Next() {
  fleet::CommitRequest request;
  if (std::exchange(first_, false)) {
    request.evaluations = std::move(harvest_.evaluations);  // later ones would go to others
    // All clients of the lease may have been taken back before they were begun.
    if (!harvest_.included.empty() || !harvest_.left_out.empty()) {
      MACAW_ASSIGN_OR_RETURN(request.part, Together());
      return request;
    }
  }
  if (!harvest_.alone.empty()) {
    MACAW_ASSIGN_OR_RETURN(request.part, NextAlone());
  }
  return request;
}

absl::StatusOr<fleet::Part> HarvestCommits::PartOf(std::vector<fleet::ClientRecord> included,
                                                   std::span<aggregation::ExactSum> sums) const {
  fleet::Part part{.round = harvest_.phase->round,
                   .phase = harvest_.phase->phase,
                   .broadcast = harvest_.phase->named,
                   .included = std::move(included)};
  for (fleet::ClientRecord& record : part.included) {
    if (knows_unsaid_) break;
    SayZero(record.sums);
    SayZero(record.personal_sums);
  }
  if (sums.empty()) return part;
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer bytes, aggregation::ExactSum::EncodeLast(sums, form_));
  part.sums = fleet::Blob::Of(std::move(bytes));
  return part;
}

// Of the clients that have one sum, and of those that were left out.
absl::StatusOr<fleet::Part> HarvestCommits::Together() {
  MACAW_ASSIGN_OR_RETURN(fleet::Part part, PartOf(std::move(harvest_.included), harvest_.sums));
  harvest_.sums.clear();
  part.left_out = std::move(harvest_.left_out);
  return part;
}

// Takes a client that is a part of its own.
absl::StatusOr<fleet::Part> HarvestCommits::NextAlone() {
  ClientAlone one = std::move(harvest_.alone.back());
  harvest_.alone.pop_back();
  return PartOf({one.record}, {&one.sum, 1});
}

}  // namespace macaw::worker
