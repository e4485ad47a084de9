// local.checkpoint of a scripted module: what is computed again has the bits that it had.
#include "models/script_segments.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/network.h"
#include "models/one_thread.h"
#include "models/script.h"
#include "models/script_module.h"
#include "tests/models/written_script.h"

namespace macaw::models {
namespace {

using testing::HasSubstr;

constexpr int64_t kSegmentWide = 6, kSegmentOut = 3;
constexpr StreamKey kSegmentKey{.seed = 3, .purpose = Purpose::kDropout};

// x + dropout(relu_(norm(linear(x)))·gain), where all blocks have one gain.
WrittenScript Block(const std::string& name, const at::Tensor& gain) {
  WrittenScript block(name);
  block.Training().Parameter("gain", gain);
  block.Inner("linear", WrittenLinear(name + "Linear", kSegmentWide, kSegmentWide));
  block.Inner("norm", WrittenNorm(name + "Norm", kSegmentWide));
  block.Define(
      "    y = torch.relu_(self.norm.forward(self.linear.forward(x)))\n"
      "    return x + torch.dropout(y * self.gain * self.gain, 0.3, self.training)\n");
  return block;
}

WrittenScript Deep(int blocks) {
  WrittenScript net("Net");
  net.Training();
  const at::Tensor gain = torch::ones({kSegmentWide});
  std::string body;
  for (int i = 0; i < blocks; ++i) {
    const std::string name = "b" + std::to_string(i);
    net.Inner(name, Block("Block" + std::to_string(i), gain));
    body += "    x = self." + name + ".forward(x)\n";
  }
  net.Inner("last", WrittenLinear("Last", kSegmentWide, kSegmentOut));
  net.Define(body + "    return self.last.forward(x)\n");
  return net;
}

ModelSpec SegmentSpec(const WrittenScript& script, DType dtype = DType::kF64) {
  ModelConfig config;
  config.name = kScriptName;
  config.input_shape = {kSegmentWide};
  config.classes = kSegmentOut;
  const auto content = ReadScriptContent(script.Bytes());
  EXPECT_TRUE(content.ok()) << content.status();
  config.tensors = content->tensors;
  ModelSpec spec = *BuildSpec(config, dtype);
  spec.script = std::make_shared<const std::string>(script.Bytes());
  return spec;
}

struct SegmentPass {
  at::Tensor logits;
  std::vector<at::Tensor> gradients, values;
  size_t nodes = 0, again = 0;  // of the graph: all, and those that compute a part again
  uint32_t next = 0;            // of the stream of masks
};

void Count(const torch::autograd::Node* node, std::set<const torch::autograd::Node*>& seen,
           SegmentPass& passed) {
  if (node == nullptr || !seen.insert(node).second) return;
  ++passed.nodes;
  passed.again += node->name() == "RecomputeBackward" ? 1 : 0;
  for (const torch::autograd::Edge& edge : node->next_edges())
    Count(edge.function.get(), seen, passed);
}

SegmentPass Pass(const Network& network, const at::Tensor& batch, Statistics statistics,
                 bool drops) {
  FlatVector model = InitialModel(network.spec(), 3);
  SegmentPass passed{.values = ViewsOf(model.view())};
  const std::vector<at::Tensor> written = ReadScriptContent(*network.spec().script)->values;
  for (size_t i = 0; i < written.size(); ++i) passed.values[i].copy_(written[i].detach());
  std::vector<at::Tensor> leaves = passed.values;
  for (size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].requires_grad_(model.layout()->entries()[i].group != Group::kBuffer);
  }
  RandomStream masks(kSegmentKey);
  passed.logits = network.Forward(batch, leaves, drops ? &masks : nullptr, statistics).logits;
  passed.next = masks.NextU32();
  std::set<const torch::autograd::Node*> seen;
  Count(passed.logits.grad_fn().get(), seen, passed);
  torch::logsumexp(passed.logits, 1).sum().backward();
  for (at::Tensor& leaf : leaves)
    passed.gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
  for (at::Tensor& value : passed.values) value = value.detach().clone();
  passed.logits = passed.logits.detach();
  return passed;
}

class Segmented : public testing::Test {
 protected:
  Segmented() {
    UseOneThread();
    torch::manual_seed(1);
  }
};

TEST_F(Segmented, GivesTheBitsOfTheWholeGraph) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const ModelSpec spec = SegmentSpec(Deep(6), dtype);
    const Network whole(spec), cut(spec, at::kCPU, /*checkpoint=*/true);
    const at::Tensor batch =
        torch::randn({7, kSegmentWide}, dtype == DType::kF32 ? at::kFloat : at::kDouble);
    for (int again = 0; again < 2; ++again) {
      for (const Statistics statistics :
           {Statistics::kBatchAndMove, Statistics::kBatch, Statistics::kRunning}) {
        for (const bool drops : {true, false}) {
          const SegmentPass expected = Pass(whole, batch, statistics, drops);
          const SegmentPass found = Pass(cut, batch, statistics, drops);
          EXPECT_TRUE(found.logits.equal(expected.logits));
          EXPECT_EQ(found.next, expected.next) << "as many masks are drawn in the pass";
          for (size_t i = 0; i < expected.values.size(); ++i) {
            const std::string name = spec.layout->entries()[i].name;
            EXPECT_TRUE(found.values[i].equal(expected.values[i])) << name;
            ASSERT_EQ(found.gradients[i].defined(), expected.gradients[i].defined()) << name;
            if (!expected.gradients[i].defined()) continue;
            EXPECT_TRUE(found.gradients[i].equal(expected.gradients[i])) << name;
            if (name.ends_with("linear.bias")) continue;  // a norm takes the mean out
            EXPECT_GT(expected.gradients[i].abs().max().item<double>(), 0) << name;
          }
          EXPECT_EQ(expected.again, 0u);
          EXPECT_GE(found.again, 2u);
          EXPECT_LT(2 * found.nodes, expected.nodes + 2 * spec.layout->entries().size());
        }
      }
    }
  }
}

// One row has no statistics, so norms are in evaluation mode. A pass without gradients is whole.
TEST_F(Segmented, GivesTheBitsOfOneRowAndOfAnEvaluation) {
  const ModelSpec spec = SegmentSpec(Deep(6));
  const Network whole(spec), cut(spec, at::kCPU, /*checkpoint=*/true);
  const at::Tensor row = torch::randn({1, kSegmentWide}, at::kDouble);
  const SegmentPass expected = Pass(whole, row, Statistics::kBatchAndMove, true),
                    found = Pass(cut, row, Statistics::kBatchAndMove, true);
  EXPECT_TRUE(found.logits.equal(expected.logits));
  for (size_t i = 0; i < expected.values.size(); ++i)
    EXPECT_TRUE(found.values[i].equal(expected.values[i]));
  const at::NoGradGuard without_graph;
  const FlatVector model = InitialModel(spec, 3);
  FlatVector copy = model.Clone();
  const std::vector<at::Tensor> values = ViewsOf(copy.view());
  EXPECT_TRUE(
      cut.Forward(row, values, nullptr).logits.equal(whole.Forward(row, values, nullptr).logits));
}

std::string Refusal(const WrittenScript& script) {
  try {
    const Network cut(SegmentSpec(script), at::kCPU, /*checkpoint=*/true);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST_F(Segmented, IsRefusedWhereNoPartCanBeComputedAgain) {
  EXPECT_EQ(Refusal(Deep(6)), "");
  EXPECT_THAT(Refusal(WrittenLinear("Alone", kSegmentWide, kSegmentOut)),
              HasSubstr("local.checkpoint"));

  WrittenScript moving = Deep(6);  // a statistic of its own, which its outputs depend on
  WrittenScript net("Moving");
  net.Training().Inner("deep", moving).Buffer("mean", torch::zeros({kSegmentWide}));
  net.Define(
      "    self.mean.mul_(0.9).add_(x.mean(0))\n"
      "    return self.deep.forward(x - self.mean)\n");
  EXPECT_THAT(Refusal(net), HasSubstr("writes to a tensor that it was given"));

  const at::Tensor weight = torch::randn({kSegmentOut, kSegmentWide});
  WrittenScript lists("Lists");
  lists.Training().Parameter("weight", weight).List("weights", {weight});
  lists.Define("    return torch.linear(torch.tanh(torch.tanh(torch.tanh(x))), self.weights[0])\n");
  EXPECT_THAT(Refusal(lists), HasSubstr("keeps tensors in lists"));
}

}  // namespace
}  // namespace macaw::models
