#include "models/script.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::models {
namespace {

absl::StatusOr<LayoutEntry> ParseTensor(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  const bool buffer = words[0] == "buffer";
  LayoutEntry entry{.group = buffer ? Group::kBuffer : Group::kParameter};
  bool good = words.size() >= 2 && (buffer || words[0] == "parameter") && !words[1].empty();
  for (size_t i = 2; good && i < words.size(); ++i) {
    int64_t extent = 0;
    good = absl::SimpleAtoi(words[i], &extent) && extent > 0;
    entry.shape.push_back(extent);
  }
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.tensors has the line \"", line,
                     "\", which is not \"parameter NAME EXTENT...\" or \"buffer NAME EXTENT...\""));
  }
  entry.name = words[1];
  return entry;
}

}  // namespace

std::string TensorLine(const LayoutEntry& entry) {
  return absl::StrCat(entry.group == Group::kBuffer ? "buffer " : "parameter ", entry.name,
                      entry.shape.empty() ? "" : " ", absl::StrJoin(entry.shape, " "));
}

absl::StatusOr<ModelSpec> BuildScriptSpec(const ModelConfig& config, DType dtype) {
  std::vector<LayoutEntry> entries;
  for (const std::string& line : config.tensors) {
    MACAW_ASSIGN_OR_RETURN(LayoutEntry entry, ParseTensor(line));
    if (entry.group == Group::kParameter && !entries.empty() &&
        entries.back().group == Group::kBuffer) {
      return absl::InvalidArgumentError("model.tensors has a parameter behind a buffer");
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty() || entries.front().group == Group::kBuffer) {
    return absl::InvalidArgumentError(
        "model.tensors names no parameter of the module: start from the config.toml that `macaw "
        "simulate` writes, which lists them");
  }
  if (!config.bias || config.buffers == "local") {
    return absl::InvalidArgumentError(
        "model.bias = false and model.buffers = \"local\" are for models that are made of layers");
  }
  ModelSpec spec{.name = config.name, .input_shape = config.input_shape, .outputs = config.classes};
  spec.move_buffers = config.buffers != "server";
  MACAW_ASSIGN_OR_RETURN(spec.layout, ParameterLayout::Make(std::move(entries), dtype));
  return spec;
}

absl::StatusOr<std::shared_ptr<const std::string>> ReadScript(const std::string& path,
                                                              const std::string& digest) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "the run's model is a scripted module, and this node's configuration names no file: set "
        "model.torchscript to the same module's");
  }
  MACAW_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  const std::string own = DigestOf(bytes).Hex();
  if (own != digest) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the run's scripted module: its digest is ", own,
                     ", the run's is ", digest, "; copy the file that the run began with"));
  }
  return std::make_shared<const std::string>(std::move(bytes));
}

}  // namespace macaw::models
