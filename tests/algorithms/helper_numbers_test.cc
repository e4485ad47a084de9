// Rules whose server divides or multiplies by a number that clients say beside their update. One
// client may say any number within its channel's bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

constexpr double kBound = 2;  // run.contribution_bound
constexpr double kMean = 0.25;

// A server half at (0, 1, 2, 3), without clients.
class HelperNumbers {
 public:
  HelperNumbers(const std::string& rule, DType dtype,
                const std::map<std::string, ParameterValue>& parameters = {})
      : description_(Builtin(rule)) {
    setup_.layout = *ParameterLayout::Make({{.name = "a.weight", .shape = {4}}}, dtype);
    setup_.contribution_bound = kBound;
    for (const ParameterSpec& spec : description_.parameters)
      setup_.config.parameters[spec.name] = spec.default_value;
    for (const auto& [name, value] : parameters) setup_.config.parameters[name] = value;
    schema_ = *description_.schema(setup_);
    FlatVector model(setup_.layout);
    DispatchDType(dtype, [&]<typename T>(T) {
      for (size_t i = 0; i < 4; ++i) model.As<T>()[i] = static_cast<T>(i);
    });
    server_ = *description_.server(setup_, std::move(model));
  }

  // By how much the round moves the coordinates: the clients' mean is kMean in the first and 0 in
  // the last. `says`: the mean of what they say.
  std::pair<double, double> Moved(Phase phase, const std::string& channel, double says) {
    aggregation::Aggregate aggregate{.clients = 2, .channels = {}};
    for (const aggregation::ChannelSpec& spec : schema_.up) {
      aggregation::AggregatedChannel& sent = aggregate.channels.emplace_back();
      sent.name = spec.name;
      sent.weight = 2;
      sent.value = FlatVector(spec.layout);
      if (spec.name == channel) Fill(says, sent.value.view());
      if (spec.layout != setup_.layout) continue;
      Fill(kMean, sent.value.view());
      DispatchDType(spec.layout->dtype(), [&]<typename T>(T) { sent.value.As<T>()[3] = 0; });
    }
    const Numbers before = NumbersOf(server_->Model());
    const ServerContext context{
        .round = Round(1), .phase = phase, .metrics = &metrics_, .schema = &schema_};
    EXPECT_TRUE(server_->Apply(context, std::move(aggregate)).ok());
    const Numbers after = NumbersOf(server_->Model());
    return {after[0] - before[0], after[3] - before[3]};
  }
  const std::map<std::string, double>& metrics() const { return metrics_; }

 private:
  const Description description_;
  Setup setup_;
  Schema schema_;
  std::unique_ptr<ServerAlgorithm> server_;
  std::map<std::string, double> metrics_;
};

const DType kTypes[] = {DType::kF32, DType::kF64};

TEST(FedNova, AClientThatLiesAboutItsStepsMovesNoNumberBeyondTheBound) {
  for (const DType dtype : kTypes) {
    for (const double tau : {2.0, 7.75, 0x1p40, -0x1p40}) {
      const double honest = kMean * tau, most = kBound;
      const double moved = std::clamp(honest, -most, most);
      HelperNumbers plain("fednova", dtype, {{"server_lr", 0.5}});
      EXPECT_EQ(plain.Moved(Phase(0), "tau", tau), std::pair(0.5 * moved, 0.0)) << tau;
      HelperNumbers momentum("fednova", dtype, {{"server_momentum", 0.5}});
      EXPECT_EQ(momentum.Moved(Phase(0), "tau", tau), std::pair(moved, 0.0)) << tau;
      EXPECT_EQ(momentum.Moved(Phase(0), "tau", 0), std::pair(0.5 * moved, 0.0)) << tau;
    }
  }
}

TEST(FedExP, AClientThatLiesAboutItsNormMovesNoNumberBeyondTheBound) {
  for (const DType dtype : kTypes) {
    const double below = 2 * 3 * kMean * kMean;  // three coordinates move
    for (const double rate : {1.0, 4.0, 1e9, 1e300}) {
      HelperNumbers run("fedexp", dtype, {{"epsilon", 0.0}});
      EXPECT_EQ(run.Moved(Phase(0), "square", rate * below),
                std::pair(std::min(rate * kMean, kBound), 0.0))
          << rate;
    }
  }
}

TEST(QFedAvg, AClientThatLiesAboutItsDivisorMovesNoNumberBeyondTheBound) {
  for (const DType dtype : kTypes) {
    for (const double h : {0.5, 0.125, 1e-12, 1e-60, 1e-310, -1e-60}) {
      HelperNumbers run("qfedavg", dtype);
      const double moved = std::clamp(kMean / h, -kBound, kBound);
      EXPECT_EQ(run.Moved(Phase(0), "h", h), std::pair(moved, 0.0)) << h;
    }
  }
}

TEST(Term, AClientThatLiesAboutItsPowerMovesNoNumberBeyondTheBound) {
  for (const DType dtype : kTypes) {
    for (const double power : {0.5, 0.125, 1e-12, 1e-60, 1e-310}) {
      HelperNumbers run("term", dtype);
      EXPECT_EQ(run.Moved(Phase(0), "tilt", 1), std::pair(0.0, 0.0));
      EXPECT_EQ(run.Moved(Phase(1), "power", power),
                std::pair(std::min(kMean / power, kBound), 0.0))
          << power;
    }
    HelperNumbers run("term", dtype);
    EXPECT_EQ(run.Moved(Phase(0), "tilt", 1), std::pair(0.0, 0.0));
    EXPECT_EQ(run.Moved(Phase(1), "power", -0.5), std::pair(0.0, 0.0));
    for (const auto& [name, value] : run.metrics()) EXPECT_TRUE(std::isfinite(value)) << name;
  }
}

}  // namespace
}  // namespace macaw::algorithms
