// local.checkpoint beside the other sections of a configuration, in whole runs: the run without it,
// to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Plus;
using testing_support::Simulation;
using testing_support::StateBytesOf;
using testing_support::WithSettings;
using testing_support::WriteConfig;

const std::vector<std::string> kDeep = {
    "partition.clients=20", "cohort.size=6", "workers.backend=torch",
    R"(model.layers=["flatten", "linear 24", "relu", "residual [linear 24, batchnorm, relu]", )"
    R"("dropout 0.3", "linear 24", "tanh", "linear 24", "tanh", "linear 10"])"};

struct Beside {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const Beside& beside, std::ostream* out) { *out << beside.name; }

class Checkpointed : public testing::TestWithParam<Beside> {};

TEST_P(Checkpointed, IsTheRunWithoutIt) {
  MACAW_NEEDS_LIBTORCH();
  const std::vector<std::string> settings = Plus(kDeep, GetParam().settings);
  const std::string config = WriteConfig("checkpoint", "[evaluation]\nclients = true\n");
  Simulation plain("plain", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  Simulation again("again", WithSettings(config, Plus(settings, {"local.checkpoint=true"}),
                                         {"--processes", "2", "--slots", "2"}));
  ASSERT_EQ(again.Wait(), 0) << again.output();
  EXPECT_EQ(StateBytesOf(again), StateBytesOf(plain));
  EXPECT_EQ(plain.digest().size(), 64u);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Checkpointed,
    testing::Values(Beside{"FedAvg", {}}, Beside{"Scaffold", {"algorithm.name=scaffold"}},
                    Beside{"Mime", {"algorithm.name=mime"}},  // gradients of the same masks
                    Beside{"Moon", {"algorithm.name=moon"}},  // a loss on representations
                    Beside{"FedSam", {"algorithm.name=fedsam"}},
                    Beside{"FedBn", {"algorithm.name=fedbn"}},
                    Beside{"Frozen", {R"(model.frozen=["1.*"])"}},
                    Beside{"ServersStatistics", {"model.buffers=server"}},
                    Beside{"Parts", {"local.micro_batch=4"}},
                    Beside{"Bfloat16", {"local.precision=bf16"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Checkpoint, IsRefusedBeforeTheRunWhereItHasNoEffect) {
  MACAW_NEEDS_LIBTORCH();
  const std::string config = WriteConfig("checkpoint");
  Simulation fused(
      "fused",
      WithSettings(config, Plus(kDeep, {"workers.backend=fused", "local.checkpoint=true"})));
  EXPECT_EQ(fused.Wait(), 2) << fused.output();
  EXPECT_THAT(fused.output(), HasSubstr("local.checkpoint"));
  Simulation flat("flat",
                  WithSettings(config, Plus(kDeep, {R"(model.layers=["flatten","linear 10"])",
                                                    "local.checkpoint=true"})));
  EXPECT_EQ(flat.Wait(), 2) << flat.output();
  EXPECT_THAT(flat.output(),
              AllOf(HasSubstr("saves nothing on this model"), HasSubstr("take it out")));
}

}  // namespace
}  // namespace macaw
