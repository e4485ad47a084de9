#pragma once

#include <memory>
#include <string>

#include "data/examples.h"
#include "data/splits.h"

namespace macaw::data {

// One shared block of examples, divided by lists of row numbers: 4 bytes per row besides the block.
// A client's rows are returned without copying.
class PooledDataset final : public Dataset {
 public:
  // Requires that every row number of the division lies in the block.
  PooledDataset(data::Examples examples, Division division);

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override;
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override;
  Rows CentralTest() const override { return RowsOf(division_.central_test); }
  Rows CentralValidation() const override { return RowsOf(division_.central_val); }
  std::string ClientName(ClientId client) const override;

  const Division& division() const { return division_; }
  // Refuses a row of a central set whose features are not finite.
  absl::Status CheckCentralSets() const;

 private:
  Rows RowsOf(std::span<const uint32_t> index) const;

  const ExampleBlock block_;
  const std::shared_ptr<const void> keep_alive_;
  const std::string unchecked_;  // as in Examples
  const Division division_;
  DatasetInfo info_;
};

// Divides a reader's examples: central sets, partition, validation, held-out clients.
absl::StatusOr<std::unique_ptr<Dataset>> Divide(Examples examples, const DataOptions& data,
                                                const PartitionOptions& partition);

}  // namespace macaw::data
