// The bits of LibTorch's trainer on processors, as they were recorded: what is done for its other
// devices does not move them. Each profile has bits of its own; on others the test compares two
// runs, and prints the lines to add.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "tests/training/sequences.h"
#include "tests/training/testing.h"

namespace macaw::training {
namespace {

struct Recorded {
  std::string profile;
  std::array<std::string, 4> digests;  // of convolutions, doubles, texts, recurrent layers
};

const std::vector<Recorded>& AllRecorded() {
  static const std::vector<Recorded> all = {
      {"avx2 amd, libtorch 2.11.0, glibc 2.36",
       {"d06e266b44d37f42682c3d199ce63e9c4210b294fd178eb604a277565b551c49",
        "cd7db71ebd7e8a9d99e7f429ef50b9b1f2261e461afea80b607ab4efbce62e61",
        "7d1c3b798ad5173c7fe08f80c74e201067999ab4575ee71e81bccb419b7a79a9",
        "27bce1bc512f9308efa2ea0f7edfbbcc0022a801c73d3242cd3c63a715a67939"}},
  };
  return all;
}

// A gradient, and two epochs of training that correct by it.
std::string BitsOf(const models::ModelSpec& spec, TaskKind task, const std::string& optimizer,
                   data::FeatureType type, const data::Rows& rows) {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = task;
  setup.feature_type = type;
  setup.dtype = spec.layout->dtype();
  const auto trainer = *TorchBackend().MakeTrainer(setup);
  const FlatVector x = models::InitialModel(spec, 1);
  Stage gradient = StageFrom(View(x), 0);
  gradient.kind = StageKind::kGradient;
  Stage train = StageFrom(View(x), 0.05);
  train.local.epochs = 2;
  train.local.batch_size = 3;
  train.local.shuffle = true;
  train.local.optimizer = optimizer;
  train.local.weight_decay = 0.01;
  train.local.clip_norm = 5;
  if (optimizer == "sgd") train.local.momentum = 0.9;
  train.correction.mu = 0.1;
  train.correction.v = {{.point = StageEnd{0}, .factor = -0.5}};
  LocalPlan plan;
  plan.stages = {gradient, train};
  Digester digester;
  for (const StageOutcome& outcome : MustRun(*trainer, plan, TaskOf(rows))) {
    digester.Add(DigestOfValues(outcome.end).Hex());
    for (const double sum : outcome.sums) digester.Add(std::bit_cast<uint64_t>(sum));
  }
  return digester.Finish().Hex();
}

std::array<std::string, 4> BitsHere() {
  const Examples images = RandomExamples(10, 11 * 13, 3, 9), vectors = RandomExamples(10, 19, 3, 9);
  Sequences text{{{0, 1, 2, 3}, {1, 2, 0, 0}, {2, 0, 0, 0}, {3, 4, 1, 0}, {4, 4, 4, 4}},
                 {4, 0, 1, 2, 3},
                 {4, 2, 1, 3, 4}};
  const data::Rows texts = text.Rows();
  const auto of_texts = [&](const std::vector<std::string>& layers) {
    return BitsOf(SpecOf(layers, {4}, 5, DType::kF32), TaskKind::kNextToken, "adamw",
                  data::FeatureType::kI32, texts);
  };
  return {BitsOf(SpecOf({"conv 6 3 pad 1", "batchnorm", "relu", "maxpool 2", "conv 8 3",
                         "groupnorm 2", "relu", "flatten", "dropout 0.5", "linear 3"},
                        {1, 11, 13}, 3, DType::kF32),
                 TaskKind::kClassification, "sgd", data::FeatureType::kF32, images.Classes()),
          BitsOf(SpecOf({"linear 37", "layernorm", "tanh", "dropout 0.3", "linear 3"}, {19}, 3,
                        DType::kF64),
                 TaskKind::kClassification, "adam", data::FeatureType::kF32, vectors.Classes()),
          of_texts({"embedding 5 4", "positions", "transformer heads 2 ff 8 dropout 0.2 causal",
                    "layernorm", "linear 5"}),
          of_texts({"embedding 5 4", "lstm 6", "gru 6", "linear 5"})};
}

TEST(EagerBits, AreThoseThatWereRecorded) {
  const TrainerSetup usual;
  const NumericProfile profile = *TorchBackend().Profile(usual);
  const std::string name = absl::StrCat(profile.instruction_set, ", ", profile.libraries);
  const std::array<std::string, 4> here = BitsHere();
  EXPECT_EQ(BitsHere(), here);
  const auto found = std::ranges::find(AllRecorded(), name, &Recorded::profile);
  if (found == AllRecorded().end()) {
    std::string lines = absl::StrCat("{\"", name, "\",\n {");
    for (const std::string& digest : here) absl::StrAppend(&lines, "\"", digest, "\",\n  ");
    std::cout << "nothing is recorded for this profile; its bits are\n" << lines << "}},\n";
    return;
  }
  EXPECT_EQ(here, found->digests) << name;
}

}  // namespace
}  // namespace macaw::training
