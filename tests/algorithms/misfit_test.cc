// A rule whose client returns what its schema does not have, inside all that reads a client's
// vectors: an error that names the rule and the channel, before anything is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/around/asynchronous.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/drift.h"
#include "algorithms/around/factored.h"
#include "algorithms/around/guard.h"
#include "algorithms/around/majority.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "tests/algorithms/attack_util.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Fault = std::function<void(ClientResult&, Workspace&)>;

class FaultyClient final : public DeltaClient {
 public:
  FaultyClient(const Setup& setup, Fault fault) : DeltaClient(setup), fault_(std::move(fault)) {}
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    if (context.round == Round(2)) fault_(result, workspace);
    return result;
  }

 private:
  const Fault fault_;
};

// As the registry has it.
Description FaultyRule(const Fault& fault) {
  Description rule = Builtin("fedavg");
  rule.name = "heron";
  rule.client = [fault](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    return std::make_unique<FaultyClient>(setup, fault);
  };
  return Guard(std::move(rule));
}

Description Discounted(const Description& rule) {
  RunPlan run;
  run.clients = 4;
  run.cohort.size = 4;
  run.asynchronous.mode = "buffered";
  return Asynchronous(rule, run);
}

Description UnderSignFlip(const Description& rule) {
  const AttackConfig attack = Of("sign-flip", .5, 2);
  return Attacked(rule, attack, HostileClients(attack, 4, kSeed));
}

TEST(Misfits, AreToldByWhateverStandsAroundTheRule) {
  using Around = std::function<Description(const Description&)>;
  const std::vector<Around> surroundings = {
      [](const Description& rule) { return rule; },
      [](const Description& rule) { return WithDrift(rule); },
      [](const Description& rule) { return Discounted(rule); },
      [](const Description& rule) { return Compressed(rule, {.codec = {"topk 0.5"}}); },
      [](const Description& rule) { return ByMajority(rule, {.codec = {"majority 0.5"}}); },
      [](const Description& rule) { return Factored(rule, {.codec = {"acpsgd 1"}}); },
      [](const Description& rule) { return UnderSignFlip(rule); }};
  const LayoutPtr other = ParameterLayout::Scalars("w", 1, DType::kF32);
  const auto another = [other](Workspace& workspace) {
    const VectorView vector = workspace.Vector(other);
    Zero(vector);
    return ConstVectorView(vector);
  };
  const std::vector<std::pair<Fault, std::string>> faults = {
      {[&](ClientResult& result, Workspace& space) { result.up[0].value = another(space); },
       "'delta' in another layout"},
      {[&](ClientResult& result, Workspace& space) {
         result.up[0].value = Displacement(another(space), another(space), 2);
       },
       "'delta' in another layout"},
      {[](ClientResult& result, Workspace&) { result.up[0].value = ConstVectorView(); },
       "'delta' as an empty view"},
      {[](ClientResult& result, Workspace&) { result.up[0].name = "detla"; }, "'detla'"},
      {[](ClientResult& result, Workspace&) { result.up.push_back(result.up[0]); }, "twice"}};
  const LayoutPtr layout = *ParameterLayout::Make({{.name = "w", .shape = {6, 6}}}, DType::kF64);
  std::vector<TestPopulationClient> population(
      4, {std::make_shared<SquaredDistance>(Numbers(36, 1.0)), 1});
  for (size_t around = 0; around < surroundings.size(); ++around) {
    for (const auto& [fault, told] : faults) {
      RoundLoop loop(surroundings[around](FaultyRule(fault)), population,
                     {.start = Numbers(36),
                      .layout = layout,
                      .cohort = {.size = 4},
                      .asynchronous = around == 2});
      ASSERT_TRUE(loop.Rounds(1).ok()) << around;
      std::map<size_t, uint32_t> staleness;
      if (around == 2) staleness[0] = 1;
      const absl::Status status = loop.Round({0, 1, 2, 3}, {}, staleness);
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << around << " " << status;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("heron"), HasSubstr(told)))
          << around;
    }
  }
}

}  // namespace
}  // namespace macaw::algorithms
