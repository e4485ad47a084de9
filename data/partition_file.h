#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/examples.h"
#include "data/options.h"
#include "data/splits.h"

namespace macaw::data {

// A division as JSON, so that another system's split can be used exactly and ours by others:
//
//   {"client": [row, ...], ..., "test": [row, ...],
//    "validation": {"client": [row, ...], ...}, "client_test": {"client": [row, ...], ...}}
//
// Rows count from 0 in the order of the source's files, a test file's after the training file's.
// Every key but the last three names a client, in this order, with its training rows. "test" is the
// central test set; without it, the source's own. With "validation" or "client_test" the file is
// the whole division; without both, val_fraction and heldout_clients apply to the clients' rows.
// min_size moves nothing, test_fraction cuts nothing off. Rows in no list stay unused; both are
// said in DatasetInfo::notes. Refused: a row that does not exist or that trains two clients, or
// trains one and tests.
absl::StatusOr<Division> ReadPartition(const std::string& path, const Examples& examples,
                                       const DataOptions& options);

// Writes all of it. Refuses datasets that are not divided by row numbers (synthetic, a prepared
// file's own clients).
absl::Status ExportPartition(const Dataset& dataset, const std::string& path);

}  // namespace macaw::data
