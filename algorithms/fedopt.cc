#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"

// FedAdagrad, FedAdam, FedYogi: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan,
// "Adaptive Federated Optimization", ICLR 2021, algorithm 2. It uses the mean update as a gradient
// and has no bias correction; Keras-style implementations start v at 0 and correct the bias.
// FedAvgM: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution", 2019, server
// momentum.

namespace macaw::algorithms {
namespace {

enum class Rule { kAdagrad, kAdam, kYogi };

template <Rule kRule>
class AdaptiveServer final : public MeanDeltaServer {
 public:
  AdaptiveServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        beta1_(setup.Get<double>("beta1")),
        beta2_(setup.GetOr<double>("beta2", 0)),
        tau_(setup.Get<double>("tau")),
        corrected_(setup.GetOr<bool>("bias_correction", false)),
        m_(kept_.Vector("m", FlatVector(setup.layout))),
        v_(kept_.Vector("v", FlatVector(setup.layout))),
        steps_(kept_.Number("steps", 0)) {
    const double v_init = setup.Get<double>("v_init");
    Fill(v_init < 0 ? tau_ * tau_ : v_init, v_);  // v₋₁ ≥ τ²
  }

 protected:
  void Step(double server_lr, ConstVectorView mean_delta, VectorView model) override {
    ++steps_;
    Map(
        m_, [this](auto m, auto d) { return Blend(beta1_, m, d); }, mean_delta);  // m
    Map(
        v_, [this](auto v, auto d) { return Second(v, d * d); }, mean_delta);  // v
    const double m_scale = corrected_ ? 1 / (1 - std::pow(beta1_, steps_)) : 1;
    const double v_scale = corrected_ ? 1 / (1 - std::pow(beta2_, steps_)) : 1;
    const auto move = [&]<typename T>(T x, T m, T v) {  // x += η_g·m/(√v + τ)
      const T rate = static_cast<T>(server_lr * m_scale);
      return x + rate * m / (std::sqrt(static_cast<T>(v_scale) * v) + static_cast<T>(tau_));
    };
    Map(model, move, m_, v_);
  }

 private:
  template <typename T>
  static T Blend(double beta, T old, T fresh) {
    return static_cast<T>(beta) * old + static_cast<T>(1 - beta) * fresh;
  }
  template <typename T>
  T Second(T v, T square) const {
    if constexpr (kRule == Rule::kAdagrad) return v + square;
    if constexpr (kRule == Rule::kAdam) return Blend(beta2_, v, square);
    const T sign = v > square ? T{1} : v < square ? T{-1} : T{0};
    return v - static_cast<T>(1 - beta2_) * square * sign;
  }

  const double beta1_, beta2_, tau_;
  const bool corrected_;
  VectorView m_, v_;
  double& steps_;
};

class MomentumServer final : public MeanDeltaServer {
 public:
  MomentumServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        beta_(setup.Get<double>("beta")),
        m_(kept_.Vector("m", FlatVector(setup.layout))) {}

 protected:
  void Step(double server_lr, ConstVectorView mean_delta, VectorView model) override {
    if (beta_ == 0) {
      Copy(mean_delta, m_);
    } else {
      Scale(beta_, m_);
      Add(mean_delta, m_);  // m = β·m + Δ̄
    }
    Axpy(server_lr, m_, model);
  }

 private:
  const double beta_;
  VectorView m_;
};

ParameterSpec Decay(std::string name, double value, std::string help) {
  return {.name = std::move(name),
          .default_value = value,
          .help = std::move(help),
          .minimum = 0,
          .maximum = 1};
}

absl::Status CheckAdaptive(const Setup& setup) {
  if (setup.Get<double>("tau") <= 0)
    return absl::InvalidArgumentError(
        "tau must be above 0: an element that never moved divides by it");
  for (const char* beta : {"beta1", "beta2"}) {
    if (setup.GetOr<double>(beta, 0) == 1)
      return absl::InvalidArgumentError(
          absl::StrCat(beta, " must be below 1, or no update would ever count"));
  }
  return absl::OkStatus();
}

// `second`: how v is updated.
std::string AdaptiveFormula(const std::string& second) {
  return absl::StrCat(
      "client  y ← y − η·g\n"
      "up      Δ = y − x\n"
      "server  m ← β₁·m + (1 − β₁)·mean(Δ)\n"
      "        ",
      second,
      "\n"
      "        x ← x + η_g·m/(√v + τ)");
}

// The parts that the three rules share; `beta1` is the paper's default for the rule.
Description Adaptive(std::string name, std::string summary, double beta1) {
  Description rule = LikeFedAvg();
  rule.asynchronous = true;
  rule.name = std::move(name);
  rule.summary = std::move(summary);
  rule.paper = "Reddi et al., 2021, Adaptive Federated Optimization";
  rule.parameters[0].default_value = 0.1;
  rule.parameters[0].help = "η_g: the step's rate, to be tuned together with tau";
  rule.parameters.push_back(Decay("beta1", beta1, "β₁: decay of the mean update m"));
  rule.parameters.push_back({.name = "tau",
                             .default_value = 1e-3,
                             .help = "τ: added to √v, how little adaptive the step is",
                             .minimum = 0});
  rule.parameters.push_back({.name = "v_init",
                             .default_value = -1.0,
                             .help = "v before the first round; -1: τ², as in the paper",
                             .minimum = -1});
  rule.check = CheckAdaptive;
  return rule;
}

void AddSecondMoment(Description& rule) {
  rule.parameters.push_back(Decay("beta2", 0.99, "β₂: decay of the second moment v"));
  rule.parameters.push_back(
      {.name = "bias_correction",
       .default_value = false,
       .help = "divide m by 1 − β₁ᵗ and v by 1 − β₂ᵗ (Keras-style; with v_init = 0)"});
}

}  // namespace

Description FedAdagrad() {
  Description rule = Adaptive("fedadagrad", "FedAvg with Adagrad as the server's optimizer", 0);
  rule.formula = AdaptiveFormula("v ← v + mean(Δ)²");
  rule.server = MakeServer<AdaptiveServer<Rule::kAdagrad>>;
  return rule;
}

Description FedAdam() {
  Description rule = Adaptive("fedadam", "FedAvg with Adam as the server's optimizer", 0.9);
  AddSecondMoment(rule);
  rule.formula = AdaptiveFormula("v ← β₂·v + (1 − β₂)·mean(Δ)²");
  rule.server = MakeServer<AdaptiveServer<Rule::kAdam>>;
  return rule;
}

Description FedYogi() {
  Description rule = Adaptive("fedyogi", "FedAvg with Yogi as the server's optimizer", 0.9);
  AddSecondMoment(rule);
  rule.formula = AdaptiveFormula("v ← v − (1 − β₂)·mean(Δ)²·sign(v − mean(Δ)²)");
  rule.server = MakeServer<AdaptiveServer<Rule::kYogi>>;
  return rule;
}

Description FedAvgM() {
  Description rule = LikeFedAvg();
  rule.asynchronous = true;
  rule.name = "fedavgm";
  rule.summary = "FedAvg with momentum on the server";
  rule.paper =
      "Hsu et al., 2019, Measuring the Effects of Non-Identical Data Distribution for Federated "
      "Visual Classification";
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ = y − x\n"
      "server  m ← β·m + mean(Δ)\n"
      "        x ← x + η_g·m";
  rule.parameters.push_back(Decay("beta", 0.9, "β: m = β·m + Δ̄; 0 is FedAvg"));
  rule.server = MakeServer<MomentumServer>;
  return rule;
}

}  // namespace macaw::algorithms
