#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/examples.h"
#include "data/options.h"
#include "data/splits.h"

namespace macaw::data {

// A division of rows as JSON, so that another system's split can be used exactly, and ours by
// others:
//
//   {"client": [row, ...], ..., "test": [row, ...], "central_validation": [row, ...],
//    "validation": {"client": [row, ...], ...}, "client_test": {"client": [row, ...], ...}}
//
// Rows are numbered from 0 in the order of the source's files, test files after training files.
// Every other key is the name of a client, with its training rows; clients keep this order. "test"
// is the central test set; without it, the source's own test set is used. "central_validation"
// is the central validation set; without it, the source's own is used. With "validation" or
// "client_test" the file is the whole division; without both, the fractions of DataOptions are
// applied to the clients' rows. min_size and test_fraction have no effect. Rows in no list are not
// used. DatasetInfo::notes tells of both. Errors: a row that does not exist, that trains two
// clients, or that is used for training and for testing.
absl::StatusOr<Division> ReadPartition(const std::string& path, const Examples& examples,
                                       const DataOptions& options);

// Writes the division as such a file. Fails for datasets that are not divided by row numbers
// (synthetic data, a prepared file's own clients).
absl::Status ExportPartition(const Dataset& dataset, const std::string& path);

}  // namespace macaw::data
