#include "models/named.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/spec.h"

namespace macaw::models {
namespace {

using Lines = std::vector<std::string>;
using Shape = std::vector<int64_t>;

std::string LinearTo(int64_t outputs) { return absl::StrCat("linear ", outputs); }

// A vector needs no "flatten", and without one the first linear layer is "0.weight", as in PyTorch.
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

// LeCun et al. 1998 was drawn for 32 × 32; the 28 × 28 images of MNIST are padded to that by the
// first layer.
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

// ResNet-18 for small images (3 × 3 stem, no pooling after it) with two groups a norm (Hsieh et al.
// 2020, Reddi et al. 2021): batch norm's statistics do not survive label skew.
Lines ResNet18Gn(const Shape&, int64_t outputs) {
  return {"conv 64 3 pad 1 nobias",
          "groupnorm 2",
          "relu",
          "block 64",
          "block 64",
          "block 128 stride 2",
          "block 128",
          "block 256 stride 2",
          "block 256",
          "block 512 stride 2",
          "block 512",
          "globalavgpool",
          "flatten",
          LinearTo(outputs)};
}

struct Entry {
  absl::string_view name;
  absl::string_view summary;
  Lines (*layers)(const Shape& input, int64_t outputs);
  Shape example;  // an input to list it with
};

std::vector<Entry> Entries() {
  return {
      {"logistic", "one linear layer (softmax or logistic regression)", Logistic, {60}},
      {"mlp", "two hidden layers of 200", Mlp, {784}},
      {"lenet5", "two 5x5 convolutions (6, 16), then 120 and 84", LeNet5, {1, 28, 28}},
      {"cnn", "McMahan's CNN: two 5x5 convolutions (32, 64), then 512", Cnn, {1, 28, 28}},
      {"simple_cnn", "two 3x3 convolutions (32, 64), then 128", SimpleCnn, {1, 28, 28}},
      {"resnet18_gn", "ResNet-18 for small images, group norm", ResNet18Gn, {3, 32, 32}},
  };
}

}  // namespace

absl::StatusOr<Lines> LayersOf(const std::string& name, const Shape& input_shape, int64_t outputs) {
  Lines known;
  for (const Entry& entry : Entries()) {
    if (entry.name == name) return entry.layers(input_shape, outputs);
    known.push_back(std::string(entry.name));
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no model \"", name, "\"; there are ",
                                                 absl::StrJoin(known, ", "),
                                                 ", or a list of your own in [model] layers"));
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
