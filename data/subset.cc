#include "data/subset.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::data {
namespace {

class Subset final : public Dataset {
 public:
  Subset(const Dataset& dataset, const SubsetRange& range)
      : dataset_(dataset), begin_(range.begin), central_test_(range.central_test) {}

  absl::Status Init(uint64_t end) {
    const DatasetInfo& whole = dataset_.info();
    info_ = whole;
    info_.clients = end - begin_;
    info_.train_clients = info_.train_examples = info_.train_tokens = 0;
    for (ClientId client; client.value < info_.clients; ++client.value) {
      const uint32_t rows = Examples(client, Split::kTrain);
      info_.train_examples += rows;
      info_.train_clients += rows > 0 ? 1 : 0;
      if (whole.train_tokens == 0 || rows == 0) continue;
      MACAW_ASSIGN_OR_RETURN(const Rows train, this->Client(client, Split::kTrain));
      info_.train_tokens += TokensOf(train);
    }
    info_.mean_classes_per_client = 0;
    info_.notes.clear();
    info_.test_digest = whole.digest;
    if (!central_test_) info_.test_examples = info_.val_examples = 0;
    Digester digester;
    digester.Add(absl::string_view("macaw subset"))
        .Add(std::as_bytes(std::span(whole.digest.bytes)))
        .Add(begin_)
        .Add(end);
    info_.digest = digester.Finish();
    return absl::OkStatus();
  }

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    return client.value < info_.clients ? dataset_.Examples(There(client), split) : 0;
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    // The dataset has the rows of clients outside of the range, and they are none of the caller's.
    if (client.value >= info_.clients) {
      return absl::OutOfRangeError(
          absl::StrCat("client ", client.value, " of ", info_.clients, " of a part of the data"));
    }
    return dataset_.Client(There(client), split);
  }
  Rows CentralTest() const override { return central_test_ ? dataset_.CentralTest() : Rows(); }
  Rows CentralValidation() const override {
    return central_test_ ? dataset_.CentralValidation() : Rows();
  }
  std::string ClientName(ClientId client) const override {
    return absl::StrCat(There(client).value);
  }

 private:
  ClientId There(ClientId client) const { return ClientId(begin_ + client.value); }

  const Dataset& dataset_;
  const uint64_t begin_;
  const bool central_test_;
  DatasetInfo info_;
};

// A subset that owns the dataset it is taken from.
class OwningSubset final : public Dataset {
 public:
  OwningSubset(std::unique_ptr<Dataset> dataset, std::unique_ptr<Dataset> subset)
      : dataset_(std::move(dataset)), subset_(std::move(subset)) {}
  const DatasetInfo& info() const override { return subset_->info(); }
  uint32_t Examples(ClientId client, Split split) const override {
    return subset_->Examples(client, split);
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    return subset_->Client(client, split);
  }
  Rows CentralTest() const override { return subset_->CentralTest(); }
  Rows CentralValidation() const override { return subset_->CentralValidation(); }
  std::string ClientName(ClientId client) const override { return subset_->ClientName(client); }

 private:
  const std::unique_ptr<Dataset> dataset_, subset_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> SubsetOf(const Dataset& dataset,
                                                  const SubsetRange& range) {
  if (range.begin > range.end || range.end > dataset.info().clients) {
    return absl::InvalidArgumentError(absl::StrCat("clients ", range.begin, ":", range.end,
                                                   " do not lie within the data's ",
                                                   dataset.info().clients));
  }
  auto subset = std::make_unique<Subset>(dataset, range);
  MACAW_RETURN_IF_ERROR(subset->Init(range.end));
  return subset;
}

absl::StatusOr<std::unique_ptr<Dataset>> TakeSubset(std::unique_ptr<Dataset> dataset,
                                                    const SubsetRange& range) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> subset, SubsetOf(*dataset, range));
  return std::make_unique<OwningSubset>(std::move(dataset), std::move(subset));
}

}  // namespace macaw::data
