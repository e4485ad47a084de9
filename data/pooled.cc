#include "data/pooled.h"

#include <numeric>
#include <utility>

#include "core/status.h"
#include "data/finite_features.h"
#include "data/histogram.h"
#include "data/partition.h"
#include "data/partition_file.h"

namespace macaw::data {
namespace {

// The number of distinct classes in a client's training rows, averaged over the clients.
double MeanClasses(const ExampleBlock& block, int64_t classes, const Division& division) {
  if (classes == 0 || division.clients() == 0) return 0;
  std::vector<uint64_t> last_client(static_cast<size_t>(classes), UINT64_MAX);
  uint64_t found = 0;
  for (uint64_t client = 0; client < division.clients(); ++client) {
    for (const uint32_t row : division.Of(ClientId(client), Split::kTrain)) {
      uint64_t& last = last_client[static_cast<size_t>(block.classes[row])];
      if (last != client) last = client, ++found;
    }
  }
  return static_cast<double>(found) / static_cast<double>(division.clients());
}

// Groups rows by owner, ascending within each group (a counting sort).
RowLists Collect(const std::vector<uint32_t>& rows, const std::vector<uint32_t>& owners,
                 uint64_t clients) {
  RowLists lists;
  lists.begin.assign(clients + 1, 0);
  for (const uint32_t owner : owners) ++lists.begin[owner + 1];
  std::partial_sum(lists.begin.begin(), lists.begin.end(), lists.begin.begin());
  lists.rows.resize(rows.size());
  std::vector<uint64_t> next(lists.begin.begin(), lists.begin.end() - 1);
  for (size_t i = 0; i < rows.size(); ++i) lists.rows[next[owners[i]]++] = rows[i];
  return lists;
}

// Makes lists of the rows begin[c] ... begin[c+1]-1, without those marked in `drop`.
RowLists Contiguous(const std::vector<uint64_t>& begin, const std::vector<bool>& drop) {
  RowLists lists;
  for (size_t c = 0; c + 1 < begin.size(); ++c) {
    for (uint64_t row = begin[c]; row < begin[c + 1]; ++row) {
      if (drop.empty() || !drop[row]) lists.rows.push_back(static_cast<uint32_t>(row));
    }
    lists.begin.push_back(lists.rows.size());
  }
  return lists;
}

absl::StatusOr<Division> Natural(const Examples& examples, const DataOptions& data,
                                 CentralCut cut) {
  if (!examples.has_clients()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partition.scheme = natural, but ", data.path, " does not say which rows belong together",
        data.source == "csv" ? ": name the column that does in data.client_column" : ""));
  }
  const bool own_test = examples.own_test.size() > 0;
  Division division;
  division.names = examples.group_names;
  if (!examples.client_of_row.empty()) {
    const auto of_clients = [&](const std::vector<uint32_t>& rows) {
      std::vector<uint32_t> owners;
      for (const uint32_t row : rows) owners.push_back(examples.client_of_row[row]);
      return Collect(rows, owners, examples.group_names.size());
    };
    const bool named = own_test && examples.client_of_row.size() == examples.block.count;
    division.lists =
        SplitClients(data, of_clients(cut.train),
                     {.validation = {}, .test = named ? of_clients(cut.test) : RowLists()});
  } else {
    std::vector<bool> drop(examples.block.count);
    if (!own_test) {
      for (const uint32_t row : cut.test) drop[row] = true;
    }
    for (const uint32_t row : cut.val) drop[row] = true;
    division.lists = SplitClients(data, Contiguous(examples.group_begin, drop),
                                  {.validation = Contiguous(examples.val_group_begin, {}),
                                   .test = Contiguous(examples.test_group_begin, {})});
  }
  division.central_test = std::move(cut.test);
  division.central_val = std::move(cut.val);
  return division;
}

}  // namespace

PooledDataset::PooledDataset(data::Examples examples, Division division)
    : block_(examples.block),
      keep_alive_(std::move(examples.keep_alive)),
      unchecked_(std::move(examples.unchecked)),
      division_(std::move(division)) {
  info_.name = examples.name;
  info_.feature_type = block_.type;
  info_.input_shape = examples.input_shape;
  info_.classes = examples.classes;
  info_.class_names = std::move(examples.class_names);
  // data.classes may be larger than the number of classes that occur.
  while (!info_.class_names.empty() &&
         static_cast<int64_t>(info_.class_names.size()) < info_.classes) {
    info_.class_names.push_back(absl::StrCat(info_.class_names.size()));
  }
  info_.feature_names = std::move(examples.feature_names);
  info_.notes = std::move(examples.notes);
  info_.notes.insert(info_.notes.end(), division_.notes.begin(), division_.notes.end());
  info_.transform = examples.transform;
  info_.clients = division_.clients();
  info_.divided = division_.divided;
  for (uint64_t c = 0; c < info_.clients; ++c) {
    const std::span<const uint32_t> rows = division_.Of(ClientId(c), Split::kTrain);
    info_.train_clients += rows.empty() ? 0 : 1;
    info_.train_examples += rows.size();
    info_.train_tokens += TokensOf(RowsOf(rows));
  }
  info_.test_examples = division_.central_test.size();
  info_.val_examples = division_.central_val.size();
  info_.mean_classes_per_client = MeanClasses(block_, info_.classes, division_);
  Digester digester;
  digester.Add(std::as_bytes(std::span(examples.digest.bytes)))
      .Add(static_cast<uint64_t>(info_.classes));
  digester.Add(BytesOf(std::span(division_.lists.rows)))
      .Add(BytesOf(std::span(division_.lists.begin)));
  digester.Add(BytesOf(std::span(division_.central_test)))
      .Add(uint64_t{division_.central_test.size()});
  // Only where there are some, so that data without them keep their digests.
  if (!division_.central_val.empty()) {
    digester.Add("central validation").Add(BytesOf(std::span(division_.central_val)));
  }
  info_.digest = digester.Finish();
}

Rows PooledDataset::RowsOf(std::span<const uint32_t> index) const {
  Rows rows{.block = block_, .index = index, .keep_alive = nullptr};
  if (index.empty()) rows.block.count = 0;
  return rows;
}

uint32_t PooledDataset::Examples(ClientId client, Split split) const {
  if (client.value >= division_.clients()) return 0;
  return static_cast<uint32_t>(division_.Of(client, split).size());
}

absl::StatusOr<Rows> PooledDataset::Client(ClientId client, Split split) const {
  if (client.value >= division_.clients()) {
    return absl::NotFoundError(absl::StrCat("client ", client.value,
                                            " does not exist: the data has ", division_.clients(),
                                            " clients"));
  }
  const std::span<const uint32_t> rows = division_.Of(client, split);
  MACAW_RETURN_IF_ERROR(CheckFeatures(unchecked_, block_, rows));
  return RowsOf(rows);
}

absl::Status PooledDataset::CheckCentralSets() const {
  MACAW_RETURN_IF_ERROR(CheckFeatures(unchecked_, block_, division_.central_test));
  return CheckFeatures(unchecked_, block_, division_.central_val);
}

std::string PooledDataset::ClientName(ClientId client) const {
  return client.value < division_.names.size() ? division_.names[client.value]
                                               : Dataset::ClientName(client);
}

namespace {

absl::StatusOr<std::unique_ptr<Dataset>> Serve(Examples examples, Division division) {
  auto dataset = std::make_unique<PooledDataset>(std::move(examples), std::move(division));
  MACAW_RETURN_IF_ERROR(dataset->CheckCentralSets());
  return dataset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Divide(Examples examples, const DataOptions& data,
                                                const PartitionOptions& partition) {
  const std::string scheme = partition.scheme != "auto" ? partition.scheme
                             : examples.has_clients()   ? "natural"
                                                        : "iid";
  Division division;
  if (scheme == "file") {
    MACAW_ASSIGN_OR_RETURN(division, ReadPartition(partition.path, examples, data));
    return Serve(std::move(examples), std::move(division));
  }
  CentralCut cut;
  if (examples.own_test.size() > 0) {
    NoteOwnTestSet(data, examples.notes);
    cut.test.resize(examples.own_test.size());
    std::iota(cut.test.begin(), cut.test.end(), static_cast<uint32_t>(examples.own_test.begin));
    cut.train.resize(examples.train.size());
    std::iota(cut.train.begin(), cut.train.end(), static_cast<uint32_t>(examples.train.begin));
  } else {
    cut = CutTestSet(data, examples.train);
  }
  if (examples.own_val.size() > 0) {
    cut.val.resize(examples.own_val.size());
    std::iota(cut.val.begin(), cut.val.end(), static_cast<uint32_t>(examples.own_val.begin));
  } else {
    CutCentralValidation(data, examples.train.size(), cut);
  }
  if (scheme == "natural") {
    MACAW_ASSIGN_OR_RETURN(division, Natural(examples, data, std::move(cut)));
    return Serve(std::move(examples), std::move(division));
  }
  division.divided = true;
  Pool pool{.rows = cut.train.size(), .class_count = examples.classes};
  if (examples.classes > 0) {
    pool.classes.reserve(pool.rows);
    for (const uint32_t row : cut.train) pool.classes.push_back(examples.block.classes[row]);
  }
  if (scheme == kHistogramScheme) {
    MACAW_ASSIGN_OR_RETURN(const Histogram histogram, ReadHistogram(partition.path));
    MACAW_ASSIGN_OR_RETURN(HistogramDivision divided,
                           DivideByHistogram(partition, histogram, pool));
    for (uint32_t& row : divided.lists.rows) row = cut.train[row];
    division.lists = SplitClients(data, divided.lists);
    division.names = std::move(divided.names);
    division.notes = std::move(divided.notes);
  } else {
    PartitionOptions resolved = partition;
    resolved.scheme = scheme;
    if (resolved.clients == 0) resolved.clients = kDefaultClients;
    const absl::StatusOr<std::vector<uint32_t>> owners = AssignOwners(resolved, pool);
    if (!owners.ok()) return Annotate(owners.status(), data.path);
    division.lists = SplitClients(data, Collect(cut.train, *owners, resolved.clients));
  }
  division.central_test = std::move(cut.test);
  division.central_val = std::move(cut.val);
  return Serve(std::move(examples), std::move(division));
}

}  // namespace macaw::data
