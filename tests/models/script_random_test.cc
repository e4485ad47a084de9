// Dropout inside a scripted module draws from the run's stream.
#include "models/script_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

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

ModelSpec RandomSpec(const WrittenScript& script) {
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
    return Network(RandomSpec(script))
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

// A position that may see nothing has no weights; LibTorch gives it zeros.
TEST_F(RandomScript, DropsNoNumberOfAPositionThatSeesNone) {
  const WrittenScript script = NetOf(
      "    y = x.reshape([2, 4, 6])\n"
      "    seen = torch.ones([4, 4]) > 0\n"
      "    seen[1] = False\n"
      "    y = torch.scaled_dot_product_attention(y, y, y, seen, 0.3)\n"
      "    return torch.linear(y.reshape([8, 6]), self.weight)\n");
  RandomStream stream(kKey);
  const at::Tensor logits = Logits(script, &stream);
  EXPECT_TRUE(logits.isfinite().all().item<bool>());
  EXPECT_EQ(logits[1].abs().max().item<double>(), 0);
  EXPECT_EQ(logits[5].abs().max().item<double>(), 0);
}

TEST_F(RandomScript, DropsWholeChannels) {
  const WrittenScript script = NetOf(
      "    y = torch.feature_dropout(x.reshape([2, 4, 6]), 0.4, self.training)\n"
      "    return torch.linear(y.reshape([8, 6]), self.weight)\n");
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor mask = DropoutMask(at::empty({2, 4, 1}, at::kDouble), 0.4, theirs);
  EXPECT_NE(mask.min().item<double>(), mask.max().item<double>());
  const at::Tensor expected =
      at::linear((batch.reshape({2, 4, kWide}) * mask).reshape({8, kWide}), weight);
  EXPECT_TRUE(Logits(script, &ours).equal(expected));
  EXPECT_TRUE(Logits(script, nullptr).equal(at::linear(batch, weight)));
}

// As torchvision's stochastic depth: whole rows, and what is kept is divided by the share.
TEST_F(RandomScript, DropsLayersAtRandom) {
  const WrittenScript script = NetOf(
      "    noise = torch.empty([8, 1], dtype=x.dtype)\n"
      "    noise = noise.bernoulli_(0.6)\n"
      "    noise.div_(0.6)\n"
      "    return torch.linear(x * noise, self.weight)\n");
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor kept = DropoutMask(at::empty({8, 1}, at::kDouble), 0.4, theirs).ne(0);
  EXPECT_NE(kept.all().item<bool>(), kept.any().item<bool>()) << "some rows, not all";
  const at::Tensor expected = at::linear(batch * kept / 0.6, weight);
  EXPECT_LT((Logits(script, &ours) - expected).abs().max().item<double>(), 1e-14);
  EXPECT_LT((Logits(script, nullptr) - at::linear(batch, weight)).abs().max().item<double>(),
            1e-14);
}

// A batch norm of one row is in evaluation; a buffer of another kind changes nothing.
TEST_F(RandomScript, DropsInABatchOfOneRowBesideABuffer) {
  WrittenScript net("Net");
  net.Parameter("weight", torch::randn({kClasses, kWide})).Training();
  net.Buffer("shift", torch::zeros({kWide}));
  net.Define(
      "    y = torch.dropout(x + self.shift, 0.4, self.training)\n"
      "    return torch.linear(y, self.weight)\n");
  const at::Tensor row = batch.slice(0, 0, 1);
  const std::vector<at::Tensor> parameters = {weight, at::zeros({kWide}, at::kDouble)};
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor logits =
      Network(RandomSpec(net)).Forward(row, parameters, &ours, Statistics::kBatchAndMove).logits;
  const at::Tensor dropped = row * DropoutMask(row, 0.4, theirs);
  EXPECT_LT((logits - at::linear(dropped, weight)).abs().max().item<double>(), 1e-14);
  EXPECT_FALSE(dropped.equal(row));
}

// A slot's module lives on, so that an attribute would go from client to client.
TEST_F(RandomScript, RefusesAnAttributeThatForwardSetsAndReads) {
  const auto content_of = [](const std::string& body) {
    WrittenScript net("Net");
    net.Parameter("weight", torch::randn({kClasses, kWide})).Training();
    net.Number("count", 0).Buffer("num_batches_tracked", torch::tensor(int64_t{0}));
    net.Define(body + "    return torch.linear(x, self.weight)\n");
    return ReadScriptContent(net.Bytes()).status();
  };
  const absl::Status counts = content_of(
      "    if self.training:\n"
      "        self.count += 1\n");
  EXPECT_THAT(std::string(counts.message()), testing::HasSubstr("its attribute count"));
  EXPECT_TRUE(content_of("    self.count = 3\n").ok()) << "nothing depends on it";
  EXPECT_TRUE(content_of("    self.num_batches_tracked = self.num_batches_tracked + 1\n").ok());
}

TEST_F(RandomScript, DropsInPlace) {
  const WrittenScript script = NetOf(
      "    y = x + 0\n"
      "    torch.dropout_(y, 0.4, self.training)\n"
      "    return torch.linear(y, self.weight)\n");
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor mask = DropoutMask(batch, 0.4, theirs);
  EXPECT_TRUE(Logits(script, &ours).equal(at::linear(batch * mask, weight)));
}

// Klambauer et al. 2017, as PyTorch has it.
TEST_F(RandomScript, DropsToTheLeastValueOfSelu) {
  const WrittenScript script =
      NetOf("    return torch.linear(torch.alpha_dropout(x, 0.4, self.training), self.weight)\n");
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor kept = DropoutMask(batch, 0.4, theirs).ne(0);
  const double alpha = 1.7580993408473766, a = 1 / std::sqrt((alpha * alpha * 0.4 + 1) * 0.6);
  const at::Tensor dropped = at::where(kept, batch, at::full({}, -alpha, at::kDouble)) * a;
  const at::Tensor expected = at::linear(dropped + alpha * a * 0.4, weight);
  EXPECT_LT((Logits(script, &ours) - expected).abs().max().item<double>(), 1e-12);
}

TEST_F(RandomScript, DrawsSlopes) {
  const WrittenScript script = NetOf(
      "    y = torch.rrelu(x, 0.1, 0.5, self.training)\n"
      "    return torch.linear(y, self.weight)\n");
  const at::Tensor mean = at::where(batch > 0, batch, batch * 0.3);
  EXPECT_TRUE(Logits(script, nullptr).allclose(at::linear(mean, weight)));
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor slopes = at::empty_like(batch);
  for (double& slope : std::span(slopes.data_ptr<double>(), static_cast<size_t>(slopes.numel())))
    slope = 0.1 + 0.4 * theirs.Uniform();
  const at::Tensor drawn = at::where(batch > 0, batch, batch * slopes);
  EXPECT_TRUE(Logits(script, &ours).allclose(at::linear(drawn, weight)));
}

// Two layers of [8, 2, 3] to 3 states in both directions: 6 numbers behind the first layer.
class RecurrentScript : public RandomScript {
 protected:
  // Numbers of an LSTM's weights: of one layer and direction, from `in` numbers.
  static std::vector<at::Tensor> Weights(int64_t in) {
    std::vector<at::Tensor> weights;
    for (int direction = 0; direction < 2; ++direction) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{12, in}, {12, 3}, {12}, {12}})
        weights.push_back(torch::randn(shape, at::kDouble) / 3);
    }
    return weights;
  }
  // `packed`: the rows as a packed sequence.
  WrittenScript Script(bool packed) const {
    WrittenScript net("Net");
    net.Parameter("weight", torch::randn({kClasses, kWide})).Training();
    std::string list;
    for (size_t i = 0; i < weights.size(); ++i) {
      net.Frozen("w" + std::to_string(i), weights[i]);
      list += "self.w" + std::to_string(i) + ", ";
    }
    const std::string call =
        packed ? "torch.lstm(y.transpose(0, 1).reshape([16, 3]), torch.tensor([8, 8]), [h, h], w, "
                 "True, 2, 0.4, self.training, True)\n    z = z[8:]\n"
               : "torch.lstm(y, [h, h], w, True, 2, 0.4, self.training, True, True)\n"
                 "    z = z[:, 1]\n";
    net.Define("    y = x.reshape([8, 2, 3])\n    w = [" + list +
               "]\n    h = x.new_zeros([4, 8, 3])\n    z, _, _ = " + call +
               "    return torch.linear(z, self.weight)\n");
    return net;
  }
  // The last position's output. `mask`: between the layers, [8, 2, 6].
  at::Tensor Expected(const at::Tensor& mask) const {
    const at::Tensor h = at::zeros({2, 8, 3}, at::kDouble);
    const auto layer = [&](const at::Tensor& x, size_t first) {
      const std::vector<at::Tensor> own(weights.begin() + static_cast<ptrdiff_t>(first),
                                        weights.begin() + static_cast<ptrdiff_t>(first) + 8);
      return std::get<0>(at::lstm(x, {h, h}, own, true, 1, 0, true, true, true));
    };
    const at::Tensor first = layer(batch.reshape({8, 2, 3}), 0);
    return at::linear(layer(first * mask, 8).select(1, 1), weight);
  }

  std::vector<at::Tensor> weights = [] {
    std::vector<at::Tensor> all = Weights(3);
    for (const at::Tensor& more : Weights(6)) all.push_back(more);
    return all;
  }();
};

TEST_F(RecurrentScript, DropsBetweenLayersAlone) {
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor mask = DropoutMask(at::empty({8, 2, 6}, at::kDouble), 0.4, theirs);
  EXPECT_TRUE(Logits(Script(false), &ours).allclose(Expected(mask)));
  EXPECT_TRUE(Logits(Script(false), nullptr).allclose(Expected(at::ones({}, at::kDouble))));
}

TEST_F(RecurrentScript, DropsBetweenLayersOfAPackedSequence) {
  RandomStream ours(kKey), theirs(kKey);
  const at::Tensor mask =
      DropoutMask(at::empty({16, 6}, at::kDouble), 0.4, theirs).reshape({2, 8, 6}).transpose(0, 1);
  EXPECT_TRUE(Logits(Script(true), &ours).allclose(Expected(mask)));
}

TEST_F(RandomScript, OfOtherNumbersIsRefusedByTheOpsName) {
  const WrittenScript script =
      NetOf("    return torch.linear(x + torch.randn_like(x), self.weight)\n");
  EXPECT_THAT(std::string(ReadScriptContent(script.Bytes()).status().message()),
              testing::HasSubstr("aten::randn_like"));
}

}  // namespace
}  // namespace macaw::models
