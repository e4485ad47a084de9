#include "data/together.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/status.h"

namespace macaw::data {
namespace {

// Rows of several clients, one after the other.
class JoinedRows {
 public:
  explicit JoinedRows(uint64_t count) : count_(count) {}

  void Append(ClientId client, const Rows& rows) {
    if (rows.empty()) return;
    owners_.push_back({.client = client, .first = rows_});
    rows_ += rows.size();
    const ExampleBlock& block = rows.block;
    if (block_.row_bytes == 0) {
      block_.type = block.type;
      block_.row_bytes = block.row_bytes;
      features_.reserve(count_ * block.row_bytes);
    }
    for (uint64_t i = 0; i < rows.size(); ++i) {
      const uint64_t row = rows.at(i);
      const std::byte* const features = block.features + row * block.row_bytes;
      features_.insert(features_.end(), features, features + block.row_bytes);
      if (block.classes != nullptr) classes_.push_back(block.classes[row]);
      if (block.targets != nullptr) targets_.push_back(block.targets[row]);
      if (block.lengths != nullptr) lengths_.push_back(block.lengths[row]);
    }
  }

  ExampleBlock Block() const {
    ExampleBlock block = block_;
    block.features = features_.data();
    if (!classes_.empty()) block.classes = classes_.data();
    if (!targets_.empty()) block.targets = targets_.data();
    if (!lengths_.empty()) block.lengths = lengths_.data();
    block.count = count_;
    return block;
  }
  std::span<const RowOwner> owners() const { return owners_; }

 private:
  const uint64_t count_;
  uint64_t rows_ = 0;  // so far
  std::vector<RowOwner> owners_;
  ExampleBlock block_;  // type and row_bytes
  std::vector<std::byte> features_;
  std::vector<int32_t> classes_, lengths_;
  std::vector<float> targets_;
};

class Together final : public Dataset {
 public:
  explicit Together(std::unique_ptr<Dataset> dataset) : dataset_(std::move(dataset)) {
    info_ = dataset_->info();
    info_.train_clients = 1;
    info_.mean_classes_per_client = 0;
    info_.notes.push_back(absl::StrCat("The ", info_.train_examples, " training rows of all ",
                                       info_.clients, " clients are those of one."));
    Digester digester;
    digester.Add(absl::string_view("macaw together"))
        .Add(std::as_bytes(std::span(dataset_->info().digest.bytes)));
    info_.digest = digester.Finish();
    if (info_.test_digest.IsZero()) info_.test_digest = dataset_->info().digest;
  }

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    if (split != Split::kTrain) return dataset_->Examples(client, split);
    return client.value == 0 ? static_cast<uint32_t>(info_.train_examples) : 0;
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    if (split != Split::kTrain) return dataset_->Client(client, split);
    // It also checks that the client exists.
    MACAW_ASSIGN_OR_RETURN(Rows rows, dataset_->Client(client, split));
    rows.index = {};
    rows.block.count = 0;
    if (client.value != 0) return rows;
    MACAW_ASSIGN_OR_RETURN(std::shared_ptr<const JoinedRows> joined, Joined());
    rows.block = joined->Block();
    rows.owners = joined->owners();
    rows.keep_alive = std::move(joined);
    return rows;
  }
  absl::StatusOr<Rows> OwnTrainingRows(ClientId client) const override {
    return dataset_->OwnTrainingRows(client);
  }
  Rows CentralTest() const override { return dataset_->CentralTest(); }
  Rows CentralValidation() const override { return dataset_->CentralValidation(); }
  std::string ClientName(ClientId client) const override { return dataset_->ClientName(client); }

 private:
  absl::StatusOr<std::shared_ptr<const JoinedRows>> Joined() const {
    const absl::MutexLock lock(&mutex_);
    if (joined_ != nullptr) return joined_;
    auto joined = std::make_shared<JoinedRows>(info_.train_examples);
    for (ClientId client; client.value < info_.clients; ++client.value) {
      MACAW_ASSIGN_OR_RETURN(const Rows rows, dataset_->Client(client, Split::kTrain));
      joined->Append(client, rows);
    }
    joined_ = std::move(joined);
    return joined_;
  }

  const std::unique_ptr<Dataset> dataset_;
  DatasetInfo info_;
  mutable absl::Mutex mutex_;
  mutable std::shared_ptr<const JoinedRows> joined_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> TrainTogether(std::unique_ptr<Dataset> dataset) {
  const DatasetInfo& info = dataset->info();
  const char* const key = "partition.train_together (which algorithm \"pooled\" sets)";
  if (info.declared) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " brings all training rows to one client, and those of ", info.name,
                     " are only declared: only your own program reads them"));
  }
  if (info.train_examples > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": ", info.train_examples, " training rows are more than one client can have"));
  }
  return std::make_unique<Together>(std::move(dataset));
}

}  // namespace macaw::data
