#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/registry.h"
#include "cli/commands/commands.h"
#include "cli/config/reader.h"
#include "cli/process/exit.h"
#include "core/status.h"
#include "data/dataset.h"
#include "data/partition_file.h"
#include "data/prepared.h"

namespace macaw::cli {
namespace {

absl::StatusOr<std::unique_ptr<data::Dataset>> Open(const DataCommand& command) {
  if (absl::EndsWith(command.source, ".safetensors")) {
    data::DataOptions options;
    options.source = "prepared";
    options.path = command.source;
    return data::OpenDataset(options, {});
  }
  std::vector<Override> overrides;
  for (const std::string& text : command.set) {
    MACAW_ASSIGN_OR_RETURN(Override override, ParseOverride(text));
    overrides.push_back(std::move(override));
  }
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(command.source, overrides));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadDataConfig(command.source, overrides, catalogue));
  return catalogue.OpenDataset(config.data, config.partition);
}

void PrintInfo(const data::Dataset& dataset) {
  const data::DatasetInfo& info = dataset.info();
  std::vector<uint32_t> sizes;
  uint64_t validation = 0, test = 0;
  for (uint64_t client = 0; client < info.clients; ++client) {
    sizes.push_back(dataset.Examples(ClientId(client), data::Split::kTrain));
    validation += dataset.Examples(ClientId(client), data::Split::kValidation);
    test += dataset.Examples(ClientId(client), data::Split::kTest);
  }
  std::sort(sizes.begin(), sizes.end());
  const auto quantile = [&](double q) {
    return sizes.empty() ? 0
                         : sizes[static_cast<size_t>(q * static_cast<double>(sizes.size() - 1))];
  };
  const auto line = [](absl::string_view what, absl::string_view text) {
    std::cout << absl::StrFormat("%-20s %s\n", what, text);
  };
  const char* types[] = {"u8", "f32", "i32"};
  line("data", info.name);
  line("example", absl::StrCat(types[static_cast<size_t>(info.feature_type)], " [",
                               absl::StrJoin(info.input_shape, ", "), "], ",
                               info.classes > 0 ? absl::StrCat(info.classes, " classes")
                                                : "a number to predict"));
  line("clients", absl::StrCat(info.clients));
  line("training examples", absl::StrCat(info.train_examples));
  line("a client's share",
       absl::StrCat(quantile(0), " at least, ", quantile(0.1), " / ", quantile(0.5), " / ",
                    quantile(0.9), " at 10 / 50 / 90 %, ", quantile(1), " at most"));
  if (info.mean_classes_per_client > 0) {
    line("classes per client", absl::StrFormat("%.2f on average", info.mean_classes_per_client));
  }
  line("clients' own", absl::StrCat(validation, " validation and ", test, " test examples"));
  line("central test", absl::StrCat(info.test_examples, " examples"));
  line("normalisation", absl::StrFormat("scale %.6g, mean [%s], std [%s]", info.transform.scale,
                                        absl::StrJoin(info.transform.mean, ", "),
                                        absl::StrJoin(info.transform.std, ", ")));
  line("digest", info.digest.Hex());
}

}  // namespace

int DataInfo(const DataCommand& command) {
  const auto dataset = Open(command);
  if (!dataset.ok()) return Report(dataset.status());
  PrintInfo(**dataset);
  return kExitOk;
}

int DataPrepare(const DataCommand& command) {
  const auto dataset = Open(command);
  if (!dataset.ok()) return Report(dataset.status());
  if (const absl::Status status = data::WritePrepared(**dataset, command.out); !status.ok())
    return Report(status);
  std::cout << command.out << ": " << (*dataset)->info().clients << " clients, "
            << (*dataset)->info().train_examples
            << " training examples; use it with [data] source = \"prepared\"\n";
  return kExitOk;
}

int DataExportPartition(const DataCommand& command) {
  const auto dataset = Open(command);
  if (!dataset.ok()) return Report(dataset.status());
  if (const absl::Status status = data::ExportPartition(**dataset, command.out); !status.ok())
    return Report(status);
  std::cout << command.out << ": the rows of " << (*dataset)->info().clients
            << " clients; use it with [partition] scheme = \"file\"\n";
  return kExitOk;
}

}  // namespace macaw::cli
