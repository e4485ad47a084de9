// A scripted module as a model: the bits of the equal model of layers, and what is refused.
#include "models/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/digest.h"
#include "core/safetensors.h"
#include "models/describe_script.h"
#include "models/network.h"
#include "models/one_thread.h"
#include "models/script_module.h"
#include "testing/temporary_folder.h"
#include "tests/models/written_script.h"

namespace macaw::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kIn = 12, kWidth = 5, kOut = 3;

class Script : public testing::Test {
 protected:
  Script() {
    UseOneThread();
    torch::manual_seed(1);
  }
  static ModelConfig ConfigOf(const std::string& bytes) {
    ModelConfig config;
    config.name = kScriptName;
    config.input_shape = {3, 4};
    config.classes = kOut;
    const auto content = ReadScriptContent(bytes);
    EXPECT_TRUE(content.ok()) << content.status();
    if (content.ok()) config.tensors = content->tensors;
    return config;
  }
  static ModelSpec SpecOf(const std::string& bytes, DType dtype) {
    absl::StatusOr<ModelSpec> spec = BuildSpec(ConfigOf(bytes), dtype);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->script = std::make_shared<const std::string>(bytes);
    return *std::move(spec);
  }
  static ModelSpec Layers(DType dtype) {
    ModelConfig config;
    config.name = "layers";
    config.layers = {"flatten", "linear 5", "batchnorm", "relu", "linear 3"};
    config.input_shape = {3, 4};
    config.classes = kOut;
    return *BuildSpec(config, dtype);
  }
  // What a network makes of a model's loss and of its statistics, as bytes.
  struct Pass {
    std::vector<at::Tensor> gradients, values;
    at::Tensor logits;
  };
  static Pass Run(const Network& network, const FlatVector& model, const at::Tensor& batch,
                  Statistics statistics) {
    FlatVector copy = model.Clone();
    Pass pass{.values = ViewsOf(copy.view())};
    std::vector<at::Tensor> leaves;
    for (size_t i = 0; i < pass.values.size(); ++i) {
      const bool buffer = model.layout()->entries()[i].group == Group::kBuffer;
      leaves.push_back(pass.values[i]);
      leaves.back().requires_grad_(!buffer);
    }
    pass.logits = network.Forward(batch, leaves, nullptr, statistics).logits;
    torch::logsumexp(pass.logits, 1).sum().backward();
    for (at::Tensor& leaf : leaves)
      pass.gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
    for (at::Tensor& value : pass.values) value = value.detach().clone();
    pass.logits = pass.logits.detach();
    return pass;
  }
  static std::string Refusal(const WrittenScript& script) {
    return std::string(ReadScriptContent(script.Bytes()).status().message());
  }
};

TEST_F(Script, HasTheLayoutOfTheEqualLayers) {
  const ModelSpec script = SpecOf(WrittenNet(kIn, kWidth, kOut).Bytes(), DType::kF32);
  EXPECT_EQ(script.layout->digest(), Layers(DType::kF32).layout->digest());
  EXPECT_TRUE(script.is_script());
  EXPECT_TRUE(script.has_buffers());
  EXPECT_EQ(script.outputs, kOut);
}

TEST_F(Script, GivesTheBitsOfTheEqualLayers) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Network script(SpecOf(WrittenNet(kIn, kWidth, kOut).Bytes(), dtype));
    const Network layers(Layers(dtype));
    const FlatVector model = InitialModel(layers.spec(), 3);
    const auto options = at::dtype(dtype == DType::kF32 ? at::kFloat : at::kDouble);
    // Several times: earlier runs must not affect the result.
    for (int again = 0; again < 4; ++again) {
      for (const Statistics statistics :
           {Statistics::kBatchAndMove, Statistics::kRunning, Statistics::kBatch}) {
        const at::Tensor batch = torch::randn({7, 3, 4}, options);
        const Pass ours = Run(script, model, batch, statistics);
        const Pass theirs = Run(layers, model, batch, statistics);
        EXPECT_TRUE(ours.logits.equal(theirs.logits));
        for (size_t i = 0; i < ours.values.size(); ++i) {
          const std::string name = script.spec().layout->entries()[i].name;
          EXPECT_TRUE(ours.values[i].equal(theirs.values[i])) << name;
          ASSERT_EQ(ours.gradients[i].defined(), theirs.gradients[i].defined()) << name;
          if (!ours.gradients[i].defined()) continue;
          EXPECT_TRUE(ours.gradients[i].equal(theirs.gradients[i])) << name;
        }
        const at::Tensor mean = ours.values[6];  // "2.running_mean"
        EXPECT_EQ(mean.abs().max().item<double>() > 0, statistics == Statistics::kBatchAndMove);
      }
    }
  }
}

// Cumulative statistics weight a batch by the number of earlier ones: the file's number, not the
// slot's.
TEST_F(Script, EachPassBeginsWithTheFilesCounters) {
  WrittenScript net("Counting");
  net.Parameter("weight", torch::randn({kOut, kIn})).Buffer("seen", torch::tensor(int64_t{2}));
  net.Define(
      "    self.seen.add_(1)\n"
      "    return torch.linear(torch.flatten(x, 1), self.weight) * float(self.seen)\n");
  const Network script(SpecOf(net.Bytes(), DType::kF32));
  FlatVector model(script.spec().layout);
  for (float& w : model.As<float>()) w = 1;
  const at::Tensor batch = torch::ones({1, 3, 4});
  for (int again = 0; again < 3; ++again) {
    const at::Tensor logits =
        script.Forward(batch, ViewsOf(model.view()), nullptr, Statistics::kRunning).logits;
    EXPECT_EQ(logits[0][0].item<double>(), 3.0 * kIn);
  }
}

TEST_F(Script, MayReturnARepresentationBesideItsLogits) {
  WrittenScript net("Pair");
  net.Inner("body", WrittenLinear("Body", kIn, kWidth))
      .Inner("head", WrittenLinear("Head", kWidth, kOut));
  net.Define(
      "    z = torch.relu(self.body.forward(torch.flatten(x, 1)))\n"
      "    return self.head.forward(z), z\n");
  const Network script(SpecOf(net.Bytes(), DType::kF32));
  FlatVector model(script.spec().layout);
  const Outputs outputs =
      script.Forward(torch::randn({2, 3, 4}), ViewsOf(model.view()), nullptr, Statistics::kRunning);
  EXPECT_EQ(outputs.logits.sizes(), at::IntArrayRef({2, kOut}));
  EXPECT_EQ(outputs.representation.sizes(), at::IntArrayRef({2, kWidth}));
}

TEST_F(Script, WhatCannotBeTrainedIsRefusedWithTheReason) {
  WrittenScript noisy("Noisy");
  noisy.Inner("fc", WrittenLinear("Fc", kIn, kOut)).Training();
  noisy.Define("    return self.fc.forward(torch.flatten(x, 1)) + torch.rand_like(x).sum()\n");
  EXPECT_THAT(Refusal(noisy), AllOf(HasSubstr("aten::rand_like"), HasSubstr("random numbers")));

  EXPECT_THAT(ReadScriptContent("no zip archive").status().message(),
              HasSubstr("does not read it as a scripted module"));
}

// As in a trace that was made in training mode; a condition may choose between two traces.
TEST_F(Script, ANormThatTrainsInBothModesIsRefused) {
  const auto with = [](const std::string& name, const std::string& body) {
    WrittenScript net(name);
    net.Parameter("weight", torch::ones({kIn}));
    net.Buffer("running_mean", torch::zeros({kIn})).Buffer("running_var", torch::ones({kIn}));
    net.Training();
    net.Define(absl::StrCat("    x = torch.flatten(x, 1)\n", body));
    return net;
  };
  const std::string call =
      "torch.batch_norm(x, self.weight, None, self.running_mean, "
      "self.running_var, ";
  const std::string trains = absl::StrCat(call, "True, 0.1, 1e-05, False)\n");
  EXPECT_THAT(Refusal(with("AlwaysTrains", absl::StrCat("    return ", trains))),
              AllOf(HasSubstr("aten::batch_norm with training = True in both modes"),
                    HasSubstr("statistics of the batch"), HasSubstr("torch.jit.script(net)")));
  WrittenScript outer("AroundOneThatTrains");
  outer.Inner("net", with("InnerTrains", absl::StrCat("    return ", trains)));
  outer.Define("    return self.net.forward(x)\n");
  EXPECT_THAT(Refusal(outer), HasSubstr("aten::batch_norm with training = True"));
  const auto instance = [&](const std::string& name, const std::string& statistics) {
    return Refusal(with(name, absl::StrCat("    return torch.instance_norm(x.unsqueeze(2), None, "
                                           "None, ",
                                           statistics, ", True, 0.1, 1e-05, False)\n")));
  };
  EXPECT_THAT(instance("InstanceTrains", "self.running_mean, self.running_var"),
              HasSubstr("statistics of the row"));
  EXPECT_EQ(instance("InstanceAlone", "None, None"), "");

  EXPECT_EQ(Refusal(with("NeverTrains",
                         absl::StrCat("    return ", call, "False, 0.1, 1e-05, False)\n"))),
            "");
  EXPECT_EQ(Refusal(with("TwoModes", absl::StrCat("    if self.training:\n        return ", trains,
                                                  "    return x\n"))),
            "");
  EXPECT_EQ(Refusal(WrittenNet(kIn, kWidth, kOut)), "");
}

TEST_F(Script, AnotherModuleThanTheRunsIsRefused) {
  const std::string bytes = WrittenNet(kIn, kWidth, kOut).Bytes();
  ModelSpec other = SpecOf(WrittenNet(kIn, kWidth + 1, kOut).Bytes(), DType::kF32);
  other.script = std::make_shared<const std::string>(bytes);
  EXPECT_THAT([&] { Network network(other); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("1.weight 5 12")));

  const testing_support::TemporaryFolder folder;
  const std::string path = folder.Write("net.pt", bytes);
  EXPECT_EQ(**ReadScript(path, DigestOf(bytes).Hex()), bytes);
  EXPECT_THAT(ReadScript(path, DigestOf("else").Hex()).status().message(),
              AllOf(HasSubstr(path), HasSubstr(DigestOf(bytes).Hex())));
  EXPECT_THAT(ReadScript("", DigestOf(bytes).Hex()).status().message(),
              HasSubstr("model.torchscript"));
}

TEST_F(Script, AWrongNumberOfOutputsIsRefused) {
  ModelSpec spec = SpecOf(WrittenNet(kIn, kWidth, kOut + 1).Bytes(), DType::kF32);
  const Network network(spec);
  FlatVector model(spec.layout);
  EXPECT_THAT(
      [&] {
        network.Forward(torch::randn({2, 3, 4}), ViewsOf(model.view()), nullptr,
                        Statistics::kRunning);
      },
      testing::ThrowsMessage<std::invalid_argument>(
          AllOf(HasSubstr("[2, 4]"), HasSubstr("needs [2, 3]"))));
}

TEST_F(Script, ABatchThatItsCodeCannotTakeIsRefusedWithTheLine) {
  WrittenScript net("Views");
  net.Parameter("weight", torch::randn({kOut, 5}));
  net.Define("    y = x.view([-1, 5])\n    return torch.matmul(y, self.weight.t())\n");
  const Network network(SpecOf(net.Bytes(), DType::kF32));
  FlatVector model(network.spec().layout);
  EXPECT_THAT(
      [&] {
        network.Forward(torch::randn({2, 3, 4}), ViewsOf(model.view()), nullptr,
                        Statistics::kRunning);
      },
      testing::ThrowsMessage<std::invalid_argument>(AllOf(
          HasSubstr("a batch of shape [2, 3, 4]"),
          HasSubstr("shape '[-1, 5]' is invalid for input of size 24, in \""), HasSubstr("view("),
          HasSubstr("any number of rows of shape [3, 4]"), testing::Not(HasSubstr("\n")))));
}

TEST_F(Script, ALackOfMemoryIsNotTheModulesFault) {
  WrittenScript net("Huge");
  net.Parameter("weight", torch::randn({kOut, kIn}));
  net.Define(
      "    z = torch.zeros([1125899906842624])\n"
      "    return torch.linear(torch.flatten(x, 1), self.weight) + z[0]\n");
  const Network network(SpecOf(net.Bytes(), DType::kF32));
  FlatVector model(network.spec().layout);
  EXPECT_THROW(network.Forward(torch::randn({2, 3, 4}), ViewsOf(model.view()), nullptr,
                               Statistics::kRunning),
               c10::OutOfMemoryError);
}

// "embedding 7 4" and "linear OUT", of tokens as PyTorch has them: one_hot refuses any but int64.
WrittenScript TokenNet(int64_t outputs, const std::string& pool) {
  WrittenScript net("Tokens");
  net.Parameter("table", torch::randn({7, 4})).Parameter("weight", torch::randn({outputs, 4}));
  net.Parameter("bias", torch::randn({outputs}));
  net.Define("    y = torch.matmul(torch.one_hot(x, 7).to(self.table.dtype), self.table)\n" + pool +
             "    return torch.linear(y, self.weight, self.bias)\n");
  return net;
}

TEST_F(Script, TakesTokensAsInt64AndAnswersAtEachPositionOrOnce) {
  for (const bool each : {true, false}) {
    const int64_t outputs = each ? 7 : 3;
    const std::string bytes = TokenNet(outputs, each ? "" : "    y = y.mean(1)\n").Bytes();
    ModelConfig config = ConfigOf(bytes);
    config.input_shape = {5};
    config.classes = outputs;
    ModelSpec script = *BuildSpec(config, DType::kF64);
    script.script = std::make_shared<const std::string>(bytes);
    script.script_takes_tokens = true;
    script.positions = each ? 5 : 0;
    EXPECT_TRUE(script.takes_tokens());
    config.name = "layers";
    config.layers = {"embedding 7 4", absl::StrCat("linear ", outputs)};
    if (!each) config.layers.insert(config.layers.begin() + 1, "mean");
    const ModelSpec layers = *BuildSpec(config, DType::kF64);
    FlatVector model = InitialModel(layers, 1);
    const at::Tensor x = torch::randint(0, 7, {6, 5}, torch::kInt);
    const auto theirs = Network(layers).Forward(x, ViewsOf(model.view()), nullptr).logits;
    const auto ours = Network(script).Forward(x, ViewsOf(model.view()), nullptr).logits;
    EXPECT_EQ(ours.sizes(), theirs.sizes());
    EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-14);

    script.positions = each ? 0 : 5;  // the other task
    EXPECT_THAT([&] { Network(script).Forward(x, ViewsOf(model.view()), nullptr); },
                testing::ThrowsMessage<std::invalid_argument>(
                    HasSubstr(each ? "needs [6, 7]" : "needs [6, 5, 3]")));
  }
}

// torch.nn.TransformerEncoderLayer(dropout=0) and torch.nn.GRU have these ops in their scripts.
TEST_F(Script, MayDropInEveryOpThatTakesAProbability) {
  const auto drops = [](const std::string& p) {
    WrittenScript net("Drops");
    net.Parameter("weight", torch::randn({3, 12})).Training();
    for (const std::string name : {"into", "hidden", "in_bias", "hidden_bias"})
      net.Parameter(name, name.ends_with("bias") ? torch::randn({36}) : torch::randn({36, 12}));
    net.Define(
        "    p = " + p +
        " if self.training else 0.0\n"
        "    y = torch.dropout(torch.flatten(x, 1), p, self.training)\n"
        "    z = y.reshape([1, 1, y.size(0), y.size(1)])\n"
        "    y = y + torch.scaled_dot_product_attention(z, z, z, None, p).reshape(y.size())\n"
        "    w = [self.into, self.hidden, self.in_bias, self.hidden_bias]\n"
        "    h = torch.zeros([1, y.size(0), 12], dtype=y.dtype)\n"
        "    y = torch.gru(y.unsqueeze(1), h, w, True, 1, p, self.training, False, "
        "True)[0].squeeze(1)\n"
        "    return torch.matmul(y, self.weight.t())\n");
    return net;
  };
  EXPECT_EQ(Refusal(drops("0.0")), "");
  EXPECT_EQ(Refusal(drops("0.1")), "");
}

TEST_F(Script, ListsOfTensorsAreCheckedLineByLine) {
  const auto message = [](std::vector<std::string> tensors) {
    ModelConfig config;
    config.name = kScriptName;
    config.input_shape = {3};
    config.classes = 2;
    config.tensors = std::move(tensors);
    return std::string(BuildSpec(config, DType::kF32).status().message());
  };
  EXPECT_EQ(message({"parameter w 2 3", "parameter scale", "buffer mean 2"}), "");
  EXPECT_THAT(message({}), HasSubstr("names no parameter"));
  EXPECT_THAT(message({"buffer mean 2"}), HasSubstr("names no parameter"));
  EXPECT_THAT(message({"parameter w 2", "tensor v 1"}), HasSubstr("\"tensor v 1\""));
  EXPECT_THAT(message({"parameter w 0"}), HasSubstr("\"parameter w 0\""));
  EXPECT_THAT(message({"parameter"}), HasSubstr("\"parameter\""));
  EXPECT_THAT(message({"parameter a 1", "buffer b 1", "parameter c 1"}),
              HasSubstr("behind a buffer"));
}

TEST_F(Script, IsDescribedForProgramsWithoutLibTorch) {
  const testing_support::TemporaryFolder folder;
  const std::string bytes = WrittenNet(kIn, kWidth, kOut).Bytes();
  const std::string path = folder.Write("net.pt", bytes), out = folder / "net.safetensors";
  ASSERT_TRUE(DescribeScript(path, out).ok());
  const auto file = SafetensorsFile::Open(out);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("script_digest"), DigestOf(bytes).Hex());
  const std::vector<std::string> lines = absl::StrSplit(file->metadata().at("tensors"), '\n');
  EXPECT_EQ(lines, ConfigOf(bytes).tensors);
  const ModelSpec spec = SpecOf(bytes, DType::kF32);
  const auto model = ReadModel(out, spec.layout);
  ASSERT_TRUE(model.ok()) << model.status();
  FlatVector values = model->Clone();
  EXPECT_TRUE(ViewsOf(values.view())[0].equal(ReadScriptContent(bytes)->values[0]));
  EXPECT_FALSE(DescribeScript(folder / "none.pt", out).ok());
}

}  // namespace
}  // namespace macaw::models
