#include "core/module.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace macaw {

absl::StatusOr<Module> Module::Open(const std::string& file) {
  return Of(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
}

absl::StatusOr<Module> Module::Of(void* library) {
  if (library != nullptr) return Module(library);
  const char* const why = ::dlerror();
  return absl::FailedPreconditionError(why == nullptr ? "it cannot be loaded" : why);
}

Module::~Module() {
  if (library_ != nullptr) ::dlclose(library_);
}

void* Module::Symbol(const char* name) const { return ::dlsym(library_, name); }

absl::Status OtherBuild(const char* theirs, absl::string_view ours) {
  return absl::FailedPreconditionError(absl::StrCat(
      "it was built for (", theirs == nullptr ? "none" : theirs, "), this program is (", ours,
      "): build it again with this release's SDK and "
      "its compiler"));
}

}  // namespace macaw
