#include "cli/config/config.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace macaw::cli {

using settings::Role;
using settings::Section;

namespace {

// The order of the tables in a file. Keys without a table come first, as TOML wants it.
constexpr absl::string_view kTables[] = {
    "",           "run",     "data",      "partition", "model",  "algorithm", "attack",
    "privacy",    "update",  "broadcast", "cohort",    "round",  "devices",   "local",
    "evaluation", "workers", "emulation", "scheduler", "server", "node",      "state"};

size_t TableOf(absl::string_view key) {
  const size_t dot = key.find('.');
  const absl::string_view table = dot == key.npos ? "" : key.substr(0, dot);
  return static_cast<size_t>(std::find(std::begin(kTables), std::end(kTables), table) -
                             std::begin(kTables));
}

template <typename S>
settings::Field<S>& FieldOf(std::vector<settings::Field<S>>& fields, absl::string_view key) {
  return *std::ranges::find(fields, key, &settings::Field<S>::key);
}

// What keys need of the keys of other rooms. A need of the same room's keys is in its own list.
void AddNeedsOfANode(std::vector<settings::Field<NodeConfig>>& fields) {
  for (const char* key : {"partition.clients", "partition.min_size", "partition.seed"}) {
    FieldOf(fields, key)
        .Needs(
            [](const NodeConfig& node) {
              return node.data.source != "synthetic" && node.data.source != "declared";
            },
            "data that a partition divides: clients of data.source = \"synthetic\" and \"declared\" "
            "have their own rows");
  }
  for (const char* key : {"data.central_val_fraction", "data.client_test_fraction",
                          "data.val_fraction", "data.heldout_clients", "data.heldout_tuning"}) {
    FieldOf(fields, key)
        .Needs(
            [](const NodeConfig& node) { return node.partition.scheme != "file"; },
            "partition.scheme other than \"file\": the partition's file gives these rows itself");
  }
}

void AddNeedsOfDevices(std::vector<Field>& fields) {
  FieldOf(fields, "devices.file")
      .Needs([](const Config& config) { return config.run.devices.family == "file"; },
             "devices.family = \"file\"");
  FieldOf(fields, "devices.presence")
      .Needs([](const Config& config) { return config.run.devices.on(); },
             "devices.family other than \"none\"")
      .Needs([](const Config& config) { return config.run.cohort.sampling == "available"; },
             "cohort.sampling = \"available\"");
  FieldOf(fields, "devices.assign")
      .Needs(
          [](const Config& config) {
            return config.run.devices.family == "file" || !config.node.devices_presence.empty();
          },
          "a table: devices.family = \"file\" or devices.presence");
  for (const char* key :
       {"penalty", "round_threshold", "pacer_step", "pacer_delta", "sample_window"}) {
    FieldOf(fields, absl::StrCat("cohort.oort.", key))
        .Needs([](const Config& config) { return config.run.devices.on(); },
               "devices.family other than \"none\", which says how long a client's turn takes");
  }
  for (const char* key :
       {"cohort.availability", "cohort.availability_swing", "cohort.availability_day"}) {
    FieldOf(fields, key)
        .Needs([](const Config& config) { return config.node.devices_presence.empty(); },
               "a draw of who is available: devices.presence says it");
  }
  for (const char* key : {"cohort.device_spread", "cohort.round_spread"}) {
    FieldOf(fields, key)
        .Needs([](const Config& config) { return !config.run.devices.on(); },
               "devices.family = \"none\": with devices, their turns say who reports first");
  }
}

void AddNeedsOfARun(std::vector<Field>& fields) {
  FieldOf(fields, "data.heldout_tuning")
      .Needs(
          [](const Config& config) {
            const EvaluationConfig& evaluation = config.run.evaluation;
            return evaluation.heldout && evaluation.fine_tune.steps > 0;
          },
          "evaluation.heldout = true and evaluation.fine_tune.steps, which use those rows");
  FieldOf(fields, "model.seed")
      .Needs(
          [](const Config& config) {
            const bool drawn = config.node.model_init.empty() && config.node.model_script.empty();
            return drawn || !config.run.model.adapters.empty();
          },
          "initial weights that are drawn: model.init and model.torchscript give their own, but "
          "for adapters");
  AddNeedsOfDevices(fields);
}

}  // namespace

Section<NodeConfig> NodeSection(const std::vector<std::string>& data_sources) {
  using N = NodeConfig;
  Section<N> f;
  settings::Field<N>& plugins =
      f.Add("plugins", &N::plugins,
            "shared libraries that add algorithms, models, data; rules in Python (.py)")
          .As(Role::kLabel)
          .Expecting("a list of paths");
  plugins.is_path = true;
  f.AddSection("data", &N::data, data::DataSection(data_sources));
  f.AddSection("partition", &N::partition, data::PartitionSection());
  f.AddPath("model.torchscript", &N::model_script,
            "scripted module (torch.jit.save) with its first weights, instead of model.name")
      .InsteadOf({"model.name", "model.layers"})
      .As(Role::kResult);
  f.AddPath(
       "model.init", &N::model_init,
       "safetensors file of the first weights ({seed} in its path is model.seed), or \"zero\"; "
       "default: from the seed")
      .OrWord("zero")
      .Expecting("a path (a string) | \"zero\"")
      .As(Role::kResult);
  f.AddPath("devices.file", &N::devices_file,
            "table of devices, CSV with the columns samples_per_s, down_kB_s, up_kB_s; optional: "
            "device (a name), down_sd_kB_s, up_sd_kB_s")
      .As(Role::kResult);
  f.AddPath("devices.presence", &N::devices_presence,
            "table of when devices are there, CSV with the columns device, on_s, off_s, period_s, "
            "an interval a row; default: cohort.availability says how many are there")
      .As(Role::kResult);
  f.AddSection("", &N::workers, worker::WorkersSection());
  f.AddSection("", &N::server, server::ServerSection());
  f.AddSection("", &N::track, TrackSection());
  f.AddSection("", &N::fleet, worker::FleetSection());
  f.AddSection("state", &N::state, state::StateSection());
  AddNeedsOfANode(f.fields());
  return f;
}

std::vector<Field> FieldsWith(const std::vector<std::string>& data_sources) {
  // In a table of both, the plan's keys are first, but for [data]: its source is.
  Section<NodeConfig> node = NodeSection(data_sources);
  Section<Config> all;
  Section<Config> plan;
  plan.AddSection("", &Config::run, PlanSection());
  for (const Field& field : plan.fields()) {
    if (field.in_file && !absl::StartsWith(field.key, "data.")) all.fields().push_back(field);
  }
  all.AddSection("", &Config::node, node);
  for (const Field& field : plan.fields()) {
    if (field.in_file && absl::StartsWith(field.key, "data.")) all.fields().push_back(field);
  }
  AddNeedsOfARun(all.fields());
  std::ranges::stable_sort(all.fields(), {}, [](const Field& field) { return TableOf(field.key); });
  return std::move(all.fields());
}

const std::vector<Field>& AllFields() {
  static const auto* const fields = new std::vector<Field>(FieldsWith({}));
  return *fields;
}

}  // namespace macaw::cli
