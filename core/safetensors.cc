#include "core/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_join.h"
#include "core/status.h"

namespace macaw {
namespace {

using OrderedJson = nlohmann::ordered_json;
// Of files that are read. An ordered object looks through all of its names for each new one, so a
// header of many tensors would take hours.
using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = uint64_t{1} << 27;
constexpr uint64_t kHeaderAlignment = 64;
constexpr uint64_t kGathered = uint64_t{1} << 20;  // bytes that are written at once, if several are

uint64_t WidthOf(const std::string& dtype) {
  static const absl::flat_hash_map<std::string, uint64_t> widths = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
      {"I32", 4},  {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}};
  const auto it = widths.find(dtype);
  return it == widths.end() ? 0 : it->second;
}

absl::StatusOr<TensorRef> ParseTensor(const Json& json, std::span<const std::byte> data) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
      !json.contains("shape") || !json["shape"].is_array() || !json.contains("data_offsets") ||
      !json["data_offsets"].is_array() || json["data_offsets"].size() != 2) {
    return absl::InvalidArgumentError("needs dtype, shape and data_offsets");
  }
  TensorRef tensor{.dtype = json["dtype"].get<std::string>()};
  const uint64_t width = WidthOf(tensor.dtype);
  if (width == 0)
    return absl::InvalidArgumentError(absl::StrCat("unknown dtype \"", tensor.dtype, "\""));
  uint64_t bytes = width;
  for (const Json& extent : json["shape"]) {
    if (!extent.is_number_unsigned())
      return absl::InvalidArgumentError("shape holds something else than sizes");
    tensor.shape.push_back(extent.get<uint64_t>());
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
      return absl::InvalidArgumentError("shape is too large");
    }
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return absl::InvalidArgumentError("data_offsets are not two sizes");
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size() || end - begin != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets [", begin, ", ", end, "] do not fit ", bytes,
                     " bytes of data in a block of ", data.size(), " (is the file cut short?)"));
  }
  tensor.bytes = data.subspan(begin, bytes);
  return tensor;
}

// The names of two tensors that share bytes, as a file of the format never has them: whoever writes
// all of them would write more than was there. Nothing: each has its own.
std::optional<std::pair<std::string, std::string>> Overlap(
    const std::map<std::string, TensorRef>& tensors) {
  std::vector<const std::pair<const std::string, TensorRef>*> order;
  for (const auto& tensor : tensors) {
    if (!tensor.second.bytes.empty()) order.push_back(&tensor);
  }
  const auto begin = [](const auto* tensor) { return tensor->second.bytes.data(); };
  std::ranges::sort(order, {}, begin);
  for (size_t i = 1; i < order.size(); ++i) {
    const std::span<const std::byte> before = order[i - 1]->second.bytes;
    if (begin(order[i]) < before.data() + before.size())
      return std::pair(order[i - 1]->first, order[i]->first);
  }
  return std::nullopt;
}

template <typename From, typename To>
void CopyConverted(std::span<const std::byte> from, std::span<To> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(value);
  }
}

}  // namespace

uint64_t TensorRef::elements() const {
  uint64_t count = 1;
  for (const uint64_t extent : shape) count *= extent;
  return count;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  MACAW_ASSIGN_OR_RETURN(SafetensorsFile file, Parse(mapped.bytes(), path));
  file.file_ = std::move(mapped);
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes,
                                                       const std::string& name) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is not a safetensors file: ", why));
  };
  if (bytes.size() < 8) return refuse("it has fewer than 8 bytes");
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  if (header_size > kMaxHeader || header_size > bytes.size() - 8) {
    return refuse(absl::StrCat("its header of ", header_size, " bytes does not fit the file"));
  }
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  const Json header = Json::parse(text, text + header_size, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return refuse("its header is not a JSON object");
  SafetensorsFile file;
  file.path_ = name;
  const std::span<const std::byte> data = bytes.subspan(8 + header_size);
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      for (const auto& [k, v] : value.items()) {
        if (v.is_string()) file.metadata_[k] = v.get<std::string>();
      }
      continue;
    }
    absl::StatusOr<TensorRef> tensor = ParseTensor(value, data);
    if (!tensor.ok())
      return refuse(absl::StrCat("tensor \"", key, "\": ", tensor.status().message()));
    file.tensors_[key] = *std::move(tensor);
  }
  if (const auto both = Overlap(file.tensors_); both.has_value()) {
    return refuse(
        absl::StrCat("tensors \"", both->first, "\" and \"", both->second, "\" share bytes"));
  }
  return file;
}

absl::StatusOr<TensorRef> SafetensorsFile::Get(const std::string& name,
                                               absl::string_view dtype) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end())
    return absl::NotFoundError(absl::StrCat(path_, " has no tensor \"", name, "\""));
  if (!dtype.empty() && it->second.dtype != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": tensor \"", name, "\" is ", it->second.dtype, ", expected ", dtype));
  }
  return it->second;
}

std::string SafetensorsHeader(const std::vector<TensorSize>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorSize& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  text.resize((8 + text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment - 8,
              ' ');
  std::string bytes(8, '\0');
  const uint64_t size = text.size();
  std::memcpy(bytes.data(), &size, 8);
  return bytes + text;
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSize> sizes;
  for (const TensorToWrite& tensor : tensors)
    sizes.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
  MACAW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  std::string gathered = SafetensorsHeader(sizes, metadata);  // what was not written yet
  uint64_t at = 0;
  const auto write = [&](std::span<const std::byte> bytes) {
    at += bytes.size();
    return file.WriteAt(at - bytes.size(), bytes);
  };
  for (const TensorToWrite& tensor : tensors) {
    if (gathered.size() + tensor.bytes.size() <= kGathered) {
      gathered.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      continue;
    }
    MACAW_RETURN_IF_ERROR(write(BytesOf(gathered)));
    gathered.clear();
    MACAW_RETURN_IF_ERROR(write(tensor.bytes));  // a large model is not copied
  }
  MACAW_RETURN_IF_ERROR(write(BytesOf(gathered)));
  return std::move(file).Commit();
}

std::vector<TensorToWrite> TensorsOf(ConstVectorView model) {
  std::vector<TensorToWrite> tensors;
  const size_t width = SizeOf(model.dtype());
  for (const LayoutEntry& entry : model.layout->entries()) {
    tensors.push_back({.name = entry.name,
                       .dtype = model.dtype() == DType::kF32 ? "F32" : "F64",
                       .shape = {entry.shape.begin(), entry.shape.end()},
                       .bytes = model.bytes.subspan(entry.offset * width, entry.size * width)});
  }
  return tensors;
}

Digest DigestOfTensors(const std::vector<TensorToWrite>& tensors) {
  Digester digester;
  for (const TensorToWrite& tensor : tensors) digester.Add(tensor.bytes);
  return digester.Finish();
}

absl::Status WriteModel(const std::string& path, ConstVectorView model,
                        const std::map<std::string, std::string>& metadata) {
  return WriteSafetensors(path, TensorsOf(model), metadata);
}

absl::StatusOr<FlatVector> ReadModel(const std::string& path, LayoutPtr layout) {
  MACAW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& [name, tensor] : file.tensors()) {
    if (layout->Find(name) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " holds tensor \"", name, "\", which the model has not"));
    }
  }
  FlatVector model(layout);
  for (const LayoutEntry& entry : layout->entries()) {
    MACAW_ASSIGN_OR_RETURN(const TensorRef tensor, file.Get(entry.name, ""));
    if (!std::equal(tensor.shape.begin(), tensor.shape.end(), entry.shape.begin(),
                    entry.shape.end(),
                    [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", entry.name, "\" has shape [", absl::StrJoin(tensor.shape, ", "),
          "], the model expects [", absl::StrJoin(entry.shape, ", "), "]"));
    }
    if (tensor.dtype != "F32" && tensor.dtype != "F64") {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", entry.name, "\" is ",
                                                     tensor.dtype, ", expected F32 or F64"));
    }
    DispatchDType(layout->dtype(), [&]<typename T>(T) {
      const std::span<T> to = model.As<T>().subspan(entry.offset, entry.size);
      if (tensor.dtype == "F32") {
        CopyConverted<float>(tensor.bytes, to);
      } else {
        CopyConverted<double>(tensor.bytes, to);
      }
    });
  }
  return model;
}

}  // namespace macaw
