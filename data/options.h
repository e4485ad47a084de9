#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

// Part of the node configuration: where this node's examples come from. Never leaves the node.
struct SyntheticOptions {
  uint64_t clients = 1000;
  double alpha = 1.0;     // standard deviation of the clients' model means
  double beta = 1.0;      // standard deviation of the clients' feature means
  uint32_t max_size = 0;  // cap on a client's examples; 0: none
  bool iid = false;       // one model for everybody, feature mean 0
};

// A client_column that names none.
inline constexpr char kNoColumn[] = "none";

struct DataOptions {
  std::string source;     // synthetic | idx | libsvm | leaf | cifar10 | cifar100 | csv | prepared
  std::string path;       // file or folder (all but synthetic)
  std::string test_path;  // leaf: the file with the users' test sets; prepared, synthetic: unused;
                          // others: a second file of the same kind
  uint64_t seed = 0;
  double test_fraction =
      0.1;  // of all rows, set aside centrally, where the source has no test set of its own
  double val_fraction = 0.0;     // of each client's rows
  double heldout_clients = 0.0;  // fraction of clients that never train; their rows are test rows
  std::string resident =
      "auto";           // auto | true | false: kept in memory, or read and generated on demand
  int64_t classes = 0;  // labels must be below; 0: as many as the data shows
  // csv: columns by a name of the header or a number from 0.
  std::string label_column;   // default: the last that no other key names
  std::string client_column;  // whose row it is: the natural clients. "": no column, but one that
                              // seems to say it is refused; kNoColumn: no column
  std::vector<std::string> drop_columns;  // neither label, client nor feature
  SyntheticOptions synthetic;
};

struct PartitionOptions {
  // A name of partition.h's PartitionSchemes(), or auto: natural where the source has clients of
  // its own (leaf, prepared, csv with client_column), else iid. Synthetic data always has its own
  // clients.
  std::string scheme = "auto";
  uint64_t clients = 100;
  double concentration = 0.5;       // Dirichlet β or α; σ of lognormal; exponent of power-law
  uint32_t classes_per_client = 2;  // k-classes; shards a client for `shards`
  uint32_t min_size = 1;  // met by moving rows from the largest clients, never by drawing again
  std::string path;       // scheme = file: {"client": [row, ...], ...} (partition_file.h)
  uint64_t seed = 0;
};

// Reads (or prepares to generate) everything, checks it, and partitions it. Errors name the file,
// the place in it and the key to change. Two calls with equal options and equal files give the same
// rows, byte for byte. Blocking; seconds for text formats, milliseconds for prepared and generated
// data. Thread-safe.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataOptions& data,
                                                     const PartitionOptions& partition);

// For people: the values of `source`, in the order of their documentation.
struct Choice {
  std::string name;
  std::string description;
};
std::vector<Choice> DataSources();

}  // namespace macaw::data
