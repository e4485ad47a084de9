#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "data/prepared.h"

namespace macaw::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr Split kSplits[] = {Split::kTrain, Split::kValidation, Split::kTest};
constexpr const char* kOffsetNames[] = {"train_offsets", "val_offsets", "test_offsets"};

// The tensors in file order. The header is complete before any row is read.
class Plan {
 public:
  // Reserves room for a tensor and returns its offset in the data.
  uint64_t Add(const std::string& name, const char* dtype, std::vector<uint64_t> shape,
               uint64_t bytes) {
    tensors_.push_back({name, dtype, std::move(shape), bytes});
    return std::exchange(end_, end_ + bytes);
  }
  const std::vector<TensorSize>& tensors() const { return tensors_; }

 private:
  std::vector<TensorSize> tensors_;
  uint64_t end_ = 0;
};

// Writes rows to their places in the file, a few megabytes at a time.
class RowWriter {
 public:
  RowWriter(AtomicFile& file, uint64_t features_at, uint64_t row_bytes)
      : file_(file), features_at_(features_at), row_bytes_(row_bytes) {}

  absl::Status Append(const Rows& rows) {
    for (uint64_t i = 0; i < rows.size(); ++i) {
      const uint64_t row = rows.at(i);
      const std::byte* features = rows.block.features + row * row_bytes_;
      buffer_.insert(buffer_.end(), features, features + row_bytes_);
      if (rows.block.classes != nullptr) classes_.push_back(rows.block.classes[row]);
      if (rows.block.targets != nullptr) targets_.push_back(rows.block.targets[row]);
      if (rows.block.lengths != nullptr) lengths_.push_back(rows.block.lengths[row]);
      if (buffer_.size() >= kBuffer) MACAW_RETURN_IF_ERROR(Flush());
    }
    return absl::OkStatus();
  }
  absl::Status Flush() {
    MACAW_RETURN_IF_ERROR(file_.WriteAt(features_at_ + flushed_, buffer_));
    flushed_ += buffer_.size();
    buffer_.clear();
    return absl::OkStatus();
  }
  uint64_t bytes() const { return flushed_ + buffer_.size(); }
  std::span<const std::byte> labels() const {
    return classes_.empty() ? std::as_bytes(std::span(targets_))
                            : std::as_bytes(std::span(classes_));
  }
  std::span<const std::byte> lengths() const { return std::as_bytes(std::span(lengths_)); }

 private:
  static constexpr size_t kBuffer = size_t{8} << 20;
  AtomicFile& file_;
  const uint64_t features_at_;
  const uint64_t row_bytes_;
  uint64_t flushed_ = 0;
  std::vector<std::byte> buffer_;
  std::vector<int32_t> classes_;
  std::vector<float> targets_;
  std::vector<int32_t> lengths_;
};

std::map<std::string, std::string> Metadata(const DatasetInfo& info) {
  std::map<std::string, std::string> metadata = {{"format", "macaw-data-1"}, {"name", info.name}};
  if (info.classes > 0) metadata["classes"] = absl::StrCat(info.classes);
  for (const auto& [key, names] :
       {std::pair{"class_names", &info.class_names}, {"feature_names", &info.feature_names}}) {
    if (!names->empty())
      metadata[key] =
          OrderedJson(*names).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  const auto number = [](std::string* out, double x) {
    *out += OrderedJson(x).dump();
  };  // the shortest exact form
  metadata["scale"] = OrderedJson(info.transform.scale.value_or(1.0)).dump();
  if (!info.transform.mean.empty())
    metadata["mean"] = absl::StrJoin(info.transform.mean, ",", number);
  if (!info.transform.std.empty()) metadata["std"] = absl::StrJoin(info.transform.std, ",", number);
  return metadata;
}

// The small tensors, and the number of rows.
struct Index {
  std::vector<int64_t> offsets[3];  // by Split
  std::vector<int64_t> central_test, central_val;
  bool named = false;  // some client's name is not just its number
  std::string names;
  std::vector<int64_t> name_offsets = {0};
  uint64_t rows = 0;
};

Index IndexOf(const Dataset& dataset) {
  Index index;
  const uint64_t clients = dataset.info().clients;
  int64_t rows = 0;
  for (size_t split = 0; split < 3; ++split) {
    for (uint64_t c = 0; c < clients; ++c) {
      index.offsets[split].push_back(rows);
      rows += dataset.Examples(ClientId(c), kSplits[split]);
    }
    index.offsets[split].push_back(rows);
  }
  const auto end = rows + static_cast<int64_t>(dataset.CentralTest().size());
  index.central_test = {rows, end};
  index.central_val = {end, end + static_cast<int64_t>(dataset.CentralValidation().size())};
  index.rows = static_cast<uint64_t>(index.central_val[1]);
  for (uint64_t c = 0; c < clients; ++c) {
    const std::string name = dataset.ClientName(ClientId(c));
    index.names += name;
    index.name_offsets.push_back(static_cast<int64_t>(index.names.size()));
    index.named = index.named || name != absl::StrCat(c);
  }
  return index;
}

absl::StatusOr<bool> HasLengths(const Dataset& dataset) {
  if (const Rows central = dataset.CentralTest(); !central.empty())
    return central.block.lengths != nullptr;
  for (ClientId client; client.value < dataset.info().clients; ++client.value) {
    for (const Split split : kSplits) {
      if (dataset.Examples(client, split) == 0) continue;
      MACAW_ASSIGN_OR_RETURN(const Rows rows, dataset.Client(client, split));
      return rows.block.lengths != nullptr;
    }
  }
  return false;
}

// The file's header, and the place of each tensor behind it.
struct FileLayout {
  std::string header;
  std::vector<std::pair<uint64_t, std::span<const std::byte>>> small;  // views of the Index
  uint64_t labels_at = 0, lengths_at = 0, features_at = 0;
  uint64_t row_bytes = 0;
};

FileLayout LayOut(const DatasetInfo& info, const Index& index, bool has_lengths) {
  Plan plan;
  FileLayout layout;
  const auto add_offsets = [&](const char* name, const std::vector<int64_t>& values) {
    layout.small.emplace_back(plan.Add(name, "I64", {values.size()}, 8 * values.size()),
                              std::as_bytes(std::span(values)));
  };
  for (size_t split = 0; split < 3; ++split) add_offsets(kOffsetNames[split], index.offsets[split]);
  add_offsets("central_test", index.central_test);
  // Only where there are rows, so that other data keep their bytes.
  if (index.central_val[0] < index.central_val[1]) add_offsets("central_val", index.central_val);
  if (index.named) add_offsets("client_name_offsets", index.name_offsets);
  const uint64_t count = index.rows;
  layout.labels_at = plan.Add("labels", info.classes > 0 ? "I32" : "F32", {count}, 4 * count);
  if (has_lengths) layout.lengths_at = plan.Add("lengths", "I32", {count}, 4 * count);
  std::vector<uint64_t> shape = {count};
  layout.row_bytes = SizeOf(info.feature_type);
  for (const int64_t extent : info.input_shape) {
    shape.push_back(static_cast<uint64_t>(extent));
    layout.row_bytes *= static_cast<uint64_t>(extent);
  }
  const char* const dtypes[] = {"U8", "F32", "I32"};
  layout.features_at = plan.Add("features", dtypes[static_cast<size_t>(info.feature_type)], shape,
                                layout.row_bytes * count);
  if (index.named)
    layout.small.emplace_back(
        plan.Add("client_names", "U8", {index.names.size()}, index.names.size()),
        BytesOf(absl::string_view(index.names)));
  layout.header = SafetensorsHeader(plan.tensors(), Metadata(info));
  return layout;
}

absl::Status WriteRows(const Dataset& dataset, RowWriter& writer) {
  for (const Split split : kSplits) {
    for (uint64_t c = 0; c < dataset.info().clients; ++c) {
      MACAW_ASSIGN_OR_RETURN(const Rows rows, dataset.Client(ClientId(c), split));
      MACAW_RETURN_IF_ERROR(writer.Append(rows));
    }
  }
  MACAW_RETURN_IF_ERROR(writer.Append(dataset.CentralTest()));
  MACAW_RETURN_IF_ERROR(writer.Append(dataset.CentralValidation()));
  return writer.Flush();
}

}  // namespace

absl::Status WritePrepared(const Dataset& dataset, const std::string& path,
                           const std::vector<std::string>& class_names) {
  if (dataset.info().declared) {
    return absl::InvalidArgumentError(
        absl::StrCat(dataset.info().name, " only declares its rows: they cannot be written"));
  }
  const Index index = IndexOf(dataset);
  if (index.rows == 0) {
    return absl::InvalidArgumentError("a dataset without rows cannot be prepared");
  }
  MACAW_ASSIGN_OR_RETURN(const bool has_lengths, HasLengths(dataset));
  DatasetInfo info = dataset.info();
  if (!class_names.empty()) info.class_names = class_names;
  const FileLayout layout = LayOut(info, index, has_lengths);
  const uint64_t data_at = layout.header.size();

  MACAW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  MACAW_RETURN_IF_ERROR(file.WriteAt(0, BytesOf(absl::string_view(layout.header))));
  for (const auto& [at, bytes] : layout.small)
    MACAW_RETURN_IF_ERROR(file.WriteAt(data_at + at, bytes));
  RowWriter writer(file, data_at + layout.features_at, layout.row_bytes);
  MACAW_RETURN_IF_ERROR(WriteRows(dataset, writer));
  if (writer.bytes() != layout.row_bytes * index.rows || writer.labels().size() != 4 * index.rows ||
      (has_lengths && writer.lengths().size() != 4 * index.rows)) {
    return absl::InternalError(
        absl::StrCat("dataset ", dataset.info().name, " gave other rows than it announced"));
  }
  MACAW_RETURN_IF_ERROR(file.WriteAt(data_at + layout.labels_at, writer.labels()));
  if (has_lengths)
    MACAW_RETURN_IF_ERROR(file.WriteAt(data_at + layout.lengths_at, writer.lengths()));
  return std::move(file).Commit();
}

}  // namespace macaw::data
