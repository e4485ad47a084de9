#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "core/fraction.h"
#include "core/random.h"
#include "core/status.h"
#include "data/input_shape.h"
#include "data/splits.h"
#include "data/synthetic_rows.h"

namespace macaw::data {
namespace {

using synthetic::ClientModel;
using synthetic::kClasses;
using synthetic::kDraws;
using synthetic::kFeatures;
using synthetic::kLanes;
using synthetic::MakeRows;

constexpr size_t kModelDraws = 704;  // u, B, W, b, v, rounded up to groups
constexpr size_t kRowsAtOnce = 32;   // rows whose draws stay in the first-level cache
constexpr uint64_t kCentralClients = 1000;
constexpr uint64_t kResidentClients = 100000, kResidentBytes = uint64_t{1} << 30;
constexpr uint64_t kRowBytes = kFeatures * sizeof(float);

enum SyntheticDraw : uint64_t { kRows = 0, kSizes = 1, kShared = 2 };

// e^x for |x| < 700, without libm, whose last bit depends on the processor: x = k·ln 2 + r, and the
// series of e^r.
double Exp(double x) {
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double series = 1.0;
  for (int n = 13; n > 0; --n) series = series * r / n + 1.0;
  return series * std::bit_cast<double>((static_cast<int64_t>(k) + 1023) << 52);
}

// j^-0.6 = (j³)^(-1/5) by Newton's iteration from below, for the same bits everywhere.
std::array<float, kFeatures> Deviations() {
  std::array<float, kFeatures> deviations;
  for (size_t j = 1; j <= kFeatures; ++j) {
    const auto a = static_cast<double>(j * j * j);
    double y = 1.0 / static_cast<double>(j);
    for (int i = 0; i < 60; ++i) y *= (6.0 - a * y * y * y * y * y) / 5.0;
    deviations[j - 1] = static_cast<float>(y);
  }
  return deviations;
}

struct Block {
  explicit Block(uint64_t rows)
      : features(std::make_unique_for_overwrite<float[]>(rows * kFeatures)),
        classes(std::make_unique_for_overwrite<int32_t[]>(rows)),
        count(rows) {}
  std::unique_ptr<float[]> features;
  std::unique_ptr<int32_t[]> classes;
  uint64_t count;

  Rows All() const { return Part(0, count); }
  Rows Part(uint64_t first, uint64_t rows) const {
    return {.block = {.type = FeatureType::kF32,
                      .features =
                          reinterpret_cast<const std::byte*>(features.get() + first * kFeatures),
                      .row_bytes = kRowBytes,
                      .classes = classes.get() + first,
                      .count = rows},
            .index = {},
            .keep_alive = nullptr};
  }
};

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const DataOptions& options, std::vector<int64_t> input_shape)
      : options_(options), deviations_(Deviations()) {
    info_.input_shape = std::move(input_shape);
    DrawSizes();
    heldout_ = HeldoutClients(options_, sizes_.size());
    Describe();
    if (options_.resident == "true" ||
        (options_.resident == "auto" && sizes_.size() <= kResidentClients &&
         total_ * (kRowBytes + sizeof(int32_t)) < kResidentBytes)) {
      MakeResident();
    }
    MakeCentralTest();
  }

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    return static_cast<uint32_t>(RangeOf(client, split).size());
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    if (client.value >= sizes_.size()) {
      return absl::NotFoundError(absl::StrCat(
          "client ", client.value, " does not exist: the data has ", sizes_.size(), " clients"));
    }
    const RowRange range = RangeOf(client, split);
    if (resident_ != nullptr)
      return resident_->Part(first_row_[client.value] + range.begin, range.size());
    auto block = std::make_shared<Block>(range.size());
    Generate(client, range, block->features.get(), block->classes.get());
    Rows rows = block->All();
    rows.keep_alive = std::move(block);
    return rows;
  }
  Rows CentralTest() const override { return central_test_->All(); }

 private:
  void DrawSizes() {
    sizes_.resize(options_.synthetic.clients);
    RandomStream stream({.seed = options_.seed, .purpose = Purpose::kData, .extra = kSizes});
    std::array<float, 4096> draws;
    const uint32_t most =
        options_.synthetic.max_size == 0 ? UINT32_MAX : options_.synthetic.max_size;
    for (size_t first = 0; first < sizes_.size(); first += draws.size()) {
      const size_t count = std::min(draws.size(), sizes_.size() - first);
      stream.FillNormal(draws);
      for (size_t i = 0; i < count; ++i) {
        const auto size =
            static_cast<uint32_t>(Exp(4.0 + 2.0 * static_cast<double>(draws[i]))) + 50;
        sizes_[first + i] = std::min(size, most);
        total_ += sizes_[first + i];
      }
    }
  }

  void Describe() {
    const SyntheticOptions& s = options_.synthetic;
    info_.name = s.iid ? "synthetic-iid" : absl::StrCat("synthetic(", s.alpha, ",", s.beta, ")");
    info_.feature_type = FeatureType::kF32;
    info_.classes = kClasses;
    info_.clients = sizes_.size();
    for (uint64_t c = 0; c < sizes_.size(); ++c) {
      const uint32_t rows = Examples(ClientId(c), Split::kTrain);
      info_.train_clients += rows > 0 ? 1 : 0;
      info_.train_examples += rows;
    }
    Digester digester;
    digester.Add("synthetic-1")
        .Add(options_.seed)
        .Add(s.clients)
        .Add(uint64_t{s.max_size})
        .Add(uint64_t{s.iid});
    for (const double number : {s.alpha, s.beta, options_.test_fraction, options_.val_fraction,
                                options_.heldout_clients}) {
      digester.Add(std::bit_cast<uint64_t>(number));
    }
    // Only if they are set, so that data without them keep their digests.
    if (options_.val_fraction > 0 || options_.heldout_tuning > 0) digester.Add("counts are drawn");
    if (options_.heldout_tuning > 0) digester.Add(std::bit_cast<uint64_t>(options_.heldout_tuning));
    info_.digest = digester.Finish();
  }

  void MakeResident() {
    resident_ = std::make_unique<Block>(total_);
    first_row_.reserve(sizes_.size());
    uint64_t row = 0, classes_seen = 0;
    for (uint64_t c = 0; c < sizes_.size(); ++c) {
      first_row_.push_back(row);
      int32_t* classes = resident_->classes.get() + row;
      Generate(ClientId(c), {0, sizes_[c]}, resident_->features.get() + row * kFeatures, classes);
      uint32_t seen = 0;
      for (uint64_t i = 0; i < RangeOf(ClientId(c), Split::kTrain).end; ++i)
        seen |= 1U << classes[i];
      classes_seen += static_cast<uint64_t>(std::popcount(seen));
      row += sizes_[c];
    }
    info_.mean_classes_per_client =
        static_cast<double>(classes_seen) / static_cast<double>(sizes_.size());
  }

  void MakeCentralTest() {
    const uint64_t clients = std::min(kCentralClients, info_.clients);
    uint64_t rows = 0;
    for (uint64_t c = 0; c < clients; ++c) rows += Examples(ClientId(c), Split::kTest);
    central_test_ = std::make_unique<Block>(rows);
    info_.test_examples = rows;
    rows = 0;
    for (uint64_t c = 0; c < clients; ++c) {
      const RowRange range = RangeOf(ClientId(c), Split::kTest);
      Generate(ClientId(c), range, central_test_->features.get() + rows * kFeatures,
               central_test_->classes.get() + rows);
      rows += range.size();
    }
  }

  // Training, validation and test rows follow one another. A held-out client has no training rows.
  RowRange RangeOf(ClientId client, Split split) const {
    if (client.value >= sizes_.size()) return {};
    const uint64_t size = sizes_[client.value];
    uint64_t validation = 0, test = 0;
    if (heldout_[client.value]) {
      validation = CountOf(options_, SplitOf::kTuning, client, size, size - 1);
      test = size - validation;
    } else {
      test = FloorOf(options_.test_fraction, size);
      validation = CountOf(options_, SplitOf::kValidation, client, size - test, size - test - 1);
    }
    if (split == Split::kTest) return {size - test, size};
    if (split == Split::kValidation) return {size - test - validation, size - test};
    return {0, size - test - validation};
  }

  ClientModel ModelOf(ClientId client) const {
    const bool iid = options_.synthetic.iid;
    RandomStream stream({.seed = options_.seed,
                         .purpose = Purpose::kData,
                         .client = iid ? ClientId() : client,
                         .extra = iid ? kShared : kRows});
    std::array<float, kModelDraws> draws;
    stream.FillNormal(draws);
    const float model_mean = iid ? 0.0F : static_cast<float>(options_.synthetic.alpha) * draws[0];
    const float center_mean = static_cast<float>(options_.synthetic.beta) * draws[1];
    const float* next = draws.data() + 2;
    ClientModel model{};
    for (size_t j = 0; j < kFeatures; ++j) {
      for (size_t c = 0; c < kClasses; ++c) model.weights[j * kLanes + c] = model_mean + *next++;
    }
    for (size_t c = 0; c < kClasses; ++c) model.bias[c] = model_mean + *next++;
    for (size_t j = 0; j < kFeatures; ++j) model.center[j] = iid ? 0.0F : center_mean + *next++;
    return model;
  }

  // Generates rows range.begin ... range.end-1 of the client. Row r is a function of (seed, client,
  // r).
  void Generate(ClientId client, RowRange range, float* features, int32_t* classes) const {
    if (range.size() == 0) return;
    const ClientModel model = ModelOf(client);
    RandomStream stream(
        {.seed = options_.seed, .purpose = Purpose::kData, .client = client, .extra = kRows});
    stream.Skip(kModelDraws + range.begin * kDraws);
    std::array<float, kRowsAtOnce * kDraws> draws;
    for (uint64_t row = 0; row < range.size(); row += kRowsAtOnce) {
      const size_t rows = std::min<uint64_t>(kRowsAtOnce, range.size() - row);
      stream.FillNormal(std::span(draws).first(rows * kDraws));
      MakeRows(model, deviations_.data(), draws.data(), rows, features + row * kFeatures,
               classes + row);
    }
  }

  const DataOptions options_;
  const std::array<float, kFeatures> deviations_;
  std::vector<uint32_t> sizes_;
  std::vector<bool> heldout_;
  uint64_t total_ = 0;
  DatasetInfo info_;
  std::unique_ptr<Block> resident_;  // null: generated on demand
  std::vector<uint64_t> first_row_;  // only if resident
  std::unique_ptr<Block> central_test_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeSynthetic(const DataOptions& options) {
  const SyntheticOptions& s = options.synthetic;
  if (s.clients == 0 || s.clients > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.synthetic.clients = ", s.clients, " must be from 1 to 4294967295"));
  }
  for (const auto& [key, value] : {std::pair{"alpha", s.alpha}, {"beta", s.beta}}) {
    if (!(value >= 0) || value > 1e6) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.synthetic.", key, " = ", value, " must be from 0 to 1e6"));
    }
  }
  MACAW_ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                         InputShape(options, {kFeatures}, FeatureType::kF32, "synthetic data"));
  return std::make_unique<SyntheticDataset>(options, std::move(shape));
}

}  // namespace macaw::data
