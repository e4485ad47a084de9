#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "algorithms/around/registry.h"

namespace macaw::algorithms {

// Wraps every call into a rule's code: an exception becomes an Internal error that names the
// algorithm and its plug-in, so it ends the run in order and not the process. (A crash still ends
// the process, because a rule runs in the worker's address space.) So is a client's result whose
// vectors up do not fit the rule's schema: what stands around the rule may read them.
Description Guard(Description description);

// What messages call it: "algorithm mime", "plug-in \"moon\", algorithm lunar".
std::string WhoseOf(const Description& description);

// Calls `f`, which returns a Status or a StatusOr. If it throws, returns an error of that type that
// begins with `whose`.
template <typename F>
auto Caught(absl::string_view whose, F&& f) -> decltype(f()) {
  const auto failed = [&](absl::string_view what) {
    return absl::InternalError(absl::StrCat(whose, ": ", what));
  };
  try {
    return f();
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("threw something that is no std::exception");
  }
}

}  // namespace macaw::algorithms
