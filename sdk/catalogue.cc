#include "sdk/catalogue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/around/guard.h"
#include "algorithms/builtin.h"
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
  catalogue.algorithms_.AddBuiltin(algorithms::BuiltinAlgorithms());
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
  if (model.name == "layers" || models_.contains(model.name)) return Taken("model", model.name);
  if (!model.layers) {
    return absl::InvalidArgumentError(absl::StrCat("the model \"", model.name, "\" needs layers"));
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
  if (sources_.contains(source.name)) return Taken("data source", source.name);
  if (!source.open) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data source \"", source.name, "\" needs open"));
  }
  source.open = [inner = std::move(source.open), whose = Whose()](
                    const data::DataOptions& data, const data::PartitionOptions& partition) {
    return algorithms::Caught(whose, [&] { return inner(data, partition); });
  };
  sources_.emplace(source.name, std::move(source));
  return absl::OkStatus();
}

namespace {

// The words of a source of a plug-in's, as those of our readers are: files and messages take UTF-8.
absl::Status CheckNames(const data::Dataset& dataset, const std::string& source) {
  const auto check = [&](const char* of, const std::string& name) {
    if (IsUtf8(name)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the data source \"", source, "\" gives the name \"", EscapeToUtf8(name.substr(0, 40)),
        "\" of a ", of, ", which is not UTF-8: convert it there"));
  };
  for (const std::string& name : dataset.info().class_names)
    MACAW_RETURN_IF_ERROR(check("class", name));
  for (const std::string& name : dataset.info().feature_names)
    MACAW_RETURN_IF_ERROR(check("feature", name));
  for (uint64_t client = 0; client < dataset.info().clients; ++client)
    MACAW_RETURN_IF_ERROR(check("client", dataset.ClientName(ClientId(client))));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<data::Dataset>> Catalogue::OpenDataset(
    const data::DataOptions& data, const data::PartitionOptions& partition) const {
  const auto found = sources_.find(data.source);
  data::PartitionOptions given = partition;
  if (given.clients == 0 && given.scheme != data::kHistogramScheme)
    given.clients = data::kDefaultClients;
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<data::Dataset> dataset,
                         found == sources_.end() ? data::OpenDataset(data, partition)
                                                 : found->second.open(data, given));
  if (dataset == nullptr) {
    return absl::InternalError(absl::StrCat("the data source \"", data.source, "\" gave nothing"));
  }
  if (found != sources_.end()) MACAW_RETURN_IF_ERROR(CheckNames(*dataset, data.source));
  if (!data.input_shape.empty() && data.input_shape != dataset->info().input_shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.input_shape: the data source \"", data.source, "\" gives examples of [",
                     absl::StrJoin(dataset->info().input_shape, ", "), "]"));
  }
  if (partition.train_together) return data::TrainTogether(std::move(dataset));
  return dataset;
}

}  // namespace macaw::sdk
