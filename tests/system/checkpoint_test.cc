// local.checkpoint beside the other sections of a configuration, in whole runs: the run without it,
// to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Pauses;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::Simulation;
using testing_support::StateBytesOf;
using testing_support::WithSettings;
using testing_support::WriteConfig;

const std::vector<std::string> kDeep = {
    "partition.clients=20", "cohort.size=6", "workers.backend=torch",
    R"(model.layers=["flatten", "linear 24", "relu", "residual [linear 24, batchnorm, relu]", )"
    R"("dropout 0.3", "linear 24", "tanh", "linear 24", "tanh", "linear 10"])"};

const std::string kWithoutStatistics =
    R"(model.layers=["flatten", "linear 24", "relu", "residual [linear 24, tanh, linear 24]", )"
    R"("dropout 0.3", "linear 24", "tanh", "linear 24", "tanh", "linear 10"])";

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
    testing::Values(
        Beside{"FedAvg", {}}, Beside{"Scaffold", {"algorithm.name=scaffold"}},
        Beside{"Mime", {"algorithm.name=mime"}},  // gradients of the same masks
        Beside{"Moon", {"algorithm.name=moon"}},  // a loss on representations
        Beside{"FedSam", {"algorithm.name=fedsam"}}, Beside{"FedBn", {"algorithm.name=fedbn"}},
        Beside{"Frozen", {R"(model.frozen=["1.*"])"}},
        Beside{"ServersStatistics", {"model.buffers=server"}},
        Beside{"Parts", {"local.micro_batch=4"}}, Beside{"Bfloat16", {"local.precision=bf16"}},
        Beside{"Clipped", {"local.clip_norm=0.3", "local.momentum=0.9"}},
        Beside{"ClippedWithItsCorrection",
               {"algorithm.name=fedprox", "local.clip_norm=0.3", "local.clip=corrected"}},
        Beside{"AdamW", {"local.optimizer=adamw", "local.weight_decay=0.01"}},
        Beside{"Augmented", {"data.augment.pad_crop=2", "data.augment.flip=true"}},
        Beside{"Private", Plus(testing_support::SmallPrivacy(), {kWithoutStatistics})},
        Beside{"Coded", {R"(update.codec=["topk 0.1"])", "update.feedback=residual"}},
        Beside{"Adapters", {R"(model.adapters=["lora 2 1.*"])"}},
        Beside{"Stragglers", {"cohort.straggler_fraction=0.5", "local.epochs=3"}},
        Beside{"Buffered", Plus(testing_support::SmallDevices(),
                                {"round.mode=buffered", "round.concurrency=9"})},
        Beside{"FineTuned",
               {"evaluation.fine_tune.steps=3", "data.client_test_fraction=0.2", "run.rounds=1"}},
        Beside{"Ditto", {"algorithm.name=ditto"}}, Beside{"Apfl", {"algorithm.name=apfl"}},
        Beside{"PerFedAvg", {"algorithm.name=perfedavg"}},
        Beside{"PFedMe", {"algorithm.name=pfedme"}},
        Beside{"Ifca", {"algorithm.name=ifca", "algorithm.ifca.clusters=2"}},
        Beside{"Owners", {"workers.owners=3"}}),
    [](const auto& info) { return std::string(info.param.name); });

// Running statistics, masks and a client's state go on where they were.
TEST(Checkpoint, GoesOnAfterAKill) {
  MACAW_NEEDS_LIBTORCH();
  const std::string config = WriteConfig("killed", "[evaluation]\nclients = true\n");
  const std::vector<std::string> settings =
      Plus(kDeep, {"algorithm.name=scaffold", "run.rounds=16"});
  Simulation plain("plain", WithSettings(config, settings));
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  Simulation killed("killed", WithSettings(config, Plus(Plus(settings, {"local.checkpoint=true"}),
                                                        Pauses("0.25"))));
  ASSERT_TRUE(killed.WaitForEvent(testing_support::RoundDone(2))) << killed.output();
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait(), 128 + SIGKILL);
  Simulation resumed("resumed", ResumeWithoutPauses(killed));
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(StateBytesOf(resumed), StateBytesOf(plain));
}

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
