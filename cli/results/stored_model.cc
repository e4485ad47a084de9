#include "cli/results/stored_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "server/base_file.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kBaseFile[] = "base.safetensors";

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> OpenTensors(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  return std::make_shared<const SafetensorsFile>(std::move(file));
}

// The newest checkpoint, and its round; "": there is none.
std::pair<std::string, uint64_t> NewestCheckpoint(const std::string& run) {
  std::pair<std::string, uint64_t> newest;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run + "/checkpoints", ignored)) {
    const std::string stem = entry.path().stem().string();
    uint64_t round = 0;
    if (!stem.starts_with("round-") || entry.path().extension() != ".safetensors" ||
        !absl::SimpleAtoi(stem.substr(6), &round))
      continue;
    if (newest.first.empty() || round > newest.second) newest = {entry.path().string(), round};
  }
  return newest;
}

// The file of the newest model in a run's folder.
absl::StatusOr<std::string> NewestIn(const std::string& run) {
  const auto [checkpoint, round] = NewestCheckpoint(run);
  const std::string last = run + "/model.safetensors";
  if (FileExists(last) && FileExists(run + "/summary.json")) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(run + "/summary.json"));
    const Json summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto rounds = summary.is_object() ? summary.find("rounds") : summary.end();
    const bool known = rounds != summary.end() && rounds->is_number_unsigned();
    if (checkpoint.empty() || (known && round <= rounds->get<uint64_t>())) return last;
  }
  if (!checkpoint.empty()) return checkpoint;
  return MissingFile(
      run + "/config.toml",
      absl::StrCat(run, FileExists(run + "/config.toml")
                            ? " has no model yet: a run keeps one with each checkpoint "
                              "(run.checkpoint_every) and when it ends"
                            : " is no run's folder"));
}

// The folder of the run whose file it is; "": of none.
std::string RunOf(const std::string& file) {
  fs::path folder = fs::path(file).parent_path();
  if (folder.filename() == "checkpoints") folder = folder.parent_path();
  if (folder.empty()) folder = ".";
  return FileExists((folder / "config.toml").string()) ? folder.string() : "";
}

// The digest of the base that the file lacks; "": it does not say that it lacks one.
std::string LackedBase(const SafetensorsFile& file) {
  if (const auto base = file.metadata().find("base"); base != file.metadata().end())
    return base->second;
  const auto text = file.metadata().find("macaw");
  if (text == file.metadata().end()) return "";
  const Json about = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  return about.is_object() && about.contains("base") && about["base"].is_string()
             ? about["base"].get<std::string>()
             : "";
}

absl::Status AddBase(const std::string& path, const std::string& lacked, StoredModel& model) {
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsFile> base, OpenTensors(path));
  const auto digest = base->metadata().find("digest");
  if (!lacked.empty() && digest != base->metadata().end() && digest->second != lacked) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not the base of ", model.file,
                                                      ", which names ", lacked, ": it is ",
                                                      digest->second));
  }
  for (const auto& [name, tensor] : base->tensors()) {
    const bool added = model.tensors.emplace(name, tensor).second;
    if (added || lacked.empty()) model.frozen.insert(name);
    if (!added && !lacked.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " and ", model.file, " both have the tensor \"", name, "\""));
    }
  }
  model.storage.push_back(base);
  return absl::OkStatus();
}

// Of a model that is whole, in the folder of a run: which of its tensors were frozen.
void MarkFrozen(const std::string& path, StoredModel& model) {
  if (!server::IsKeptBase(path)) return;
  const absl::StatusOr<SafetensorsFile> base = SafetensorsFile::Open(path);
  if (!base.ok()) return;
  for (const auto& [name, tensor] : base->tensors()) {
    if (model.tensors.contains(name)) model.frozen.insert(name);
  }
}

}  // namespace

uint64_t StoredModel::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes.size();
  return bytes;
}

absl::StatusOr<std::map<std::string, TensorRef>> TensorsOfCheckpoint(const SafetensorsFile& file) {
  std::map<std::string, TensorRef> tensors;
  const auto text = file.metadata().find("macaw");
  if (text == file.metadata().end()) return tensors;
  const Json about = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  if (!about.is_object() || !about.contains("tensors") || !about["tensors"].is_array())
    return tensors;
  const std::string which = about.contains("model") && about["model"].is_string()
                                ? about["model"].get<std::string>()
                                : "model";
  const auto vector = file.tensors().find(which);
  if (vector == file.tensors().end()) return tensors;
  const std::string& dtype = vector->second.dtype;
  if (dtype != "F32" && dtype != "F64") {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": the vector \"", which, "\" is ",
                                                   dtype, ", and a model is F32 or F64"));
  }
  const uint64_t size = dtype == "F64" ? 8 : 4;
  using Tensors = std::map<std::string, TensorRef>;
  for (const Json& one : about["tensors"]) {
    const bool well_formed = one.is_array() && one.size() == 3 && one[0].is_string() &&
                             one[1].is_number_unsigned() && one[2].is_array();
    if (!well_formed) return Tensors();
    TensorRef tensor{.dtype = dtype, .shape = {}, .bytes = {}};
    for (const Json& extent : one[2]) {
      if (!extent.is_number_unsigned()) return Tensors();
      tensor.shape.push_back(extent.get<uint64_t>());
    }
    const uint64_t first = one[1].get<uint64_t>(), all = vector->second.elements();
    uint64_t elements = 1;
    for (const uint64_t extent : tensor.shape) {
      if (extent != 0 && elements > all / extent) return Tensors();
      elements *= extent;
    }
    if (first > all || elements > all - first) return Tensors();
    tensor.bytes = vector->second.bytes.subspan(first * size, elements * size);
    tensors[one[0].get<std::string>()] = std::move(tensor);
  }
  return tensors;
}

absl::StatusOr<StoredModel> OpenStoredModel(const std::string& path, const std::string& base) {
  StoredModel model{.file = path, .run = ""};
  std::error_code ignored;  // what cannot be seen cannot be opened either, which says why
  if (fs::is_directory(path, ignored)) {
    MACAW_ASSIGN_OR_RETURN(model.file, NewestIn(path));
  }
  model.run = RunOf(model.file);
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsFile> file,
                         OpenTensors(model.file));
  model.storage.push_back(file);
  const bool is_checkpoint = file->metadata().contains("macaw");
  if (is_checkpoint) {
    MACAW_ASSIGN_OR_RETURN(model.tensors, TensorsOfCheckpoint(*file));
  } else {
    model.tensors = file->tensors();
  }
  if (model.tensors.empty()) {
    return absl::NotFoundError(absl::StrCat(
        model.file, is_checkpoint ? ": its rule has no common model" : " has no tensors"));
  }
  const std::string lacked = LackedBase(*file);
  if (!base.empty()) {
    MACAW_RETURN_IF_ERROR(AddBase(base, lacked, model));
    return model;
  }
  if (lacked.empty()) {
    if (!model.run.empty()) MarkFrozen(server::BaseFileIn(model.run), model);
    return model;
  }
  const fs::path folder =
      model.run.empty() ? fs::path(model.file).parent_path() : fs::path(model.run);
  const std::string beside = folder.empty() ? kBaseFile : server::BaseFileIn(folder.string());
  if (!server::IsKeptBase(beside)) {
    return absl::NotFoundError(absl::StrCat(
        model.file, " has the trained tensors alone, and ", beside, " with the others ",
        FileExists(beside) ? "is no file of a run" : "is not there", ": name it with --base"));
  }
  MACAW_RETURN_IF_ERROR(AddBase(beside, lacked, model));
  return model;
}

}  // namespace macaw::cli
