#include "models/named.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/spec.h"

namespace macaw::models {
namespace {

using Lines = std::vector<std::string>;
using Shape = std::vector<int64_t>;

std::string LinearTo(int64_t outputs) { return absl::StrCat("linear ", outputs); }

// Adds "flatten" where the input is not a vector. For vectors it is left out, so that the first
// linear layer is "0.weight", as in PyTorch.
Lines WithFlatten(const Shape& input, const Lines& layers) {
  Lines result;
  if (input.size() != 1) result.push_back("flatten");
  result.insert(result.end(), layers.begin(), layers.end());
  return result;
}

Lines Logistic(const Shape& input, int64_t outputs) {
  return WithFlatten(input, {LinearTo(outputs)});
}

Lines Mlp(const Shape& input, int64_t outputs) {
  return WithFlatten(input, {"linear 200", "relu", "linear 200", "relu", LinearTo(outputs)});
}

// LeCun et al. 1998 used images of 32 × 32. The first layer pads MNIST's 28 × 28 images to that.
Lines LeNet5(const Shape& input, int64_t outputs) {
  const bool mnist = input.size() == 3 && input[1] == 28 && input[2] == 28;
  return {mnist ? "conv 6 5 pad 2" : "conv 6 5",
          "relu",
          "maxpool 2",
          "conv 16 5",
          "relu",
          "maxpool 2",
          "flatten",
          "linear 120",
          "relu",
          "linear 84",
          "relu",
          LinearTo(outputs)};
}

// McMahan et al. 2017, the MNIST CNN.
Lines Cnn(const Shape&, int64_t outputs) {
  return {"conv 32 5 pad 2", "relu",       "maxpool 2", "conv 64 5 pad 2", "relu", "maxpool 2",
          "flatten",         "linear 512", "relu",      LinearTo(outputs)};
}

// The network of pfl-research's benchmarks, without its dropout.
Lines SimpleCnn(const Shape&, int64_t outputs) {
  return {"conv 32 3", "relu",       "conv 64 3", "relu",           "maxpool 2",
          "flatten",   "linear 128", "relu",      LinearTo(outputs)};
}

// ResNet-18 for small images (He et al. 2016; 3 × 3 stem without pooling). `norm` follows the stem,
// `of_block` is added to the blocks.
Lines ResNet18(const std::string& norm, const std::string& of_block, int64_t outputs) {
  Lines layers = {"conv 64 3 pad 1 nobias", norm, "relu"};
  for (const int width : {64, 128, 256, 512}) {
    const std::string block = absl::StrCat("block ", width);
    layers.push_back(absl::StrCat(block, width > 64 ? " stride 2" : "", of_block));
    layers.push_back(absl::StrCat(block, of_block));
  }
  layers.insert(layers.end(), {"globalavgpool", "flatten", LinearTo(outputs)});
  return layers;
}

Lines ResNet18Bn(const Shape&, int64_t outputs) {
  return ResNet18("batchnorm", " batchnorm", outputs);
}

// Two groups per norm (Hsieh et al. 2020, Reddi et al. 2021), because batch norm's statistics work
// badly under label skew.
Lines ResNet18Gn(const Shape&, int64_t outputs) { return ResNet18("groupnorm 2", "", outputs); }

// Simonyan and Zisserman 2015, configuration A, for small images: hidden layers of 512 and 512
// instead of 4096 and 4096 after the convolutions, and no dropout.
Lines Vgg11(const Shape&, int64_t outputs) {
  Lines layers;
  for (const int width : {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}) {
    if (width == 0) {
      layers.push_back("maxpool 2");
    } else {
      layers.insert(layers.end(), {absl::StrCat("conv ", width, " 3 pad 1"), "relu"});
    }
  }
  layers.insert(layers.end(),
                {"flatten", "linear 512", "relu", "linear 512", "relu", LinearTo(outputs)});
  return layers;
}

// McMahan et al. 2017 and LEAF (Caldas et al. 2018), the Shakespeare model: an embedding of 8
// numbers, two LSTM layers of 256, and a prediction of the next character at every position.
Lines CharLstm(const Shape&, int64_t outputs) {
  return {absl::StrCat("embedding ", outputs, " 8"), "lstm 256 layers 2", LinearTo(outputs)};
}

// The same with gated recurrent units (Cho et al. 2014): three quarters of the LSTM's weights.
Lines CharGru(const Shape&, int64_t outputs) {
  return {absl::StrCat("embedding ", outputs, " 8"), "gru 256 layers 2", LinearTo(outputs)};
}

// A small decoder with the norms in front: one million weights for 80 characters of 97.
Lines CharTransformer(const Shape&, int64_t outputs) {
  Lines layers = {absl::StrCat("embedding ", outputs, " 128"), "positions"};
  for (int block = 0; block < 5; ++block) layers.push_back("transformer heads 4 ff 512 causal");
  layers.insert(layers.end(), {"layernorm", LinearTo(outputs)});
  return layers;
}

struct Entry {
  absl::string_view name;
  absl::string_view summary;
  Lines (*layers)(const Shape& input, int64_t outputs);
  Shape example;  // an input shape for `macaw models`
};

std::vector<Entry> Entries() {
  return {
      {"logistic", "one linear layer (softmax or logistic regression)", Logistic, {60}},
      {"mlp", "two hidden layers of 200", Mlp, {784}},
      {"lenet5", "two 5x5 convolutions (6, 16), then 120 and 84", LeNet5, {1, 28, 28}},
      {"cnn", "McMahan's CNN: two 5x5 convolutions (32, 64), then 512", Cnn, {1, 28, 28}},
      {"simple_cnn", "two 3x3 convolutions (32, 64), then 128", SimpleCnn, {1, 28, 28}},
      {"resnet18", "ResNet-18 for small images, batch norm", ResNet18Bn, {3, 32, 32}},
      {"resnet18_gn", "ResNet-18 for small images, group norm", ResNet18Gn, {3, 32, 32}},
      {"vgg11", "VGG-11 for small images, then 512 and 512", Vgg11, {3, 32, 32}},
      {"char_lstm", "embedding of 8, two LSTM layers of 256, per character", CharLstm, {80}},
      {"char_gru", "embedding of 8, two GRU layers of 256, per character", CharGru, {80}},
      {"char_transformer", "five causal transformer blocks of 128", CharTransformer, {80}},
  };
}

}  // namespace

absl::StatusOr<Lines> LayersOf(const ModelConfig& config) {
  Lines known;
  for (const Entry& entry : Entries()) {
    known.push_back(std::string(entry.name));
    if (entry.name != config.name) continue;
    Lines layers = entry.layers(config.input_shape, config.classes);
    if (config.bias) return layers;
    if (config.name == "logistic") {
      layers.back() += " nobias";
      return layers;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("bias = false is for the model \"logistic\"; write \"", config.name,
                     "\" as [model] layers with \"nobias\" where there should be none"));
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no model \"", config.name,
                                                 "\"; there are ", absl::StrJoin(known, ", "),
                                                 ", or a list of your own in [model] layers"));
}

std::vector<ModelConfig> ExampleConfigs() {
  std::vector<ModelConfig> configs;
  for (const Entry& entry : Entries()) {
    ModelConfig& config = configs.emplace_back();
    config.name = std::string(entry.name);
    config.input_shape = entry.example;
    config.classes = 10;
  }
  return configs;
}

std::vector<NamedModel> NamedModels() {
  std::vector<NamedModel> models;
  for (const Entry& entry : Entries()) {
    models.push_back(
        {std::string(entry.name), std::string(entry.summary), entry.layers(entry.example, 10)});
  }
  return models;
}

}  // namespace macaw::models
