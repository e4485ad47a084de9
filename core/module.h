#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw {

// A shared library that this process has loaded. Movable. The destructor unloads it, unless Keep
// was called: no object of its types may be left then.
class Module {
 public:
  // Loads a file. Errors are the loader's words ("… cannot open shared object file").
  static absl::StatusOr<Module> Open(const std::string& file);
  // What ::dlopen has returned. For a library whose folder is named by the module that calls
  // ::dlopen (its RUNPATH), and not by the program.
  static absl::StatusOr<Module> Of(void* library);
  Module(Module&& other) noexcept : library_(std::exchange(other.library_, nullptr)) {}
  Module& operator=(Module&&) = delete;
  ~Module();

  // A function; null if there is none of this name.
  template <typename Function>
  Function* Find(const char* name) const {
    return reinterpret_cast<Function*>(Symbol(name));
  }
  // It stays loaded until the process ends.
  void Keep() && { library_ = nullptr; }

 private:
  explicit Module(void* library) : library_(library) {}
  void* Symbol(const char* name) const;

  void* library_;
};

// The error of a module that another build has made. `theirs` may be null.
absl::Status OtherBuild(const char* theirs, absl::string_view ours);

// Loads a module of ours and keeps it. Its function of this name returns an Entry, whose build_tag
// must be that of this program (core/build_tag.h): only then can the two exchange objects. `none`:
// what to say of a library without such a function. Errors are kFailedPrecondition and do not name
// the file.
template <typename Entry>
absl::StatusOr<const Entry*> LoadEntry(const std::string& file, const char* function,
                                       absl::string_view build_tag, absl::string_view none) {
  absl::StatusOr<Module> module = Module::Open(file);
  if (!module.ok()) return module.status();
  const auto entry = module->Find<const Entry*()>(function);
  if (entry == nullptr) return absl::FailedPreconditionError(none);
  const Entry* const made = entry();
  if (made == nullptr) return OtherBuild(nullptr, build_tag);
  if (made->build_tag != build_tag) return OtherBuild(made->build_tag, build_tag);
  std::move(*module).Keep();
  return made;
}

}  // namespace macaw
