#include "training/torch/tensor_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "training/local_adam.h"

namespace macaw::training {
namespace {

at::Tensor Part(const at::Tensor& vector, const Pieces::value_type& piece) {
  if (!vector.defined()) return {};
  return vector.narrow(0, static_cast<int64_t>(piece.first),
                       static_cast<int64_t>(piece.second - piece.first));
}

// g ← g + μ(w − a) + v.
void AddCorrection(double mu, const StepTensors& x) {
  if (mu != 0) x.gradient.add_(x.weights - x.anchor, mu);
  if (x.v.defined()) x.gradient.add_(x.v);
}

StepTensors PartsOf(const StepTensors& x, const Pieces::value_type& piece) {
  return {.weights = Part(x.weights, piece),
          .gradient = Part(x.gradient, piece),
          .anchor = Part(x.anchor, piece),
          .v = Part(x.v, piece)};
}

}  // namespace

void TensorOptimizer::Start(const LocalConfig& local, double mu, const at::Tensor& like) {
  local_ = local;
  mu_ = mu;
  adam_ = AdamRule::IsFor(local);
  norm_ = StepNorm(SgdRule::Of(local, mu));
  const auto start_at_zero = [&](at::Tensor& vector) {
    vector.defined() ? vector.zero_() : vector = at::zeros_like(like);
  };
  if (adam_ || local.momentum != 0) start_at_zero(first_);
  if (adam_) start_at_zero(second_);
}

void TensorOptimizer::Clip(double clip_norm, const Pieces& pieces, const at::Tensor& gradient) {
  at::Tensor squares;
  for (const auto& piece : pieces) {
    const at::Tensor sum = Part(gradient, piece).to(at::kDouble).square().sum();
    squares = squares.defined() ? squares + sum : sum;
  }
  if (!squares.defined()) return;
  const at::Tensor norm = squares.sqrt();
  // A norm that is not a number clips nothing, as on the host.
  const at::Tensor factor = at::where(norm > clip_norm, clip_norm / norm, at::ones_like(norm));
  for (const auto& piece : pieces) Part(gradient, piece).mul_(factor.to(gradient.scalar_type()));
}

void TensorOptimizer::StepEach(const std::vector<StepPieces>& moving, const StepTensors& vectors,
                               bool clipped) {
  const at::NoGradGuard without_graph;
  const bool clips = local_.clip_norm > 0 && !clipped;
  const bool clips_corrected = clips && local_.clip == "corrected";
  const Pieces all = clips ? PiecesOf(moving) : Pieces();
  if (clips_corrected)
    for (const auto& piece : all) AddCorrection(mu_, PartsOf(vectors, piece));
  if (clips) Clip(local_.clip_norm, all, vectors.gradient);
  if (!adam_) norm_.Step();
  for (const StepPieces& same : moving) {
    for (const auto& piece : same.pieces) {
      const StepTensors part = PartsOf(vectors, piece);
      if (!clips_corrected) AddCorrection(mu_, part);
      StepPiece(same.step, part, Part(first_, piece), Part(second_, piece));
      part.gradient.zero_();
    }
  }
}

void TensorOptimizer::StepPiece(uint64_t step, const StepTensors& piece, const at::Tensor& first,
                                const at::Tensor& second) {
  const at::Tensor &w = piece.weights, &g = piece.gradient;
  if (adam_) {
    const AdamRule rule = AdamRule::Of(local_, 0);
    const AdamNumbers<double> n = AdamNumbersOf<double>(rule, step);
    if (!rule.decoupled && rule.weight_decay != 0) g.add_(w, rule.weight_decay);
    first.lerp_(g, n.first_new);
    second.mul_(n.second_old).addcmul_(g, g, n.second_new);
    const at::Tensor divisor = second.sqrt().div_(n.root).add_(n.epsilon);
    if (n.keep != 1) w.mul_(n.keep);
    w.addcdiv_(first, divisor, -n.rate);
    return;
  }
  if (local_.weight_decay != 0) g.add_(w, local_.weight_decay);
  if (local_.momentum == 0) {
    w.sub_(g, local_.lr);
    return;
  }
  first.mul_(local_.momentum).add_(g);
  if (local_.nesterov) {
    w.sub_(g.add_(first, local_.momentum), local_.lr);
  } else {
    w.sub_(first, local_.lr);
  }
}

double TensorOptimizer::a_norm1() const {
  return adam_ ? std::numeric_limits<double>::quiet_NaN() : norm_.value();
}

}  // namespace macaw::training
