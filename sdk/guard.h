#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "algorithms/api/registry.h"

namespace macaw::sdk {

// Wraps every call into the plug-in's code: an exception becomes an error that names the plug-in,
// so it ends the round and not the process. (A crash still ends the process, because a plug-in runs
// in the worker's address space.)
algorithms::Description Guard(algorithms::Description description, const std::string& plugin);

// Calls `f`, which returns a Status or a StatusOr. If it throws, returns an error of that type.
template <typename F>
auto Caught(const std::string& plugin, F&& f) -> decltype(f()) {
  const auto failed = [&](absl::string_view what) {
    return absl::InternalError(absl::StrCat("plug-in \"", plugin, "\": ", what));
  };
  try {
    return f();
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("threw something that is no std::exception");
  }
}

}  // namespace macaw::sdk
