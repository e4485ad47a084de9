#include "models/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "models/parse.h"

namespace macaw::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ModelConfig Named(const std::string& name, std::vector<int64_t> input, int64_t classes) {
  return {.name = name, .input_shape = std::move(input), .classes = classes};
}

ModelConfig Layers(std::vector<std::string> layers, std::vector<int64_t> input = {1, 28, 28}) {
  return {.name = "layers",
          .layers = std::move(layers),
          .input_shape = std::move(input),
          .classes = 10};
}

uint64_t CountOf(const ModelConfig& config) {
  return BuildSpec(config, DType::kF32)->layout->count();
}

std::vector<std::string> NamesOf(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const LayoutEntry& entry : spec.layout->entries()) names.push_back(entry.name);
  return names;
}

std::string ErrorOf(const ModelConfig& config) {
  return std::string(BuildSpec(config, DType::kF32).status().message());
}

TEST(NamedModels, HaveTheirPublishedParameterCounts) {
  EXPECT_EQ(CountOf(Named("logistic", {60}, 10)), 610u);
  EXPECT_EQ(CountOf(Named("mlp", {1, 28, 28}, 10)), 199'210u);
  EXPECT_EQ(CountOf(Named("lenet5", {1, 28, 28}, 10)), 61'706u);
  EXPECT_EQ(CountOf(Named("lenet5", {1, 32, 32}, 10)), 61'706u);
  EXPECT_EQ(CountOf(Named("cnn", {1, 28, 28}, 10)), 1'663'370u);
  EXPECT_EQ(CountOf(Named("simple_cnn", {1, 28, 28}, 10)), 1'199'882u);
  EXPECT_EQ(CountOf(Named("resnet18_gn", {3, 32, 32}, 10)), 11'173'962u);
  // Beside as many parameters, a mean and a variance for each of 4800 channels.
  EXPECT_EQ(CountOf(Named("resnet18", {3, 32, 32}, 10)), 11'173'962u + 2 * 4800u);
  EXPECT_EQ(CountOf(Named("vgg11", {3, 32, 32}, 10)), 9'750'922u);
  // 97 · 8 + 4 · 256 · (8 + 256 + 2) + 4 · 256 · (256 + 256 + 2) + 257 · 97
  EXPECT_EQ(CountOf(Named("char_lstm", {80}, 97)), 824'425u);
  // 97 · 8 + 3 · 256 · (8 + 256 + 2) + 3 · 256 · (256 + 256 + 2) + 257 · 97
  EXPECT_EQ(CountOf(Named("char_gru", {80}, 97)), 624'745u);
  // (97 + 80) · 128 + 5 · (4 · 129 · 128 + 129 · 512 + 513 · 128 + 4 · 128) + 2 · 128 + 129 · 97
  EXPECT_EQ(CountOf(Named("char_transformer", {80}, 97)), 1'026'785u);
}

TEST(NamedModels, AreListedAsAUserWouldWriteThem) {
  for (const NamedModel& model : NamedModels()) {
    const bool small = model.name == "logistic" || model.name == "mlp";
    const bool color = model.name.starts_with("resnet18") || model.name == "vgg11";
    ModelConfig config = Layers(model.layers);
    if (small) config.input_shape = {model.name == "logistic" ? 60 : 784};
    if (model.name.starts_with("char_")) config.input_shape = {80};
    if (color) config.input_shape = {3, 32, 32};
    const auto written = BuildSpec(config, DType::kF32);
    ASSERT_TRUE(written.ok()) << model.name << ": " << written.status();
    const auto named = BuildSpec(Named(model.name, config.input_shape, 10), DType::kF32);
    EXPECT_EQ(written->layout->digest(), named->layout->digest()) << model.name;
  }
}

TEST(BuildSpec, NamesTensorsAsPyTorchDoes) {
  const ModelSpec conv = *BuildSpec(
      Layers({"conv 8 3 nobias", "groupnorm 2", "relu", "flatten", "linear 10"}), DType::kF32);
  EXPECT_THAT(NamesOf(conv), ElementsAre("0.weight", "1.weight", "1.bias", "4.weight", "4.bias"));
  EXPECT_THAT(conv.layout->Find("0.weight")->shape, ElementsAre(8, 1, 3, 3));
  EXPECT_THAT(conv.layout->Find("4.weight")->shape, ElementsAre(10, 8 * 26 * 26));

  const ModelSpec block = *BuildSpec(
      Layers({"block 4 stride 2", "globalavgpool", "flatten", "linear 10"}), DType::kF32);
  EXPECT_THAT(NamesOf(block),
              ElementsAre("0.conv1.weight", "0.gn1.weight", "0.gn1.bias", "0.conv2.weight",
                          "0.gn2.weight", "0.gn2.bias", "0.downsample.0.weight",
                          "0.downsample.1.weight", "0.downsample.1.bias", "3.weight", "3.bias"));
  EXPECT_EQ(block.tensors[0], std::pair(size_t{0}, size_t{9}));
  EXPECT_EQ(block.tensors[3], std::pair(size_t{9}, size_t{2}));
}

TEST(BuildSpec, PutsRunningStatisticsBehindAllParameters) {
  const ModelSpec spec = *BuildSpec(Layers({"conv 4 3 nobias", "batchnorm", "block 4 batchnorm",
                                            "globalavgpool", "flatten", "linear 10"}),
                                    DType::kF32);
  EXPECT_THAT(NamesOf(spec),
              ElementsAre("0.weight", "1.weight", "1.bias", "2.conv1.weight", "2.bn1.weight",
                          "2.bn1.bias", "2.conv2.weight", "2.bn2.weight", "2.bn2.bias", "5.weight",
                          "5.bias", "1.running_mean", "1.running_var", "2.bn1.running_mean",
                          "2.bn1.running_var", "2.bn2.running_mean", "2.bn2.running_var"));
  EXPECT_EQ(spec.tensors[2], std::pair(size_t{3}, size_t{6}));
  EXPECT_EQ(spec.buffers[1], std::pair(size_t{11}, size_t{2}));
  EXPECT_EQ(spec.buffers[2], std::pair(size_t{13}, size_t{4}));
  EXPECT_EQ(spec.buffers[5].second, 0u);
  EXPECT_TRUE(spec.has_buffers());
  EXPECT_FALSE(BuildSpec(Named("logistic", {60}, 10), DType::kF32)->has_buffers());
  const FlatVector model = InitialModel(spec, 1);
  const LayoutEntry& mean = spec.layout->entries()[13];
  const LayoutEntry& variance = spec.layout->entries()[14];
  EXPECT_EQ(model.As<float>()[mean.offset], 0);
  EXPECT_EQ(model.As<float>()[variance.offset + 3], 1);
}

TEST(BuildSpec, KnowsThreeRulesForBuffers) {
  ModelConfig config = Layers({"batchnorm", "flatten", "linear 10"});
  EXPECT_TRUE(BuildSpec(config, DType::kF32)->move_buffers);
  config.buffers = "server";
  EXPECT_FALSE(BuildSpec(config, DType::kF32)->move_buffers);
  config.buffers = "local";
  EXPECT_THAT(ErrorOf(config), HasSubstr("use algorithm.name = \"fedbn\""));
  config.buffers = "sum";
  EXPECT_THAT(ErrorOf(config), HasSubstr("\"mean\", \"local\" or \"server\", got \"sum\""));
}

TEST(BuildSpec, FollowsSequencesPositionByPosition) {
  const ModelSpec spec =
      *BuildSpec(Layers({"embedding 30 8", "lstm 16 layers 2", "dropout 0.1", "linear 10"}, {12}),
                 DType::kF32);
  EXPECT_THAT(spec.shapes[0], ElementsAre(12, 8));
  EXPECT_THAT(spec.shapes[1], ElementsAre(12, 16));
  EXPECT_THAT(spec.shapes[3], ElementsAre(12, 10));
  EXPECT_EQ(spec.positions, 12);
  EXPECT_EQ(spec.outputs, 10);
  EXPECT_TRUE(spec.takes_tokens());
  EXPECT_THAT(NamesOf(spec),
              ElementsAre("0.weight", "1.weight_ih_l0", "1.weight_hh_l0", "1.bias_ih_l0",
                          "1.bias_hh_l0", "1.weight_ih_l1", "1.weight_hh_l1", "1.bias_ih_l1",
                          "1.bias_hh_l1", "3.weight", "3.bias"));
  EXPECT_THAT(ErrorOf(Layers({"embedding 30 8", "lstm 16"}, {12})),
              HasSubstr("the task needs 10 outputs at each position: end it with \"linear 10\""));
  EXPECT_THAT(ErrorOf(Layers({"relu", "embedding 30 8"}, {12})),
              HasSubstr("it is the first layer"));
  EXPECT_THAT(ErrorOf(Layers({"lstm 16"}, {12})), HasSubstr("put \"embedding TOKENS OUT\" before"));
}

TEST(BuildSpec, NamesTheTensorsOfATransformerAsPyTorchDoes) {
  const ModelSpec spec = *BuildSpec(
      Layers({"embedding 30 8", "positions", "transformer heads 2 ff 16 causal dropout 0.1",
              "residual [layernorm, attention heads 4 causal]", "layernorm", "gelu", "linear 10"},
             {12}),
      DType::kF32);
  EXPECT_THAT(
      NamesOf(spec),
      ElementsAre("0.weight", "1.weight", "2.self_attn.in_proj_weight", "2.self_attn.in_proj_bias",
                  "2.self_attn.out_proj.weight", "2.self_attn.out_proj.bias", "2.linear1.weight",
                  "2.linear1.bias", "2.linear2.weight", "2.linear2.bias", "2.norm1.weight",
                  "2.norm1.bias", "2.norm2.weight", "2.norm2.bias", "3.0.weight", "3.0.bias",
                  "3.1.in_proj_weight", "3.1.in_proj_bias", "3.1.out_proj.weight",
                  "3.1.out_proj.bias", "4.weight", "4.bias", "6.weight", "6.bias"));
  EXPECT_THAT(spec.layout->Find("1.weight")->shape, ElementsAre(12, 8));
  EXPECT_THAT(spec.layout->Find("2.self_attn.in_proj_weight")->shape, ElementsAre(24, 8));
  EXPECT_THAT(spec.layout->Find("2.linear1.weight")->shape, ElementsAre(16, 8));
  EXPECT_EQ(spec.positions, 12);
  EXPECT_TRUE(DrawsMasks(spec.layers[2]));
  EXPECT_FALSE(DrawsMasks(spec.layers[3]));
}

TEST(DrawsMasks, IsSaidOfLayersThatDropSomething) {
  const auto draws = [](const std::string& line) {
    const ModelSpec spec = *BuildSpec(Layers({line, "linear 10"}, {4}), DType::kF32);
    return DrawsMasks(spec.layers[0]);
  };
  EXPECT_TRUE(draws("dropout 0.5"));
  EXPECT_FALSE(draws("dropout 0"));
}

TEST(BuildSpec, MakesOneVectorOfAText) {
  for (const std::string pool : {"last", "mean"}) {
    const ModelSpec spec =
        *BuildSpec(Layers({"embedding 30 8", "transformer heads 2 ff 16", pool, "linear 10"}, {12}),
                   DType::kF32);
    EXPECT_EQ(spec.positions, 0);
    EXPECT_TRUE(spec.takes_tokens());
    EXPECT_THAT(spec.shapes[2], ElementsAre(8));
  }
}

TEST(BuildSpec, PutsTheStatisticsOfAnInnerLayerBehindAllParameters) {
  const ModelSpec spec = *BuildSpec(
      Layers({"residual [linear 6, batchnorm, residual [relu, linear 6]]", "linear 10"}, {6}),
      DType::kF32);
  EXPECT_THAT(NamesOf(spec), ElementsAre("0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias",
                                         "0.2.1.weight", "0.2.1.bias", "1.weight", "1.bias",
                                         "0.1.running_mean", "0.1.running_var"));
}

TEST(BuildSpec, RefusesANextTokenModelThatSeesTheNextToken) {
  for (const std::string layer : {"attention heads 2", "transformer heads 2 ff 8",
                                  "residual [layernorm, residual [attention heads 2]]"}) {
    EXPECT_THAT(ErrorOf(Layers({"embedding 30 8", layer, "linear 10"}, {12})),
                testing::AllOf(HasSubstr("layer 2 \"" + layer + "\""), HasSubstr("\"causal\"")));
  }
}

TEST(BuildSpec, SaysWhatIsWrongWithALayerOfSequences) {
  const auto error = [](const std::string& layer) {
    return ErrorOf(Layers({"embedding 30 8", layer, "linear 10"}, {12}));
  };
  EXPECT_THAT(error("attention heads 3 causal"), HasSubstr("3 heads do not divide vectors of 8"));
  EXPECT_THAT(error("attention causal"), HasSubstr("\"heads NUMBER\" is missing"));
  EXPECT_THAT(error("transformer heads 2 causal"), HasSubstr("\"ff NUMBER\" is missing"));
  EXPECT_THAT(error("transformer heads 2 ff 8 causal dropout 1"), HasSubstr("got \"1\""));
  EXPECT_THAT(error("transformer heads 2 ff 8 casual"), HasSubstr("does not take \"casual\""));
  EXPECT_THAT(
      error("residual [layernorm, lstm]"),
      HasSubstr("layer 2 \"residual [layernorm, lstm]\": its layer 2 \"lstm\": the number"));
  EXPECT_THAT(error("residual [linear 9]"), HasSubstr("make [12, 9] of [12, 8]"));
  EXPECT_THAT(error("residual [mean]"), HasSubstr("make [8] of [12, 8]"));
  EXPECT_THAT(error("residual linear 8"), HasSubstr("stand in brackets"));
  EXPECT_THAT(error("residual [residual [linear 8]"), HasSubstr("brackets do not match"));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "residual [";
  EXPECT_THAT(error(deep + "tanh" + std::string(1000, ']')),
              HasSubstr("brackets are over 16 deep"));
  EXPECT_THAT(error("residual []"), HasSubstr("its layer 1 \"\""));
  EXPECT_THAT(ErrorOf(Layers({"mean"}, {12})), HasSubstr("needs a sequence of vectors, but [12]"));
  EXPECT_THAT(ErrorOf(Layers({"layernorm"})), HasSubstr("needs a vector, but [1, 28, 28]"));
}

TEST(BuildSpec, LeavesTheBiasOfLogisticOut) {
  ModelConfig config = Named("logistic", {123}, 1);
  config.bias = false;
  EXPECT_THAT(NamesOf(*BuildSpec(config, DType::kF64)), ElementsAre("0.weight"));
  config.name = "mlp";
  EXPECT_THAT(ErrorOf(config), HasSubstr("bias = false is for the model \"logistic\""));
  config = Layers({"flatten", "linear 10"});
  config.bias = false;
  EXPECT_THAT(ErrorOf(config), HasSubstr("write \"nobias\""));
}

TEST(BuildSpec, GivesAVectorNoFlatten) {
  EXPECT_THAT(NamesOf(*BuildSpec(Named("logistic", {60}, 10), DType::kF64)),
              ElementsAre("0.weight", "0.bias"));
  EXPECT_THAT(NamesOf(*BuildSpec(Named("logistic", {1, 28, 28}, 10), DType::kF64)),
              ElementsAre("1.weight", "1.bias"));
}

TEST(BuildSpec, FollowsShapesThroughEveryLayer) {
  const ModelSpec spec =
      *BuildSpec(Layers({"conv 32 5 pad 2 stride 2", "maxpool 3 stride 2", "avgpool 2",
                         "dropout 0.5", "flatten", "tanh", "sigmoid", "linear 10"}),
                 DType::kF32);
  EXPECT_THAT(spec.shapes[0], ElementsAre(32, 14, 14));
  EXPECT_THAT(spec.shapes[1], ElementsAre(32, 6, 6));
  EXPECT_THAT(spec.shapes[2], ElementsAre(32, 3, 3));
  EXPECT_THAT(spec.shapes[4], ElementsAre(288));
  EXPECT_EQ(spec.outputs, 10);
  EXPECT_EQ(std::get<MaxPool2d>(spec.layers[1]).stride, 2);
  EXPECT_EQ(std::get<AvgPool2d>(spec.layers[2]).stride, 2);
}

// An example that the layer takes, by what its help says of it.
std::vector<int64_t> InputFor(const LayerWords& words) {
  const std::string kind = words.text.substr(0, words.text.find(' '));
  if (kind == "embedding") return {80};
  if (words.help.find("sequence") != std::string::npos || kind == "transformer") return {80, 8};
  if (kind == "residual" || kind == "layernorm") return {60};
  return {4, 28, 28};
}

TEST(AllLayerWords, AreReadAsTheyAreListed) {
  for (const LayerWords& words : AllLayerWords()) {
    const bool nested = words.text.starts_with("residual");
    const std::string text =
        nested ? absl::StrReplaceAll(words.text, {{"LAYER", "tanh"}, {", ...", ", linear 60"}})
               : absl::StrReplaceAll(words.text, {{"[", ""},
                                                  {"]", ""},
                                                  {" GROUPS", " 2"},
                                                  {" TOKENS", " 97"},
                                                  {" KERNEL", " 3"},
                                                  {" OUT", " 4"},
                                                  {" P", " 0"},
                                                  {" S", " 2"},
                                                  {" G", " 2"},
                                                  {" N", " 2"},
                                                  {" H", " 2"},
                                                  {" F", " 6"}});
    const auto layer = ParseLayer(text, InputFor(words), /*first=*/true);
    EXPECT_TRUE(layer.ok()) << text << ": " << layer.status();
  }
}

TEST(BuildSpec, SaysWhichLayerIsWrongAndWhatWouldFit) {
  ModelConfig gray = Layers({"conv 8 3"});
  gray.input_shape = {28, 28};
  EXPECT_THAT(ErrorOf(gray), HasSubstr("data.input_shape = [1, 28, 28], in Python x[:, None]"));
  EXPECT_THAT(ErrorOf(Layers({"flatten", "conv 8 3"})),
              HasSubstr("layer 2 \"conv 8 3\": needs [channels, height, width], but [784]"));
  EXPECT_THAT(ErrorOf(Layers({"conv 8 3", "linear 10"})),
              HasSubstr("layer 2 \"linear 10\": needs a vector, but [8, 26, 26] arrives there: put "
                        "\"flatten\" before it"));
  EXPECT_THAT(ErrorOf(Layers({"convolution 8"})),
              HasSubstr("layer 1 \"convolution 8\": there is no layer \"convolution\"; there are"));
  EXPECT_THAT(ErrorOf(Layers({"conv 8"})), HasSubstr("the kernel size is missing"));
  EXPECT_THAT(ErrorOf(Layers({"conv 8 0"})),
              HasSubstr("the kernel size is a whole number of at least 1, got \"0\""));
  EXPECT_THAT(ErrorOf(Layers({"conv 8 3 padding 1"})), HasSubstr("does not take \"padding\""));
  EXPECT_THAT(ErrorOf(Layers({"conv 8 3 pad"})), HasSubstr("\"pad\" needs a number"));
  EXPECT_THAT(ErrorOf(Layers({"maxpool 29"})),
              HasSubstr("a window of 29 does not fit into 28 padded by 0"));
  EXPECT_THAT(ErrorOf(Layers({"conv 9 3", "groupnorm 2"})),
              HasSubstr("2 groups do not divide 9 channels"));
  EXPECT_THAT(ErrorOf(Layers({"dropout 1"})), HasSubstr("number in [0, 1), got \"1\""));
  EXPECT_THAT(ErrorOf(Layers({"linear 99999999999"}, {60})), HasSubstr("got \"99999999999\""));
}

TEST(BuildSpec, FreezesTheTensorsThatAreNamed) {
  ModelConfig config = Layers({"flatten", "linear 5", "relu", "linear 10"});
  EXPECT_TRUE(BuildSpec(config, DType::kF32)->frozen.empty());
  config.frozen = {"1.*", "3.bias"};
  EXPECT_THAT(BuildSpec(config, DType::kF32)->frozen, ElementsAre(true, true, false, true));
  config.frozen = {"1.weight", "2.*"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("model.frozen: \"2.*\" is no tensor of the model; it has "
                                         "1.weight, 1.bias, 3.weight, 3.bias"));
  config.frozen = {"*"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("nothing to train"));
}

TEST(BuildSpec, RefusesModelsThatDoNotFitTheTask) {
  EXPECT_THAT(
      ErrorOf(Layers({"flatten", "linear 64"})),
      HasSubstr("ends with shape [64], but the task needs [10]: end it with \"linear 10\""));
  EXPECT_THAT(ErrorOf(Layers({"linear 8", "relu", "linear 60"}, {60})),
              AllOf(HasSubstr("data.classes = 60"), HasSubstr("run.task = \"reconstruction\"")));
  EXPECT_THAT(ErrorOf(Layers({"linear 61"}, {60})), Not(HasSubstr("reconstruction")));
  EXPECT_THAT(ErrorOf(Layers({"flatten", "linear 4"})),
              AllOf(HasSubstr("kmeans"), HasSubstr("data.classes = 4")));
  EXPECT_THAT(ErrorOf(Layers({"linear 8", "relu", "linear 4"}, {60})), Not(HasSubstr("kmeans")));
  EXPECT_THAT(ErrorOf(Layers({"conv 10 3"})), HasSubstr("end it with \"flatten\", \"linear 10\""));
  EXPECT_THAT(ErrorOf(Layers({})), HasSubstr("[model] layers has 0"));
  EXPECT_THAT(ErrorOf(Layers({"relu"}, {10})), HasSubstr("has no parameters"));
  EXPECT_THAT(ErrorOf(Named("resnet", {60}, 10)),
              HasSubstr("there is no model \"resnet\"; there are logistic, mlp, lenet5, cnn"));
  EXPECT_THAT(ErrorOf(Named("lenet5", {60}, 10)), HasSubstr("layer 1 \"conv 6 5\""));
  EXPECT_THAT(ErrorOf(Named("logistic", {}, 10)), HasSubstr("shape of an example is impossible"));
  EXPECT_THAT(ErrorOf(Named("logistic", {60}, 0)), HasSubstr("at least one output"));
}

}  // namespace
}  // namespace macaw::models
