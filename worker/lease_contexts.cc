#include "worker/lease_contexts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/around/channels.h"
#include "core/status.h"
#include "plan/real_arrivals.h"
#include "training/api/round_local.h"

namespace macaw::worker {
namespace {

aggregation::GridOrder OrderOf(const fleet::TrainingLease& lease) {
  return {.max_weight = lease.max_weight,
          .total_weight = lease.total_weight,
          .max_multiplicity = lease.max_multiplicity,
          .total_multiplicity = lease.total_multiplicity};
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const PhaseContext>>> LeaseContexts::Open(
    const fleet::TrainingLease& lease) {
  if (!phases_.empty() && (phases_[0]->round != lease.round || phases_[0]->phase != lease.phase))
    phases_.clear();
  std::vector<std::shared_ptr<const PhaseContext>> open;
  const auto add = [&](uint32_t staleness, const fleet::Broadcast& broadcast) -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(open.emplace_back(), Open(lease, staleness, broadcast));
    return absl::OkStatus();
  };
  const auto newest = [](const fleet::Assignment& one) { return one.staleness == 0; };
  if (std::ranges::any_of(lease.assignments, newest))
    MACAW_RETURN_IF_ERROR(add(0, lease.broadcast));
  downloads_.ExpectModels(lease.older.size());
  for (const fleet::OlderModel& older : lease.older)
    MACAW_RETURN_IF_ERROR(add(older.staleness, older.broadcast));
  return open;
}

absl::StatusOr<std::shared_ptr<const PhaseContext>> LeaseContexts::Open(
    const fleet::TrainingLease& lease, uint32_t staleness, const fleet::Broadcast& broadcast) {
  const auto known = std::ranges::find(phases_, staleness, &PhaseContext::staleness);
  if (known != phases_.end()) return *known;
  auto phase = std::make_shared<PhaseContext>();
  phase->id = ++phase_ids_;
  phase->round = lease.round;
  phase->phase = lease.phase;
  phase->staleness = staleness;
  phase->named = lease.broadcast.name;
  phase->order = OrderOf(lease);
  phase->arrives = lease.arrives;
  phase->local = training::RoundLocal(context_.run, phase->work(context_.run));
  phase->broadcast = broadcast;
  MACAW_RETURN_IF_ERROR(FetchChannels(*phase));
  phases_.push_back(std::move(phase));
  return phases_.back();
}

bool LeaseContexts::IsNeededOnce(const PhaseContext& phase) const {
  const RunPlan& run = context_.run;
  const auto in_some = [](const auto& channel) { return !channel.phases.empty(); };
  return run.evaluation.every == 0 && !run.broadcast.on() && !DevicesArrive(run) &&
         phase.staleness == 0 && std::ranges::none_of(context_.schema.down, in_some) &&
         std::ranges::none_of(context_.schema.up, in_some);
}

void LeaseContexts::LetGoOfLarge(std::shared_ptr<const PhaseContext>& phase) {
  if (phase == nullptr || !IsNeededOnce(*phase) || !downloads_.LetGoOfLarge()) return;
  phases_.clear();
  auto rest = std::make_shared<PhaseContext>(*phase);
  rest->broadcast = {};
  rest->vectors.clear();
  rest->part = {};
  phase = std::move(rest);
}

absl::StatusOr<std::shared_ptr<const EvaluationContext>> LeaseContexts::Open(
    const fleet::EvaluationLease& lease) {
  auto evaluation = std::make_shared<EvaluationContext>();
  evaluation->round = lease.round;
  evaluation->local = training::RoundLocal(context_.run, lease.round);
  if (!lease.model.named()) return evaluation;  // only states are asked for
  evaluation->blob = lease.model;
  if (context_.schema.models.empty()) {
    MACAW_ASSIGN_OR_RETURN(evaluation->model, downloads_.Model(evaluation->blob, evaluation->part));
    return evaluation;
  }
  const std::vector<LayoutPtr> layouts(1 + context_.schema.models.size(), context_.spec.layout);
  MACAW_ASSIGN_OR_RETURN(evaluation->models, downloads_.Vectors(evaluation->blob, layouts));
  evaluation->model = evaluation->models[0];
  return evaluation;
}

absl::Status LeaseContexts::FetchChannels(PhaseContext& phase) {
  const std::vector<LayoutPtr> layouts = algorithms::DownLayouts(context_.schema, phase.phase);
  std::vector<fleet::Blob>& channels = phase.broadcast.channels;
  if (channels.size() != layouts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the server sent ", channels.size(),
                                                   " channels where phase ", phase.phase.value,
                                                   " of the algorithm has ", layouts.size()));
  }
  downloads_.BeginLease(channels);
  std::vector<ConstVectorView> vectors(1);
  MACAW_ASSIGN_OR_RETURN(vectors[0], downloads_.Model(channels[0], phase.part));
  for (size_t i = 1; i < layouts.size(); ++i) {
    MACAW_ASSIGN_OR_RETURN(vectors.emplace_back(), downloads_.Vector(channels[i], layouts[i]));
  }
  phase.vectors = algorithms::ParallelToDown(context_.schema, phase.phase, vectors);
  return absl::OkStatus();
}

std::shared_ptr<const PhaseContext> RoundOfArrival(const PhaseContext& begun,
                                                   const fleet::TrainingLease& lease,
                                                   const fleet::Assignment& assignment) {
  auto round = std::make_shared<PhaseContext>(begun);
  round->round = lease.round;
  round->phase = lease.phase;
  round->staleness = assignment.staleness;
  round->named = lease.broadcast.name;
  round->order = OrderOf(lease);
  round->arrives = false;
  return round;
}

}  // namespace macaw::worker
