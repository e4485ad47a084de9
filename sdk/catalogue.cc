#include "sdk/catalogue.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/guard.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/together.h"

namespace macaw::sdk {
namespace {

absl::Status Taken(absl::string_view kind, absl::string_view name) {
  return absl::AlreadyExistsError(absl::StrCat("the ", kind, " \"", name, "\" exists already"));
}

absl::Status CheckName(absl::string_view kind, const std::string& name) {
  for (const char c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the ", kind, " \"", name, "\": a name has small letters, digits, _ and - only"));
    }
  }
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat("a ", kind, " has no name"));
  return absl::OkStatus();
}

}  // namespace

Catalogue Catalogue::Builtins() {
  Catalogue catalogue;
  algorithms::RegisterBuiltinAlgorithms(catalogue.algorithms_);
  return catalogue;
}

absl::Status Catalogue::AddAlgorithm(algorithms::Description description) {
  MACAW_RETURN_IF_ERROR(CheckName("algorithm", description.name));
  if (!description.schema || !description.server || !description.client) {
    return absl::InvalidArgumentError(
        absl::StrCat("the algorithm \"", description.name, "\" needs schema, server and client"));
  }
  description.plugin = loading_;
  return algorithms_.Add(std::move(description));
}

absl::Status Catalogue::AddModel(ModelSource model) {
  MACAW_RETURN_IF_ERROR(CheckName("model", model.name));
  for (const models::NamedModel& named : models::NamedModels()) {
    if (named.name == model.name) return Taken("model", model.name);
  }
  if (!model.layers || model.name == "layers" || models_.contains(model.name)) {
    return Taken("model", model.name);
  }
  model.layers = [inner = std::move(model.layers), whose = Whose()](
                     const std::vector<int64_t>& input_shape, int64_t outputs) {
    return algorithms::Caught(whose, [&] { return inner(input_shape, outputs); });
  };
  models_.emplace(model.name, std::move(model));
  return absl::OkStatus();
}

absl::Status Catalogue::AddDataSource(DataSource source) {
  MACAW_RETURN_IF_ERROR(CheckName("data source", source.name));
  for (const data::Choice& choice : data::DataSources()) {
    if (choice.name == source.name) return Taken("data source", source.name);
  }
  if (!source.open || sources_.contains(source.name)) return Taken("data source", source.name);
  source.open = [inner = std::move(source.open), whose = Whose()](
                    const data::DataOptions& data, const data::PartitionOptions& partition) {
    return algorithms::Caught(whose, [&] { return inner(data, partition); });
  };
  sources_.emplace(source.name, std::move(source));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<data::Dataset>> Catalogue::OpenDataset(
    const data::DataOptions& data, const data::PartitionOptions& partition) const {
  const auto found = sources_.find(data.source);
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<data::Dataset> dataset,
                         found == sources_.end() ? data::OpenDataset(data, partition)
                                                 : found->second.open(data, partition));
  if (dataset == nullptr) {
    return absl::InternalError(absl::StrCat("the data source \"", data.source, "\" gave nothing"));
  }
  for (const auto* words : {&dataset->info().class_names, &dataset->info().feature_names}) {
    for (const std::string& word : *words) {
      if (IsUtf8(word)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the data source \"", data.source, "\" gives the name \"", absl::Utf8SafeCHexEscape(word),
          "\" of a class or feature, which is not UTF-8: convert it there"));
    }
  }
  if (!data.input_shape.empty() && data.input_shape != dataset->info().input_shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.input_shape: the data source \"", data.source, "\" gives examples of [",
                     absl::StrJoin(dataset->info().input_shape, ", "), "]"));
  }
  if (partition.train_together) return data::TrainTogether(std::move(dataset));
  return dataset;
}

}  // namespace macaw::sdk
