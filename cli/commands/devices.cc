#include "cli/config/devices.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/checks.h"
#include "cli/commands/commands.h"
#include "cli/config/drawable.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/process/exit.h"
#include "cli/simulate/planned_work.h"
#include "core/spelling.h"
#include "core/status.h"
#include "data/dataset.h"
#include "server/engine/timed_round.h"
#include "virtual_time/devices.h"
#include "virtual_time/phones.h"
#include "virtual_time/table.h"

namespace macaw::cli {
namespace {

// Shows what devices the clients of a configuration have, and how long their turns take.
struct DevicesCommand {
  std::string source;
  std::vector<std::string> set;
  std::optional<double> bytes;  // each way; unset: the model's
};

constexpr uint64_t kMostClients = 100'000;  // that are looked at; some tenths of a second

// The devices of a run, and what is needed for a turn of a client in the middle.
struct Shown {
  Config config;
  std::unique_ptr<virtual_time::Devices> devices;
  std::unique_ptr<virtual_time::Presence> presence;
  std::string tables;  // "200 devices of devices.csv"
  uint64_t clients = 0;
  double passed = 0;              // examples through the model in a turn of round 1, median
  virtual_time::Traffic traffic;  // of round 1
};

std::string KindText(const Config& config, const virtual_time::Tables& tables) {
  const DevicesConfig& devices = config.run.devices;
  std::string text = devices.family;
  if (devices.family == "phones") {
    absl::StrAppend(&text, ": ", virtual_time::Phones().size(), " phones, ",
                    virtual_time::kNetworkCount, " networks");
  }
  if (tables.devices != nullptr) {
    absl::StrAppend(&text, ": ", Counted(tables.devices->devices.size(), "device"), " of ",
                    tables.devices->file);
  }
  if (tables.presence != nullptr) {
    absl::StrAppend(&text, "; presence of ", Counted(tables.presence->names.size(), "device"),
                    " of ", tables.presence->file);
  }
  return text;
}

absl::StatusOr<double> MedianPassed(const Config& config, const data::Dataset& dataset,
                                    RowsOfTurn passes) {
  const bool owners = config.node.workers.owners > 0;
  RunPlan run = config.run;  // a whole cohort of it, whoever is in time
  run.devices = {};
  run.asynchronous = {};
  MACAW_ASSIGN_OR_RETURN(
      const TurnPlan plan,
      TurnPlan::Make(
          run, DrawableRows(config.run, dataset, owners ? MatchedBy::kNumber : MatchedBy::kName),
          /*devices=*/{}, /*first=*/{}, std::move(passes)));
  std::vector<double> passed;
  for (const PlannedTurn& turn : plan.Of(Round(1))) passed.push_back(turn.passed);
  if (passed.empty()) return 0.0;
  const auto middle = passed.begin() + static_cast<ptrdiff_t>(passed.size() / 2);
  std::nth_element(passed.begin(), middle, passed.end());
  return *middle;
}

absl::StatusOr<Shown> Open(const DevicesCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<Override> overrides, ParseOverrides(command.set));
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(command.source));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  Shown found;
  MACAW_ASSIGN_OR_RETURN(found.config, ReadConfig(document, overrides, catalogue));
  Config& config = found.config;
  if (!config.run.devices.on()) {
    return absl::InvalidArgumentError(absl::StrCat(
        command.source,
        " has no devices: devices.family is \"none\". Try --set devices.family=", "phones"));
  }
  MACAW_RETURN_IF_ERROR(CheckNamesData(config));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  MACAW_RETURN_IF_ERROR(Resolve(config, *dataset, catalogue));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_ASSIGN_OR_RETURN(const virtual_time::Tables tables, ReadDevices(config));
  found.tables = KindText(config, tables);
  found.clients = dataset->info().clients;
  const bool owners = config.node.workers.owners > 0;
  const virtual_time::Population population{.clients = found.clients, .name = [&](ClientId client) {
                                              return owners ? absl::StrCat(client.value)
                                                            : dataset->ClientName(client);
                                            }};
  MACAW_ASSIGN_OR_RETURN(found.devices,
                         virtual_time::MakeDevices(config.run.devices, tables, population));
  MACAW_ASSIGN_OR_RETURN(found.presence,
                         virtual_time::MakePresence(config.run.devices, tables, population));
  MACAW_ASSIGN_OR_RETURN(RowsOfTurn passes,
                         PassesOf(config.run, catalogue.algorithms(), spec.layout));
  MACAW_ASSIGN_OR_RETURN(found.passed, MedianPassed(config, *dataset, std::move(passes)));
  found.traffic = server::FirstTraffic(config.run, *spec.layout);
  return found;
}

void PrintRow(const std::string& name, std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double q) {
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
  };
  std::cout << absl::StrFormat("%-22s", name);
  for (const double q : {0.0, 0.1, 0.5, 0.9, 1.0}) std::cout << absl::StrFormat("%12.4g", at(q));
  std::cout << "\n";
}

int ShowDevices(const DevicesCommand& command) {
  const absl::StatusOr<Shown> found = Open(command);
  if (!found.ok()) return Report(found.status());
  const virtual_time::Traffic traffic =
      command.bytes.has_value()
          ? virtual_time::Traffic{.down = *command.bytes, .up = *command.bytes}
          : found->traffic;
  const uint64_t seen = std::min(found->clients, kMostClients);
  const auto each = [&](const std::function<double(ClientId)>& value) {
    std::vector<double> values;
    values.reserve(seen);
    for (uint64_t i = 0; i < seen; ++i)
      values.push_back(value(ClientId(i * found->clients / seen)));
    return values;
  };
  const virtual_time::Devices& devices = *found->devices;
  const auto turn = [&](ClientId client) {
    return devices.TurnOf(Round(1), client, found->passed, traffic);
  };
  std::cout << "devices  " << found->tables << "\nclients  " << found->clients;
  if (seen < found->clients) std::cout << ", " << seen << " of them looked at";
  std::cout << absl::StrFormat(
      "\na turn   %.0f examples through the model (round 1, of the median client); %.0f bytes "
      "down, %.0f up\n",
      found->passed, traffic.down, traffic.up);
  std::cout << absl::StrFormat("\n%-22s%12s%12s%12s%12s%12s\n", "", "least", "10 %", "50 %", "90 %",
                               "most");
  PrintRow("examples a second",
           each([&](ClientId client) { return devices.Of(client).samples_per_s; }));
  PrintRow("kB a second down",
           each([&](ClientId client) { return devices.Of(client).down.mean / 1000; }));
  PrintRow("kB a second up",
           each([&](ClientId client) { return devices.Of(client).up.mean / 1000; }));
  PrintRow("seconds of a turn", each([&](ClientId client) { return turn(client).whole(); }));
  PrintRow("  download", each([&](ClientId client) { return turn(client).download; }));
  PrintRow("  work", each([&](ClientId client) { return turn(client).work; }));
  PrintRow("  upload", each([&](ClientId client) { return turn(client).upload; }));
  if (found->presence != nullptr) {
    PrintRow("% of time there",
             each([&](ClientId client) { return 100 * found->presence->ShareOn(client); }));
  }
  return kExitOk;
}

}  // namespace

void AddDevices(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "devices",
      "Show the devices of a configuration's clients, and how long the median client's turn takes on "
      "each");
  auto options = std::make_shared<DevicesCommand>();
  command->add_option("CONFIG", options->source, "A configuration with [devices]")->required();
  command->add_option("--set", options->set, "Change a key: section.key=value")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--bytes", options->bytes,
                   "Bytes that a client downloads, and uploads again, in a turn (default: down the "
                   "model's, up those of what is trained)")
      ->check(ZeroOrAbove());
  command->final_callback([=, &run] { run = [options] { return ShowDevices(*options); }; });
}

}  // namespace macaw::cli
