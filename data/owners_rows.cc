#include "data/owners_rows.h"

#include <utility>

#include "core/status.h"

namespace macaw::data {
namespace {

class OwnersData final : public Dataset {
 public:
  OwnersData(std::unique_ptr<Dataset> dataset, std::string node)
      : dataset_(std::move(dataset)),
        node_(std::move(node)),
        alone_(dataset_->info().divided && dataset_->info().clients == 1),
        info_(dataset_->info()) {
    info_.test_examples = info_.val_examples = 0;
  }

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    const uint32_t own = dataset_->Examples(client, split);
    return own > 0 || !alone_ ? own : static_cast<uint32_t>(CentralOf(split).size());
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    MACAW_ASSIGN_OR_RETURN(Rows rows, dataset_->Client(client, split));
    if (!alone_) return rows;
    if (rows.empty() && split != Split::kTrain) {
      const NoiseKey noise = rows.noise;
      rows = CentralOf(split);
      rows.noise = noise;
    }
    rows.client_name = node_;
    return rows;
  }
  Rows CentralTest() const override { return {}; }
  std::string ClientName(ClientId client) const override {
    return alone_ ? node_ : dataset_->ClientName(client);
  }

 private:
  Rows CentralOf(Split split) const {
    switch (split) {
      case Split::kTest:
        return dataset_->CentralTest();
      case Split::kValidation:
        return dataset_->CentralValidation();
      case Split::kTrain:
        break;
    }
    return {};
  }

  const std::unique_ptr<Dataset> dataset_;
  const std::string node_;
  const bool alone_;
  DatasetInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> OwnersRows(std::unique_ptr<Dataset> dataset, std::string node) {
  return std::make_unique<OwnersData>(std::move(dataset), std::move(node));
}

}  // namespace macaw::data
