// Dropout inside a scripted module draws from the run's stream.
#include "models/script_random.h"

#include <gtest/gtest.h>

#include "models/dropout_mask.h"
#include "models/network.h"
#include "models/one_thread.h"
#include "models/script.h"
#include "models/script_module.h"
#include "tests/models/written_script.h"

namespace macaw::models {
namespace {

constexpr int64_t kWide = 6, kClasses = 3;
constexpr StreamKey kKey{.seed = 3, .purpose = Purpose::kDropout};

ModelSpec SpecOf(const WrittenScript& script) {
  ModelConfig config;
  config.name = kScriptName;
  config.input_shape = {kWide};
  config.classes = kClasses;
  const auto content = ReadScriptContent(script.Bytes());
  EXPECT_TRUE(content.ok()) << content.status();
  config.tensors = content->tensors;
  ModelSpec spec = *BuildSpec(config, DType::kF64);
  spec.script = std::make_shared<const std::string>(script.Bytes());
  return spec;
}

// `body` uses x and self.weight of [3, 6].
WrittenScript NetOf(const std::string& body) {
  WrittenScript net("Net");
  net.Parameter("weight", torch::randn({kClasses, kWide})).Training();
  net.Define(body);
  return net;
}

class RandomScript : public testing::Test {
 protected:
  RandomScript() {
    UseOneThread();
    torch::manual_seed(4);
    batch = torch::randn({8, kWide}, at::kDouble);
    weight = torch::randn({kClasses, kWide}, at::kDouble);
  }
  at::Tensor Logits(const WrittenScript& script, RandomStream* stream) const {
    const std::vector<at::Tensor> parameters = {weight};
    return Network(SpecOf(script))
        .Forward(batch, parameters, stream, Statistics::kBatchAndMove)
        .logits;
  }
  at::Tensor batch, weight;
};

TEST_F(RandomScript, DropsWhatTheEqualLayersDrop) {
  const WrittenScript script =
      NetOf("    return torch.linear(torch.dropout(x, 0.4, self.training), self.weight)\n");
  ModelConfig config;
  config.name = "layers";
  config.layers = {"dropout 0.4", "linear 3 nobias"};
  config.input_shape = {kWide};
  config.classes = kClasses;
  const Network layers(*BuildSpec(config, DType::kF64));
  const std::vector<at::Tensor> parameters = {weight};
  for (int again = 0; again < 2; ++again) {
    RandomStream ours(kKey), theirs(kKey);
    EXPECT_TRUE(Logits(script, &ours).equal(layers.Forward(batch, parameters, &theirs).logits));
  }
  EXPECT_TRUE(Logits(script, nullptr).equal(at::linear(batch, weight)));
}

// A trace says that it trains, in evaluation, too.
TEST_F(RandomScript, DropsNothingWithoutAStreamWhateverTheModuleSays) {
  const WrittenScript traced =
      NetOf("    return torch.linear(torch.dropout(x, 0.4, True), self.weight)\n");
  EXPECT_TRUE(Logits(traced, nullptr).equal(at::linear(batch, weight)));
  const WrittenScript still =
      NetOf("    return torch.linear(torch.dropout(x, 0.4, False), self.weight)\n");
  RandomStream stream(kKey);
  EXPECT_TRUE(Logits(still, &stream).equal(at::linear(batch, weight)));
}

TEST_F(RandomScript, DropsWeightsOfAttention) {
  const WrittenScript script = NetOf(
      "    y = x.reshape([2, 4, 6])\n"
      "    y = torch.scaled_dot_product_attention(y, y, y, None, 0.3, True)\n"
      "    return torch.linear(y.reshape([8, 6]), self.weight)\n");
  const at::Tensor y = batch.reshape({2, 4, kWide});
  const at::Tensor whole = at::scaled_dot_product_attention(y, y, y, {}, 0.0, true);
  EXPECT_TRUE(Logits(script, nullptr).equal(at::linear(whole.reshape({8, kWide}), weight)));

  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor later = at::ones({4, 4}, at::kBool).tril().logical_not();
  const at::Tensor scores =
      (at::matmul(y, y.transpose(1, 2)) / std::sqrt(6.0)).masked_fill(later, -HUGE_VAL);
  const at::Tensor weights = at::softmax(scores, -1);
  const at::Tensor dropped = at::matmul(weights * DropoutMask(weights, 0.3, theirs), y);
  const at::Tensor expected = at::linear(dropped.reshape({8, kWide}), weight);
  EXPECT_LT((Logits(script, &ours) - expected).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace macaw::models
