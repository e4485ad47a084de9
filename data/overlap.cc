#include "data/overlap.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/status.h"

namespace macaw::data {
namespace {

// A hash of a row's features and label. Two different rows have the same one with probability
// 2^-64.
uint64_t HashOf(const Rows& rows, uint64_t i) {
  const ExampleBlock& block = rows.block;
  const uint64_t row = rows.at(i);
  const absl::string_view features(
      reinterpret_cast<const char*>(block.features + row * block.row_bytes), block.row_bytes);
  const int32_t label = block.classes != nullptr ? block.classes[row] : 0;
  const float target = block.targets != nullptr ? block.targets[row] : 0;
  return absl::HashOf(features, label, target);
}

}  // namespace

absl::StatusOr<Overlap> TestRowsInTraining(const Dataset& dataset) {
  if (dataset.info().declared) return Overlap();  // nobody here can look
  absl::flat_hash_set<uint64_t> training;
  training.reserve(dataset.info().train_examples);
  for (uint64_t client = 0; client < dataset.info().clients; ++client) {
    MACAW_ASSIGN_OR_RETURN(const Rows rows, dataset.Client(ClientId(client), Split::kTrain));
    for (uint64_t i = 0; i < rows.size(); ++i) training.insert(HashOf(rows, i));
  }
  Overlap overlap;
  const auto look_up = [&](const Rows& rows) {
    overlap.test_rows += rows.size();
    for (uint64_t i = 0; i < rows.size(); ++i)
      overlap.in_training += training.contains(HashOf(rows, i)) ? 1 : 0;
  };
  look_up(dataset.CentralTest());
  for (uint64_t client = 0; client < dataset.info().clients; ++client) {
    if (dataset.Examples(ClientId(client), Split::kTest) == 0) continue;
    MACAW_ASSIGN_OR_RETURN(const Rows rows, dataset.Client(ClientId(client), Split::kTest));
    look_up(rows);
  }
  return overlap;
}

std::string OverlapNote(const Dataset& dataset, uint64_t most_values) {
  uint64_t values = dataset.info().train_examples;
  for (const int64_t extent : dataset.info().input_shape) values *= static_cast<uint64_t>(extent);
  if (values > most_values) return "";
  const absl::StatusOr<Overlap> overlap = TestRowsInTraining(dataset);
  if (!overlap.ok() || overlap->in_training == 0) return "";
  return absl::StrCat(overlap->in_training, " of the ", overlap->test_rows,
                      " test examples equal a training example");
}

}  // namespace macaw::data
