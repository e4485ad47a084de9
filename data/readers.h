#pragma once

#include "absl/status/statusor.h"
#include "data/examples.h"
#include "data/options.h"

namespace macaw::data {

// One reader per source. Each uses `path`, `test_path`, `classes` and what its comment names. Data
// that is cut short, damaged, empty, NaN or infinite is an error of one line that names the file
// and the place. Blocking, thread-safe.

// Big-endian IDX bytes (MNIST, Fashion-MNIST, EMNIST), .gz or plain; images n × rows × columns ->
// {1, rows, columns}. `path` is the images file, its labels beside it (".images." -> ".labels."),
// or a folder with train-* or t10k-*; where both are, t10k is the test set. Y. LeCun, C. Cortes, C.
// Burges, http://yann.lecun.com/exdb/mnist/.
absl::StatusOr<Examples> ReadIdx(const DataOptions& options);

// CIFAR-10 or CIFAR-100 "binary version" (A. Krizhevsky 2009): a .bin file, or the unpacked folder
// with its test set. CIFAR-100 keeps the fine label.
absl::StatusOr<Examples> ReadCifar10(const DataOptions& options);
absl::StatusOr<Examples> ReadCifar100(const DataOptions& options);

// Sparse text "label index:value ...", with indices from 1 in ascending order and '#' comments
// (Chang & Lin). Rows become dense floats, as wide as the largest index of both files. Integer
// labels are classes (in sorted order), others regression targets.
absl::StatusOr<Examples> ReadLibsvm(const DataOptions& options);

// Rows of cells separated by commas, semicolons or tabs, with or without a header. A quoted cell
// may contain the separator. Features are numbers. Labels (`label_column`) are words or integers,
// which become classes in sorted order, or fractions, which are regression targets. `client_column`
// names the natural clients, ordered by their first rows. `drop_columns` are left out.
absl::StatusOr<Examples> ReadCsv(const DataOptions& options);

// LEAF (Caldas et al. 2018): a .json file, a folder of them, or a folder with train/ and test/.
// Users are the natural clients; a user who is only in the test files becomes a client without
// training rows. Features are numbers or text.
absl::StatusOr<Examples> ReadLeaf(const DataOptions& options);

// TensorFlow Federated's HDF5 files, read by the module libmacaw_hdf5.so: a group `examples` with a
// group for each client, which has `pixels` or `image` and `label`, or `snippets` (text, which
// becomes rows of 80 tokens of vocabulary.h and the next one). `test_path`: the file with the
// clients' test sets.
absl::StatusOr<Examples> ReadHdf5(const DataOptions& options);

// NumPy's .npz: arrays x (rows of uint8, float32, float64, or int32 and int64 tokens) and y
// (integers: classes; floats: targets), optional `client` (whose row it is; numbers or texts),
// x_test, y_test and client_test. Keras's and MedMNIST's names are read, too. Members are stored or
// deflated. uint8 images without channels get one, and images with channels last are turned to
// channels first.
absl::StatusOr<Examples> ReadNpz(const DataOptions& options);

}  // namespace macaw::data
