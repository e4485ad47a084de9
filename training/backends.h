#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "training/api/backend.h"

namespace macaw::training {

inline constexpr char kFusedBackend[] = "fused";
inline constexpr char kTorchBackend[] = "torch";
inline constexpr char kProcessBackend[] = "process";
inline constexpr char kCudaBackend[] = "cuda";

// The back ends that are part of every program here: training/fused, and training/process, which
// hands the work to a program of the owner's.
const Backend& FusedBackend();
const Backend& ProcessBackend();

// Which back ends train a run: the first one, and for stages that it cannot carry out (hooks) the
// second, if there is one. TrainerSetup::backend names the first. "auto" is "fused" where that
// supports the run, else "torch". The choice depends on the setup alone and never on what is
// installed, because it decides the bits of the result. An error says why the named one cannot
// train the run.
absl::StatusOr<std::vector<std::string>> BackendsFor(const TrainerSetup& setup);

// The back ends that this process can use. A module is loaded when it is first asked for, and stays
// loaded until the process ends. Thread-safe.
class Backends {
 public:
  // `folder` has the modules, as libmacaw_NAME.so.
  explicit Backends(std::string folder) : folder_(std::move(folder)) {}
  // In an installation and in a build folder, modules lie in ../lib/macaw of the programs' folder.
  static std::string FolderBeside(const std::string& programs);

  // Adds one that is part of this program, under its own name.
  void Add(const Backend& backend);

  // A name, or the path of a module (with a slash). If there is no such module, the error is
  // Missing's. Other errors say what is wrong with the file.
  absl::StatusOr<const Backend*> Find(const std::string& name);
  // Whether what BackendsFor names can be found. Loads nothing. The error of a missing back end
  // also says why the run needs it.
  absl::Status CheckFor(const TrainerSetup& setup) const;
  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(const TrainerSetup& setup);
  // Backend::LanesFor of the back end that trains the run.
  absl::StatusOr<uint32_t> LanesFor(const TrainerSetup& setup, uint32_t slots);
  // Backend::DevicesFor of the back end that the node's file names; "auto" has none.
  absl::StatusOr<uint32_t> DevicesFor(const BackendChoice& choice);
  // Backend::MakeCollective of the same back end.
  absl::StatusOr<std::unique_ptr<device::Collective>> MakeCollective(
      const TrainerSetup& setup, std::vector<device::Device*> devices);
  // The profile of the trainers that MakeTrainer makes.
  absl::StatusOr<NumericProfile> ProfileOf(const TrainerSetup& setup);

  // The error of a run that needs a back end which is not installed; it says how to get it. `why`:
  // the reason why the run needs it, or empty.
  absl::Status Missing(const std::string& name, absl::string_view why) const;

  // The names of those that can be found here, "fused" and "process" first.
  std::vector<std::string> Installed() const;

 private:
  // The first of those that train the run.
  absl::StatusOr<const Backend*> FirstFor(const TrainerSetup& setup);
  // What BackendsFor names, as CheckFor.
  absl::StatusOr<std::vector<std::string>> InstalledFor(const TrainerSetup& setup) const;
  std::string FileOf(const std::string& name) const;
  bool IsInstalled(const std::string& name) const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string folder_;
  mutable absl::Mutex mutex_;
  std::map<std::string, const Backend*> loaded_ ABSL_GUARDED_BY(mutex_);  // by name
};

// Whether it is the error of Backends::Missing.
bool IsMissingBackend(const absl::Status& status);

}  // namespace macaw::training
