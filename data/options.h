#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/settings/section.h"
#include "data/dataset.h"

namespace macaw::data {

// Where this node's examples come from. Part of the node configuration: it never leaves the node.
struct SyntheticOptions {
  uint64_t clients = 1000;
  double alpha = 1.0;     // standard deviation of the clients' model means
  double beta = 1.0;      // standard deviation of the clients' feature means
  uint32_t max_size = 0;  // the largest number of examples of a client; 0: no limit
  bool iid = false;       // one model for everybody, feature mean 0
};

// The value of client_column for "no column".
inline constexpr char kNoColumn[] = "none";
// The value of separator for a tab.
inline constexpr char kTabSeparator[] = "tab";

// DataOptions::test_fraction where it is not given.
inline constexpr double kDefaultTestFraction = 0.1;

struct DataOptions {
  std::string source;  // a name of DataSources()
  std::string path;    // file or folder (all but synthetic)
  // Leaf: the file with the users' test sets; others: a second file of the same kind; unused for
  // prepared and synthetic.
  std::string test_path;
  uint64_t seed = 0;
  // Fraction of all rows that becomes the central test set, if the source has no test set of its
  // own. Not given: kDefaultTestFraction; and none of a prepared file's own clients, unless another
  // fraction below is of their rows.
  std::optional<double> test_fraction;
  // Fraction of the rows that test_fraction counts (of the training rows, if the source has a test
  // set of its own) that becomes the central validation set. It is cut from the training rows
  // before they are partitioned, and never from test rows.
  double central_val_fraction = 0.0;
  // Fractions of each client's rows: those that become its own test rows, and those that become its
  // validation rows. Together below 1. Rounded up or down at random (splits.h), so that small
  // clients have some, too; one row is left to train on.
  double client_test_fraction = 0.0;
  double val_fraction = 0.0;
  // Fraction of the clients that never train; their rows become test rows.
  double heldout_clients = 0.0;
  // Fraction of each held-out client's rows, rounded likewise, that becomes its validation rows:
  // what it is tuned on once it has joined (evaluation.heldout, evaluation.fine_tune).
  double heldout_tuning = 0.0;
  std::string resident =
      "auto";           // auto | true | false: kept in memory, or read and generated on demand
  int64_t classes = 0;  // labels must be below it; 0: found from the data
  // The shape of one example; empty: as it is stored. It must have as many elements.
  std::vector<int64_t> input_shape;
  // For people; where they are labels of a csv or libsvm file, their order numbers these. Empty:
  // the data's own words, or numbers.
  std::vector<std::string> class_names;
  // csv: columns are named by the header or numbered from 0.
  std::string label_column;  // default: the last column that no other key names
  // csv, libsvm: "numbers": whole numbers are targets, too, and not classes
  std::string labels = "auto";
  bool predicts_numbers() const { return labels == "numbers"; }
  // The column with the client of each row; "": no clients (an error if a column looks like one);
  // kNoColumn: no clients in any case.
  std::string client_column;
  std::vector<std::string> drop_columns;  // neither label, client nor feature
  std::string separator;  // csv: a character, or kTabSeparator; "": found in the file
  // csv: whether each file's first line is a header; not given: found in the file (csv_header.h)
  std::optional<bool> header;
  // csv, libsvm: the largest share of rows that may be unreadable. They are left out and counted in
  // DatasetInfo::notes. 0: none.
  double unreadable_rows = 0;
  SyntheticOptions synthetic;

  double TestFraction() const { return test_fraction.value_or(kDefaultTestFraction); }
};

inline constexpr uint64_t kDefaultClients = 100;
inline constexpr char kHistogramScheme[] = "histogram";

struct PartitionOptions {
  // A name of partition.h's PartitionSchemes(), or "auto": "natural" where the source has clients
  // of its own (leaf, prepared, csv with client_column), else "iid". Synthetic data always has its
  // own clients.
  std::string scheme = "auto";
  // 0: not given. Then it is kDefaultClients, or all clients of a histogram.
  uint64_t clients = 0;
  double concentration = 0.5;       // Dirichlet β or α; σ of lognormal; exponent of power-law
  uint32_t classes_per_client = 2;  // for k-classes; shards per client for `shards`
  // Reached by moving rows away from the largest clients, not by drawing again.
  uint32_t min_size = 1;
  // scheme = file: {"client": [row, ...], ...} (partition_file.h); histogram: clients x classes
  // (histogram.h).
  std::string path;
  uint64_t seed = 0;
  // Once the rows are divided, all training rows go to one client (together.h). Algorithm "pooled"
  // sets it.
  bool train_together = false;
};

// Reads the data (or prepares to generate it), checks it and partitions it. Errors name the file,
// the place in it and the key to change. Equal options and equal files give the same rows, byte for
// byte. Blocking: seconds for text formats, milliseconds for prepared and generated data.
// Thread-safe.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataOptions& data,
                                                     const PartitionOptions& partition);

// The keys of [data] that are this node's own, and those of [partition]. `more_sources`: names of
// `source` besides DataSources().
settings::Section<DataOptions> DataSection(const std::vector<std::string>& more_sources);
settings::Section<PartitionOptions> PartitionSection();

// For people: the values of `source`, in the order of their documentation.
struct Choice {
  std::string name;
  std::string description;
};
std::vector<Choice> DataSources();

}  // namespace macaw::data
