#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/channels.h"
#include "algorithms/mean_delta.h"
#include "server/leave_one_out.h"
#include "server/model_keeper.h"
#include "tests/server/tiny_run.h"

// The angles of contributions.jsonl, and rules whose rounds have phases, under what is put around a
// rule.
namespace macaw::server {
namespace {

using fixtures::Registry;
using testing::HasSubstr;

constexpr uint64_t kSenders = 3;

// Of a matrix, so that there is something to factor.
const LayoutPtr& MatrixLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(*ParameterLayout::Make(
      {{.name = "w", .shape = {8, 8}}, {.name = "b", .shape = {8}}}, DType::kF32));
  return layout;
}

PhaseOrder FirstOrder() {
  return {.round = Round(1),
          .grid = {.max_weight = 8,
                   .total_weight = 30,
                   .max_multiplicity = 1,
                   .total_multiplicity = kSenders}};
}

double WeightOf(uint64_t client) { return static_cast<double>(client + 2); }

// What client k sends on the channel with that number among the vectors of its length.
FlatVector ValueOf(const LayoutPtr& layout, uint64_t client, size_t channel) {
  FlatVector value(layout);
  DispatchDType(layout->dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : layout->entries()) {
      for (uint64_t i = 0; i < entry.size; ++i) {
        const double angle = static_cast<double>((client + 1) * (i + 2) * (2 * channel + 1));
        value.As<T>()[entry.offset + i] = static_cast<T>(std::sin(angle) + 0.3);
      }
    }
  });
  return value;
}

FlatVector OnesOf(const LayoutPtr& layout) {
  FlatVector ones(layout);
  DispatchDType(layout->dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : layout->entries()) {
      for (uint64_t i = 0; i < entry.size; ++i) ones.As<T>()[entry.offset + i] = 1;
    }
  });
  return ones;
}

class LeftOutCosine : public testing::Test {
 protected:
  using Change = std::function<void(RunPlan&)>;

  static RunPlan PlanOf(const std::string& algorithm, const Change& change) {
    RunPlan run = fixtures::TinyRun(2);
    run.algorithm = *Registry().Complete({algorithm, {}});
    run.contribution_bound = 64;
    run.evaluation.leave_one_out = 1;
    if (change) change(run);
    return run;
  }

  // The cosines of a round in which each client sends ValueOf on the channels of the model's
  // layout, in the same order in all runs, and ones on the channels of a few numbers.
  std::vector<double> CosinesOf(const std::string& algorithm, const Change& change = nullptr) {
    const RunPlan run = PlanOf(algorithm, change);
    const absl::StatusOr<algorithms::Description> rule = Registry().RuleOf(run);
    EXPECT_TRUE(rule.ok()) << rule.status();
    const algorithms::Setup setup = algorithms::SetupOf(run, MatrixLayout());
    absl::StatusOr<ModelKeeper> keeper =
        ModelKeeper::Make(*rule, setup, FlatVector(MatrixLayout()), {.leave_one_out = 1});
    EXPECT_TRUE(keeper.ok()) << keeper.status();
    EXPECT_TRUE(keeper->Open(FirstOrder()).ok());
    const algorithms::Schema schema = *algorithms::SchemaOf(*rule, setup);
    channels_ = algorithms::UpChannels(schema, Phase(0));
    for (uint64_t client = 0; client < kSenders; ++client) {
      auto sum = *aggregation::ExactSum::Make(channels_, FirstOrder().grid);
      std::vector<FlatVector> vectors;
      std::vector<ConstVectorView> values;
      for (size_t c = 0; c < channels_.size(); ++c) {
        const LayoutPtr& layout = channels_[c].layout;
        vectors.push_back(layout->size() > 8 ? ValueOf(layout, client, c) : OnesOf(layout));
      }
      for (const FlatVector& vector : vectors) values.push_back(vector.view());
      const absl::Status added =
          sum.Add({.client = ClientId(client), .weight = WeightOf(client), .values = values});
      EXPECT_TRUE(added.ok()) << added;
      EXPECT_TRUE(keeper->Add(std::move(sum), ClientId(client)).ok());
    }
    const absl::StatusOr<bool> applied = keeper->Apply(Round(1), Phase(0));
    EXPECT_TRUE(applied.ok()) << applied.status();
    std::vector<double> cosines;
    for (const WithoutClient& one : keeper->without()) cosines.push_back(one.cosine);
    EXPECT_EQ(cosines.size(), kSenders);
    return cosines;
  }

  // By hand: `weighted` says of each compared channel whether its mean is weighted.
  static std::vector<double> ByHand(const std::vector<bool>& weighted) {
    std::vector<double> cosines;
    for (uint64_t client = 0; client < kSenders; ++client) {
      double own = 0, mean = 0, both = 0;
      for (size_t c = 0; c < weighted.size(); ++c) {
        for (const LayoutEntry& entry : MatrixLayout()->entries()) {
          for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
            double sum = 0, weights = 0;
            for (uint64_t k = 0; k < kSenders; ++k) {
              const double weight = weighted[c] ? WeightOf(k) : 1;
              sum += weight * ValueOf(MatrixLayout(), k, c).As<float>()[i];
              weights += weight;
            }
            const double x = ValueOf(MatrixLayout(), client, c).As<float>()[i], m = sum / weights;
            own += x * x;
            mean += m * m;
            both += x * m;
          }
        }
      }
      cosines.push_back(both / std::sqrt(own * mean));
    }
    return cosines;
  }

  static void ExpectNear(const std::vector<double>& got, const std::vector<double>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], wanted[k], 1e-6) << "client " << k;
  }

  std::vector<aggregation::ChannelSpec> channels_;
};

TEST_F(LeftOutCosine, IsOfTheUpdateAndItsMean) { ExpectNear(CosinesOf("fedavg"), ByHand({true})); }

// A sum, as of SCAFFOLD's control changes, has another factor than a mean has.
TEST_F(LeftOutCosine, HasMeansAndSumsOnOneScale) {
  const auto scaffold = [this](bool weighted) {
    return CosinesOf("scaffold",
                     [weighted](RunPlan& run) { run.algorithm.parameters["weighted"] = weighted; });
  };
  ExpectNear(scaffold(true), ByHand({true, true}));
  const std::vector<double> cosines = scaffold(false);
  ASSERT_EQ(channels_.size(), 2u);
  ASSERT_EQ(channels_[1].reduction, aggregation::Reduction::kFixedSum);
  ASSERT_NE(channels_[1].divisor, kSenders);
  ExpectNear(cosines, ByHand({false, false}));
}

// Nor do numbers beside the update turn it, whoever adds them.
TEST_F(LeftOutCosine, LeavesOutWhatIsNoUpdate) {
  const std::vector<double> plain = CosinesOf("fedavg");
  EXPECT_EQ(CosinesOf("fedavg", [](RunPlan& run) { run.evaluation.updates = true; }), plain);
  EXPECT_GT(channels_.size(), 1u);
  const std::vector<double> fedexp = CosinesOf("fedexp");
  ASSERT_EQ(channels_.size(), 2u);
  ExpectNear(fedexp, ByHand({channels_[0].reduction == aggregation::Reduction::kWeightedMean}));
  EXPECT_EQ(CosinesOf("fedexp", [](RunPlan& run) { run.evaluation.updates = true; }), fedexp);
  ExpectNear(CosinesOf("median"), ByHand({false}));
}

TEST_F(LeftOutCosine, LeavesOutWhatAnAttackSendsBesideTheUpdate) {
  const std::vector<double> plain = CosinesOf("fedavg");
  for (const char* kind : {"sign-flip", "inner-product", "alie", "min-max"}) {
    const auto attacked = [&](RunPlan& run) {
      run.attack.kind = kind;
      run.attack.fraction = 0.25;
    };
    EXPECT_EQ(CosinesOf("fedavg", attacked), plain) << kind;
    EXPECT_GT(channels_.size(), 1u) << kind;
  }
}

// Factors stand for the update.
TEST_F(LeftOutCosine, IsOfFactorsWhereClientsSendThem) {
  const std::vector<double> cosines =
      CosinesOf("fedavg", [](RunPlan& run) { run.update.codec = {"acpsgd 1"}; });
  for (const double cosine : cosines) EXPECT_TRUE(std::fabs(cosine) <= 1 + 1e-9) << cosine;
}

// ---- rounds of several phases

TEST_F(LeftOutCosine, IsRefusedWhereACodecGivesARoundTwoPhases) {
  const auto check = [](const char* codec) {
    const RunPlan run = PlanOf("fedavg", [&](RunPlan& plan) { plan.update.codec = {codec}; });
    const algorithms::Description rule = *Registry().RuleOf(run);
    const algorithms::Setup setup = algorithms::SetupOf(run, MatrixLayout());
    return CheckLeaveOneOut(run, rule, *algorithms::MakeSchema(rule, setup));
  };
  EXPECT_THAT(check("powersgd 1").ToString(), HasSubstr("take \"acpsgd\""));
  EXPECT_TRUE(check("acpsgd 1").ok()) << check("acpsgd 1");
}

// FedAvg in two phases, of which its schema does not tell: every channel is of all phases.
class Twice final : public algorithms::MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;
  absl::StatusOr<algorithms::AfterApply> Apply(const algorithms::ServerContext& context,
                                               aggregation::Aggregate aggregate) override {
    if (context.phase == Phase(0)) return algorithms::AfterApply::kNextPhase;
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }
};

TEST_F(LeftOutCosine, EndsARunWhoseRuleAsksForAPhaseThatItDidNotTellOf) {
  algorithms::Description rule = **Registry().Find("fedavg");
  rule.server = algorithms::MakeServer<Twice>;
  const algorithms::Setup setup =
      algorithms::SetupOf(PlanOf("fedavg", nullptr), fixtures::TinyLayout());
  for (const uint32_t every : {0, 1}) {
    ModelKeeper keeper =
        *ModelKeeper::Make(rule, setup, fixtures::TinyModel(), {.leave_one_out = every});
    ASSERT_TRUE(keeper.Open(FirstOrder()).ok());
    const absl::StatusOr<bool> applied = keeper.Apply(Round(1), Phase(0));
    if (every == 0) {
      EXPECT_TRUE(applied.ok() && *applied) << applied.status();
    } else {
      EXPECT_THAT(applied.status().ToString(),
                  AllOf(HasSubstr("evaluation.leave_one_out"), HasSubstr("several phases")));
    }
  }
}

}  // namespace
}  // namespace macaw::server
