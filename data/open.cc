#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "data/declared.h"
#include "data/input_shape.h"
#include "data/options.h"
#include "data/pooled.h"
#include "data/prepared.h"
#include "data/readers.h"
#include "data/source_file.h"
#include "data/splits.h"
#include "data/synthetic.h"

namespace macaw::data {
namespace {

using DatasetPtr = std::unique_ptr<Dataset>;
using Open = absl::StatusOr<DatasetPtr> (*)(const DataOptions&, const PartitionOptions&);

absl::Status Reshape(const DataOptions& data, Examples& examples) {
  MACAW_ASSIGN_OR_RETURN(examples.input_shape,
                         InputShape(data, examples.input_shape, examples.block.type, data.path));
  const ExampleBlock& block = examples.block;
  if (data.input_shape.empty() || block.lengths == nullptr) return absl::OkStatus();
  for (uint64_t row = 0; row < block.count; ++row) {
    if (block.lengths[row] <= examples.input_shape[0]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("data.input_shape makes examples of ", examples.input_shape[0],
                     " positions, but row ", row, " of ", data.path, " has ", block.lengths[row],
                     " in use (\"lengths\"): give the lengths in positions"));
  }
  return absl::OkStatus();
}

template <absl::StatusOr<Examples> (*Read)(const DataOptions&)>
absl::StatusOr<DatasetPtr> OpenDivided(const DataOptions& data, const PartitionOptions& partition) {
  MACAW_ASSIGN_OR_RETURN(Examples examples, Read(data));
  MACAW_RETURN_IF_ERROR(Reshape(data, examples));
  return Divide(std::move(examples), data, partition);
}

absl::StatusOr<DatasetPtr> OpenSynthetic(const DataOptions& data,
                                         const PartitionOptions& partition) {
  if (partition.scheme != "auto" && partition.scheme != "natural") {
    return absl::InvalidArgumentError(
        absl::StrCat("partition.scheme = ", partition.scheme,
                     ", but synthetic data has its own clients: remove it, and set "
                     "their number with data.synthetic.clients"));
  }
  return MakeSynthetic(data);
}

bool AsksForClientSplits(const DataOptions& data) {
  return data.client_test_fraction > 0 || data.val_fraction > 0 || data.heldout_clients > 0;
}

// For sources whose files hold the splits of their clients.
absl::Status RefuseClientSplits(const DataOptions& data, absl::string_view instead) {
  if (!AsksForClientSplits(data)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      data.path,
      " holds its own splits: client_test_fraction, val_fraction and heldout_clients must be 0 (",
      instead, ")"));
}

// Whether rows of the file's own clients become others' or a central set's.
bool CutsOwnClients(const DataOptions& data, const Examples& examples) {
  const bool cuts_test = data.test_fraction.value_or(0) > 0 && examples.own_test.size() == 0;
  return cuts_test || data.central_val_fraction > 0 || AsksForClientSplits(data);
}

// Says of the examples which rows belong to which client, so that they can be divided further.
void GroupByClient(PreparedFile& file) {
  Examples& examples = file.examples;
  std::vector<uint64_t>* const groups[] = {&examples.group_begin, &examples.val_group_begin,
                                           &examples.test_group_begin};
  for (size_t split = 0; split < std::size(groups); ++split) {
    const OffsetTable& offsets = file.offsets[split];
    for (uint64_t c = 0; c < offsets.size(); ++c) groups[split]->push_back(offsets[c]);
  }
  for (uint64_t c = 0; c + 1 < file.name_offsets.size(); ++c) {
    const auto* const text = reinterpret_cast<const char*>(file.names.data());
    examples.group_names.emplace_back(text + file.name_offsets[c], text + file.name_offsets[c + 1]);
  }
}

absl::StatusOr<DatasetPtr> OpenPrepared(const DataOptions& data,
                                        const PartitionOptions& partition) {
  MACAW_ASSIGN_OR_RETURN(PreparedFile file, ReadPrepared(data));
  MACAW_RETURN_IF_ERROR(Reshape(data, file.examples));
  const bool own_clients = !file.offsets[0].empty();
  if (file.examples.own_val.size() > 0 && data.central_val_fraction > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(data.path,
                     " has a central validation set of its own (central_val), and "
                     "data.central_val_fraction = ",
                     data.central_val_fraction, " would cut another: remove it"));
  }
  if (partition.scheme == "natural" || (partition.scheme == "auto" && own_clients)) {
    if (!own_clients) {
      return absl::InvalidArgumentError(
          absl::StrCat("partition.scheme = natural, but ", data.path, " has no train_offsets"));
    }
    const auto has_rows = [](const OffsetTable& offsets) {
      return !offsets.empty() && offsets[offsets.size() - 1] > offsets[0];
    };
    if (has_rows(file.offsets[1]) || has_rows(file.offsets[2])) {
      MACAW_RETURN_IF_ERROR(RefuseClientSplits(
          data, "or prepare it again without validation and test rows of clients"));
    }
    NoteSharedRows(file);
    NoteUnusedRows(file, /*divided=*/false);
    if (!CutsOwnClients(data, file.examples)) {
      NoteOwnTestSet(data, file.examples.notes);
      return ServePrepared(std::move(file));
    }
    GroupByClient(file);
  } else if (partition.scheme != "file") {  // which says it itself
    NoteUnusedRows(file, /*divided=*/true);
  }
  if (file.examples.block.count > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(data.path,
                     " has more rows than a partition can number; use scheme = natural, and leave "
                     "test_fraction, central_val_fraction, client_test_fraction, val_fraction and "
                     "heldout_clients at 0"));
  }
  return Divide(std::move(file.examples), data, partition);
}

absl::StatusOr<DatasetPtr> OpenDeclared(const DataOptions& data,
                                        const PartitionOptions& partition) {
  if (partition.scheme == "auto" || partition.scheme == "natural") {
    MACAW_RETURN_IF_ERROR(RefuseClientSplits(data, "declare them in it"));
    if (!data.input_shape.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.input_shape: declare \"input_shape\" in ", data.path, " instead"));
    }
    return ReadDeclared(data.path);
  }
  return absl::InvalidArgumentError(absl::StrCat("partition.scheme = ", partition.scheme, ", but ",
                                                 data.path, " declares its own clients"));
}

struct Source {
  const char* name;
  Open open;
  const char* description;
};

constexpr Source kSources[] = {
    {"synthetic", OpenSynthetic,
     "FedProx Synthetic(alpha, beta), generated; 60 features, 10 classes"},
    {"idx", OpenDivided<ReadIdx>,
     "MNIST-like IDX images and labels, .gz or plain; a folder or the images file"},
    {"libsvm", OpenDivided<ReadLibsvm>, "sparse text `label index:value ...`"},
    {"leaf", OpenDivided<ReadLeaf>,
     "LEAF JSON with users; a file, a folder, or a folder with train/ and test/"},
    {"cifar10", OpenDivided<ReadCifar10>, "CIFAR-10 binary version; the folder or one .bin file"},
    {"cifar100", OpenDivided<ReadCifar100>, "CIFAR-100 binary version, fine labels"},
    {"csv", OpenDivided<ReadCsv>,
     "a row a line, with or without a header; data.label_column (default: the last) and "
     "data.client_column by name or number"},
    {"npz", OpenDivided<ReadNpz>,
     "NumPy's .npz with arrays x and y, optional client (whose row it is), x_test and y_test; "
     "Keras's mnist.npz"},
    {"hdf5", OpenDivided<ReadHdf5>,
     "TensorFlow Federated's files (FEMNIST, CIFAR-100, Shakespeare), needs libmacaw_hdf5.so"},
    {"prepared", OpenPrepared,
     "one mapped safetensors file with its clients (docs/guides/data.md writes one)"},
    {"declared", OpenDeclared,
     "JSON with clients and their numbers of rows, which only your own program reads "
     "(workers.backend = \"process\")"},
};

absl::Status Check(const DataOptions& data) {
  for (const auto& [key, value] : {std::pair{"test_fraction", data.TestFraction()},
                                   {"central_val_fraction", data.central_val_fraction},
                                   {"client_test_fraction", data.client_test_fraction},
                                   {"val_fraction", data.val_fraction},
                                   {"heldout_clients", data.heldout_clients},
                                   {"heldout_tuning", data.heldout_tuning}}) {
    if (!(value >= 0 && value < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.", key, " = ", value, " must be at least 0 and below 1"));
    }
  }
  if (data.client_test_fraction + data.val_fraction >= 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.client_test_fraction = ", data.client_test_fraction, " and data.val_fraction = ",
        data.val_fraction, " leave no rows to train on: together they must be below 1"));
  }
  if (data.central_val_fraction > 0 && data.TestFraction() + data.central_val_fraction >= 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.test_fraction = ", data.TestFraction(), " and data.central_val_fraction = ",
        data.central_val_fraction, " leave no rows to train on: together they must be below 1"));
  }
  if (data.source == "declared" && data.central_val_fraction > 0) {
    return absl::InvalidArgumentError(
        "data.central_val_fraction: declared rows are read by your own program alone: remove it");
  }
  if (data.source == "synthetic" && data.central_val_fraction > 0) {
    return absl::InvalidArgumentError(
        "data.central_val_fraction: the rows of synthetic clients are in no common file to cut "
        "from; set data.val_fraction, with evaluation.splits = [\"test\", \"validation\"]");
  }
  if (data.heldout_tuning > 0 && data.heldout_clients == 0) {
    return absl::InvalidArgumentError(
        "data.heldout_tuning is of the rows of clients that never train: set data.heldout_clients, "
        "too");
  }
  if (data.source == "synthetic" && data.client_test_fraction > 0) {
    return absl::InvalidArgumentError(
        "data.client_test_fraction: synthetic clients have test rows of their own, as many as "
        "data.test_fraction says");
  }
  if (data.resident != "auto" && data.resident != "true" && data.resident != "false") {
    return absl::InvalidArgumentError(
        absl::StrCat("data.resident = \"", data.resident, "\" must be auto, true or false"));
  }
  if (data.classes < 0) return absl::InvalidArgumentError("data.classes must not be negative");
  return absl::OkStatus();
}

absl::Status CheckPaths(const DataOptions& data, const PartitionOptions& partition) {
  if (data.path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.path is missing: the file or folder that data.source = \"", data.source, "\" reads"));
  }
  MACAW_RETURN_IF_ERROR(Annotate(CheckExists(data.path), "data.path"));
  if (!data.test_path.empty())
    MACAW_RETURN_IF_ERROR(Annotate(CheckExists(data.test_path), "data.test_path"));
  if ((partition.scheme == "file" || partition.scheme == kHistogramScheme) &&
      !partition.path.empty())
    MACAW_RETURN_IF_ERROR(Annotate(CheckExists(partition.path), "partition.path"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataOptions& data,
                                                     const PartitionOptions& partition) {
  const auto source = std::find_if(std::begin(kSources), std::end(kSources),
                                   [&](const Source& s) { return data.source == s.name; });
  if (source == std::end(kSources)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.source \"", data.source, "\" is not known; choose one of ",
        absl::StrJoin(kSources, ", ", [](std::string* out, const Source& s) { *out += s.name; })));
  }
  MACAW_RETURN_IF_ERROR(Check(data));
  if (data.source != "synthetic") MACAW_RETURN_IF_ERROR(CheckPaths(data, partition));
  return source->open(data, partition);
}

std::vector<Choice> DataSources() {
  std::vector<Choice> sources;
  for (const Source& source : kSources) sources.push_back({source.name, source.description});
  return sources;
}

}  // namespace macaw::data
