#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "algorithms/around/registry.h"
#include "cli/commands/commands.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/named_file.h"
#include "core/status.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/dataset.h"
#include "data/detect.h"
#include "data/finite_features.h"
#include "data/overlap.h"
#include "data/partition_file.h"
#include "data/prepared.h"
#include "data/source_file.h"
#include "data/subset.h"

namespace macaw::cli {
namespace {

// The data to show: a configuration, of which only [data] and [partition] matter, or a data file or
// folder whose format can be recognised.
struct DataCommand {
  std::string source;
  std::vector<std::string> set;
  std::string out;
  bool force = false;  // overwrite `out` if it exists
};

struct Opened {
  Config config;  // [data] as configured, with the data's own constants filled in
  std::unique_ptr<data::Dataset> dataset;
  std::vector<std::string> class_names;  // as data.class_names gives them, or the data's own
  bool undivided = false;                // the data has no clients, and no key divides it
};

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

// Whether the file is a configuration (TOML that names the data) and not the data itself.
absl::StatusOr<bool> IsConfiguration(const std::string& path) {
  if (absl::EndsWith(path, ".toml")) return true;
  if (std::filesystem::is_directory(path)) return false;
  MACAW_ASSIGN_OR_RETURN(const std::string head, data::ReadHead(path, 4096));
  return absl::StartsWith(head, "[data]") || absl::StrContains(head, "\n[data]");
}

// The keys that say how a text is read, as far as they are given. What they do not take is refused
// once the source is known.
data::DataOptions KeysOfTexts(const std::vector<Override>& given) {
  data::DataOptions keys;
  for (const Override& override : given) {
    absl::string_view value = override.value;
    if (value.size() > 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    if (override.key == "data.separator") keys.separator = std::string(value);
    if (override.key == "data.unreadable_rows")
      keys.unreadable_rows = ParseNumber(value).value_or(0);
  }
  return keys;
}

// What a command needs of the partition.
enum class Division : uint8_t {
  kAsConfigured,
  kNone,  // the rows are looked at: where no key says how to divide them, they are one client's
};

absl::StatusOr<Opened> Open(const DataCommand& command,
                            Division division = Division::kAsConfigured) {
  MACAW_RETURN_IF_ERROR(data::CheckExists(command.source));
  std::vector<Override> overrides;
  std::string file = command.source;
  MACAW_ASSIGN_OR_RETURN(const bool configuration, IsConfiguration(command.source));
  MACAW_ASSIGN_OR_RETURN(std::vector<Override> given, ParseOverrides(command.set));
  if (!configuration) {
    const bool says_source = std::ranges::any_of(
        given, [](const Override& override) { return override.key == "data.source"; });
    if (!says_source) {
      MACAW_ASSIGN_OR_RETURN(const std::string source,
                             data::DetectSource(command.source, KeysOfTexts(given)));
      overrides.push_back({"data.source", Quoted(source), command.source});
    }
    overrides.push_back({"data.path", Quoted(command.source), command.source});
    file.clear();
  }
  overrides.insert(overrides.end(), given.begin(), given.end());
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(file));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  Opened opened;
  MACAW_ASSIGN_OR_RETURN(opened.config, ReadNodeConfig(document, overrides, catalogue));
  data::PartitionOptions partition = opened.config.node.partition;
  const bool undivided =
      division == Division::kNone && partition.clients == 0 && partition.scheme == "auto";
  if (undivided) partition.clients = 1;
  MACAW_ASSIGN_OR_RETURN(opened.dataset, catalogue.OpenDataset(opened.config.node.data, partition));
  opened.undivided = undivided && opened.dataset->info().divided;
  MACAW_ASSIGN_OR_RETURN(
      opened.class_names,
      data::NamesOfClasses(opened.config.node.data.class_names, opened.dataset->info()));
  FillNormalise(opened.config.run.transform, opened.dataset->info());
  return opened;
}

// Refuses to overwrite an existing file by accident.
absl::Status CheckOut(const DataCommand& command) {
  std::error_code error;
  if (std::filesystem::is_directory(command.out, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.out, " is a folder; --out names the file to write"));
  }
  if (command.force || !std::filesystem::is_regular_file(command.out, error))
    return absl::OkStatus();  // a device or a pipe is not replaced
  return absl::InvalidArgumentError(
      absl::StrCat(command.out, " exists already; --force replaces it"));
}

// "a, b, c, ... (12 in all)"
std::string ListText(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  const auto end = names.begin() + static_cast<ptrdiff_t>(std::min(kShown, names.size()));
  return absl::StrCat(
      absl::StrJoin(names.begin(), end, ", "),
      names.size() > kShown ? absl::StrCat(", ... (", names.size(), " in all)") : "");
}

void PrintNotes(const data::Dataset& dataset) {
  for (const std::string& note : dataset.info().notes) std::cout << "note: " << note << "\n";
  constexpr uint64_t kMostValues = 4'000'000'000;  // some seconds
  const std::string overlap = data::OverlapNote(dataset, kMostValues);
  if (!overlap.empty()) std::cout << "note: " << overlap << "\n";
}

void PrintInfo(const Opened& opened) {
  const data::Dataset& dataset = *opened.dataset;
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
  if (!info.feature_names.empty()) line("features", ListText(info.feature_names));
  if (!opened.class_names.empty()) line("classes", ListText(opened.class_names));
  line("clients", opened.undivided
                      ? absl::StrCat("none of its own: [partition] divides the rows (by default ",
                                     "among ", data::kDefaultClients, ", at random)")
                      : absl::StrCat(info.clients));
  line("training examples",
       absl::StrCat(
           info.train_examples,
           info.train_tokens == 0 ? "" : absl::StrCat(", ", info.train_tokens, " tokens in use")));
  if (!opened.undivided)
    line("a client's share",
         absl::StrCat(quantile(0), " at least, ", quantile(0.1), " / ", quantile(0.5), " / ",
                      quantile(0.9), " at 10 / 50 / 90 %, ", quantile(1), " at most"));
  if (info.mean_classes_per_client > 0 && !opened.undivided) {
    line("classes per client", absl::StrFormat("%.2f on average", info.mean_classes_per_client));
  }
  line("clients' own", absl::StrCat(validation, " validation and ", test, " test examples"));
  line("central test", absl::StrCat(info.test_examples, " examples"));
  if (info.val_examples > 0)
    line("central validation", absl::StrCat(info.val_examples, " examples"));
  if (info.feature_type != data::FeatureType::kI32)
    line("normalise", NormaliseText(opened.config.run.transform));
  if (!opened.undivided) line("digest", info.digest.Hex());
  PrintNotes(dataset);
}

int DataInfo(const DataCommand& command) {
  const absl::StatusOr<Opened> opened = Open(command, Division::kNone);
  if (!opened.ok()) return Report(opened.status());
  if (opened->config.node.data.source == "prepared") {  // other sources have read their rows
    const absl::Status status = data::LoadEachClient(*opened->dataset);
    if (!status.ok()) return Report(status);
  }
  PrintInfo(*opened);
  return kExitOk;
}

int DataPrepare(const DataCommand& command) {
  if (const absl::Status status = CheckOut(command); !status.ok()) return Report(status);
  const absl::StatusOr<Opened> opened = Open(command);
  if (!opened.ok()) return Report(opened.status());
  const absl::Status status = WriteNamedFile(command.out, [&](const std::string& path) {
    return data::WritePrepared(*opened->dataset, path, opened->class_names);
  });
  if (!status.ok()) return Report(status);
  std::cout << command.out << ": " << opened->dataset->info().clients << " clients, "
            << opened->dataset->info().train_examples
            << " training examples; use it with [data] source = \"prepared\"\n";
  PrintNotes(*opened->dataset);
  return kExitOk;
}

// The files of `macaw data shards`, one a client, in the order of the clients. Refuses a client
// whose name is none for a file.
absl::StatusOr<std::vector<std::string>> ShardFiles(const std::string& folder,
                                                    const data::Dataset& dataset) {
  std::vector<std::string> files;
  for (uint64_t client = 0; client < dataset.info().clients; ++client) {
    const std::string name = dataset.ClientName(ClientId(client));
    if (name.empty() || name[0] == '.' || absl::StrContains(name, '/')) {
      return absl::InvalidArgumentError(absl::StrCat("a file cannot be named like client \"",
                                                     EscapeToUtf8(name), "\": nothing is written"));
    }
    files.push_back(absl::StrCat(folder, "/", name, ".safetensors"));
  }
  return files;
}

// Refuses a folder with files of another division, which a rehearsal would take for clients of this
// one.
absl::Status CheckNoOthers(const std::string& folder, const std::vector<std::string>& files) {
  const std::set<std::string> own(files.begin(), files.end());
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".safetensors" &&
        !own.contains(absl::StrCat(folder, "/", name))) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder, " has ", EscapeToUtf8(name), ", which is of no client of this division: remove ",
          "it, or choose another folder. Nothing is written"));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteShard(const Opened& opened, uint64_t client, const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(
      const std::unique_ptr<data::Dataset> shard,
      data::SubsetOf(*opened.dataset, {.begin = client, .end = client + 1, .central_test = false}));
  return data::WritePrepared(*shard, file, opened.class_names);
}

// Writes the files. If one cannot be written, those that were not there before are taken away.
absl::Status WriteShards(const Opened& opened, const std::vector<std::string>& files) {
  std::vector<std::string> added;
  for (uint64_t client = 0; client < files.size(); ++client) {
    if (!FileExists(files[client])) added.push_back(files[client]);
    const absl::Status status = WriteShard(opened, client, files[client]);
    if (status.ok()) continue;
    std::error_code ignored;
    for (const std::string& file : added) std::filesystem::remove(file, ignored);
    return Annotate(status, absl::StrCat("client ", opened.dataset->ClientName(ClientId(client))));
  }
  return absl::OkStatus();
}

// Writes a prepared file for each client into the folder `out`: NAME.safetensors, as its owner
// would have it.
int DataShards(const DataCommand& command) {
  const auto write = [&]() -> absl::StatusOr<uint64_t> {
    std::error_code error;
    const bool there = std::filesystem::exists(command.out, error);
    if (there && !command.force) {
      return absl::InvalidArgumentError(
          absl::StrCat(command.out, " exists already; --force writes into it"));
    }
    MACAW_ASSIGN_OR_RETURN(const Opened opened, Open(command));
    MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                           ShardFiles(command.out, *opened.dataset));
    MACAW_RETURN_IF_ERROR(CheckNoOthers(command.out, files));
    MACAW_RETURN_IF_ERROR(MakeDirectories(command.out));
    const absl::Status written = WriteShards(opened, files);
    if (!written.ok() && !there) std::filesystem::remove(command.out, error);
    MACAW_RETURN_IF_ERROR(written);
    return files.size();
  };
  const absl::StatusOr<uint64_t> written = write();
  if (!written.ok()) return Report(written.status());
  std::cout << *written << " files in " << command.out << ", one a client: [data] source = "
            << "\"prepared\", path = …, and node.owner = true" << std::endl;
  return kExitOk;
}

int DataExportPartition(const DataCommand& command) {
  if (const absl::Status status = CheckOut(command); !status.ok()) return Report(status);
  const absl::StatusOr<Opened> opened = Open(command);
  if (!opened.ok()) return Report(opened.status());
  const absl::Status status = WriteNamedFile(command.out, [&](const std::string& path) {
    return data::ExportPartition(*opened->dataset, path);
  });
  if (!status.ok()) return Report(status);
  std::cout << command.out << ": the rows of " << opened->dataset->info().clients
            << " clients; use it with [partition] scheme = \"file\"\n";
  return kExitOk;
}

}  // namespace

void AddData(CLI::App& app, std::function<int()>& run) {
  CLI::App* data = app.add_subcommand("data", "Look at, convert and export data");
  data->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help, bool writes,
                       int (*action)(const DataCommand&)) {
    CLI::App* command = data->add_subcommand(name, help);
    auto options = std::make_shared<DataCommand>();
    command
        ->add_option("SOURCE", options->source,
                     "A configuration with [data] (and [partition]), or a data file or folder")
        ->required();
    command->add_option("--set", options->set, "Change a key: section.key=value")
        ->allow_extra_args(false);
    if (writes) {
      command->add_option("--out,-o", options->out, "The file (shards: the folder) to write")
          ->required();
      command->add_flag("--force", options->force, "Replace what is there");
    }
    command->final_callback([=, &run] { run = [options, action] { return action(*options); }; });
  };
  add("info", "Clients, examples, shapes, classes", false, DataInfo);
  add("prepare", "Write one file that is mapped, not read (safetensors)", true, DataPrepare);
  add("shards", "Write a file for each client, for a rehearsal of a fleet", true, DataShards);
  add("export-partition", "Write which rows each client has (JSON)", true, DataExportPartition);
}

}  // namespace macaw::cli
