#include "training/local_optimizer.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "training/local_adam.h"

namespace macaw::training {
namespace {

void StartAtZero(const LayoutPtr& layout, FlatVector& vector) {
  if (vector.empty()) {
    vector = FlatVector(layout);
    return;
  }
  const std::span<std::byte> bytes = vector.view().bytes;
  std::memset(bytes.data(), 0, bytes.size());
}

// g ← g + μ(w − a) + v.
template <typename T>
void AddCorrection(double mu, const Pieces& pieces, const StepVectors<T>& x) {
  for (const auto& [begin, end] : pieces) {
    for (uint64_t i = begin; i < end; ++i) {
      if (mu != 0) x.gradient[i] += static_cast<T>(mu) * (x.weights[i] - x.anchor[i]);
      if (!x.v.empty()) x.gradient[i] += x.v[i];
    }
  }
}

}  // namespace

absl::Status LocalOptimizer::Check(const LocalConfig& local) {
  if (local.clip != "gradient" && local.clip != "corrected") {
    return absl::InvalidArgumentError(
        absl::StrCat("local.clip is \"gradient\" or \"corrected\", got \"", local.clip, "\""));
  }
  if (local.optimizer == "sgd") return absl::OkStatus();
  if (!AdamRule::IsFor(local)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "local.optimizer is \"sgd\", \"adam\" or \"adamw\", got \"", local.optimizer, "\""));
  }
  if (local.momentum != 0 || local.nesterov) {
    return absl::InvalidArgumentError(
        absl::StrCat("local.momentum and local.nesterov are for \"sgd\"; \"", local.optimizer,
                     "\" has local.beta1"));
  }
  const auto decay = [](double beta) { return beta >= 0 && beta < 1; };
  if (!decay(local.beta1) || !decay(local.beta2) || !(local.epsilon > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("local.beta1 and local.beta2 are in [0, 1) and local.epsilon is above 0, got ",
                     local.beta1, ", ", local.beta2, " and ", local.epsilon));
  }
  return absl::OkStatus();
}

void LocalOptimizer::Start(const LocalConfig& local, double mu) {
  local_ = local;
  mu_ = mu;
  adam_ = AdamRule::IsFor(local);
  clips_corrected_ = local.clip == "corrected" && local.clip_norm > 0;
  norm_ = StepNorm(SgdRule::Of(local, mu));
  if (adam_ || local.momentum != 0) StartAtZero(layout_, first_);
  if (adam_) StartAtZero(layout_, second_);
}

template <typename T>
void LocalOptimizer::StepEach(const std::vector<StepPieces>& moving, const StepVectors<T>& vectors,
                              bool clipped) {
  const bool clips = local_.clip_norm > 0 && !clipped;
  double mu = mu_;
  std::span<const T> v = vectors.v;
  if (clips && clips_corrected_) {
    for (const StepPieces& part : moving) AddCorrection(mu, part.pieces, vectors);
    mu = 0;
    v = {};
  }
  const double scale =
      clips ? ClipFactor(local_.clip_norm, NormOf<T>(vectors.gradient, PiecesOf(moving))) : 1.0;
  if (!adam_) norm_.Step();
  for (const StepPieces& part : moving) {
    if (adam_) {
      AdamStep<T>(AdamRule::Of(local_, mu), part.step, scale, part.pieces,
                  {.weights = vectors.weights,
                   .gradient = vectors.gradient,
                   .first = first_.As<T>(),
                   .second = second_.As<T>(),
                   .anchor = vectors.anchor,
                   .v = v});
      continue;
    }
    SgdStep<T>(SgdRule::Of(local_, mu), scale, part.pieces,
               {.weights = vectors.weights,
                .gradient = vectors.gradient,
                .momentum = local_.momentum != 0 ? first_.As<T>() : std::span<T>(),
                .anchor = vectors.anchor,
                .v = v});
  }
}

double LocalOptimizer::a_norm1() const {
  return adam_ ? std::numeric_limits<double>::quiet_NaN() : norm_.value();
}

template void LocalOptimizer::StepEach(const std::vector<StepPieces>&, const StepVectors<float>&,
                                       bool);
template void LocalOptimizer::StepEach(const std::vector<StepPieces>&, const StepVectors<double>&,
                                       bool);

}  // namespace macaw::training
