#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/build_tag.h"
#include "core/module.h"
#include "core/status.h"
#include "data/hdf5/file.h"

namespace macaw::data {
namespace {

namespace fs = std::filesystem;

// Beside the back ends (training/backends.h), whose folder has nothing but back ends.
std::string ModulePath() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / ".." / "lib" / "macaw" / "data" / "libmacaw_hdf5.so")
      .lexically_normal()
      .string();
}

absl::StatusOr<const Hdf5Entry*> LoadHdf5() {
  const std::string file = ModulePath();
  std::error_code error;
  if (!fs::exists(file, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("data.source = \"hdf5\" needs the module ", file,
                     ", which is not there: beside Debian's packages install the package "
                     "macaw-data-hdf5, or where you have built Macaw yourself libhdf5-dev (then "
                     "delete CMakeCache.txt and build again). A Python wheel has no such module: "
                     "write the rows with numpy.savez (data.source = \"npz\")"));
  }
  const absl::StatusOr<const Hdf5Entry*> entry =
      LoadEntry<Hdf5Entry>(file, "macaw_hdf5", MACAW_BUILD_TAG, "it is no reader of HDF5");
  if (entry.ok()) return entry;
  return absl::FailedPreconditionError(absl::StrCat(file, ": ", entry.status().message()));
}

}  // namespace

absl::StatusOr<const Hdf5Entry*> Hdf5Module() {
  static const auto* const entry = new absl::StatusOr<const Hdf5Entry*>(LoadHdf5());
  return *entry;
}

absl::StatusOr<std::unique_ptr<Hdf5File>> OpenHdf5(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const Hdf5Entry* const module, Hdf5Module());
  return module->open(path);
}

}  // namespace macaw::data
