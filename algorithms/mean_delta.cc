#include "algorithms/mean_delta.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "core/parallel_for.h"
#include "core/status.h"
#include "training/api/schedule.h"
#include "training/api/straggler.h"

namespace macaw::algorithms {
namespace {

// With Poisson sampling the mean is Σ w_i Δ_i / (q·W), however many clients came, with q = size/N
// times the share that is not dropped as a straggler.
double PlannedWeight(const Setup& setup) {
  if (setup.cohort.sampling != "poisson") return 0;
  const double size =
      static_cast<double>(setup.cohort.size) * training::ShareThatTrains(setup.cohort);
  if (setup.clients == 0) return size;  // weights are equal, or the run is refused
  return setup.total_weight * size / static_cast<double>(setup.clients);
}

}  // namespace

Schema MeanDeltaSchema(const Setup& setup) {
  return {.down = {{"model", setup.layout}},
          .up = {{.name = "delta",
                  .layout = setup.layout,
                  .reduction = setup.with_replacement() ? aggregation::Reduction::kMean
                                                        : aggregation::Reduction::kWeightedMean,
                  .bound = setup.contribution_bound}},
          .state = {}};
}

std::vector<ParameterSpec> ServerRateParameters() {
  return {{.name = "server_lr",
           .default_value = 1.0,
           .help = "η_g: the model moves by η_g times the mean update; 1 is plain averaging",
           .minimum = 0},
          {.name = "server_lr_schedule",
           .default_value = "constant",
           .help = "η_g by round: constant, step gamma 0.5 every 100, exponential gamma 0.99, "
                   "cosine rounds 200 floor 0.01; each with warmup 5, which is part of a "
                   "cosine's rounds",
           .check = [](const ParameterValue& value) {
             return training::ParseSchedule(std::get<std::string>(value)).status();
           }}};
}

ParameterSpec UpdateClipParameter() {
  return {.name = "update_clip",
          .default_value = 0.0,
          .help = "largest norm of a client's update, longer ones are scaled down to it; 0: none",
          .minimum = 0};
}

absl::Status NeedsSgd(const Setup& setup) {
  if (setup.local.optimizer == "sgd") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("local.optimizer = \"", setup.local.optimizer,
                   "\": the rule is made for SGD steps (momentum is fine); use \"sgd\""));
}

absl::Status NeedsStepsOfSgd(const training::StageOutcome& outcome) {
  if (!std::isnan(outcome.rate_sum)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the rule divides by the rates of SGD's steps, and the program trains by another optimizer, "
      "or by several rates at once: give its trainer torch.optim.SGD with one rate, or take a rule "
      "without such a division, as FedAvg");
}

absl::Status NeedsPlannedCohort(const Setup& setup) {
  if (setup.cohort.sampling != "poisson") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "cohort.sampling = \"poisson\" divides by the planned weight, and this rule takes the mean "
      "of "
      "those who came; use \"uniform\"");
}

absl::Status NeedsGradientClip(const Setup& setup) {
  if (setup.local.clip_norm == 0 || setup.local.clip == "gradient") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "local.clip = \"corrected\" clips the gradient and its correction together, and this rule "
      "(scaffold: option 2) would take what is left for the client's gradient: use clip = "
      "\"gradient\"");
}

namespace {

// `does`: what the rule does in place of a mean by size.
std::vector<std::string> OtherObjectiveNote(const Setup& setup, absl::string_view does,
                                            absl::string_view remedy) {
  // With proportional sampling every rule uses the plain mean.
  if (setup.cohort.weight == WeightPolicy::kUniform || setup.with_replacement()) return {};
  return {absl::StrCat(
      setup.config.name, " ", does, ", FedAvg takes the mean by ",
      setup.cohort.weight == WeightPolicy::kTokens ? "tokens" : "examples",
      ": where clients differ in size, the two minimise different objectives. To compare them, ",
      remedy)};
}

}  // namespace

std::vector<std::string> PlainMeanNote(const Setup& setup, absl::string_view remedy) {
  return OtherObjectiveNote(setup, "takes the plain mean over clients", remedy);
}

std::vector<std::string> AlikeNote(const Setup& setup, absl::string_view remedy) {
  return OtherObjectiveNote(setup, "judges clients alike", remedy);
}

ServerRate::ServerRate(const Setup& setup)
    : rate_(setup.GetOr<double>("server_lr", 1)),
      schedule_(training::ParseSchedule(setup.GetOr<std::string>("server_lr_schedule", "constant"))
                    .value_or(Schedule())) {}

double ServerRate::At(Round round) const {
  return rate_ * training::ScheduleFactor(schedule_, round.value);
}

DeltaClient::DeltaClient(const Setup& setup)
    : layout_(setup.layout), update_clip_(setup.GetOr<double>("update_clip", 0)) {}

training::Stage DeltaClient::LocalWork(const ClientContext& context, Workspace&) const {
  return {.kind = training::StageKind::kTrain, .start = context.model(), .local = context.local};
}

training::Stage DeltaClient::LossAtStart(const ClientContext& context, Workspace& workspace) const {
  training::Stage loss = LocalWork(context, workspace);
  loss.kind = training::StageKind::kLoss;
  return loss;
}

absl::StatusOr<training::LocalPlan> DeltaClient::Prepare(const ClientContext& context,
                                                         Workspace& workspace) const {
  return training::LocalPlan{{LocalWork(context, workspace)}};
}

absl::Status FollowSent(const ClientContext& context, absl::string_view item,
                        absl::string_view channel, double factor, ClientResult& result,
                        Workspace& workspace) {
  const auto kept = std::ranges::find(result.state, item, &NamedView::name);
  const auto up = std::ranges::find(result.up, channel, &UpVector::name);
  if (kept == result.state.end())
    return absl::InternalError(absl::StrCat("the result has no state '", item, "'"));
  const auto* const sent =
      up == result.up.end() ? nullptr : std::get_if<ConstVectorView>(&up->value);
  if (sent == nullptr)
    return absl::InternalError(absl::StrCat("the result has no vector '", channel, "'"));
  // The layout outlives the views: it is the schema's.
  const auto spec = std::ranges::find(context.schema->state, item, &NamedLayout::name);
  const VectorView next = workspace.Vector(spec->layout);
  Copy(context.State(item), next);
  Axpy(factor, *sent, next);
  ZeroBuffers(next);  // statistics have no gradient
  kept->vector = next;
  return absl::OkStatus();
}

VectorView DeltaClient::Delta(const ClientContext& context, ConstVectorView end,
                              Workspace& workspace) const {
  const VectorView delta = workspace.Vector(layout_);
  Subtract(end, context.model(), delta);
  if (update_clip_ > 0) {
    const double norm = std::sqrt(SquaredNorm(delta));
    if (norm > update_clip_) ScaleParameters(update_clip_ / norm, delta);
  }
  return delta;
}

std::variant<ConstVectorView, Displacement> DeltaClient::Update(const ClientContext& context,
                                                                const training::EndVector& end,
                                                                Workspace& workspace,
                                                                double factor) const {
  if (update_clip_ == 0) return Displacement(end, context.model(), factor);
  const VectorView delta = Delta(context, end, workspace);
  if (factor != 1) ScaleParameters(factor, delta);
  return ConstVectorView(delta);
}

absl::StatusOr<ClientResult> DeltaClient::Conclude(const ClientContext& context,
                                                   std::span<const training::StageOutcome> outcomes,
                                                   Workspace& workspace) const {
  return ClientResult{.up = {{"delta", Update(context, outcomes[0].end, workspace)}}};
}

MeanDeltaServer::MeanDeltaServer(const Setup& setup, FlatVector model, std::string mean)
    : mean_(std::move(mean)),
      rate_(setup),
      planned_(PlannedWeight(setup)),
      layout_(setup.layout),
      model_(kept_.Vector("model", std::move(model))) {}

absl::StatusOr<AfterApply> MeanDeltaServer::Apply(const ServerContext& context,
                                                  aggregation::Aggregate aggregate) {
  aggregation::AggregatedChannel& channel = ChannelOf(aggregate, mean_);
  FlatVector& mean_delta = channel.value;
  if (mean_delta.empty()) {
    if (planned_ == 0) return AfterApply::kRoundDone;  // the mean of no clients: the model stays
    mean_delta = FlatVector(layout_);                  // Σ/(q·W) of no clients
  } else if (planned_ > 0) {
    ScaleParameters(channel.weight / planned_, mean_delta.view());
  }
  MACAW_RETURN_IF_ERROR(Move(context.round, mean_delta));
  return AfterApply::kRoundDone;
}

absl::Status MeanDeltaServer::Move(Round round, const FlatVector& mean_delta) {
  if (!SameLayout(mean_delta.layout().get(), model_.layout)) {
    return absl::InvalidArgumentError(
        "the aggregate's channel 'delta' has another layout than the model");
  }
  std::optional<FlatVector> before;
  if (model_.layout->parameter_size() < model_.layout->size())
    before = FlatVector::CopyOf(model_, mean_delta.layout());
  Step(rate_.At(round), mean_delta.view(), model_);
  if (before.has_value()) {
    CopyBuffers(before->view(), model_);
    AddBuffers(mean_delta.view(), model_);
  }
  return absl::OkStatus();
}

void MeanDeltaServer::Step(double server_lr, ConstVectorView mean_delta, VectorView model) {
  constexpr size_t kPiece = size_t{1} << 20;  // bytes
  ParallelFor(model.bytes.size(), kPiece, [&](size_t begin, size_t end) {
    Axpy(server_lr, {mean_delta.layout, mean_delta.bytes.subspan(begin, end - begin)},
         {model.layout, model.bytes.subspan(begin, end - begin)});
  });
}

}  // namespace macaw::algorithms
