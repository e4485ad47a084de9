#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "training/api/hooks.h"

// Mime and MimeLite: Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh, "Breaking the
// Centralized Barrier for Cross-Device Federated Learning", NeurIPS 2021, algorithm 1. The state s
// of the server's optimizer is fixed during a round. Mime: phase 0 computes c, the mean full
// gradient at x, and phase 1 trains the same cohort. MimeLite needs c only to update s afterwards,
// so one phase does both.
//
// An ℓ2 term (local.weight_decay) is part of the objective: it is in c and in every step's
// gradient, so the base optimizer treats it like the rest.

namespace macaw::algorithms {
namespace {

constexpr Phase kGradients{0}, kSteps{1};  // of Mime; MimeLite has one phase

// U and V of the base optimizer: how a direction becomes a step, and how s is updated by c.
struct Base {
  enum class Kind { kSgd, kMomentum, kAdam } kind;
  double beta1, beta2, epsilon;

  static Base Of(const Setup& setup) {
    const std::string name = setup.Get<std::string>("base");
    return {name == "sgd"        ? Kind::kSgd
            : name == "momentum" ? Kind::kMomentum
                                 : Kind::kAdam,
            setup.Get<double>("beta1"), setup.Get<double>("beta2"), setup.Get<double>("epsilon")};
  }
  // The names of the vectors in s.
  std::vector<std::string> Moments() const {
    if (!tracks()) return {};
    return kind == Kind::kMomentum ? std::vector<std::string>{"m"}
                                   : std::vector<std::string>{"m", "v"};
  }
  bool tracks() const { return kind != Kind::kSgd; }  // s is not empty, so c is needed
  // d ← U(d, s). SGD: d; momentum: (1−β₁)d + β₁m; Adam: that, divided by ε + √v.
  void Use(VectorView d, std::span<const ConstVectorView> s) const {
    if (!tracks()) return;
    Map(
        d, [this](auto d, auto m) { return Blend(beta1, m, d); }, s[0]);
    if (kind == Kind::kAdam) {
      const auto divide = [this]<typename T>(T d, T v) {
        return d / (static_cast<T>(epsilon) + std::sqrt(v));
      };
      Map(d, divide, s[1]);
    }
  }
  // s ← V(c, s): m = (1−β₁)c + β₁m, v = (1−β₂)c² + β₂v.
  void Track(ConstVectorView c, std::span<const VectorView> s) const {
    if (!tracks()) return;
    Map(
        s[0], [this](auto m, auto c) { return Blend(beta1, m, c); }, c);
    if (kind == Kind::kAdam)
      Map(
          s[1], [this](auto v, auto c) { return Blend(beta2, v, c * c); }, c);
  }

 private:
  template <typename T>
  static T Blend(double beta, T old, T fresh) {
    return static_cast<T>(beta) * old + static_cast<T>(1 - beta) * fresh;
  }
};

template <bool kLite>
class MimeClient final : public DeltaClient {
 public:
  explicit MimeClient(const Setup& setup) : DeltaClient(setup), base_(Base::Of(setup)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::Stage gradient = DeltaClient::LocalWork(context, workspace);  // ∇f_i(x)
    gradient.kind = training::StageKind::kGradient;
    if (!kLite && context.phase == kGradients) return training::LocalPlan{{gradient}};
    training::LocalPlan plan{{LocalWork(context, workspace)}};
    if (kLite && base_.tracks()) plan.stages.push_back(gradient);
    return plan;
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    if (!kLite && context.phase == kGradients)
      return ClientResult{.up = {{"gradient", Displacement(outcomes[0].end)}}};
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    if (kLite && base_.tracks()) result.up.push_back({"gradient", Displacement(outcomes[1].end)});
    return result;
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const double decay = std::exchange(stage.local.weight_decay, 0.0);
    const ConstVectorView x = context.model();
    const ConstVectorView c = kLite ? ConstVectorView() : context.Down("mean_gradient");
    std::vector<ConstVectorView> s;
    for (const std::string& name : base_.Moments()) s.push_back(context.Down(name));
    training::Hooks hooks;
    hooks.correct = [this, decay, x, c, s = std::move(s)](ConstVectorView y, VectorView g,
                                                          training::StepGradients& batch) {
      if (decay != 0) Axpy(decay, y, g);
      if constexpr (!kLite) {  // g(y; ζ) − g(x; ζ) + c, both of one batch ζ
        Subtract(g, batch.GradientAt(x), g);
        if (decay != 0) Axpy(-decay, x, g);
        Add(c, g);
      }
      base_.Use(g, s);  // y ← y − η·U(g, s)
      ZeroBuffers(g);
    };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }

 private:
  const Base base_;
};

template <bool kLite>
class MimeServer final : public MeanDeltaServer {
 public:
  MimeServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        base_(Base::Of(setup)),
        weight_decay_(setup.local.weight_decay),
        gradient_(setup.layout) {
    for (const std::string& name : base_.Moments())
      moments_.push_back(kept_.Vector(name, FlatVector(setup.layout)));
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    Broadcast down = {{"model", Model()}};
    if (!kLite) down.push_back({"mean_gradient", gradient_.view()});
    const std::vector<std::string> names = base_.Moments();
    for (size_t i = 0; i < names.size(); ++i) down.push_back({names[i], moments_[i]});
    return down;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const bool gradients = !kLite && context.phase == kGradients;
    if (ChannelOf(aggregate, gradients ? "gradient" : "delta").value.empty())
      return AfterApply::kRoundDone;  // no client contributed: the model stays
    if (gradients) {
      TakeGradient(std::move(ChannelOf(aggregate, "gradient").value));
      return AfterApply::kNextPhase;
    }
    if (kLite && base_.tracks()) TakeGradient(std::move(ChannelOf(aggregate, "gradient").value));
    MACAW_RETURN_IF_ERROR(MeanDeltaServer::Apply(context, std::move(aggregate)).status());
    base_.Track(gradient_.view(), moments_);  // s ← V(c, s)
    return AfterApply::kRoundDone;
  }

 private:
  void TakeGradient(FlatVector mean) {  // at x, before the model moves
    gradient_ = std::move(mean);
    Axpy(weight_decay_, Model(), gradient_.view());
    ZeroBuffers(gradient_.view());
  }

  const Base base_;
  const double weight_decay_;
  FlatVector gradient_;  // c: used within a round, so it is not saved
  std::vector<VectorView> moments_;
};

template <bool kLite>
Schema MimeSchema(const Setup& setup) {
  const Base base = Base::Of(setup);
  Schema schema = MeanDeltaSchema(setup);
  const std::vector<Phase> steps = kLite ? std::vector<Phase>() : std::vector<Phase>{kSteps};
  if (!kLite || base.tracks()) {
    schema.up.push_back(schema.up[0]);
    schema.up[1].name = "gradient";
  }
  if (!kLite) {
    schema.up[0].phases = steps;
    schema.up[1].phases = {kGradients};
    schema.down.push_back({"mean_gradient", setup.layout, steps});
  }
  // s is sent where it is used.
  for (const std::string& name : base.Moments()) schema.down.push_back({name, setup.layout, steps});
  return schema;
}

// `base`: the key of the server optimizer.
absl::Status CheckMime(const Setup& setup, const std::string& base) {
  MACAW_RETURN_IF_ERROR(NeedsSgd(setup));
  if (setup.local.momentum != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "local.momentum would be a second momentum inside the round: set it to 0 and use ", base,
        " = \"momentum\""));
  }
  if (setup.local.clip_norm > 0) {
    return absl::InvalidArgumentError(
        "local.clip_norm clips one gradient of each pair and not the other: set it to 0");
  }
  return absl::OkStatus();
}

template <bool kLite>
RowsOfTurn MimePasses(const Setup& setup) {
  if constexpr (!kLite) return Passes(2, 1);  // a pair of gradients for each batch, and ∇f_i(x)
  return Passes(1, Base::Of(setup).tracks() ? 1 : 0);
}

template <bool kLite>
std::string MimeFormula() {
  constexpr char kOptimizers[] =
      "sgd       U(d) = d\n"
      "momentum  U(d) = (1 − β₁)·d + β₁·m;      V: m ← (1 − β₁)·c + β₁·m\n"
      "adam      U(d) = ((1 − β₁)·d + β₁·m)/(ε + √v); V: as momentum, v ← (1 − β₂)·c² + β₂·v";
  if constexpr (kLite) {
    return absl::StrCat(
        "client    y ← y − η·U(g)\n"
        "up        Δ = y − x; ∇f_i(x) unless sgd\n"
        "server    x ← x + η_g·mean(Δ), c = mean(∇f_i(x)), V\n",
        kOptimizers);
  } else {
    return absl::StrCat(
        "phase 0   up ∇f_i(x); c = mean(∇f_i(x))\n"
        "phase 1   y ← y − η·U(g(y) − g(x) + c), both of one batch\n"
        "up        Δ = y − x\n"
        "server    x ← x + η_g·mean(Δ), V\n",
        kOptimizers);
  }
}

template <bool kLite>
Description MimeFamily(std::string name, std::string summary) {
  const std::string key = absl::StrCat("algorithm.", name, ".base");
  Description mime = {
      .name = std::move(name),
      .summary = std::move(summary),
      .paper =
          "Karimireddy et al., 2021, Breaking the Centralized Barrier for Cross-Device Federated "
          "Learning",
      .formula = MimeFormula<kLite>(),
      .parameters = ServerRateParameters(),
      .remarks =
          "Where cohort.sampling is poisson, mean(Δ) is over the planned weight, and c over the "
          "weight of those who came.",
      .has_hooks = true,
      .passes = MimePasses<kLite>,
      .check = [key](const Setup& setup) { return CheckMime(setup, key); },
      .schema = MimeSchema<kLite>,
      .server = MakeServer<MimeServer<kLite>>,
      .client = MakeClient<MimeClient<kLite>>,
  };
  const auto is = [](const AlgorithmConfig& config, const char* base) {
    return config.parameters.at("base") == ParameterValue(std::string(base));
  };
  const auto tracks = [is](const AlgorithmConfig& config) { return !is(config, "sgd"); };
  const auto adam = [is](const AlgorithmConfig& config) { return is(config, "adam"); };
  mime.parameters.push_back({.name = "base",
                             .default_value = "momentum",
                             .help = "the server optimizer that clients step with",
                             .choices = {"sgd", "momentum", "adam"}});
  mime.parameters.push_back(
      {.name = "beta1",
       .default_value = 0.9,
       .help = "β₁ of momentum and adam",
       .minimum = 0,
       .maximum = 1,
       .needs = {{tracks, absl::StrCat(key, " = \"momentum\" or \"adam\"")}}});
  mime.parameters.push_back({.name = "beta2",
                             .default_value = 0.99,
                             .help = "β₂ of adam",
                             .minimum = 0,
                             .maximum = 1,
                             .needs = {{adam, absl::StrCat(key, " = \"adam\"")}}});
  mime.parameters.push_back({.name = "epsilon",
                             .default_value = 1e-3,
                             .help = "ε of adam: added to √v",
                             .minimum = 0,
                             .needs = {{adam, absl::StrCat(key, " = \"adam\"")}}});
  return mime;
}

}  // namespace

Description Mime() {
  return MimeFamily<false>(
      "mime", "clients take the server optimizer's steps, corrected towards the mean gradient");
}

Description MimeLite() {
  return MimeFamily<true>("mimelite", "Mime without the correction of each step");
}

}  // namespace macaw::algorithms
