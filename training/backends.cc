#include "training/backends.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/logging.h"
#include "core/module.h"
#include "core/status.h"
#include "device/collective.h"
#include "models/script.h"
#include "models/segments.h"
#include "training/fused/fused_trainer.h"
#include "training/sliced_trainer.h"
#include "training/statistics_trainer.h"

namespace macaw::training {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "libmacaw_", kSuffix[] = ".so";
constexpr char kMissing[] = "macaw/missing-backend";  // marks the status of IsMissingBackend

// Loads a module. It takes the symbols of Macaw's rooms from the program, so a process has one copy
// of each.
absl::StatusOr<const Backend*> LoadModule(const std::string& file) {
  const absl::StatusOr<const BackendEntry*> entry = LoadEntry<BackendEntry>(
      file, "macaw_backend", MACAW_BUILD_TAG, "it is no back end: it has no MACAW_BACKEND(…)");
  if (entry.ok()) return (*entry)->backend();
  return absl::FailedPreconditionError(
      absl::StrCat("back end ", file, ": ", entry.status().message()));
}

// Gives each plan to the first back end, or to the second one if the first cannot carry out its
// stages. The stages that LocalPlan::more adds are not asked.
class TwoTrainers final : public LocalTrainer {
 public:
  TwoTrainers(const TrainerSetup& setup, std::unique_ptr<LocalTrainer> fused, Backends& backends)
      : setup_(setup), fused_(std::move(fused)), backends_(backends) {}

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override {
    absl::Status fits;
    for (const Stage& stage : plan.stages) fits.Update(fused::Supports(stage));
    if (fits.ok()) return fused_->Run(plan, task);
    if (other_ == nullptr) {
      MACAW_ASSIGN_OR_RETURN(const Backend* const torch, backends_.Find(kTorchBackend));
      Logger("training").Info(absl::StrCat("backend=torch because \"", fits.message(), "\""));
      MACAW_ASSIGN_OR_RETURN(other_, torch->MakeTrainer(setup_));
    }
    return other_->Run(plan, task);
  }
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override {
    return fused_->Evaluate(model, rows, begin, end, batch);
  }
  std::string name() const override { return fused_->name(); }

 private:
  const TrainerSetup setup_;
  const std::unique_ptr<LocalTrainer> fused_;
  Backends& backends_;
  std::unique_ptr<LocalTrainer> other_;  // made by the first plan that needs it
};

}  // namespace

bool IsMissingBackend(const absl::Status& status) {
  return status.GetPayload(kMissing).has_value();
}

namespace {

// Whether computing activations again saves memory. Of a scripted module its trainer says it.
absl::Status CheckCheckpoint(const TrainerSetup& setup) {
  if (!setup.local.checkpoint) return absl::OkStatus();
  if (setup.spec.is_script() || models::SegmentsOf(setup.spec).save()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("local.checkpoint saves nothing on this model: with ", setup.spec.layers.size(),
                   setup.spec.layers.size() == 1 ? " layer" : " layers",
                   ", no segment keeps more than its input: take it out; local.micro_batch takes "
                   "less memory, too"));
}

// Keys that a program of the owner's leaves without an effect.
absl::Status CheckProgram(const TrainerSetup& setup) {
  const auto refuse = [](absl::string_view key, absl::string_view does, absl::string_view instead) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": a program of yours (workers.backend = \"process\", in Python train= and loss=) ",
        does, " itself: take it out, and ", instead));
  };
  const char* const passes = "makes its passes";
  if (setup.local.checkpoint) {
    return refuse("local.checkpoint", passes,
                  "let the program compute activations again (torch.utils.checkpoint; of Hugging "
                  "Face model.gradient_checkpointing_enable(), "
                  "TrainingArguments(gradient_checkpointing=True))");
  }
  if (setup.local.micro_batch > 0)
    return refuse("local.micro_batch", passes, "let the program pass fewer rows at a time");
  if (setup.local.precision != "full")
    return refuse("local.precision", passes, "let the program choose its numbers (torch.autocast)");
  if (!setup.spec.move_buffers && setup.spec.has_buffers()) {
    return refuse("model.buffers = \"server\"", "moves its running statistics",
                  "let the program keep them as they are (its norms in eval mode)");
  }
  return absl::OkStatus();
}

// What no back end can do, whatever is installed.
absl::Status CheckPasses(const TrainerSetup& setup) {
  if (setup.backend.name == kProcessBackend) return CheckProgram(setup);
  if (setup.local.precision != "full" && setup.dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("local.precision = \"", setup.local.precision,
                     "\" is of runs in float32: set run.dtype = \"float32\""));
  }
  MACAW_RETURN_IF_ERROR(CheckCheckpoint(setup));
  if (setup.local.micro_batch == 0) return absl::OkStatus();
  if (setup.hooks) {
    return absl::InvalidArgumentError(
        "local.micro_batch: the algorithm's local steps have hooks (a loss or a correction of its "
        "own), which look at whole batches: take it out");
  }
  if (setup.local.micro_batch == 1 && setup.spec.has_buffers()) {
    return absl::InvalidArgumentError(
        "local.micro_batch = 1: batch norm has no variance of one row; set 2 or more");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> BackendsFor(const TrainerSetup& setup) {
  MACAW_RETURN_IF_ERROR(CheckPasses(setup));
  if (setup.spec.name == models::kProgramsName && setup.backend.name != kProcessBackend) {
    return absl::InvalidArgumentError(
        "the run knows only the tensors of its model (model.tensors), which a program of yours can "
        "train: set workers.backend = \"process\" and workers.command");
  }
  const absl::Status fused = FusedBackend().Supports(setup);
  if (setup.backend.name == kFusedBackend) {
    if (!fused.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "workers.backend is \"fused\", but ", fused.message(), ": use \"auto\" or \"torch\""));
    }
    if (setup.hooks) {
      return absl::InvalidArgumentError(
          "workers.backend is \"fused\", but the algorithm's local steps have hooks (a loss or a "
          "correction of its own), which need LibTorch: use \"auto\" or \"torch\"");
    }
    return std::vector<std::string>{kFusedBackend};
  }
  if (setup.backend.name == kCudaBackend && setup.hooks) {
    return absl::InvalidArgumentError(
        "workers.backend is \"cuda\", but the algorithm's local steps have hooks (a loss or a "
        "correction of its own), which need LibTorch: use \"auto\" or \"torch\"");
  }
  if (setup.backend.name == kProcessBackend && setup.hooks) {
    return absl::InvalidArgumentError(
        "workers.backend is \"process\", but the algorithm's local steps have hooks (a loss or a "
        "correction of its own), which a program of yours does not know: use \"auto\" (in Python "
        "leave train= and loss= out), or an algorithm without, such as fedavg");
  }
  if (setup.slices &&
      (setup.backend.name == kCudaBackend || setup.backend.name == kProcessBackend)) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers.backend is \"", setup.backend.name,
                     "\", but the algorithm trains slices of the model, which the processor's own "
                     "back ends can: use \"auto\", \"fused\" or \"torch\""));
  }
  if (setup.statistics && setup.backend.name == kProcessBackend) {
    return absl::InvalidArgumentError(
        "workers.backend is \"process\", but the algorithm does not train: it sums over rows, which "
        "a program of yours keeps to itself: use \"auto\"");
  }
  if (setup.statistics && setup.feature_type == data::FeatureType::kI32) {
    return absl::InvalidArgumentError(
        "the algorithm sums over rows of numbers, and the data has tokens: use another algorithm");
  }
  if (setup.backend.name == kProcessBackend && setup.backend.program.command.empty()) {
    return absl::InvalidArgumentError(
        "workers.backend is \"process\", but workers.command is missing: the program to run, such "
        "as [\"python3\", \"train.py\"]");
  }
  if (setup.backend.name != "auto") return std::vector<std::string>{setup.backend.name};
  if (!fused.ok()) return std::vector<std::string>{kTorchBackend};
  if (setup.hooks) return std::vector<std::string>{kFusedBackend, kTorchBackend};
  return std::vector<std::string>{kFusedBackend};
}

std::string Backends::FolderBeside(const std::string& programs) {
  return (fs::path(programs) / ".." / "lib" / "macaw").lexically_normal().string();
}

absl::Status Backends::Missing(const std::string& name, absl::string_view why) const {
  std::error_code error;
  // The folder that `folder_` is lib/macaw of: a build folder, or where a package was installed.
  const bool built_here =
      fs::exists(fs::path(folder_).parent_path().parent_path() / "CMakeCache.txt", error);
  std::string text = absl::StrCat("there is no back end \"", name, "\" here");
  if (name == kTorchBackend) {
    text = absl::StrCat("the LibTorch back end is not installed here: ",
                        built_here ? "`./dev setup torch` fetches it (530 MB)"
                                   : "install the package macaw-backend-torch");
  }
  if (name == kCudaBackend) {
    text =
        absl::StrCat("the back end for NVIDIA GPUs is not installed here: ",
                     built_here ? "put nvcc of CUDA 12 or 13 into PATH, delete CMakeCache.txt and "
                                  "build again (MACAW_PRESET=cuda ./dev build)"
                                : "install the package macaw-backend-cuda");
  }
  absl::Status status =
      absl::FailedPreconditionError(absl::StrCat(why, why.empty() ? "" : ", and ", text));
  status.SetPayload(kMissing, absl::Cord(name));
  return status;
}

std::string Backends::FileOf(const std::string& name) const {
  if (absl::StrContains(name, '/')) return name;
  return absl::StrCat(folder_, "/", kPrefix, name, kSuffix);
}

bool Backends::IsInstalled(const std::string& name) const {
  if (name == kFusedBackend || name == kProcessBackend) return true;
  {
    const absl::MutexLock lock(&mutex_);
    if (loaded_.contains(name)) return true;
  }
  std::error_code error;
  return fs::exists(FileOf(name), error);
}

void Backends::Add(const Backend& backend) {
  const absl::MutexLock lock(&mutex_);
  loaded_.emplace(backend.name(), &backend);
}

absl::StatusOr<const Backend*> Backends::Find(const std::string& name) {
  if (name == kFusedBackend) return &FusedBackend();
  if (name == kProcessBackend) return &ProcessBackend();
  const bool installed = IsInstalled(name);
  const absl::MutexLock lock(&mutex_);
  if (const auto it = loaded_.find(name); it != loaded_.end()) return it->second;
  if (!installed) return Missing(name, absl::StrCat("it asks for \"", name, "\""));
  MACAW_ASSIGN_OR_RETURN(const Backend* const backend, LoadModule(FileOf(name)));
  loaded_.emplace(name, backend);
  return backend;
}

absl::Status Backends::CheckFor(const TrainerSetup& setup) const {
  return InstalledFor(setup).status();
}

absl::StatusOr<std::vector<std::string>> Backends::InstalledFor(const TrainerSetup& setup) const {
  MACAW_ASSIGN_OR_RETURN(std::vector<std::string> names, BackendsFor(setup));
  for (const std::string& name : names) {
    if (IsInstalled(name)) continue;
    const absl::Status fused = FusedBackend().Supports(setup);
    return Missing(name,
                   setup.backend.name != "auto" ? absl::StrCat("workers.backend is \"", name, "\"")
                   : fused.ok() ? "the algorithm's local steps have hooks, which need LibTorch"
                                : absl::StrCat("the fused kernels cannot train this run (",
                                               fused.message(), ")"));
  }
  return names;
}

absl::StatusOr<std::unique_ptr<LocalTrainer>> Backends::MakeTrainer(const TrainerSetup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> names, InstalledFor(setup));
  MACAW_ASSIGN_OR_RETURN(const Backend* const backend, Find(names.front()));
  if (setup.backend.name == "auto" && names.front() != kFusedBackend) {
    Logger("training")
        .Info(absl::StrCat("backend=", names.front(), " because \"",
                           FusedBackend().Supports(setup).message(), "\""));
  }
  if (const absl::Status fits = backend->Supports(setup); !fits.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the back end ", names.front(), " cannot train the run: ", fits.message()));
  }
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<LocalTrainer> trainer, backend->MakeTrainer(setup));
  if (setup.statistics) return std::make_unique<StatisticsTrainer>(setup, std::move(trainer));
  if (setup.slices) return std::make_unique<SlicedTrainer>(setup, std::move(trainer), *backend);
  if (setup.backend.name != "auto" || names.front() != kFusedBackend) return trainer;
  return std::make_unique<TwoTrainers>(setup, std::move(trainer), *this);
}

absl::StatusOr<const Backend*> Backends::FirstFor(const TrainerSetup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> names, InstalledFor(setup));
  return Find(names.front());
}

absl::StatusOr<uint32_t> Backends::LanesFor(const TrainerSetup& setup, uint32_t slots) {
  MACAW_ASSIGN_OR_RETURN(const Backend* const backend, FirstFor(setup));
  return backend->LanesFor(setup, slots);
}

absl::StatusOr<uint32_t> Backends::DevicesFor(const BackendChoice& choice) {
  if (choice.name == "auto") return 0;
  MACAW_ASSIGN_OR_RETURN(const Backend* const backend, Find(choice.name));
  return backend->DevicesFor(choice);
}

absl::StatusOr<std::unique_ptr<device::Collective>> Backends::MakeCollective(
    const TrainerSetup& setup, std::vector<device::Device*> devices) {
  MACAW_ASSIGN_OR_RETURN(const Backend* const backend, FirstFor(setup));
  return backend->MakeCollective(std::move(devices));
}

absl::StatusOr<NumericProfile> Backends::ProfileOf(const TrainerSetup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> names, InstalledFor(setup));
  MACAW_ASSIGN_OR_RETURN(const Backend* const backend, Find(names.front()));
  MACAW_ASSIGN_OR_RETURN(NumericProfile profile, backend->Profile(setup));
  for (size_t i = 1; i < names.size(); ++i) {
    MACAW_ASSIGN_OR_RETURN(const Backend* const other, Find(names[i]));
    MACAW_ASSIGN_OR_RETURN(const NumericProfile theirs, other->Profile(setup));
    absl::StrAppend(&profile.libraries, ", ", theirs.libraries, ", ", theirs.instruction_set);
  }
  return profile;
}

std::vector<std::string> Backends::Installed() const {
  std::vector<std::string> modules;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    const std::string name = file.path().filename().string();
    absl::string_view middle = name;
    if (absl::ConsumePrefix(&middle, kPrefix) && absl::ConsumeSuffix(&middle, kSuffix))
      modules.emplace_back(middle);
  }
  std::ranges::sort(modules);
  modules.insert(modules.begin(), {kFusedBackend, kProcessBackend});
  return modules;
}

}  // namespace macaw::training
