#include "tests/training/random_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/parse.h"
#include "models/tensors.h"

namespace macaw::training {
namespace {

constexpr int64_t kMostElements = 400;  // of a row between two layers

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::string KindOf(const std::string& line) { return line.substr(0, line.find(' ')); }

// The first words of AllLayerWords.
std::vector<std::string> AllKinds() {
  std::set<std::string> kinds;
  for (const models::LayerWords& words : models::AllLayerWords()) kinds.insert(KindOf(words.text));
  return {kinds.begin(), kinds.end()};
}

const std::vector<std::string> kPlainKinds = {"conv",   "maxpool", "avgpool", "globalavgpool",
                                              "linear", "linear",  "dropout", "relu",
                                              "tanh",   "sigmoid", "flatten"};

}  // namespace

RandomNetwork::RandomNetwork(uint64_t seed) : stream_({.seed = seed, .extra = 0x6e6574}) {
  plain_ = OneIn(2);
  DrawRows();
  DrawTask();
  TakeSome(1 + Below(4), lines_, shape_);
  End();
  config_.name = "layers";
  config_.layers = lines_;
  config_.input_shape = input_;
  config_.classes = classes_;
  absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(config_, DType::kF32);
  if (!spec.ok()) {  // nothing to train: the drawn layers have no parameters
    lines_.push_back(absl::StrCat("linear ", classes_));
    config_.layers = lines_;
    spec = models::BuildSpec(config_, DType::kF32);
  }
  EXPECT_TRUE(spec.ok()) << spec.status() << " of " << Text();
  if (spec.ok()) spec_ = *std::move(spec);
  DrawAdapters(seed);
}

// Of a stream of its own, so that networks without adapters stay as they are.
void RandomNetwork::DrawAdapters(uint64_t seed) {
  RandomStream stream({.seed = seed, .extra = 0x6c6f7261});
  if (stream.Below(3) != 0) return;
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    for (const models::LinearMap& map : models::LinearMapsOf(spec_.layers[i])) {
      if (stream.Below(3) == 0) continue;
      const auto most = static_cast<uint64_t>(std::min<int64_t>({map.in, map.out, 5}));
      config_.adapters.push_back(absl::StrCat("lora ", 1 + stream.Below(most), " alpha ",
                                              1 + stream.Below(4), " ", i, ".", map.weight));
    }
  }
  absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(config_, DType::kF32);
  EXPECT_TRUE(spec.ok()) << spec.status() << " of " << Text();
  if (spec.ok()) spec_ = *std::move(spec);
}

models::ModelSpec RandomNetwork::SpecIn(DType dtype) const {
  return *models::BuildSpec(config_, dtype);
}

std::string RandomNetwork::Text() const {
  const std::string adapters =
      config_.adapters.empty() ? "" : absl::StrCat("; ", absl::StrJoin(config_.adapters, ", "));
  return absl::StrCat(models::ShapeText(input_), ": ", absl::StrJoin(lines_, ", "), adapters);
}

void RandomNetwork::DrawRows() {
  rows_ = std::array{RowKind::kVector,   RowKind::kImage,    RowKind::kImage,
                     RowKind::kTokens,   RowKind::kTokens,   RowKind::kSequence,
                     RowKind::kSequence, RowKind::kSequence, RowKind::kOtherAxes}[Below(9)];
  switch (rows_) {
    case RowKind::kVector:
      input_ = {Between(1, 20)};
      break;
    case RowKind::kImage:
      input_ = {Between(1, 3), Between(3, 8), Between(3, 8)};
      break;
    case RowKind::kTokens:
      input_ = {Between(1, 7)};
      break;
    case RowKind::kSequence:
      input_ = {Between(1, 7), OneIn(4) ? 16 * Between(1, 2) : Between(1, 18)};
      break;
    case RowKind::kOtherAxes:
      input_ = {Between(1, 3), Between(1, 4), Between(1, 4), Between(1, 3)};
      break;
  }
  shape_ = input_;
  if (rows_ != RowKind::kTokens) return;
  tokens_ = Between(3, 9);
  const int64_t width = OneIn(3) ? 6 : Between(1, 9);
  EXPECT_TRUE(Take(absl::StrCat("embedding ", tokens_, " ", width), lines_, shape_));
}

void RandomNetwork::DrawTask() {
  if (rows_ == RowKind::kTokens && OneIn(2)) {
    task_ = TaskKind::kNextToken;
    classes_ = tokens_;
    return;
  }
  task_ = std::array{TaskKind::kClassification, TaskKind::kClassification, TaskKind::kBinary,
                     TaskKind::kRegression}[Below(4)];
  classes_ = task_ == TaskKind::kClassification ? Between(2, 9) : 1;
}

std::string RandomNetwork::DrawResidual(const Shape& shape) {
  std::vector<std::string> lines;
  Shape inner = shape;
  TakeSome(1 + Below(3), lines, inner);
  // Back to the shape that it is added to, where one layer can do that.
  if (inner != shape && inner.size() == shape.size() && inner.size() < 3)
    Take(absl::StrCat("linear ", shape.back()), lines, inner);
  if (inner != shape && inner.size() == 3 && shape.size() == 3)
    Take(absl::StrCat("conv ", shape[0], " 1"), lines, inner);
  if (inner != shape || lines.empty()) return "residual [relu]";
  return absl::StrCat("residual [", absl::StrJoin(lines, ", "), "]");
}

std::string RandomNetwork::DrawLayer(const std::string& kind, const Shape& shape) {
  const auto maybe = [&](uint64_t n, absl::string_view word) {
    return std::string(OneIn(n) ? word : "");
  };
  const auto heads = [&] { return shape.back() % 3 == 0 ? 3 : shape.back() % 2 == 0 ? 2 : 1; };
  const auto causal = [&] {
    return std::string(task_ == TaskKind::kNextToken || OneIn(3) ? " causal" : "");
  };
  if (kind == "conv") {
    return absl::StrCat("conv ", Between(1, 6), " ", Between(1, 3), maybe(2, " pad 1"),
                        maybe(4, " stride 2"), maybe(4, " nobias"));
  }
  if (kind == "maxpool" || kind == "avgpool")
    return absl::StrCat(kind, " ", Between(1, 3), maybe(3, " stride 1"));
  if (kind == "block") {
    return absl::StrCat("block ", 2 * Between(1, 3), maybe(3, " stride 2"),
                        OneIn(2) ? " batchnorm" : "");
  }
  if (kind == "groupnorm") return absl::StrCat("groupnorm ", Between(1, 3));
  if (kind == "linear") return absl::StrCat("linear ", Between(1, 20), maybe(4, " nobias"));
  if (kind == "lstm" || kind == "gru")
    return absl::StrCat(kind, " ", Between(1, 7), maybe(3, " layers 2"));
  if (kind == "attention") return absl::StrCat("attention heads ", heads(), causal());
  if (kind == "transformer") {
    return absl::StrCat("transformer heads ", heads(), " ff ", Between(1, 9), causal(),
                        maybe(4, " dropout 0.2"));
  }
  if (kind == "residual") return DrawResidual(shape);
  if (kind == "dropout") return absl::StrCat("dropout ", OneIn(4) ? 0.0 : 0.3);
  return kind;  // it has no numbers
}

bool RandomNetwork::Take(const std::string& line, std::vector<std::string>& lines, Shape& shape) {
  const bool first = lines_.empty() && &lines == &lines_;
  const absl::StatusOr<models::Layer> layer = models::ParseLayer(line, shape, first);
  if (!layer.ok()) return false;
  const absl::StatusOr<Shape> output = models::OutputShape(*layer, shape);
  if (!output.ok() || ElementsOf(*output) > kMostElements) return false;
  used_.emplace(KindOf(line), shape.size());
  lines.push_back(line);
  shape = *output;
  return true;
}

void RandomNetwork::TakeSome(uint64_t count, std::vector<std::string>& lines, Shape& shape) {
  static const std::vector<std::string> all = AllKinds();
  const std::vector<std::string>& kinds = plain_ ? kPlainKinds : all;
  for (uint64_t tries = 12 * count; count > 0 && tries > 0; --tries) {
    const std::string& kind = kinds[Below(kinds.size())];
    // The next token needs an output at each position.
    const bool joins = kind == "flatten" || kind == "last" || kind == "mean";
    if (joins && task_ == TaskKind::kNextToken) continue;
    if (kind == "residual" && &lines != &lines_ && !OneIn(3)) continue;  // few are deep
    if (Take(DrawLayer(kind, shape), lines, shape)) --count;
  }
}

void RandomNetwork::End() {
  if (task_ != TaskKind::kNextToken && shape_.size() > 1) {
    const bool flattens = shape_.size() > 2 || plain_ || OneIn(3);
    Take(flattens ? "flatten" : OneIn(2) ? "last" : "mean", lines_, shape_);
    TakeSome(Below(3), lines_, shape_);
  }
  // Sometimes the outputs are those of whatever layer comes last.
  if (task_ == TaskKind::kClassification && shape_.back() >= 2 && shape_.back() <= 12 && OneIn(3)) {
    classes_ = shape_.back();
    return;
  }
  Take(absl::StrCat("linear ", classes_, OneIn(4) ? " nobias" : ""), lines_, shape_);
  if (OneIn(8)) Take(DrawLayer(OneIn(2) ? "tanh" : "dropout", shape_), lines_, shape_);
}

}  // namespace macaw::training
