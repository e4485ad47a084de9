#pragma once

#include "absl/status/statusor.h"
#include "data/examples.h"
#include "data/options.h"

namespace macaw::data {

// One reader a source; each uses `path`, `test_path`, `classes` and what its comment names. A
// reader refuses what is cut short, damaged, empty, NaN or infinite with one line that names the
// file and the place. Blocking, thread-safe.

// Big-endian IDX bytes (MNIST, Fashion-MNIST, EMNIST), .gz or plain; images n × rows × columns ->
// {1, rows, columns}. `path` is the images file, its labels beside it (".images." -> ".labels."),
// or a folder with train-* or t10k-*; where both are, t10k is the test set. Y. LeCun, C. Cortes, C.
// Burges, http://yann.lecun.com/exdb/mnist/.
absl::StatusOr<Examples> ReadIdx(const DataOptions& options);

// CIFAR-10 or CIFAR-100 "binary version" (A. Krizhevsky 2009): a .bin file, or the unpacked folder
// with its test set. CIFAR-100 keeps the fine label.
absl::StatusOr<Examples> ReadCifar10(const DataOptions& options);
absl::StatusOr<Examples> ReadCifar100(const DataOptions& options);

// Sparse text "label index:value ...", indices from 1 and ascending, '#' comments (Chang & Lin).
// Dense float rows of the largest index of both files. Whole labels are classes (mapped in sorted
// order), others regression targets.
absl::StatusOr<Examples> ReadLibsvm(const DataOptions& options);

// Rows of cells separated by commas, semicolons or tabs (a cell in quotation marks may hold them),
// with or without a header. Features are numbers. Labels (`label_column`) are words or whole
// numbers, classes in sorted order, or fractions: regression targets. `client_column` names the
// natural clients, in the order of their first rows; `drop_columns` are left out.
absl::StatusOr<Examples> ReadCsv(const DataOptions& options);

// LEAF (Caldas et al. 2018): a .json file, a folder of them, or a folder with train/ and test/.
// Users are the natural clients; users of the test files that never train become clients without
// training rows. Numbers only.
absl::StatusOr<Examples> ReadLeaf(const DataOptions& options);

}  // namespace macaw::data
