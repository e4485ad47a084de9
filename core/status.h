#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

// Functions report errors as absl::Status. A message says what went wrong, with which object, and
// what to do. Exceptions of libraries are caught once, in the room that calls the library.

#define MACAW_CONCAT_INNER(a, b) a##b
#define MACAW_CONCAT(a, b) MACAW_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` (a Status) is not OK.
#define MACAW_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                     \
    if (absl::Status macaw_status = (expression); !macaw_status.ok()) return macaw_status; \
  } while (false)

// MACAW_ASSIGN_OR_RETURN(auto x, MakeX()): assigns the value of a StatusOr, or returns its error.
#define MACAW_ASSIGN_OR_RETURN(declaration, expression) \
  MACAW_ASSIGN_OR_RETURN_INNER(MACAW_CONCAT(macaw_status_or_, __LINE__), declaration, expression)
#define MACAW_ASSIGN_OR_RETURN_INNER(status_or, declaration, expression) \
  auto status_or = (expression);                                         \
  if (!status_or.ok()) return std::move(status_or).status();             \
  declaration = *std::move(status_or)

namespace macaw {

// Puts the place of an error in front of its message and keeps its code: Annotate(s, "client 7") ->
// "client 7: ...".
inline absl::Status Annotate(const absl::Status& status, absl::string_view where) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace macaw
