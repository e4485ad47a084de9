// Which runs HeteroFL refuses, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "algorithms/around/channels.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "models/spec.h"
#include "tests/algorithms/heterofl_network.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Of a run of this rule.
class HeteroFlRefusals : public testing::Test {
 protected:
  HeteroFlRefusals() {
    registry_.AddBuiltin(BuiltinAlgorithms());
    run_.task = TaskKind::kClassification;
    run_.model = SmallNetwork();
    run_.clients = 40;
    run_.cohort.size = 10;
    run_.algorithm = {"heterofl", {}};
  }
  std::string Refusal(const Parameters& parameters = {}) {
    const absl::StatusOr<AlgorithmConfig> complete = registry_.Complete({"heterofl", parameters});
    if (!complete.ok()) return std::string(complete.status().message());
    run_.algorithm = *complete;
    const absl::StatusOr<Description> rule = registry_.RuleOf(run_);
    if (!rule.ok()) return std::string(rule.status().message());
    const models::ModelSpec spec = *models::BuildSpec(run_.model, DType::kF32);
    algorithms::Setup setup = SetupOf(run_, spec.layout);
    setup.total_weight = 40;
    return std::string(MakeSchema(*rule, setup).status().message());
  }

  Registry registry_;
  RunPlan run_;
};

TEST_F(HeteroFlRefusals, NoneOfAnOrdinaryRun) { EXPECT_EQ(Refusal(), ""); }

TEST_F(HeteroFlRefusals, OfRatesAndShares) {
  EXPECT_THAT(Refusal({{"rates", "1 two"}}), HasSubstr("\"two\" is no number"));
  EXPECT_THAT(Refusal({{"rates", ""}}), HasSubstr("at least one rate"));
  EXPECT_THAT(Refusal({{"rates", "0.5 1"}}), HasSubstr("fall from the widest on"));
  EXPECT_THAT(Refusal({{"rates", "1 0"}}), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(Refusal({{"shares", "1 2"}}), HasSubstr("name a share for each rate"));
  EXPECT_THAT(Refusal({{"rates", "1 0.5"}, {"shares", "0.5 0.5"}}), HasSubstr("whole numbers"));
  EXPECT_EQ(Refusal({{"rates", "1 0.5"}, {"shares", "0.5 0.5"}, {"assign", "once"}}), "");
  EXPECT_THAT(Refusal({{"assign", "list"}, {"each", "1 0.5"}}),
              HasSubstr("each has 2 rates for 40 clients"));
  run_.clients = 3;
  run_.cohort.size = 3;
  EXPECT_THAT(Refusal({{"assign", "list"}, {"each", "1 0.5 0.3"}}), HasSubstr("a rate of 0.3"));
  EXPECT_EQ(Refusal({{"assign", "list"}, {"each", "1 0.5 0.5"}}), "");
  EXPECT_THAT(Refusal(), HasSubstr("divides 3 clients among 5 rates"));
  EXPECT_THAT(Refusal({{"rates", "1 0.5"}, {"shares", "1 99"}}), HasSubstr("for the rate 1:"));
  EXPECT_EQ(Refusal({{"rates", "1 0.5"}, {"shares", "99 1"}}), "") << "2 and 1";
  EXPECT_EQ(Refusal({{"assign", "dynamic"}}), "");
  run_.clients = 0;
  for (const Parameters& by_number :
       {Parameters{{"rates", "1 0.5"}},
        Parameters{{"rates", "1 0.5"}, {"assign", "list"}, {"each", "1 0.5 0.5"}}})
    EXPECT_THAT(Refusal(by_number), HasSubstr("run.clients"));
  EXPECT_EQ(Refusal({{"assign", "once"}}), "");
}

TEST_F(HeteroFlRefusals, OfModelsThatCannotBeNarrowed) {
  run_.model.layers = {"conv 4 3", "block 4", "flatten", "linear 3"};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("layer 2"), HasSubstr("cannot be narrowed")));
  run_.model = SmallNetwork();
  run_.model.frozen = {"0.*"};
  EXPECT_THAT(Refusal(), HasSubstr("model.frozen"));
  run_.model = SmallNetwork();
  run_.model.adapters = {"lora 2 4.*"};
  EXPECT_THAT(Refusal(), HasSubstr("adapters"));
  run_.model = SmallNetwork();
  run_.model.layers = {"conv 16 3", "groupnorm 1", "relu", "flatten", "linear 3"};
  EXPECT_EQ(Refusal(), "");
  EXPECT_THAT(Refusal({{"evaluate", 0.5}}), HasSubstr("groupnorm"));
  run_.model.input_shape = {1, 5, 3};
  run_.model.layers = {"conv 8 3", "relu", "conv 1 1", "flatten"};  // a class is a pixel
  EXPECT_THAT(Refusal(), HasSubstr("set mask = false"));
  EXPECT_EQ(Refusal({{"mask", false}}), "");
}

TEST_F(HeteroFlRefusals, OfWhatMixesTheClientsParts) {
  run_.evaluation.updates = true;
  EXPECT_THAT(Refusal(), HasSubstr("evaluation.updates"));
  run_.evaluation.updates = false;
  for (const char* kind : {"alie", "inner-product", "min-max", "mimic", "free-rider"}) {
    run_.attack.kind = kind;
    run_.attack.fraction = 0.2;
    EXPECT_THAT(Refusal(), HasSubstr("attack.kind")) << kind;
  }
  for (const char* kind : {"sign-flip", "scaling"}) {
    run_.attack.kind = kind;
    EXPECT_EQ(Refusal(), "") << kind;
  }
  run_.attack = {};
  for (const char* codec : {"rotate", "acpsgd 2", "majority 0.001"}) {
    run_.update.codec = {codec};
    if (std::string(codec) == "rotate") run_.update.codec.push_back("bits 8");
    EXPECT_NE(Refusal(), "") << codec;
  }
  run_.update.codec = {"topk 0.1", "bits 8"};  // without feedback, whatever "auto" is elsewhere
  EXPECT_EQ(Refusal(), "");
  for (const char* feedback : {"residual", "ef21"}) {
    run_.update.feedback = feedback;
    EXPECT_THAT(Refusal(), HasSubstr("update.feedback")) << feedback;
  }
  run_.update = {};
  run_.cohort.sampling = "poisson";
  EXPECT_THAT(Refusal(), HasSubstr("use \"uniform\""));
  run_.cohort.weight = WeightPolicy::kUniform;
  run_.privacy = {.mechanism = "gaussian", .clip = 1, .noise = 1};
  EXPECT_THAT(Refusal(), HasSubstr("'held' is no update of the model"));
}

}  // namespace
}  // namespace macaw::algorithms
