// Which tensors of a scripted module are trained: lists of them, tied ones, frozen ones.
#include "models/script_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/network.h"
#include "models/one_thread.h"
#include "models/script.h"
#include "models/script_module.h"
#include "tests/models/written_script.h"

namespace macaw::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kTensorWide = 4, kTensorClasses = 3;

class TensorsOfAScript : public testing::Test {
 protected:
  TensorsOfAScript() {
    UseOneThread();
    torch::manual_seed(2);
  }
  static ScriptContent ContentOf(const WrittenScript& script) {
    absl::StatusOr<ScriptContent> content = ReadScriptContent(script.Bytes());
    EXPECT_TRUE(content.ok()) << content.status();
    return content.ok() ? *std::move(content) : ScriptContent{};
  }
  static std::string RefusalOf(const WrittenScript& script) {
    return std::string(ReadScriptContent(script.Bytes()).status().message());
  }
  static ModelSpec SpecOf(const WrittenScript& script, DType dtype) {
    ModelConfig config;
    config.name = kScriptName;
    config.input_shape = {kTensorWide};
    config.classes = kTensorClasses;
    config.tensors = ContentOf(script).tensors;
    absl::StatusOr<ModelSpec> spec = BuildSpec(config, dtype);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->script = std::make_shared<const std::string>(script.Bytes());
    return *std::move(spec);
  }
  // The gradients of a loss at `values`, in float64.
  struct Pass {
    at::Tensor logits;
    std::vector<at::Tensor> gradients;
  };
  static Pass Run(const WrittenScript& script, const at::Tensor& batch,
                  std::vector<at::Tensor> values) {
    for (at::Tensor& value : values) value = value.detach().clone().requires_grad_(true);
    Pass pass;
    pass.logits = Network(SpecOf(script, DType::kF64)).Forward(batch, values, nullptr).logits;
    torch::logsumexp(pass.logits, 1).sum().backward();
    for (const at::Tensor& value : values) pass.gradients.push_back(value.grad());
    return pass;
  }
};

at::Tensor Random(at::IntArrayRef shape) { return torch::randn(shape, at::kDouble); }

TEST_F(TensorsOfAScript, AParameterInAListIsTheRuns) {
  const at::Tensor into = Random({kTensorWide, kTensorWide}),
                   head = Random({kTensorClasses, kTensorWide});
  WrittenScript net("Listed");
  net.Parameter("into", into).Parameter("head", head).List("flat", {into, head});
  net.Define("    return torch.linear(torch.tanh(torch.linear(x, self.flat[0])), self.flat[1])\n");
  WrittenScript named("Named");
  named.Parameter("into", into).Parameter("head", head);
  named.Define("    return torch.linear(torch.tanh(torch.linear(x, self.into)), self.head)\n");

  const at::Tensor batch = Random({5, kTensorWide});
  const std::vector<at::Tensor> values = {Random({kTensorWide, kTensorWide}),
                                          Random({kTensorClasses, kTensorWide})};
  const Pass ours = Run(net, batch, values), theirs = Run(named, batch, values);
  EXPECT_TRUE(ours.logits.equal(theirs.logits));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(ours.gradients[i].defined());
    EXPECT_TRUE(ours.gradients[i].equal(theirs.gradients[i]));
  }
}

TEST_F(TensorsOfAScript, TiedOnesAreOneTensorWithTheSumOfTheirGradients) {
  const at::Tensor tied = Random({kTensorWide, kTensorWide}),
                   head = Random({kTensorClasses, kTensorWide});
  WrittenScript net("Tied");
  net.Parameter("first", tied).Parameter("second", tied).Parameter("head", head);
  net.Define(
      "    y = torch.tanh(torch.linear(x, self.first))\n"
      "    return torch.linear(torch.linear(y, self.second.t()), self.head)\n");
  EXPECT_THAT(ContentOf(net).tensors, ElementsAre("parameter first 4 4", "parameter head 3 4"));

  const at::Tensor batch = Random({5, kTensorWide});
  const Pass ours = Run(net, batch, {tied, head});
  at::Tensor leaf = tied.detach().clone().requires_grad_(true);
  const at::Tensor y = torch::tanh(torch::linear(batch, leaf));
  torch::logsumexp(torch::linear(torch::linear(y, leaf.t()), head.detach()), 1).sum().backward();
  EXPECT_LT((ours.gradients[0] - leaf.grad()).abs().max().item<double>(), 1e-14);
}

TEST_F(TensorsOfAScript, FrozenOnesStayInTheFileInTheRunsType) {
  const at::Tensor body = torch::randn({kTensorWide, kTensorWide}),
                   head = torch::randn({kTensorClasses, kTensorWide});
  WrittenScript net("Frozen");
  net.Frozen("body", body).Parameter("head", head).List("flat", {body});
  net.Define(
      "    y = torch.linear(torch.linear(x, self.body), self.flat[0])\n"
      "    return torch.linear(y, self.head)\n");
  EXPECT_THAT(ContentOf(net).tensors, ElementsAre("parameter head 3 4"));
  const at::Tensor batch = Random({5, kTensorWide}), moved = Random({kTensorClasses, kTensorWide});
  const at::Tensor frozen = body.to(at::kDouble);
  const at::Tensor expected =
      torch::linear(torch::linear(torch::linear(batch, frozen), frozen), moved);
  EXPECT_TRUE(Run(net, batch, {moved}).logits.equal(expected));
}

TEST_F(TensorsOfAScript, WhatNoRunCanTrainIsRefusedByName) {
  const auto with = [](at::Tensor value, bool frozen = false) {
    WrittenScript net("Odd");
    net.Parameter("head", torch::randn({kTensorClasses, kTensorWide}));
    frozen ? net.Frozen("odd", std::move(value)) : net.Parameter("odd", std::move(value));
    net.Define("    return torch.linear(x, self.head)\n");
    return net;
  };
  EXPECT_THAT(RefusalOf(with(torch::randn({2}, at::kComplexFloat))),
              AllOf(HasSubstr("\"odd\""), HasSubstr("ComplexFloat")));
  EXPECT_THAT(RefusalOf(with(torch::ones({2}, at::kBFloat16))),
              AllOf(HasSubstr("BFloat16"), HasSubstr("net.float()")));
  EXPECT_EQ(RefusalOf(with(torch::ones({2}, at::kBFloat16), /*frozen=*/true)), "");
  EXPECT_EQ(RefusalOf(with(torch::ones({2}, at::kLong))), "");

  const at::Tensor weight = torch::randn({kTensorClasses, kTensorWide});
  WrittenScript views("Views");
  views.Parameter("whole", weight).Parameter("rows", weight.detach()[0]);
  views.Define("    return torch.linear(x, self.whole)\n");
  EXPECT_THAT(RefusalOf(views), AllOf(HasSubstr("\"rows\""), HasSubstr("\"whole\"")));

  WrittenScript still("Still");
  still.Frozen("head", torch::randn({kTensorClasses, kTensorWide}));
  still.Define("    return torch.linear(x, self.head)\n");
  EXPECT_THAT(RefusalOf(still), HasSubstr("requires_grad"));
}

}  // namespace
}  // namespace macaw::models
