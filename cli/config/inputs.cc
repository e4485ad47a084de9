#include "cli/config/inputs.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "cli/config/resolve.h"
#include "core/digest.h"
#include "core/files.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using settings::Role;

constexpr uint64_t kMostBytes = 64 << 20;
constexpr uint64_t kSamples = 64;

// Adds the size of a file, and its bytes. Of more than `most` bytes it adds samples.
bool AddFile(const std::string& path, uint64_t most, Digester& digester) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return false;
  digester.Add(size);
  if (size == 0) return true;
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return false;
  const auto bytes = file->bytes();
  if (bytes.size() <= most) {
    digester.Add(bytes);
    return true;
  }
  const uint64_t length = std::max<uint64_t>(1, most / kSamples);
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t begin = (bytes.size() - length) / (kSamples - 1) * i;
    digester.Add(bytes.subspan(begin, length));
  }
  // The division above rounds down, so the last sample may stop before the end.
  digester.Add(bytes.last(length));
  return true;
}

// The files in a folder and in those below it, sorted.
std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_regular_file(error)) files.push_back(at->path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> PathsIn(const settings::Value& value) {
  if (const std::string* path = value.As<std::string>(); path != nullptr) return {*path};
  std::vector<std::string> paths;
  if (const auto* items = value.As<settings::Array>(); items != nullptr) {
    for (const settings::Value& item : *items) {
      if (const std::string* path = item.As<std::string>(); path != nullptr) paths.push_back(*path);
    }
  }
  return paths;
}

// The member "identity" of a JSON file that the word names: what Python says of the functions of
// train= and loss= (python/macaw/_identity.py). "": it names no such file.
std::string IdentityIn(const std::string& word) {
  constexpr uint64_t kMostOfJson = 16 << 20;
  std::error_code error;
  if (!absl::EndsWith(word, ".json") || !fs::is_regular_file(word, error)) return "";
  if (const uint64_t size = fs::file_size(word, error); error || size > kMostOfJson) return "";
  const absl::StatusOr<std::string> text = ReadFile(word);
  if (!text.ok()) return "";
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  const auto found = json.find("identity");
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::vector<NamedInput> InputsOf(const Config& config) {
  std::vector<NamedInput> inputs;
  for (const Field& field : AllFields()) {
    if (!field.is_path || field.key == "run.out" || field.key == "state.path") continue;
    const std::optional<settings::Value> value = field.Shown(config);
    if (!value.has_value()) continue;
    for (const std::string& path : PathsIn(*value)) {
      if (path.empty() || settings::Contains(field.choices, path)) continue;
      inputs.push_back({field.key, field.key == "model.init" ? InitFileOf(config) : path});
    }
  }
  return inputs;
}

std::string DigestOfInput(const std::string& path) {
  std::error_code error;
  Digester digester;
  if (fs::is_directory(path, error)) {
    const std::vector<std::string> files = FilesBelow(path);
    uint64_t total = 0;
    for (const std::string& file : files) total += fs::file_size(file, error);
    const uint64_t most = total <= kMostBytes ? kMostBytes : kMostBytes / files.size();
    for (const std::string& file : files) {
      digester.Add(absl::string_view(fs::path(file).lexically_relative(path).generic_string()));
      if (!AddFile(file, most, digester)) return "";
    }
  } else if (!AddFile(path, kMostBytes, digester)) {
    return "";
  }
  return digester.Finish().Hex().substr(0, kInputDigits);
}

const std::string& InputDigests::Of(const std::string& path) {
  const auto known = by_path_.find(path);
  if (known != by_path_.end()) return known->second;
  return by_path_[path] = DigestOfInput(path);
}

std::string InputDigests::Json(const Config& config) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::object();
  for (const Field& field : AllFields()) {
    if (!field.is_path || field.role != Role::kResult) continue;
    const std::optional<settings::Value> value = field.Shown(config);
    if (!value.has_value()) continue;
    std::string digests;
    for (const std::string& path : PathsIn(*value)) {
      const bool is_file = !path.empty() && !settings::Contains(field.choices, path);
      digests += is_file ? Of(path) : "";
    }
    if (!digests.empty()) inputs[field.key] = digests;
  }
  std::string functions;
  for (const std::string& word : config.node.workers.backend.program.command)
    functions += IdentityIn(word);
  if (!functions.empty()) inputs["workers.command"] = functions;
  return inputs.dump();
}

}  // namespace macaw::cli
