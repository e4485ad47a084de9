// Attention, transformer blocks, norms and pooling against LibTorch's own modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/one_thread.h"
#include "tests/models/torch_twin.h"

namespace macaw::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kTokens = 9, kPositions = 7, kTextWidth = 8, kHeads = 2, kHidden = 12, kRows = 5;

at::Tensor CausalMask() {  // LibTorch adds it to the scores
  return torch::full({kPositions, kPositions}, -HUGE_VAL, torch::kDouble).triu(1);
}

// LibTorch's attention takes the batch in the second axis. `padding` is [rows, positions], true
// where there is nothing to see.
at::Tensor Attend(nn::MultiheadAttention& attention, const at::Tensor& x, bool causal,
                  const at::Tensor& padding = {}) {
  const at::Tensor y = x.transpose(0, 1);
  return std::get<0>(attention->forward(y, y, y, padding, /*need_weights=*/false,
                                        causal ? CausalMask() : at::Tensor()))
      .transpose(0, 1);
}

// C++ has no TransformerEncoderLayer with norm_first, so this is its forward pass.
struct EncoderBlockImpl : nn::Module {
  EncoderBlockImpl() {
    self_attn = register_module("self_attn", nn::MultiheadAttention(kTextWidth, kHeads));
    linear1 = register_module("linear1", nn::Linear(kTextWidth, kHidden));
    linear2 = register_module("linear2", nn::Linear(kHidden, kTextWidth));
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kTextWidth})));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kTextWidth})));
  }
  at::Tensor forward(at::Tensor x, bool causal, const at::Tensor& padding = {}) {
    x = x + Attend(self_attn, norm1->forward(x), causal, padding);
    return x + linear2->forward(torch::gelu(linear1->forward(norm2->forward(x))));
  }
  nn::MultiheadAttention self_attn{nullptr};
  nn::Linear linear1{nullptr}, linear2{nullptr};
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(EncoderBlock);

struct ResidualImpl : nn::Module {  // "residual [layernorm, attention heads 2 causal]"
  ResidualImpl() {
    norm = register_module("0", nn::LayerNorm(nn::LayerNormOptions({kTextWidth})));
    attention = register_module("1", nn::MultiheadAttention(kTextWidth, kHeads));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + Attend(attention, norm->forward(x), /*causal=*/true);
  }
  nn::LayerNorm norm{nullptr};
  nn::MultiheadAttention attention{nullptr};
};
TORCH_MODULE(Residual);

struct Decoder : nn::Module {
  Decoder() {
    embedding = register_module("0", nn::Embedding(kTokens, kTextWidth));
    positions = register_module("1", nn::Embedding(kPositions, kTextWidth));
    block = register_module("2", EncoderBlock());
    residual = register_module("3", Residual());
    norm = register_module("4", nn::LayerNorm(nn::LayerNormOptions({kTextWidth})));
    linear = register_module("6", nn::Linear(kTextWidth, kTokens));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = embedding->forward(x) + positions->forward(torch::arange(kPositions));
    y = residual->forward(block->forward(y, /*causal=*/true));
    return linear->forward(torch::gelu(norm->forward(y)));
  }
  nn::Embedding embedding{nullptr}, positions{nullptr};
  EncoderBlock block{nullptr};
  Residual residual{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear linear{nullptr};
};

struct Classifier : nn::Module {
  Classifier() {
    embedding = register_module("0", nn::Embedding(kTokens, kTextWidth));
    block = register_module("1", EncoderBlock());
    linear = register_module("3", nn::Linear(kTextWidth, 3));
    to(torch::kDouble);
  }
  nn::Embedding embedding{nullptr};
  EncoderBlock block{nullptr};
  nn::Linear linear{nullptr};
};

ModelSpec TextSpec(std::vector<std::string> layers, int64_t classes) {
  return *BuildSpec({.name = "layers",
                     .layers = std::move(layers),
                     .input_shape = {kPositions},
                     .classes = classes},
                    DType::kF64);
}

at::Tensor Text() {
  torch::manual_seed(1);
  return torch::randint(0, kTokens, {kRows, kPositions}, torch::kLong);
}

// Biases and norms that begin at 0 and 1 would hide a mistake.
void Stir(const std::vector<at::Tensor>& parameters) {
  const torch::NoGradGuard without_graph;
  for (const at::Tensor& parameter : parameters) parameter.add_(0.3 * torch::randn_like(parameter));
}

void Copy(const std::vector<at::Tensor>& from, const ModelSpec& spec, nn::Module& to) {
  const torch::NoGradGuard without_graph;
  std::map<std::string, at::Tensor> named = TensorsOf(to);
  for (size_t i = 0; i < from.size(); ++i) named.at(spec.layout->entries()[i].name).copy_(from[i]);
}

TEST(Network, OfATransformerIsTorchNns) {
  UseOneThread();
  const ModelSpec spec =
      TextSpec({"embedding 9 8", "positions", "transformer heads 2 ff 12 causal",
                "residual [layernorm, attention heads 2 causal]", "layernorm", "gelu", "linear 9"},
               kTokens);
  Decoder modules;
  TorchTwin twin(spec, TensorsOf(modules));
  const at::Tensor x = Text(), target = torch::randint(0, kTokens, {kRows * kPositions});
  Stir(twin.views());
  Copy(twin.views(), spec, modules);
  const at::Tensor ours = Network(spec).Forward(x.to(torch::kInt), twin.views(), nullptr).logits;
  const at::Tensor theirs = modules.forward(x);
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-12);
  F::cross_entropy(ours.flatten(0, 1), target).backward();
  F::cross_entropy(theirs.flatten(0, 1), target).backward();
  twin.ExpectEqualGradients(1e-10);
}

// Rows of different lengths: attention sees no padding, and pooling takes the positions in use.
TEST(Network, OfPaddedTextsIsTorchNnsWithAMask) {
  UseOneThread();
  for (const std::string pool : {"mean", "last"}) {
    const ModelSpec spec =
        TextSpec({"embedding 9 8", "transformer heads 2 ff 12", pool, "linear 3"}, 3);
    Classifier modules;
    TorchTwin twin(spec, TensorsOf(modules));
    const at::Tensor x = Text(), target = torch::randint(0, 3, {kRows});
    Stir(twin.views());
    Copy(twin.views(), spec, modules);
    const at::Tensor lengths = torch::tensor({7, 1, 4, 6, 2}, torch::kLong);
    const at::Tensor padding = torch::arange(kPositions).unsqueeze(0) >= lengths.unsqueeze(1);
    const Network network(spec);
    const at::Tensor ours =
        network.Forward(x.to(torch::kInt), twin.views(), nullptr, Statistics::kRunning, lengths)
            .logits;
    const at::Tensor y =
        modules.block->forward(modules.embedding->forward(x), /*causal=*/false, padding);
    std::vector<at::Tensor> pooled;
    for (int64_t i = 0; i < kRows; ++i) {
      const at::Tensor used = y[i].slice(0, 0, lengths[i].item<int64_t>());
      pooled.push_back(pool == "mean" ? used.mean(0) : used[-1]);
    }
    const at::Tensor theirs = modules.linear->forward(torch::stack(pooled));
    EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-12) << pool;
    F::cross_entropy(ours, target).backward();
    F::cross_entropy(theirs, target).backward();
    twin.ExpectEqualGradients(1e-10);

    const torch::NoGradGuard without_graph;
    const at::Tensor changed = torch::where(padding, (x + 1).remainder(kTokens), x);
    const at::Tensor other =
        network
            .Forward(changed.to(torch::kInt), twin.views(), nullptr, Statistics::kRunning, lengths)
            .logits;
    EXPECT_LT((ours - other).abs().max().item<double>(), 1e-13) << "it depends on padding";
    // Without lengths every position counts.
    EXPECT_GT((ours - network.Forward(x.to(torch::kInt), twin.views(), nullptr).logits)
                  .abs()
                  .max()
                  .item<double>(),
              1e-3);
  }
}

// With a dropout that drops nothing, the path with masks is the other path.
TEST(Network, OfATransformerWithDropoutAgreesWhereNothingIsDropped) {
  UseOneThread();
  for (const std::string causal : {"", " causal"}) {
    const ModelSpec plain =
        TextSpec({"embedding 9 8", "transformer heads 2 ff 12" + causal, "mean", "linear 3"}, 3);
    const ModelSpec dropping = TextSpec(
        {"embedding 9 8", "transformer heads 2 ff 12 dropout 1e-12" + causal, "mean", "linear 3"},
        3);
    ASSERT_TRUE(DrawsMasks(dropping.layers[1]));
    FlatVector model = InitialModel(plain, 3);
    const std::vector<at::Tensor> w = ViewsOf(model.view());
    const at::Tensor x = Text().to(torch::kInt);
    const at::Tensor lengths = torch::tensor({7, 1, 4, 6, 2}, torch::kLong);
    RandomStream stream({.seed = 1});
    const at::Tensor one =
        Network(plain).Forward(x, w, nullptr, Statistics::kRunning, lengths).logits;
    const at::Tensor other =
        Network(dropping).Forward(x, w, &stream, Statistics::kRunning, lengths).logits;
    EXPECT_LT((one - other).abs().max().item<double>(), 1e-10);
  }
}

TEST(Network, OfATransformerRepeatsItsDropout) {
  UseOneThread();
  const ModelSpec spec =
      TextSpec({"embedding 9 8", "transformer heads 2 ff 12 dropout 0.5", "mean", "linear 3"}, 3);
  FlatVector model = InitialModel(spec, 3);
  const std::vector<at::Tensor> w = ViewsOf(model.view());
  const at::Tensor x = Text().to(torch::kInt);
  const auto outputs = [&](uint64_t seed) {
    RandomStream stream({.seed = seed});
    return Network(spec).Forward(x, w, &stream).logits;
  };
  EXPECT_TRUE(outputs(1).equal(outputs(1)));
  EXPECT_GT((outputs(1) - outputs(2)).abs().max().item<double>(), 1e-3);
  EXPECT_GT((outputs(1) - Network(spec).Forward(x, w, nullptr).logits).abs().max().item<double>(),
            1e-3);
}

}  // namespace
}  // namespace macaw::models
