#include "data/prepared.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/finite_features.h"
#include "data/text.h"

namespace macaw::data {
namespace {

constexpr absl::string_view kTensors[] = {
    "features",     "labels",       "lengths",     "train_offsets", "val_offsets",
    "test_offsets", "central_test", "central_val", "client_names",  "client_name_offsets"};

// What the block points into: the mapped file, and an aligned copy of the labels if they are not
// 4-byte aligned in the file.
struct Backing {
  MappedFile file;
  std::vector<int32_t> integers[2];
  std::vector<float> targets;
};

template <typename T>
const T* Aligned(std::span<const std::byte> bytes, std::vector<T>& copy) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) == 0) {
    return reinterpret_cast<const T*>(bytes.data());
  }
  copy.resize(bytes.size() / sizeof(T));
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy.data();
}

absl::Status RefuseTensor(const std::string& path, const std::string& name, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", name, "\" ", why));
}

// Reads an optional I64 table, which must ascend and not exceed `most`.
absl::StatusOr<OffsetTable> Offsets(const SafetensorsFile& file, const std::string& name,
                                    uint64_t most) {
  if (!file.tensors().contains(name)) return OffsetTable();
  MACAW_ASSIGN_OR_RETURN(const TensorRef tensor, file.Get(name, "I64"));
  const OffsetTable table(tensor.bytes);
  if (tensor.shape.size() != 1 || table.size() < 2) {
    return RefuseTensor(file.path(), name, "must be a list of clients + 1 offsets");
  }
  for (uint64_t i = 0; i < table.size(); ++i) {
    if (table[i] > most || (i > 0 && table[i] < table[i - 1])) {
      return RefuseTensor(file.path(), name,
                          absl::StrCat("has ", static_cast<int64_t>(table[i]), " at ", i,
                                       "; offsets must ascend and end at or below ", most));
    }
  }
  return table;
}

absl::StatusOr<std::vector<double>> Numbers(const SafetensorsFile& file, const std::string& key) {
  std::vector<double> numbers;
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return numbers;
  for (const absl::string_view piece : absl::StrSplit(found->second, ',')) {
    const std::optional<double> number = ParseNumber(piece);
    if (!number || !std::isfinite(*number)) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), ": metadata \"", key, "\" holds \"", piece, "\", which is not a number"));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

// Reads a list of names in JSON: `count` or `otherwise` of them, or none if it is absent.
absl::StatusOr<std::vector<std::string>> NameList(const SafetensorsFile& file,
                                                  const std::string& key, int64_t count,
                                                  int64_t otherwise) {
  std::vector<std::string> names;
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return names;
  const auto list = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  for (const auto& name : list) {
    if (list.is_array() && name.is_string()) names.push_back(name.get<std::string>());
  }
  const auto found_names = static_cast<int64_t>(names.size());
  if (names.size() != list.size() || (found_names != count && found_names != otherwise)) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": metadata \"", key,
                                                   "\" must be a JSON list of ", count, " names"));
  }
  return names;
}

absl::Status ReadFeatures(const SafetensorsFile& file, Examples& examples) {
  MACAW_ASSIGN_OR_RETURN(const TensorRef features, file.Get("features", ""));
  ExampleBlock& block = examples.block;
  if (features.dtype == "U8") {
    block.type = FeatureType::kU8;
  } else if (features.dtype == "F32") {
    block.type = FeatureType::kF32;
  } else if (features.dtype == "I32") {
    block.type = FeatureType::kI32;
  } else {
    return RefuseTensor(file.path(), "features",
                        absl::StrCat("is ", features.dtype, ", expected U8, F32 or I32"));
  }
  if (features.shape.size() < 2 || features.bytes.empty()) {
    return RefuseTensor(file.path(), "features",
                        "needs rows and at least one axis of features, none of them 0");
  }
  block.features = features.bytes.data();
  block.count = features.shape[0];
  block.row_bytes = features.bytes.size() / block.count;
  examples.input_shape.assign(features.shape.begin() + 1, features.shape.end());
  return absl::OkStatus();
}

absl::Status ReadLabels(const SafetensorsFile& file, int64_t classes, Examples& examples,
                        Backing& backing) {
  ExampleBlock& block = examples.block;
  MACAW_ASSIGN_OR_RETURN(const TensorRef labels, file.Get("labels", ""));
  if (labels.elements() != block.count || labels.shape.size() != 1) {
    return RefuseTensor(file.path(), "labels",
                        absl::StrCat("must hold one label for each of ", block.count, " rows"));
  }
  if (labels.dtype == "F32") {
    block.targets = Aligned(labels.bytes, backing.targets);
    for (uint64_t row = 0; row < block.count; ++row) {
      if (!std::isfinite(block.targets[row])) {
        return RefuseTensor(file.path(), "labels", absl::StrCat("is not finite at row ", row));
      }
    }
  } else if (labels.dtype == "I32") {
    block.classes = Aligned(labels.bytes, backing.integers[0]);
    MACAW_ASSIGN_OR_RETURN(examples.classes,
                           CountClasses({block.classes, block.count}, classes, file.path()));
  } else {
    return RefuseTensor(
        file.path(), "labels",
        absl::StrCat("is ", labels.dtype, ", expected I32 (classes) or F32 (targets)"));
  }
  if (!file.tensors().contains("lengths")) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const TensorRef lengths, file.Get("lengths", "I32"));
  if (lengths.elements() != block.count) {
    return RefuseTensor(file.path(), "lengths",
                        absl::StrCat("must hold one length for each of ", block.count, " rows"));
  }
  block.lengths = Aligned(lengths.bytes, backing.integers[1]);
  for (uint64_t row = 0; row < block.count; ++row) {
    if (block.lengths[row] < 0 || block.lengths[row] > examples.input_shape[0]) {
      return RefuseTensor(file.path(), "lengths",
                          absl::StrCat("is ", block.lengths[row], " at row ", row,
                                       ", outside 0 ... ", examples.input_shape[0]));
    }
  }
  return absl::OkStatus();
}

// The digest that identifies the file. Small files: of all bytes. Large files: of everything but
// the features (header, offsets, labels, names), of the size, and of 4096 bytes at each of 256
// places spread over the file. It will detect a relevant change, unless somebody tries to hide one.
Digest NameOf(std::span<const std::byte> bytes, const SafetensorsFile& file) {
  constexpr size_t kPage = 4096, kPages = 256;
  if (bytes.size() <= kReadWhole) return DigestOf(bytes);
  Digester digester;
  digester.Add(uint64_t{bytes.size()});
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  digester.Add(bytes.subspan(0, 8 + header_size));
  for (const auto& [name, tensor] : file.tensors()) {
    if (name != "features") digester.Add(tensor.bytes);
  }
  Advise(bytes, Access::kScattered);
  for (size_t i = 0; i < kPages; ++i) {
    digester.Add(bytes.subspan((bytes.size() - kPage) / (kPages - 1) * i, kPage));
  }
  Advise(bytes, Access::kUsual);
  return digester.Finish();
}

// Each client has a name of its own, in UTF-8.
absl::Status CheckNames(const std::string& path, const PreparedFile& file) {
  const absl::string_view all(reinterpret_cast<const char*>(file.names.data()), file.names.size());
  const auto refuse = [&](uint64_t client, absl::string_view why) {
    return RefuseTensor(path, "client_names",
                        absl::StrCat("has a name for client ", client, " that ", why));
  };
  std::unordered_map<std::string_view, uint64_t> client_of;
  client_of.reserve(file.name_offsets.size());
  for (uint64_t c = 0; c + 1 < file.name_offsets.size(); ++c) {
    const uint64_t begin = file.name_offsets[c];
    const absl::string_view name = all.substr(begin, file.name_offsets[c + 1] - begin);
    if (name.empty()) return refuse(c, "is empty: name each client");
    if (!IsUtf8(name))
      return refuse(c, "is not UTF-8: prepare the file again, from names in UTF-8");
    const auto [other, is_new] = client_of.emplace(std::string_view(name.data(), name.size()), c);
    if (is_new) continue;
    return refuse(c, absl::StrCat("client ", other->second, " has, too (", Quoted(name),
                                  "): give each client a name of its own"));
  }
  return absl::OkStatus();
}

absl::Status ReadClients(const SafetensorsFile& tensors, PreparedFile& file) {
  Examples& examples = file.examples;
  const uint64_t rows = examples.block.count;
  const char* const names[] = {"train_offsets", "val_offsets", "test_offsets"};
  for (size_t split = 0; split < 3; ++split) {
    MACAW_ASSIGN_OR_RETURN(file.offsets[split], Offsets(tensors, names[split], rows));
    if (!file.offsets[split].empty() && file.offsets[split].size() != file.offsets[0].size()) {
      return RefuseTensor(tensors.path(), names[split], "must be as long as train_offsets");
    }
  }
  MACAW_ASSIGN_OR_RETURN(const OffsetTable central, Offsets(tensors, "central_test", rows));
  if (central.size() > 2)
    return RefuseTensor(tensors.path(), "central_test", "must be two offsets");
  examples.own_test = {rows, rows};
  if (!central.empty()) examples.own_test = {central[0], central[1]};
  MACAW_ASSIGN_OR_RETURN(const OffsetTable validation, Offsets(tensors, "central_val", rows));
  if (!validation.empty()) {
    if (validation.size() > 2)
      return RefuseTensor(tensors.path(), "central_val", "must be two offsets");
    if (file.offsets[0].empty())
      return RefuseTensor(tensors.path(), "central_val", "needs train_offsets beside it");
    examples.own_val = {validation[0], validation[1]};
  }

  if (const OffsetTable& train = file.offsets[0]; !train.empty()) {
    examples.train = {train[0], train[train.size() - 1]};
  } else if (examples.own_test.end == rows) {
    examples.train = {0, examples.own_test.begin};
  } else if (examples.own_test.begin == 0) {
    examples.train = {examples.own_test.end, rows};
  } else {
    return RefuseTensor(tensors.path(), "central_test",
                        "must be the first or the last rows of a file without train_offsets");
  }
  if (!tensors.tensors().contains("client_names")) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const TensorRef text, tensors.Get("client_names", "U8"));
  file.names = text.bytes;
  MACAW_ASSIGN_OR_RETURN(file.name_offsets,
                         Offsets(tensors, "client_name_offsets", text.bytes.size()));
  if (file.name_offsets.size() != file.offsets[0].size()) {
    return RefuseTensor(tensors.path(), "client_name_offsets", "must be as long as train_offsets");
  }
  return CheckNames(tensors.path(), file);
}

// For people: tensors that nothing reads.
void NoteUnknown(const SafetensorsFile& file, std::vector<std::string>& notes) {
  constexpr size_t kMost = 20;
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool known = absl::c_linear_search(kTensors, name);
    if ((!known || (name == "client_name_offsets" && !file.tensors().contains("client_names"))) &&
        unknown.size() < kMost)
      unknown.push_back(Quoted(name));
  }
  if (!unknown.empty()) notes.push_back(absl::StrCat("not read: ", absl::StrJoin(unknown, ", ")));
}

// All rows from the first client's to the last one's.
RowRange AllOf(const PreparedFile& file, Split split) {
  const OffsetTable& offsets = file.offsets[static_cast<size_t>(split)];
  return offsets.empty() ? RowRange{} : RowRange{offsets[0], offsets[offsets.size() - 1]};
}

class PreparedDataset final : public Dataset {
 public:
  explicit PreparedDataset(PreparedFile file) : file_(std::move(file)) {
    const data::Examples& examples = file_.examples;
    info_.name = examples.name;
    info_.feature_type = examples.block.type;
    info_.input_shape = examples.input_shape;
    info_.classes = examples.classes;
    info_.class_names = examples.class_names;
    info_.feature_names = examples.feature_names;
    info_.notes = file_.examples.notes;
    info_.transform = examples.transform;
    info_.clients = file_.offsets[0].size() - 1;
    for (uint64_t c = 0; c < info_.clients; ++c)
      info_.train_clients += RangeOf(ClientId(c), Split::kTrain).size() > 0 ? 1 : 0;
    info_.train_examples = examples.train.size();
    info_.train_tokens = TokensOf(RowsOf(examples.train));
    info_.test_examples = examples.own_test.size();
    info_.val_examples = examples.own_val.size();
    info_.mean_classes_per_client = MeanClasses();
    info_.digest = examples.digest;
  }

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    return static_cast<uint32_t>(RangeOf(client, split).size());
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    if (client.value >= info_.clients) {
      return absl::NotFoundError(absl::StrCat(
          "client ", client.value, " does not exist: the data has ", info_.clients, " clients"));
    }
    const RowRange rows = RangeOf(client, split);
    MACAW_RETURN_IF_ERROR(CheckFeatures(file_.examples.unchecked, file_.examples.block, rows));
    return RowsOf(rows);
  }
  Rows CentralTest() const override { return RowsOf(file_.examples.own_test); }
  Rows CentralValidation() const override { return RowsOf(file_.examples.own_val); }
  std::string ClientName(ClientId client) const override {
    if (file_.name_offsets.empty() || client.value >= info_.clients)
      return Dataset::ClientName(client);
    const uint64_t begin = file_.name_offsets[client.value],
                   end = file_.name_offsets[client.value + 1];
    return std::string(reinterpret_cast<const char*>(file_.names.data()) + begin, end - begin);
  }

 private:
  RowRange RangeOf(ClientId client, Split split) const {
    const OffsetTable& offsets = file_.offsets[static_cast<size_t>(split)];
    if (offsets.empty() || client.value >= info_.clients) return {};
    return {offsets[client.value], offsets[client.value + 1]};
  }
  Rows RowsOf(RowRange range) const {
    Rows rows{.block = file_.examples.block, .index = {}, .keep_alive = nullptr};
    ExampleBlock& block = rows.block;
    block.features += range.begin * block.row_bytes;
    if (block.classes != nullptr) block.classes += range.begin;
    if (block.targets != nullptr) block.targets += range.begin;
    if (block.lengths != nullptr) block.lengths += range.begin;
    block.count = range.size();
    return rows;
  }
  double MeanClasses() const {
    if (info_.classes == 0) return 0;
    std::vector<uint64_t> last_client(static_cast<size_t>(info_.classes), UINT64_MAX);
    uint64_t found = 0;
    for (uint64_t client = 0; client < info_.clients; ++client) {
      const RowRange range = RangeOf(ClientId(client), Split::kTrain);
      for (uint64_t row = range.begin; row < range.end; ++row) {
        uint64_t& last = last_client[static_cast<size_t>(file_.examples.block.classes[row])];
        if (last != client) last = client, ++found;
      }
    }
    return static_cast<double>(found) / static_cast<double>(info_.clients);
  }

  const PreparedFile file_;
  DatasetInfo info_;
};

}  // namespace

absl::StatusOr<PreparedFile> ReadPrepared(const DataOptions& options) {
  auto backing = std::make_shared<Backing>();
  MACAW_ASSIGN_OR_RETURN(backing->file, MappedFile::Open(options.path));
  const std::span<const std::byte> bytes = backing->file.bytes();
  MACAW_ASSIGN_OR_RETURN(const SafetensorsFile tensors,
                         SafetensorsFile::Parse(bytes, options.path));
  PreparedFile file;
  Examples& examples = file.examples;
  MACAW_RETURN_IF_ERROR(ReadFeatures(tensors, examples));
  int64_t classes = options.classes;
  MACAW_ASSIGN_OR_RETURN(const std::vector<double> stated, Numbers(tensors, "classes"));
  if (classes == 0 && !stated.empty() && IsWhole(stated[0]))
    classes = static_cast<int64_t>(stated[0]);
  MACAW_RETURN_IF_ERROR(ReadLabels(tensors, classes, examples, *backing));
  MACAW_RETURN_IF_ERROR(ReadClients(tensors, file));

  MACAW_RETURN_IF_ERROR(CheckAtOpening(options.path, bytes.size() <= kReadWhole, examples));

  if (examples.block.type == FeatureType::kU8) examples.transform.scale = 1.0 / 255.0;
  MACAW_ASSIGN_OR_RETURN(const std::vector<double> scale, Numbers(tensors, "scale"));
  if (!scale.empty()) examples.transform.scale = scale[0];
  MACAW_ASSIGN_OR_RETURN(examples.transform.mean, Numbers(tensors, "mean"));
  MACAW_ASSIGN_OR_RETURN(examples.transform.std, Numbers(tensors, "std"));
  if (std::ranges::any_of(examples.transform.std, [](double std) { return std <= 0; }))
    return Refuse(options.path, ": metadata \"std\" must have numbers above 0");
  MACAW_ASSIGN_OR_RETURN(examples.class_names, NameList(tensors, "class_names", examples.classes,
                                                        /*otherwise=*/examples.classes));
  // Of a table's columns, whatever shape its rows have been given, or of an image's channels.
  int64_t elements = 1;
  for (const int64_t extent : examples.input_shape) elements *= extent;
  MACAW_ASSIGN_OR_RETURN(examples.feature_names, NameList(tensors, "feature_names", elements,
                                                          /*otherwise=*/examples.input_shape[0]));
  const auto name = tensors.metadata().find("name");
  examples.name = name == tensors.metadata().end() ? "prepared" : name->second;
  NoteUnknown(tensors, examples.notes);
  examples.digest = NameOf(bytes, tensors);
  examples.keep_alive = std::move(backing);
  return file;
}

// The rows of all clients in one split form one range, so comparing ranges shows which rows are
// used twice.
void NoteSharedRows(PreparedFile& file) {
  const RowRange train = AllOf(file, Split::kTrain);
  const auto note = [&](RowRange rows, const char* what) {
    const uint64_t begin = std::max(rows.begin, train.begin), end = std::min(rows.end, train.end);
    if (begin >= end) return;
    file.examples.notes.push_back(absl::StrCat(end - begin, " of the ", rows.size(), " rows of ",
                                               what,
                                               " are rows of train_offsets, too: what they measure "
                                               "was trained on"));
  };
  note(file.examples.own_test, "central_test");
  note(file.examples.own_val, "central_val");
  note(AllOf(file, Split::kTest), "test_offsets");
  note(AllOf(file, Split::kValidation), "val_offsets");
}

void NoteUnusedRows(PreparedFile& file, bool divided) {
  Examples& examples = file.examples;
  std::vector<RowRange> used = {examples.train, examples.own_test, examples.own_val};
  if (!divided) {
    used.push_back(AllOf(file, Split::kValidation));
    used.push_back(AllOf(file, Split::kTest));
  }
  std::ranges::sort(used, {}, &RowRange::begin);
  uint64_t unused = 0, end = 0;
  for (const RowRange& rows : used) {
    if (rows.size() == 0) continue;
    if (rows.begin > end) unused += rows.begin - end;
    end = std::max(end, rows.end);
  }
  unused += examples.block.count - end;
  if (unused == 0) return;
  examples.notes.push_back(absl::StrCat(
      unused, " of the ", examples.block.count,
      divided ? " rows are neither in train_offsets nor in a central set and stay unused"
              : " rows are in no client's offsets and in no central set and stay "
                "unused"));
}

std::unique_ptr<Dataset> ServePrepared(PreparedFile file) {
  return std::make_unique<PreparedDataset>(std::move(file));
}

}  // namespace macaw::data
