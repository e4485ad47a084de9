#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/process/exit.h"
#include "cli/results/stored_model.h"
#include "core/files.h"
#include "core/named_file.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "models/adapters.h"
#include "models/script.h"
#include "models/spec.h"

namespace macaw::cli {
namespace {

std::string ShapeText(const TensorRef& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]");
}

absl::Status Show(const std::string& path, const std::string& base) {
  MACAW_ASSIGN_OR_RETURN(const StoredModel model, OpenStoredModel(path, base));
  int name_width = 6, shape_width = 5;
  for (const auto& [name, tensor] : model.tensors) {
    name_width = std::max(name_width, static_cast<int>(name.size()));
    shape_width = std::max(shape_width, static_cast<int>(ShapeText(tensor).size()));
  }
  const auto line = [&](const std::string& name, const std::string& shape, absl::string_view type,
                        const std::string& bytes, absl::string_view part) {
    std::cout << absl::StrFormat("%-*s  %-*s  %-5s %14s  %s\n", name_width, name, shape_width,
                                 shape, type, bytes, part);
  };
  line("tensor", "shape", "type", "bytes", "part");
  uint64_t numbers = 0, frozen = 0, frozen_bytes = 0;
  for (const auto& [name, tensor] : model.tensors) {
    const bool is_frozen = model.frozen.contains(name);
    line(name, ShapeText(tensor), tensor.dtype, absl::StrCat(tensor.bytes.size()),
         is_frozen ? "base" : "trained");
    numbers += tensor.elements();
    if (!is_frozen) continue;
    frozen += tensor.elements();
    frozen_bytes += tensor.bytes.size();
  }
  std::cout << "file     " << model.file << "\n";
  std::cout << "numbers  " << numbers << " (" << numbers - frozen << " trained, " << frozen
            << " in the base)\n";
  std::cout << "bytes    " << model.bytes() << " (" << model.bytes() - frozen_bytes << " trained, "
            << frozen_bytes << " in the base)\n";
  return absl::OkStatus();
}

// The model of a run's configuration with the tensors of the file.
absl::StatusOr<FlatVector> VectorOf(const StoredModel& stored, const models::ModelSpec& spec) {
  FlatVector model(spec.layout);
  for (const LayoutEntry& entry : spec.layout->entries()) {
    const auto found = stored.tensors.find(entry.name);
    if (found == stored.tensors.end()) {
      return absl::NotFoundError(absl::StrCat(stored.file, " lacks the tensor \"", entry.name,
                                              "\" of the model of ", stored.run, "/config.toml"));
    }
    const TensorRef& tensor = found->second;
    const size_t width = SizeOf(spec.layout->dtype());
    const absl::string_view dtype = width == sizeof(float) ? "F32" : "F64";
    if (tensor.dtype != dtype || tensor.bytes.size() != entry.size * width) {
      return absl::InvalidArgumentError(absl::StrCat(
          stored.file, ": the tensor \"", entry.name, "\" has ", tensor.elements(), " numbers of ",
          tensor.dtype, ", the model of ", stored.run, "/config.toml ", entry.size, " of ", dtype));
    }
    std::ranges::copy(tensor.bytes, model.view().bytes.subspan(entry.offset * width).begin());
  }
  return model;
}

// The model as a run's configuration has it; its adapters are folded into their weights.
absl::Status WriteMerged(const StoredModel& stored, const std::string& out,
                         const std::map<std::string, std::string>& metadata) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(stored.run + "/config.toml"));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(document, {}, catalogue, Idle::kLeaveOut));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_ASSIGN_OR_RETURN(const FlatVector model, VectorOf(stored, spec));
  for (const LayoutEntry& entry : spec.layout->entries()) {
    if (!spec.adapters.empty() || !absl::StrContains(entry.name, ".lora_A.")) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        stored.file, " has adapters of a module (\"", entry.name,
        "\"), and their base is frozen in the module, in no file of the run: in Python "
        "run.module() has both, and run.module().merge_and_unload() folds them"));
  }
  if (spec.name == models::kScriptName) {
    std::cout << "note     parameters that the module freezes (requires_grad_(False)) stay in the "
                 "module, and are not in the file\n";
  }
  if (spec.adapters.empty()) return WriteModel(out, model.view(), metadata);
  MACAW_ASSIGN_OR_RETURN(const models::MergedModel merged, models::MergeAdapters(spec, model));
  return WriteModel(out, merged.model.view(), metadata);
}

// The tensors as they are: no configuration says more of them.
absl::Status WriteUnion(const StoredModel& stored, const std::string& out,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : stored.tensors) {
    if (absl::StrContains(name, ".lora_A.")) {
      return absl::FailedPreconditionError(absl::StrCat(
          stored.file, " has adapters (\"", name,
          "\"), and the run's config.toml says how they are folded: name its folder with --run"));
    }
    tensors.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  return WriteSafetensors(out, tensors, metadata);
}

absl::Status Merge(const std::string& path, const std::string& base, const std::string& run,
                   const std::string& out) {
  MACAW_ASSIGN_OR_RETURN(StoredModel stored, OpenStoredModel(path, base));
  if (!run.empty()) stored.run = run;
  const auto is_read = [&](const auto& file) {
    std::error_code ignored;
    return std::filesystem::equivalent(file->path(), out, ignored);
  };
  if (std::ranges::any_of(stored.storage, is_read))
    return absl::InvalidArgumentError(absl::StrCat(out, " is read: name another file with --out"));
  const std::map<std::string, std::string> metadata = {{"merged_from", stored.file}};
  MACAW_RETURN_IF_ERROR(WriteNamedFile(out, [&](const std::string& path) {
    return stored.run.empty() ? WriteUnion(stored, path, metadata)
                              : WriteMerged(stored, path, metadata);
  }));
  std::cout << "model    " << out << ", of " << stored.file << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddModel(CLI::App& app, std::function<int()>& run) {
  CLI::App* model = app.add_subcommand("model", "Look at a run's model, or write it as one file");
  model->require_subcommand(1);
  auto from = std::make_shared<std::string>(), base = std::make_shared<std::string>(),
       out = std::make_shared<std::string>(), folder = std::make_shared<std::string>();
  const auto add = [&](const std::string& name, const std::string& help) {
    CLI::App* command = model->add_subcommand(name, help);
    command
        ->add_option("FROM", *from,
                     "A run's folder, for its newest model, or a file: a model's, a checkpoint, or "
                     "trained.safetensors")
        ->required();
    command->add_option("--base", *base,
                        "The file with the frozen tensors; default: the run's base.safetensors");
    return command;
  };
  add("show", "Its tensors: shape, size, and whether they are trained")->final_callback([=, &run] {
    run = [=] { return Report(Show(*from, *base)); };
  });
  CLI::App* merge = add("merge",
                        "Write what is trained and its base as one model (safetensors), with "
                        "adapters folded into their weights");
  merge->add_option("--out,-o", *out, "The file to write")->required();
  merge->add_option("--run", *folder,
                    "The run's folder, whose config.toml has the model; default: that of FROM");
  merge->final_callback(
      [=, &run] { run = [=] { return Report(Merge(*from, *base, *folder, *out)); }; });
}

}  // namespace macaw::cli
